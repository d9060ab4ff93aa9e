//! Messages to the user while a control plane starts, runs and stops.

use std::fmt::Display;
use std::fs::File;
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::time::Duration;

use anstream::AutoStream;
use anstream::stream::{AsLockedWrite, RawStream};
use trishanku::heavens::{Ignored, Remark};
use trishanku::plane::process::Ended;
use trishanku::plane::state::Form;
use trishanku::plane::supervisor::{Failure, Notice};
use trishanku::plane::{Home, State};
use trishanku::up::Progress;
use trishanku_stdio::text::quoted;

use crate::args::Colour;
use crate::plugin;
use crate::styles::{BAD, DIM, GOOD, STRONG, WARN};

/// Writes messages to one or two destinations.
pub(crate) struct Console {
    sinks: Vec<Box<dyn Write>>,
    in_background: bool,
    /// The component that was restarted last, and why.
    last_restart: Option<(String, String)>,
}

impl Console {
    /// Standard output, with colours if it is a terminal.
    pub(crate) fn terminal() -> Self {
        Self { sinks: vec![Box::new(anstream::stdout())], in_background: false, last_restart: None }
    }

    /// For a supervisor in the background: writes to the pipe to its starter, and to its own log.
    pub(crate) fn background(colour: Colour, log: File) -> Self {
        let choice = match colour {
            Colour::Always => anstream::ColorChoice::Always,
            Colour::Never => anstream::ColorChoice::Never,
        };
        Self {
            sinks: vec![stream(io::stdout(), choice), stream(log, anstream::ColorChoice::Never)],
            in_background: true,
            last_restart: None,
        }
    }

    /// Closes standard output, so that the starter reads its end; from now on only the log is written.
    pub(crate) fn release_starter(&mut self) {
        let nowhere = File::options().write(true).open("/dev/null");
        let released = nowhere.and_then(|file| Ok(rustix::stdio::dup2_stdout(&file)?));
        self.sinks.remove(0);
        if let Err(error) = released {
            self.say(&format_args!("{WARN}warning:{WARN:#} cannot close standard output: {error}"));
        }
    }

    /// Prints one or more lines.
    pub(crate) fn say(&mut self, text: &dyn Display) {
        for sink in &mut self.sinks {
            // There is nowhere to report a failed write: the process that started the supervisor may have exited.
            let _unread = writeln!(sink, "{text}").and_then(|()| sink.flush());
        }
    }

    /// Prints an error with all its causes.
    pub(crate) fn fail(&mut self, error: &anyhow::Error) {
        self.say(&format_args!("{BAD}error:{BAD:#} {error:#}"));
    }

    /// Prints a line of progress.
    pub(crate) fn progress(&mut self, progress: &Progress) {
        match progress {
            Progress::EndedLeftover(left) => self.say(&format_args!(
                "{WARN}ended{WARN:#} {} (process {}), left from an earlier run",
                left.name, left.pid
            )),
            Progress::PortMoved(moved) => self.say(&format_args!(
                "{WARN}moved{WARN:#} {} from port {} to {}: another program uses the old one",
                moved.component, moved.from, moved.to
            )),
            Progress::Issued(subjects) => {
                self.say(&format_args!("  {DIM}certificates issued: {}{DIM:#}", subjects.join(", ")));
            }
            Progress::Remark(remark) => self.remark(remark),
            Progress::LeftOut(heaven) => self
                .say(&format_args!("  {heaven} is not started: give its --filename again; its branch stays as it is")),
            Progress::Plane(notice) => self.notice(notice),
            _ => self.say(&format_args!("{progress:?}")),
        }
    }

    fn remark(&mut self, remark: &Remark) {
        match remark {
            Remark::Ignored(Ignored { kind, name, remedy }) => {
                self.say(&format_args!("  {DIM}ignored {kind} {name}: {remedy}{DIM:#}"));
            }
            Remark::Rests(what) => {
                self.say(&format_args!("  {DIM}{what} is not started: it is suspended or has no replicas{DIM:#}"));
            }
            Remark::OneReplica(what) => {
                self.say(&format_args!("  {DIM}{what} runs as one process; replicas need a cluster{DIM:#}"));
            }
            Remark::RepositoryMade(folder) => {
                self.say(&format_args!("  {DIM}created the repository {}{DIM:#}", folder.display()));
            }
            Remark::NoCredentials { of, secret } => {
                self.say(&format_args!(
                    "  {DIM}{of} needs no Secret {secret}, since its remotes are on this machine{DIM:#}"
                ));
            }
            Remark::Exposed { of, how } => {
                self.say(&format_args!(
                    "  {WARN}{of}: {how}, and would get unencrypted Secrets{WARN:#}: encrypt them \
                     (apiserver.encryptionConfigurationSecretName), or set public: false for the remote"
                ));
            }
            _ => self.say(&format_args!("{remark:?}")),
        }
    }

