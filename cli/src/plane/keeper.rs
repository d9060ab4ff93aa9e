//! Keeps one component running: starts it, learns when it is ready, starts it again when it dies, ends it when told.

use std::fs::{File, OpenOptions};
use std::io;
use std::path::Path;
use std::process::ExitStatus;
use std::sync::Arc;
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process, kill_process_group, test_kill_process_group};
use tokio::process::Child;
use tokio::sync::{mpsc, watch};
use tokio::task::JoinHandle;

use super::components::{Component, Invocation};
use super::look::{self, Look};
use super::process::{Ended, Identity};

/// The first death is most likely an accident, so the component is back at once.
const FIRST_PAUSE: Duration = Duration::from_millis(200);
const LONGEST_PAUSE: Duration = Duration::from_secs(15);
/// What is waited for while preparing, such as the branch of another heaven, usually comes soon.
const LONGEST_PREPARING_PAUSE: Duration = Duration::from_secs(2);
/// A component that ran this long has earned a short pause again.
const LONG_RUN: Duration = Duration::from_secs(30);

/// What is left of a group is asked to end, and then looked at so often.
const LOOK_AT_GROUP: Duration = Duration::from_millis(20);

/// What a component is told. Only ever raised: from running to ending to being killed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Order {
    Run,
    End,
    Kill,
}

/// What happened to a component.
#[derive(Debug)]
pub(crate) enum Report {
    /// A preparation runs; `None` if it was gone before it could be identified.
    Preparing(Option<Identity>),
    /// It runs; `None` if it was gone before it could be identified.
    Started(Option<Identity>),
    /// It answers that it is ready, this long after it was started.
    Ready(Duration),
    /// A preparation failed that is tried again after the pause.
    NotPrepared { cause: String },
    /// It ended unasked, or could not be started; the next try comes after the pause.
    Died { cause: String, pause: Duration },
    /// It has ended as told, and its keeper with it.
    Ended(Ended),
}

/// The handle to a component that is kept running. Dropping it kills the component.
#[derive(Debug)]
pub(crate) struct Keeper {
    order: watch::Sender<Order>,
    task: JoinHandle<()>,
}

impl Keeper {
    /// Starts the component and goes on doing so; every report carries `index`.
    pub(crate) fn start(
        component: Arc<Component>,
        looks: Looks,
        index: usize,
        reports: mpsc::Sender<(usize, Report)>,
    ) -> Self {
        let (order, orders) = watch::channel(Order::Run);
        let kept = Kept { component, looks, orders, reports, index };
        let task = tokio::spawn(kept.keep());
        Self { order, task }
    }

    /// Asks the component to end within its grace; the last report will be [`Report::Ended`].
    pub(crate) fn end(&self) {
        self.raise(Order::End);
    }

    /// Kills the component; the last report will be [`Report::Ended`].
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

impl Drop for Keeper {
    fn drop(&mut self) {
        // The child is dropped with the task, and killed with it (`kill_on_drop`).
        self.task.abort();
    }
}

/// The probes of a component.
#[derive(Clone, Debug)]
pub(crate) struct Looks {
    pub(crate) ready: Look,
    pub(crate) alive: Option<Look>,
}

struct Kept {
    component: Arc<Component>,
    looks: Looks,
    orders: watch::Receiver<Order>,
    reports: mpsc::Sender<(usize, Report)>,
    index: usize,
}

/// How one run of the process came out.
enum Outcome {
    NotPrepared(String),
    Died(String),
    Ended(Ended),
}

impl Kept {
    async fn keep(mut self) {
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
                _ = told(&mut self.orders, Order::End) => {
                    return self.report(Report::Ended(Ended::Before)).await;
                }
            }
            pause = (pause * 2).min(LONGEST_PAUSE);
        }
    }

    async fn run_once(&mut self) -> io::Result<Outcome> {
        let component = self.component.clone();
        for prepare in &component.prepare {
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
                _ = told(&mut self.orders, Order::End) => return end(leader, Duration::ZERO, &mut self.orders).await,
            }
        }
        let since = Instant::now();
        let mut leader = Leader::spawn(&component.run, &component.log)?;
        self.report(Report::Started(leader.identity()?)).await;
        let looks = self.looks.clone();
        let group = leader.group;
        let mut ready = false;
        loop {
            tokio::select! {
                status = leader.wait() => {
                    let status = status?;
                    end_rest(group, component.grace, &mut self.orders).await;
                    return Ok(Outcome::Died(describe(status)));
                }
                _ = told(&mut self.orders, Order::End) => {
                    return end(leader, component.grace, &mut self.orders).await;
                }
                () = answers(&looks.ready, since, group), if !ready => {
                    ready = true;
                    self.report(Report::Ready(since.elapsed())).await;
                }
                cause = fails(&component, looks.alive.as_ref(), since, group), if ready => {
                    return match end(leader, component.grace, &mut self.orders).await? {
                        // Told to end meanwhile, it has ended as told.
                        ended if *self.orders.borrow() > Order::Run => Ok(ended),
                        _ => Ok(Outcome::Died(format!("was ended, since it did not answer any more ({cause})"))),
                    };
                }
            }
        }
    }

    async fn report(&self, report: Report) {
        // Without a listener there is nobody left to tell; the supervisor's end drops this task anyway.
        let _unheard = self.reports.send((self.index, report)).await;
    }
}

