//! Keeps one component running: starts it, probes it, restarts it when it exits, and stops it on request.

use std::fs::{File, OpenOptions};
use std::io::{self, Read as _, Seek as _};
use std::path::Path;
use std::process::ExitStatus;
use std::sync::Arc;
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process, kill_process_group, test_kill_process_group};
use tokio::process::Child;
use tokio::sync::{mpsc, watch};
use tokio::task::JoinHandle;

use super::components::{Component, Invocation};
use super::prober::{self, Prober};
use super::process::{Ended, Identity};

/// The first exit is probably an accident, so the component restarts almost at once.
const FIRST_PAUSE: Duration = Duration::from_millis(200);
const LONGEST_PAUSE: Duration = Duration::from_secs(15);
/// Preparations often wait for something that comes soon, such as the branch of another heaven.
const LONGEST_PREPARING_PAUSE: Duration = Duration::from_secs(2);
/// After a run of this length, the backoff starts over.
const LONG_RUN: Duration = Duration::from_secs(30);

/// Polling interval for the rest of a process group after SIGTERM.
const LOOK_AT_GROUP: Duration = Duration::from_millis(20);

/// How often a preparation's log is searched for progress, and how much of its end.
const LOOK_AT_LOG: Duration = Duration::from_secs(1);
const LOOK_AT_BYTES: u64 = 4 << 10;
/// How gitcd begins a line about the progress of a fetch.
const FETCHING: &str = "fetching from ";

/// The target state of a component. It only ever rises: run, end, kill.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Order {
    Run,
    End,
    Kill,
}

/// An event of a component.
#[derive(Debug)]
pub(crate) enum Report {
    /// A preparation runs; `None` if it exited before it could be identified.
    Preparing(Option<Identity>),
    /// A preparation makes progress, as it has logged.
    Progress(String),
    /// It runs; `None` if it exited before it could be identified.
    Started(Option<Identity>),
    /// It became ready, this long after its start.
    Ready(Duration),
    /// A preparation failed; it is retried after a pause.
    NotPrepared { cause: String },
    /// It exited by itself, or could not be started; it restarts after the pause.
    Died { cause: String, pause: Duration },
    /// It was stopped on request; this is the runner's last report.
    Ended(Ended),
}

/// Handle of a component that is kept running. Dropping it kills the component.
#[derive(Debug)]
pub(crate) struct Runner {
    order: watch::Sender<Order>,
    task: JoinHandle<()>,
}

impl Runner {
    /// Starts the component and keeps it running; every report carries `index`.
    pub(crate) fn start(
        component: Arc<Component>,
        probes: Probes,
        index: usize,
        reports: mpsc::Sender<(usize, Report)>,
    ) -> Self {
        let (order, orders) = watch::channel(Order::Run);
        let run = Run { component, probes, orders, reports, index };
        let task = tokio::spawn(run.until_stopped());
        Self { order, task }
    }

    /// Stops the component within its grace period; the last report is [`Report::Ended`].
    pub(crate) fn end(&self) {
        self.raise(Order::End);
    }

    /// Kills the component; the last report is [`Report::Ended`].
    pub(crate) fn kill(&self) {
        self.raise(Order::Kill);
    }

    fn raise(&self, to: Order) {
        self.order.send_if_modified(|order| {
            let raised = to > *order;
            *order = to.max(*order);
            raised
        });
    }
}

impl Drop for Runner {
    fn drop(&mut self) {
        // Aborting the task drops the child, which kills it (`kill_on_drop`).
        self.task.abort();
    }
}

/// The probes of a component.
#[derive(Clone, Debug)]
pub(crate) struct Probes {
    pub(crate) ready: Prober,
    pub(crate) alive: Option<Prober>,
}

struct Run {
    component: Arc<Component>,
    probes: Probes,
    orders: watch::Receiver<Order>,
    reports: mpsc::Sender<(usize, Report)>,
    index: usize,
}

/// The outcome of one run of the process.
enum Outcome {
    NotPrepared(String),
    Died(String),
    Ended(Ended),
}

impl Run {
    async fn until_stopped(mut self) {
        let mut pause = FIRST_PAUSE;
        loop {
            let since = Instant::now();
            let outcome = self.run_once().await.unwrap_or_else(|error| Outcome::Died(error.to_string()));
            if since.elapsed() >= LONG_RUN {
                pause = FIRST_PAUSE;
            }
            let wait = match outcome {
                Outcome::Ended(how) => return self.report(Report::Ended(how)).await,
                Outcome::NotPrepared(cause) => {
                    self.report(Report::NotPrepared { cause }).await;
                    pause.min(LONGEST_PREPARING_PAUSE)
                }
                Outcome::Died(cause) => {
                    self.report(Report::Died { cause, pause }).await;
                    pause
                }
            };
            tokio::select! {
                () = tokio::time::sleep(wait) => {}
                _ = ordered(&mut self.orders, Order::End) => {
                    return self.report(Report::Ended(Ended::Before)).await;
                }
            }
            pause = (pause * 2).min(LONGEST_PAUSE);
        }
    }

