//! `trishanku up`: in the foreground, with `--detach`, and as the background supervisor itself.

use std::fs::OpenOptions;
use std::process::ExitCode;

use anyhow::Context;
use trishanku::plane::supervisor::Notice;
use trishanku::plane::{Home, State};
use trishanku::up::{Progress, Up, UpError, What};

use crate::console::{Console, Tour};
use crate::{args, detach, stops};

pub(crate) async fn up(options: &args::Up, home: Home, program: String) -> anyhow::Result<ExitCode> {
    let adaptations = options.adapt.adaptations(&options.filename)?;
    let what = match (options.central, options.topology) {
        (true, _) => What::Central { store: options.store, storage_media_type: options.storage_media_type.clone() },
        (false, Some(topology)) => What::Headless(topology, adaptations),
        (false, None) => What::Anything(adaptations),
    };
    start(what, &options.supervise, home, program).await
}

pub(crate) async fn run(options: &args::Run, home: Home, program: String) -> anyhow::Result<ExitCode> {
    let what = What::Manifests(options.adapt.adaptations(&options.filename)?);
    start(what, &options.supervise, home, program).await
}

async fn start(what: What, options: &args::Supervise, home: Home, program: String) -> anyhow::Result<ExitCode> {
    if options.detach {
        if State::load(&home.state_file())?.is_supervised() {
            if what.asks_for_files() {
                return Err(UpError::AlreadyRunning { dir: home.dir().into() }.into());
            }
            let mut console = Console::terminal();
            console.say(&match what {
                What::Manifests(_) => "Already running with the files given at its start; nothing changed",
                _ => "Already running",
            });
            show_tour(&mut console, &home, program, true);
            return Ok(ExitCode::SUCCESS);
        }
        return detach::start(&home, &mut stops::requests(false)?).await;
    }
    let mut console = match options.in_background {
        None => Console::terminal(),
        Some(colour) => {
            // A session of its own, so that closing the terminal does not stop it.
            rustix::process::setsid().context("cannot leave the terminal")?;
            let log = home.log("supervisor");
            let log = OpenOptions::new().create(true).append(true).open(log)?;
            Console::background(colour, log)
        }
    };
    let mut stops = stops::requests(options.until_stdin_closes)?;
    console.say(&format_args!("Bringing up {}", home.dir().display()));
    let up = Up {
        home: home.clone(),
        assets: options.assets.clone(),
        gitcd: options.gitcd.clone(),
        what,
        ready_within: options.ready_within,
    };
    let in_background = options.in_background.is_some();
    let outcome = up.run(&mut stops, |progress| {
        console.progress(&progress);
        if matches!(progress, Progress::Plane(Notice::AllReady { .. } | Notice::StandingBy { .. })) {
            show_tour(&mut console, &home, program.clone(), in_background);
            if in_background {
                console.release_starter();
            }
        }
    });
    match outcome.await {
        // The process that started it reads only this pipe.
        Err(error) if in_background => {
            console.fail(&error.into());
            Ok(ExitCode::FAILURE)
        }
        Err(error) => Err(error.into()),
        Ok(()) => Ok(ExitCode::SUCCESS),
    }
}

fn show_tour(console: &mut Console, home: &Home, program: String, in_background: bool) {
    // The supervisor has just written it; if it cannot be read, the tour is shorter.
    let state = State::load(&home.state_file()).unwrap_or_default();
    console.say(&Tour { home, state: &state, program, in_background });
}
