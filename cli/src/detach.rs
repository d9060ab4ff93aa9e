//! Starts a supervisor in the background, and prints its messages on this terminal until it is ready.

use std::fs::OpenOptions;
use std::io::{IsTerminal, Write};
use std::os::unix::process::CommandExt;
use std::process::{ExitCode, Stdio};

use anyhow::Context;
use tokio::io::AsyncReadExt;
use tokio::process::{Child, Command};
use tokio::sync::mpsc;
use trishanku::plane::state::{Phase, StateError};
use trishanku::plane::supervisor::Stop;
use trishanku::plane::{Home, SUPERVISOR, State};
use trishanku::status::Health;

use crate::NOT_READY;

/// Runs this same command line again as a supervisor in the background. Returns when the start is over or has failed.
///
/// Requests to stop that arrive while waiting are forwarded to it.
pub(crate) async fn start(home: &Home, stops: &mut mpsc::Receiver<Stop>) -> anyhow::Result<ExitCode> {
    home.create()?;
    let mut child = spawn(home)?;
    let mut messages = child.stdout.take().context("no pipe from the supervisor")?;
    let mut buffer = vec![0; 4096];
    loop {
        tokio::select! {
            read = messages.read(&mut buffer) => match read? {
                0 => break,
                n => {
                    let mut out = trishanku_stdio::plain_stdout();
                    out.write_all(&buffer[..n])?;
                    out.flush()?;
                }
            },
            Some(Stop) = stops.recv() => stop(&child)?,
        }
    }
    // The supervisor closes its output when it is ready, and when it exits.
    let state = State::load(&home.state_file())?;
    let supervisor = state.supervisor.map(|supervisor| supervisor.pid);
    if state.phase == Phase::Ready && supervisor == child.id() {
        return Ok(started(home)?);
    }
    let status = child.wait().await?;
    let code = status.code().and_then(|code| u8::try_from(code).ok());
    Ok(code.map_or(ExitCode::FAILURE, ExitCode::from))
}

/// The exit code for a control plane that has started: as that of `status` if it is degraded.
///
/// # Errors
/// If its state cannot be read.
pub(crate) fn started(home: &Home) -> Result<ExitCode, StateError> {
    let is_degraded = trishanku::status::read(home)?.health == Health::Degraded;
    Ok(if is_degraded { ExitCode::from(NOT_READY) } else { ExitCode::SUCCESS })
}

fn spawn(home: &Home) -> anyhow::Result<Child> {
    let program = std::env::current_exe().context("cannot find this program's own file")?;
    let mut args = std::env::args_os();
    let name = args.next().unwrap_or_else(|| program.clone().into());
    let colour =
        if std::io::stdout().is_terminal() && std::env::var_os("NO_COLOR").is_none() { "always" } else { "never" };
    let log = home.log(SUPERVISOR);
    let errors = OpenOptions::new()
        .create(true)
        .append(true)
        .open(&log)
        .with_context(|| format!("cannot write the supervisor's log {}", log.display()))?;
    let mut command = std::process::Command::new(program);
    command
        .arg0(name)
        .args(args.filter(|arg| arg != "--detach"))
        .arg("--in-background")
        .arg(colour)
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(errors);
    Command::from(command).spawn().context("cannot start the supervisor")
}

fn stop(child: &Child) -> anyhow::Result<()> {
    let id = child.id().and_then(|id| i32::try_from(id).ok());
    // The process id cannot be reused before wait().
    if let Some(pid) = id.and_then(rustix::process::Pid::from_raw) {
        rustix::process::kill_process(pid, rustix::process::Signal::TERM)?;
    }
    Ok(())
}