    async fn run_once(&mut self) -> io::Result<Outcome> {
        let component = self.component.clone();
        for prepare in &component.prepare {
            let from = std::fs::metadata(&component.log).map_or(0, |log| log.len());
            let mut leader = Leader::spawn(prepare, &component.log)?;
            self.report(Report::Preparing(leader.identity()?)).await;
            tokio::select! {
                status = leader.wait() => {
                    let status = status?;
                    if !status.success() {
                        let cause = format!("`{}` {}", called(&component, prepare), describe(status));
                        let again = component.prepare_again;
                        return Ok(if again { Outcome::NotPrepared(cause) } else { Outcome::Died(cause) });
                    }
                }
                _ = ordered(&mut self.orders, Order::End) => return end(leader, Duration::ZERO, &mut self.orders).await,
                never = relay(&self.reports, self.index, &component.log, from) => match never {},
            }
        }
        let since = Instant::now();
        let mut leader = Leader::spawn(&component.run, &component.log)?;
        self.report(Report::Started(leader.identity()?)).await;
        let probes = self.probes.clone();
        let group = leader.group;
        let mut ready = false;
        loop {
            tokio::select! {
                status = leader.wait() => {
                    let status = status?;
                    end_rest(group, component.grace, &mut self.orders).await;
                    return Ok(Outcome::Died(describe(status)));
                }
                _ = ordered(&mut self.orders, Order::End) => {
                    return end(leader, component.grace, &mut self.orders).await;
                }
                () = answers(&probes.ready, since, group), if !ready => {
                    ready = true;
                    self.report(Report::Ready(since.elapsed())).await;
                }
                cause = fails(&component, probes.alive.as_ref(), since, group), if ready => {
                    return match end(leader, component.grace, &mut self.orders).await? {
                        // It was asked to stop in the meantime.
                        ended if *self.orders.borrow() > Order::Run => Ok(ended),
                        _ => Ok(Outcome::Died(format!("was stopped, since its liveness probe failed ({cause})"))),
                    };
                }
            }
        }
    }

    async fn report(&self, report: Report) {
        // Without a receiver the supervisor is gone, and that drops this task anyway.
        let _sent = self.reports.send((self.index, report)).await;
    }
}

/// Waits until the order is at least `order`, or the sender is gone.
async fn ordered(orders: &mut watch::Receiver<Order>, order: Order) -> bool {
    orders.wait_for(|&current| current >= order).await.is_ok()
}

async fn answers(prober: &Prober, since: Instant, group: Option<Pid>) {
    while prober.probe(since, group).await.is_err() {
        tokio::time::sleep(prober.pause(since.elapsed())).await;
    }
}

/// Returns once the liveness probe has failed as often in a row as allowed; never, if there is none.
async fn fails(component: &Component, prober: Option<&Prober>, since: Instant, group: Option<Pid>) -> String {
    let (Some(alive), Some(prober)) = (&component.alive, prober) else { return std::future::pending().await };
    let mut failures = 0;
    loop {
        tokio::time::sleep(alive.every).await;
        match prober.probe(since, group).await {
            Ok(()) => failures = 0,
            Err(cause) => {
                failures += 1;
                if failures >= alive.failures {
                    return cause;
                }
            }
        }
    }
}

/// Reports the progress that a preparation writes to its log, from a position on. Never returns.
async fn relay(
    reports: &mpsc::Sender<(usize, Report)>,
    index: usize,
    log: &Path,
    from: u64,
) -> std::convert::Infallible {
    let mut last = None;
    loop {
        tokio::time::sleep(LOOK_AT_LOG).await;
        let found = progress(log, from);
        if let Some(progress) = found.clone().filter(|_| found != last) {
            last = found;
            // Without a receiver the supervisor is gone, and that drops this task anyway.
            let _sent = reports.send((index, Report::Progress(progress))).await;
        }
    }
}

/// Returns the last line about a fetch in a log, without its time and level.
fn progress(log: &Path, from: u64) -> Option<String> {
    let mut file = File::open(log).ok()?;
    let end = file.seek(io::SeekFrom::End(0)).ok()?;
    // An older part may be gone, if the log was rotated.
    file.seek(io::SeekFrom::Start(from.max(end.saturating_sub(LOOK_AT_BYTES)))).ok()?;
    let mut text = Vec::new();
    file.take(LOOK_AT_BYTES).read_to_end(&mut text).ok()?;
    let text = String::from_utf8_lossy(&text);
    let text = &text[..=text.rfind('\n')?];
    text.lines().rev().find_map(|line| Some(line[line.find(FETCHING)?..].to_owned()))
}

