//! `trishanku up` and `trishanku run`: in the foreground, with `--detach`, and as the background supervisor itself.

use std::fs::OpenOptions;
use std::process::ExitCode;

use anyhow::Context;
use trishanku::plane::supervisor::Notice;
use trishanku::plane::{Home, SUPERVISOR, State};
use trishanku::up::{Progress, Up, UpError, What};

use crate::console::{Console, Tour};
use crate::{args, detach, lint, stops};

pub(crate) async fn up(options: &args::Up, home: Home, program: String) -> anyhow::Result<ExitCode> {
    lint::reject_unknown_fields(&options.filename)?;
    let adaptations = options.adapt.adaptations(&options.filename)?;
    let what = match (options.central, options.topology) {
        (true, _) => What::Central { store: options.store, storage_media_type: options.storage_media_type.clone() },
        (false, Some(topology)) => What::Headless(topology, adaptations),
        (false, None) => What::Anything(adaptations),
    };
    start(what, &options.supervise, home, program).await
}

pub(crate) async fn run(options: &args::Run, home: Home, program: String) -> anyhow::Result<ExitCode> {
    lint::reject_unknown_fields(&options.filename)?;
    let what = What::Manifests(options.adapt.adaptations(&options.filename)?);
    start(what, &options.supervise, home, program).await
}

async fn start(what: What, options: &args::Supervise, home: Home, program: String) -> anyhow::Result<ExitCode> {
    let up = Up {
        home: home.clone(),
        assets: options.assets.clone(),
        gitcd: options.gitcd.clone(),
        what,
        audit: options.audit.map(|switch| switch == args::Switch::On),
        ready_within: options.ready_within,
    };
    if options.detach {
        let running = State::load(&home.state_file())?;
        if running.is_supervised() {
            up.compare(&running).map_err(|error| explained(error, &program))?;
            let mut console = Console::terminal();
            console.say(&"Already running");
            show_tour(&mut console, &home, program, true);
            return Ok(detach::started(&home)?);
        }
        return detach::start(&home, &mut stops::requests(false)?).await;
    }
    let mut console = match options.in_background {
        None => Console::terminal(),
        Some(colour) => {
            // A session of its own, so that closing the terminal does not stop it.
            rustix::process::setsid().context("cannot leave the terminal")?;
            let log = home.log(SUPERVISOR);
            let log = OpenOptions::new().create(true).append(true).open(log)?;
            Console::background(colour, log)
        }
    };
    let mut stops = stops::requests(options.until_stdin_closes)?;
    console.say(&format_args!("Bringing up {}", home.dir().display()));
    let in_background = options.in_background.is_some();
    let outcome = up.run(&mut stops, |progress| {
        console.progress(&progress);
        if let Progress::Plane(Notice::AllReady { .. } | Notice::Degraded { .. } | Notice::StandingBy { .. }) = progress
        {
            show_tour(&mut console, &home, program.clone(), in_background);
            if in_background {
                console.release_starter();
            }
        }
    });
    match outcome.await {
        // The process that started it reads only this pipe.
        Err(error) if in_background => {
            console.fail(&explained(error, &program));
            Ok(ExitCode::FAILURE)
        }
        Err(error) => Err(explained(error, &program)),
        Ok(()) => Ok(ExitCode::SUCCESS),
    }
}

/// Adds the command line that selects this control plane.
fn explained(error: UpError, program: &str) -> anyhow::Error {
    match error {
        UpError::RunsOthers { .. } => {
            anyhow::anyhow!("already running other manifests; nothing changed. Run \"{program} down\" first.")
        }
        error => error.into(),
    }
}

fn show_tour(console: &mut Console, home: &Home, program: String, in_background: bool) {
    // The supervisor has just written it; if it cannot be read, the tour is shorter.
    let state = State::load(&home.state_file()).unwrap_or_default();
    console.say(&Tour { home, state: &state, program, in_background });
}