    fn notice(&mut self, notice: &Notice) {
        match notice {
            Notice::Ready { component, port, after } => {
                let port = port.map(|port| format!("  {DIM}127.0.0.1:{port}{DIM:#}")).unwrap_or_default();
                self.say(&format_args!("  {component:<24} {GOOD}ready{GOOD:#} {:>6}{port}", seconds(*after)));
            }
            Notice::Preparing { component, progress } => {
                self.say(&format_args!("  {component:<24} {DIM}{progress}{DIM:#}"));
            }
            Notice::AllReady { after } => {
                self.say(&format_args!("{GOOD}Ready{GOOD:#} in {STRONG}{}{STRONG:#}", seconds(*after)));
            }
            Notice::StandingBy { component } => self
                .say(&format_args!("{GOOD}Standing by{GOOD:#}: {component} waits for its turn; the rest starts then")),
            Notice::Restarting(failure, pause) => {
                let Failure { component, cause, .. } = failure;
                let pause = seconds(*pause);
                // A repetition is reported briefly.
                let again = (component.clone(), cause.clone());
                if self.last_restart.as_ref() == Some(&again) {
                    self.say(&format_args!("{WARN}restarting{WARN:#} in {pause}: {component} {cause}"));
                } else {
                    self.say(&format_args!("{WARN}restarting{WARN:#} in {pause}: {failure}"));
                }
                self.last_restart = Some(again);
            }
            Notice::Degraded { after, component } => {
                let after = seconds(*after);
                self.say(&format_args!("{WARN}Degraded{WARN:#} after {STRONG}{after}{STRONG:#}: {component} is not ready"));
            }
            Notice::Late(failure) => self.say(&format_args!("{WARN}degraded{WARN:#}: {failure}")),
            Notice::Stopping if self.in_background => self.say(&"Stopping"),
            Notice::Stopping => self.say(&"Stopping; Ctrl-C kills"),
            Notice::Ended { component, how, after } => {
                let how = match how {
                    Ended::Killed => "killed",
                    Ended::Before | Ended::Gracefully => "ended",
                };
                self.say(&format_args!("  {component:<24} {how} {:>6}", seconds(*after)));
            }
            Notice::Renewed(done) => {
                let again = if done.restart.is_empty() {
                    String::new()
                } else {
                    format!("; restarts: {}", done.restart.join(", "))
                };
                self.say(&format_args!("{GOOD}renewed{GOOD:#} the certificates {}{again}", done.renewed.join(", ")));
            }
            Notice::NotRenewed(error) => {
                self.say(&format_args!(
                    "{WARN}warning:{WARN:#} cannot renew certificates: {error}; retrying in a minute"
                ));
            }
            Notice::NotListed(error) => self.say(&format_args!(
                "{WARN}warning:{WARN:#} cannot write the registry of control planes ({error}); `trishanku list` may not show this one"
            )),
            Notice::StateNotWritten(error) => {
                self.say(&format_args!("{WARN}warning:{WARN:#} {error}; `trishanku status` shows old state"));
            }
            Notice::LogNotRotated(log, error) => {
                let log = log.display();
                self.say(&format_args!("{WARN}warning:{WARN:#} {log} is large and cannot be rotated: {error}"));
            }
            _ => self.say(&format_args!("{notice:?}")),
        }
    }
}

fn stream<S: RawStream + AsLockedWrite + 'static>(raw: S, choice: anstream::ColorChoice) -> Box<dyn Write> {
    Box::new(AutoStream::new(raw, choice))
}

/// Prints how to use a control plane that is ready.
pub(crate) struct Tour<'a> {
    pub(crate) home: &'a Home,
    pub(crate) state: &'a State,
    /// The command line that names this control plane, such as `trishanku --name b`.
    pub(crate) program: String,
    pub(crate) in_background: bool,
}

impl Display for Tour<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Self { home, state, program, .. } = self;
        let form = state.settings.form;
        let repository = trishanku::status::repository(home, state);
        let is_central = matches!(form, Form::Central | Form::Undecided);
        if let Some(ports) = state.ports.filter(|_| is_central) {
            writeln!(f, "\n  kubernetes  https://127.0.0.1:{}", ports.apiserver)?;
        } else {
            writeln!(f)?;
        }
        writeln!(f, "  kubeconfig  {}", home.kubeconfig().display())?;
        if let Some(repository) = &repository {
            writeln!(f, "  repository  {}", repository.display())?;
        }
        writeln!(f, "\n{STRONG}Try{STRONG:#}")?;
        if matches!(form, Form::Headless(_)) {
            writeln!(f, "  {program} demo")?;
        }
        writeln!(f, "  {program} kubectl create deployment hello --image=nginx")?;
        writeln!(f, "  {program} kubectl get deployments,replicasets,pods")?;
        if !is_central {
            writeln!(f, "  {program} status")?;
            writeln!(f, "  {program} graph")?;
        } else if let Some(repository) = &repository {
            writeln!(f, "  git -C {} log --oneline main", quoted(repository))?;
        }
        if self.in_background {
            write!(f, "\n`{program} down` stops it; the data stays.")
        } else {
            write!(f, "\nCtrl-C stops it; the data stays.")
        }
    }
}

/// The command line that names a control plane.
pub(crate) fn program_line(selector: Option<(&'static str, PathBuf)>) -> String {
    let program = match std::env::args_os().next() {
        Some(program) if !plugin::is_plugin() => quoted(Path::new(&program)),
        _ => plugin::name().to_owned(),
    };
    match selector {
        None => program,
        Some((option, value)) => format!("{program} {option} {}", quoted(&value)),
    }
}

/// Formats seconds with one decimal.
pub(crate) fn seconds(duration: Duration) -> String {
    format!("{:.1}s", duration.as_secs_f64())
}