/// The command line of a preparation, shortened: the program and its subcommand.
fn called(component: &Component, prepare: &Invocation) -> String {
    let program = prepare.program.file_name().unwrap_or_default().to_string_lossy();
    let verb = prepare.args.first().map(|arg| arg.to_string_lossy()).unwrap_or_default();
    match component.name.rsplit_once('/') {
        Some((heaven, _)) => format!("{heaven}/{program} {verb}"),
        None => format!("{program} {verb}"),
    }
}

/// A process that leads its own group, which has its children and running probes, unless they leave it.
struct Leader {
    child: Child,
    group: Option<Pid>,
}

impl Leader {
    fn spawn(invocation: &Invocation, log: &Path) -> io::Result<Self> {
        let output: File = OpenOptions::new().create(true).append(true).open(log)?;
        let child = prober::command(invocation)
            .stdout(output.try_clone()?)
            .stderr(output)
            // A group of its own: Ctrl-C in the terminal must not stop the store before its clients.
            .process_group(0)
            .spawn()
            .map_err(|error| {
                io::Error::new(error.kind(), format!("cannot start {}: {error}", invocation.program.display()))
            })?;
        let group = child.id().and_then(|id| Pid::from_raw(i32::try_from(id).ok()?));
        Ok(Self { child, group })
    }

    fn identity(&self) -> io::Result<Option<Identity>> {
        Ok(self.child.id().map(Identity::of).transpose()?.flatten())
    }

    async fn wait(&mut self) -> io::Result<ExitStatus> {
        self.child.wait().await
    }
}

/// Stops a process, then the rest of its group: a server may need its children until it has exited.
async fn end(mut leader: Leader, grace: Duration, orders: &mut watch::Receiver<Order>) -> io::Result<Outcome> {
    let deadline = Instant::now() + grace;
    // The process id cannot be reused before wait().
    if let Some(pid) = leader.group {
        kill_process(pid, Signal::TERM)?;
    }
    let how = tokio::select! {
        status = leader.wait() => { status?; Ended::Gracefully }
        () = tokio::time::sleep(grace) => Ended::Killed,
        _ = ordered(orders, Order::Kill) => Ended::Killed,
    };
    if how == Ended::Killed {
        // Before wait(), so the id is still valid.
        if let Some(group) = leader.group {
            let _gone = kill_process_group(group, Signal::KILL);
        }
        leader.child.kill().await?;
    } else {
        end_rest(leader.group, deadline.saturating_duration_since(Instant::now()), orders).await;
    }
    Ok(Outcome::Ended(how))
}

/// Stops the rest of a group whose leader has exited. While the group has members, its number is not reused.
async fn end_rest(group: Option<Pid>, grace: Duration, orders: &mut watch::Receiver<Order>) {
    let Some(group) = group.filter(|group| kill_process_group(*group, Signal::TERM).is_ok()) else { return };
    let empty = async {
        while test_kill_process_group(group).is_ok() {
            tokio::time::sleep(LOOK_AT_GROUP).await;
        }
    };
    tokio::select! {
        () = empty => return,
        () = tokio::time::sleep(grace) => {}
        _ = ordered(orders, Order::Kill) => {}
    }
    let _gone = kill_process_group(group, Signal::KILL);
}

fn describe(status: ExitStatus) -> String {
    use std::os::unix::process::ExitStatusExt;
    match (status.code(), status.signal()) {
        (Some(code), _) => format!("exited with code {code}"),
        (None, Some(signal)) => format!("was killed by signal {signal}"),
        (None, None) => "ended".into(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_complete_lines_of_this_run_are_progress() {
        let log = tempfile::NamedTempFile::new().unwrap();
        let shown = |text: &str, from| {
            std::fs::write(log.path(), text).unwrap();
            progress(log.path(), from)
        };
        let first = "2026-01-01T00:00:00Z  INFO fetching from origin: 1.0 MiB, 0.5 MiB/s\n";
        assert_eq!(shown("", 0), None);
        assert_eq!(shown(first, 0).as_deref(), Some("fetching from origin: 1.0 MiB, 0.5 MiB/s"));
        assert_eq!(shown(first, first.len() as u64), None, "it is of an earlier run");
        let more =
            format!("{first}\u{1b}[32mINFO\u{1b}[0m fetching from origin: 2.0 MiB, 0.5 MiB/s\nfetching from ori");
        assert_eq!(shown(&more, 0).as_deref(), Some("fetching from origin: 2.0 MiB, 0.5 MiB/s"));
        assert_eq!(shown(&(more.clone() + &"x\n".repeat(4096)), 0), None, "only the end is read");
        assert_eq!(shown("other\n", 9999), None, "the log was rotated");
    }
}
