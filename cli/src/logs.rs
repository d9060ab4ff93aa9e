//! `trishanku logs`: prints the logs of components, and follows them.

mod changes;
mod file;
mod lines;
mod printer;
mod selection;
mod tail;

use std::io::{self, Write};
use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::{Context as _, bail};
use clap::Args;
use trishanku::plane::{Home, SUPERVISOR, State, log};

use self::changes::{Changes, Woken};
use self::file::LogFile;
use self::printer::Printer;
use self::selection::{Selected, Selection};

#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  trishanku logs                          all components, each line with its component
  trishanku logs desk/kube-apiserver      one component
  trishanku logs desk --follow --tail=5   all components of a heaven, and what they write later
  trishanku logs desk/gitcd --previous    the log before the last start

Each log starts when the control plane starts, and when it exceeds 16 MiB; --previous prints the one
before. The logs of a control plane that is stopped are those of its last run. Escape sequences and
bytes that are not UTF-8 are removed or replaced; `log/` in the state folder has the files as they
were written. For the history of objects, see `trishanku log`.")]
pub(crate) struct Logs {
    /// Component as in `trishanku status`, or a heaven or merge for all of its components [default: all]
    #[arg(value_name = "COMPONENT")]
    components: Vec<String>,
    /// Print new lines as they are written, also after rotations and restarts, until Ctrl-C
    #[arg(long, short)]
    follow: bool,
    /// Start with the last N lines of each log [default: all lines]
    #[arg(long, value_name = "N")]
    tail: Option<u64>,
    /// Print the log before the last start or rotation
    #[arg(long, short, conflicts_with = "follow")]
    previous: bool,
}

/// Prints logs.
///
/// # Errors
/// There is no such component, or no log of it; a log cannot be read.
pub(crate) fn run(home: &Home, heaven: Option<&str>, options: &Logs) -> anyhow::Result<ExitCode> {
    let selection = Selection { names: &options.components, heaven };
    // Before the first read, so that no change after it is missed.
    let changes = options.follow.then(|| Changes::of(&home.logs()));
    let Selected { components, is_labelled } = select(home, &selection)?;
    let mut printer = Printer::new(io::BufWriter::new(trishanku_stdio::stdout()), is_labelled, &components);
    let mut logs = Vec::new();
    for name in components {
        let path = home.log(&name);
        let path = if options.previous { log::previous(&path) } else { path };
        let mut log = LogFile::new(path.clone());
        log.open(options.tail)
            .and_then(|()| log.read(&mut |line| printer.line(&name, line)))
            .with_context(|| format!("cannot read the log {}", path.display()))?;
        if !options.follow {
            log.finish(&mut |line| printer.line(&name, line))?;
        }
        logs.push((name, log));
    }
    printer.flush()?;
    let Some(changes) = changes else {
        if logs.iter().all(|(_, log)| !log.exists()) {
            let which = if options.previous { "previous log" } else { "log" };
            let names: Vec<&str> = logs.iter().map(|(name, _)| name.as_str()).collect();
            bail!("there is no {which} of {} in {}", names.join(", "), home.logs().display());
        }
        return Ok(ExitCode::SUCCESS);
    };
    follow(home, &selection, &changes, logs, &mut printer)
}

/// Prints what is written from now on, until Ctrl-C ends the process, the reader is gone, or the logs are removed.
fn follow(
    home: &Home,
    selection: &Selection<'_>,
    changes: &Changes,
    mut logs: Vec<(String, LogFile)>,
    printer: &mut Printer<impl Write>,
) -> anyhow::Result<ExitCode> {
    loop {
        match changes.wait()? {
            Woken::ReaderGone => return Ok(ExitCode::SUCCESS),
            // After a start with other manifests there may be other components. The state names them before they write.
            Woken::Created => {
                let known: Vec<PathBuf> = logs.iter().map(|(_, log)| log.path().to_owned()).collect();
                let components = select(home, selection).map_or_else(|_| Vec::new(), |selected| selected.components);
                for name in components {
                    let path = home.log(&name);
                    if !known.contains(&path) {
                        printer.add(&name);
                        logs.push((name, LogFile::new(path)));
                    }
                }
            }
            Woken::Changed => {}
        }
        for (name, log) in &mut logs {
            log.advance(&mut |line| printer.line(name, line))
                .with_context(|| format!("cannot read the log {}", log.path().display()))?;
        }
        printer.flush()?;
        if !home.logs().is_dir() {
            trishanku_stdio::eprintln!("trishanku: the logs in {} were removed", home.logs().display());
            return Ok(ExitCode::SUCCESS);
        }
    }
}

/// Finds the components whose logs are meant.
fn select(home: &Home, selection: &Selection<'_>) -> anyhow::Result<Selected> {
    let state = State::load(&home.state_file())?;
    let mut known: Vec<String> = state.components.into_iter().map(|component| component.name).collect();
    // A control plane in the foreground has none.
    if home.log(SUPERVISOR).is_file() {
        known.insert(0, SUPERVISOR.to_owned());
    }
    if known.is_empty() {
        bail!("there are no logs in {}: no control plane was started there", home.dir().display());
    }
    selection.of(&known)
}
