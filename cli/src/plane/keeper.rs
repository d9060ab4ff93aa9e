//! Keeps one component running: starts it, learns when it is ready, starts it again when it dies, ends it when told.

use std::fs::{File, OpenOptions};
use std::io;
use std::path::Path;
use std::process::{ExitStatus, Stdio};
use std::sync::Arc;
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process};
use tokio::process::{Child, Command};
use tokio::sync::{mpsc, watch};
use tokio::task::JoinHandle;

use super::components::{Component, Invocation};
use super::http::Endpoint;
use super::process::{Ended, Identity};

/// How often a starting component is asked whether it is ready.
const ASK_EVERY: Duration = Duration::from_millis(50);
/// The first death is most likely an accident, so the component is back at once.
const FIRST_PAUSE: Duration = Duration::from_millis(200);
const LONGEST_PAUSE: Duration = Duration::from_secs(15);
/// A component that ran this long has earned a short pause again.
const LONG_RUN: Duration = Duration::from_secs(30);

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
    /// It runs; `None` if it was gone before it could be identified.
    Started(Option<Identity>),
    /// It answers that it is ready, this long after it was started.
    Ready(Duration),
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
        endpoint: Endpoint,
        index: usize,
        reports: mpsc::Sender<(usize, Report)>,
    ) -> Self {
        let (order, orders) = watch::channel(Order::Run);
        let kept = Kept { component, endpoint, orders, reports, index };
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

struct Kept {
    component: Arc<Component>,
    endpoint: Endpoint,
    orders: watch::Receiver<Order>,
    reports: mpsc::Sender<(usize, Report)>,
    index: usize,
}

/// How one run of the process came out.
enum Outcome {
    Died(String),
    Ended(Ended),
}

impl Kept {
    async fn keep(mut self) {
        let mut pause = FIRST_PAUSE;
        loop {
            let since = Instant::now();
            let cause = match self.run_once().await {
                Ok(Outcome::Ended(how)) => return self.report(Report::Ended(how)).await,
                Ok(Outcome::Died(cause)) => cause,
                Err(error) => error.to_string(),
            };
            if since.elapsed() >= LONG_RUN {
                pause = FIRST_PAUSE;
            }
            self.report(Report::Died { cause, pause }).await;
            tokio::select! {
                () = tokio::time::sleep(pause) => {}
                _ = told(&mut self.orders, Order::End) => {
                    return self.report(Report::Ended(Ended::Before)).await;
                }
            }
            pause = (pause * 2).min(LONGEST_PAUSE);
        }
    }

    async fn run_once(&mut self) -> io::Result<Outcome> {
        if let Some(prepare) = &self.component.prepare {
            let mut child = spawn(prepare, &self.component.log)?;
            tokio::select! {
                status = child.wait() => {
                    let status = status?;
                    if !status.success() {
                        let verb = prepare.args.first().map(|arg| arg.to_string_lossy());
                        let what = format!("{} {}", self.component.name, verb.unwrap_or_default());
                        return Ok(Outcome::Died(format!("`{what}` {}", describe(status))));
                    }
                }
                _ = told(&mut self.orders, Order::End) => return end(child, Duration::ZERO, &mut self.orders).await,
            }
        }
        let since = Instant::now();
        let mut child = spawn(&self.component.run, &self.component.log)?;
        let identity = child.id().map(Identity::of).transpose()?.flatten();
        self.report(Report::Started(identity)).await;
        let mut ready = false;
        loop {
            tokio::select! {
                status = child.wait() => return Ok(Outcome::Died(describe(status?))),
                _ = told(&mut self.orders, Order::End) => {
                    return end(child, self.component.grace, &mut self.orders).await;
                }
                () = answers(&self.endpoint, self.component.probe.path), if !ready => {
                    ready = true;
                    self.report(Report::Ready(since.elapsed())).await;
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

async fn answers(endpoint: &Endpoint, path: &str) {
    while endpoint.ask(path).await.is_err() {
        tokio::time::sleep(ASK_EVERY).await;
    }
}

async fn end(mut child: Child, grace: Duration, orders: &mut watch::Receiver<Order>) -> io::Result<Outcome> {
    // Until it is waited for, a child's id cannot be recycled.
    let id = child.id().and_then(|id| Pid::from_raw(i32::try_from(id).ok()?));
    if let Some(pid) = id {
        kill_process(pid, Signal::TERM)?;
    }
    tokio::select! {
        status = child.wait() => { status?; return Ok(Outcome::Ended(Ended::Gracefully)) }
        () = tokio::time::sleep(grace) => {}
        _ = told(orders, Order::Kill) => {}
    }
    child.kill().await?;
    Ok(Outcome::Ended(Ended::Killed))
}

fn spawn(invocation: &Invocation, log: &Path) -> io::Result<Child> {
    let output: File = OpenOptions::new().create(true).append(true).open(log)?;
    Command::new(&invocation.program)
        .args(&invocation.args)
        .stdin(Stdio::null())
        .stdout(output.try_clone()?)
        .stderr(output)
        // A group of its own: the terminal's Ctrl-C must not end the store before those who write to it.
        .process_group(0)
        .kill_on_drop(true)
        .spawn()
        .map_err(|error| {
            io::Error::new(error.kind(), format!("cannot start {}: {error}", invocation.program.display()))
        })
}

fn describe(status: ExitStatus) -> String {
    use std::os::unix::process::ExitStatusExt;
    match (status.code(), status.signal()) {
        (Some(code), _) => format!("exited with code {code}"),
        (None, Some(signal)) => format!("was ended by signal {signal}"),
        (None, None) => "ended".into(),
    }
}