/// Returns once the order is at least `order`, or nobody can give orders any more.
async fn told(orders: &mut watch::Receiver<Order>, order: Order) -> bool {
    orders.wait_for(|&current| current >= order).await.is_ok()
}

async fn answers(look: &Look, since: Instant, group: Option<Pid>) {
    while look.take(since, group).await.is_err() {
        tokio::time::sleep(look.pause(since.elapsed())).await;
    }
}

/// Returns once the component has failed to show that it lives, as often in a row as it may; never if nobody looks.
async fn fails(component: &Component, look: Option<&Look>, since: Instant, group: Option<Pid>) -> String {
    let (Some(alive), Some(look)) = (&component.alive, look) else { return std::future::pending().await };
    let mut failures = 0;
    loop {
        tokio::time::sleep(alive.every).await;
        match look.take(since, group).await {
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

/// A preparation, in the words of a command line: the program and its command.
fn called(component: &Component, prepare: &Invocation) -> String {
    let program = prepare.program.file_name().unwrap_or_default().to_string_lossy();
    let verb = prepare.args.first().map(|arg| arg.to_string_lossy()).unwrap_or_default();
    match component.name.rsplit_once('/') {
        Some((heaven, _)) => format!("{heaven}/{program} {verb}"),
        None => format!("{program} {verb}"),
    }
}

/// A process that leads a group of its own: whatever it starts, and whoever asks how it is, is in it unless it leaves.
struct Leader {
    child: Child,
    group: Option<Pid>,
}

impl Leader {
    fn spawn(invocation: &Invocation, log: &Path) -> io::Result<Self> {
        let output: File = OpenOptions::new().create(true).append(true).open(log)?;
        let child = look::command(invocation)
            .stdout(output.try_clone()?)
            .stderr(output)
            // A group of its own: the terminal's Ctrl-C must not end the store before those who write to it.
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

/// Asks a process to end, and then what it leaves of its group: a server may need those that it has started until it has ended itself.
async fn end(mut leader: Leader, grace: Duration, orders: &mut watch::Receiver<Order>) -> io::Result<Outcome> {
    let deadline = Instant::now() + grace;
    // Until it is waited for, a child's id cannot be recycled.
    if let Some(pid) = leader.group {
        kill_process(pid, Signal::TERM)?;
    }
    let how = tokio::select! {
        status = leader.wait() => { status?; Ended::Gracefully }
        () = tokio::time::sleep(grace) => Ended::Killed,
        _ = told(orders, Order::Kill) => Ended::Killed,
    };
    if how == Ended::Killed {
        // It is not waited for yet, so the id is still its own.
        if let Some(group) = leader.group {
            let _gone = kill_process_group(group, Signal::KILL);
        }
        leader.child.kill().await?;
    } else {
        end_rest(leader.group, deadline.saturating_duration_since(Instant::now()), orders).await;
    }
    Ok(Outcome::Ended(how))
}

/// Ends what is left of a group whose leader has ended. As long as there is anything, nobody else gets its number.
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
        _ = told(orders, Order::Kill) => {}
    }
    let _gone = kill_process_group(group, Signal::KILL);
}

fn describe(status: ExitStatus) -> String {
    use std::os::unix::process::ExitStatusExt;
    match (status.code(), status.signal()) {
        (Some(code), _) => format!("exited with code {code}"),
        (None, Some(signal)) => format!("was ended by signal {signal}"),
        (None, None) => "ended".into(),
    }
}
