//! `trishanku at`: runs a command with a kube-apiserver on the past of a branch.

use std::ffi::OsString;
use std::os::unix::process::ExitStatusExt as _;
use std::path::Path;
use std::process::{ExitCode, ExitStatus};
use std::time::{Duration, UNIX_EPOCH};

use anyhow::Context;
use clap::Args;
use tokio::signal::unix::{SignalKind, signal};
use trishanku::past::{Forked, Past};
use trishanku::plane::{Assets, Home};

use crate::history::Branch;
use crate::location::Own;

/// Exit code of a shell for a command that a signal ended, without the signal's number.
const SIGNALLED: i32 = 128;

#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  trishanku at 10m kubectl get pods -n shop
  trishanku at '2026-11-22 15:04' kubectl get deploy web -n shop -o yaml
  trishanku at 4711 sh                          a shell in which kubectl shows revision 4711

Starts a kube-apiserver on a fork of the branch of the desk (or of --heaven), sets KUBECONFIG, runs the command, stops the
kube-apiserver, and removes the fork. Requests that write are refused. The branch may be served meanwhile; no server needs to run.
Exits with the code of the command.")]
pub(crate) struct At {
    /// The moment: how long ago (10m), a time (2026-11-22, '2026-11-22 15:04', 2026-11-22T15:04:05Z), a revision, or a commit
    #[arg(value_name = "WHEN")]
    when: String,
    /// Command with its arguments
    #[arg(value_name = "COMMAND", required = true, trailing_var_arg = true, allow_hyphen_values = true)]
    command: Vec<OsString>,
    #[arg(
        long,
        value_name = "DIR",
        help = "The folder of the Kubernetes programs [default: $TRISHANKU_ASSETS, $KUBEBUILDER_ASSETS, what `make assets` made]"
    )]
    assets: Option<std::path::PathBuf>,
    /// Seconds that each server has to become ready
    #[arg(long, value_name = "SECONDS", default_value = "60", value_parser = crate::seconds::parse)]
    ready_within: Duration,
    #[command(flatten)]
    own: Own,
}

/// Runs the command.
///
/// # Errors
/// The reason why there is no kube-apiserver on the past, or why the command cannot be started.
pub(crate) async fn run(home: &Home, heaven: Option<&str>, options: &At) -> anyhow::Result<ExitCode> {
    let branch = Branch::find(home, heaven, &options.own)?;
    let assets = Assets::find(options.assets.as_deref())?;
    let mut fork = branch.command("fork");
    fork.arg(format!("--at={}", options.when));
    let past =
        Past { folder: &home.past(), assets: &assets, gitcd: branch.gitcd(), ready_within: options.ready_within };
    let mut interrupts = signal(SignalKind::interrupt())?;
    let mut terminations = signal(SignalKind::terminate())?;
    let mut hangups = signal(SignalKind::hangup())?;
    let interrupted = async {
        tokio::select! {
            _ = interrupts.recv() => {}
            _ = terminations.recv() => {}
            _ = hangups.recv() => {}
        }
    };
    let served = past.serve(fork, interrupted, async |kubeconfig: &Path, forked: &Forked| {
        trishanku_stdio::eprintln!("trishanku: {}", described(forked));
        command(&options.command, &assets, kubeconfig).await
    });
    let status = Box::pin(served).await??;
    let code = status.code().or_else(|| status.signal().map(|signal| SIGNALLED + signal)).unwrap_or(1);
    Ok(ExitCode::from(u8::try_from(code).unwrap_or(1)))
}

/// Says which past is shown.
fn described(forked: &Forked) -> String {
    let time = UNIX_EPOCH + Duration::from_secs(u64::try_from(forked.time).unwrap_or_default());
    let commit = forked.commit.get(..10).unwrap_or(&forked.commit);
    format!("the past as of {}, revision {}, commit {commit}", humantime::format_rfc3339_seconds(time), forked.revision)
}

/// Runs the command until it ends. Ctrl-C reaches it without us, since it is in our process group; a request to end is passed on.
async fn command(words: &[OsString], assets: &Assets, kubeconfig: &Path) -> anyhow::Result<ExitStatus> {
    let (name, arguments) = words.split_first().context("there is no command")?;
    let program = if name == "kubectl" { assets.program("kubectl").into_os_string() } else { name.clone() };
    let mut command = tokio::process::Command::new(&program);
    command.args(arguments).env("KUBECONFIG", kubeconfig).kill_on_drop(true);
    let mut child = command.spawn().with_context(|| format!("cannot start {}", program.display()))?;
    let mut terminations = signal(SignalKind::terminate())?;
    let mut hangups = signal(SignalKind::hangup())?;
    loop {
        tokio::select! {
            ended = child.wait() => return ended.with_context(|| format!("cannot wait for {}", program.display())),
            Some(()) = async { tokio::select! { it = terminations.recv() => it, it = hangups.recv() => it } } => {
                if let Some(id) = child.id().and_then(|id| rustix::process::Pid::from_raw(i32::try_from(id).ok()?)) {
                    rustix::process::kill_process(id, rustix::process::Signal::TERM)?;
                }
            }
        }
    }
}
