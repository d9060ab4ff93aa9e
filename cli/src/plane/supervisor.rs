//! Brings the components up in order, keeps them up, and takes them down in reverse order.

use std::collections::VecDeque;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use tokio::sync::mpsc;

use super::components::Component;
use super::http::{Endpoint, TrustError};
use super::keeper::{Keeper, Report};
use super::log;
use super::process::Ended;
use super::state::{self, Condition, Phase, State, StateError};

/// How much of a log a message shows.
const SHOWN_LINES: usize = 8;
/// Every component reports a handful of times; a full channel only makes keepers wait.
const REPORTS: usize = 64;

/// Something that whoever started the control plane wants to read.
#[derive(Debug)]
#[non_exhaustive]
pub enum Notice {
    /// A component answers that it is ready, this long after it was started.
    Ready {
        /// The component.
        component: &'static str,
        /// Its loopback port.
        port: u16,
        /// Since its start.
        after: Duration,
    },
    /// Every component has been ready, this long after the first was started.
    AllReady {
        /// Since the first start.
        after: Duration,
    },
    /// A component ended unasked and is started again after the pause.
    Restarting(Failure, Duration),
    /// Everything is about to be ended, last started first.
    Stopping,
    /// A component has ended as told.
    Ended {
        /// The component.
        component: &'static str,
        /// How it ended.
        how: Ended,
        /// Since it was told.
        after: Duration,
    },
    /// The state could not be written down; the control plane goes on.
    StateNotWritten(StateError),
}

/// A component that is not what it should be, and where to look.
#[derive(Debug)]
pub struct Failure {
    /// The component.
    pub component: &'static str,
    /// What is wrong.
    pub cause: String,
    /// Its log.
    pub log: PathBuf,
    /// The log's last lines.
    pub tail: Vec<String>,
}

impl std::fmt::Display for Failure {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let log = self.log.display();
        write!(f, "{} {}; its log {log}", self.component, self.cause)?;
        if self.tail.is_empty() {
            return write!(f, " is empty");
        }
        write!(f, " ends with")?;
        self.tail.iter().try_for_each(|line| write!(f, "\n  | {line}"))
    }
}

/// Why a control plane did not come up.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum StartError {
    /// A component ended, or was not ready in time. Everything has been ended again.
    #[error("{0}")]
    Failed(Failure),
    /// The authority's certificate cannot be read back.
    #[error(transparent)]
    Trust(#[from] TrustError),
}

/// A request to end. The first one ends gracefully, the second one kills.
#[derive(Clone, Copy, Debug)]
pub struct Stop;

/// Runs the components of one control plane.
pub struct Supervisor<'a> {
    stages: VecDeque<Vec<Arc<Component>>>,
    state: State,
    state_file: PathBuf,
    tell: &'a mut dyn FnMut(Notice),
    running: Vec<Running>,
    sender: mpsc::Sender<(usize, Report)>,
    reports: mpsc::Receiver<(usize, Report)>,
}

struct Running {
    component: Arc<Component>,
    endpoint: Endpoint,
    keeper: Keeper,
    /// Whether it has been ready once: from then on a death is an incident, before it is a failed start.
    has_been_ready: bool,
    ended: bool,
}

impl<'a> Supervisor<'a> {
    /// A supervisor for these stages. It owns the state from now on, and writes every change to `state_file`.
    pub fn new(
        stages: Vec<Vec<Component>>,
        mut state: State,
        state_file: PathBuf,
        tell: &'a mut dyn FnMut(Notice),
    ) -> Self {
        let (sender, reports) = mpsc::channel(REPORTS);
        state.components = stages
            .iter()
            .flatten()
            .map(|component| state::Component {
                name: component.name.into(),
                port: component.port,
                condition: Condition::Stopped,
                process: None,
                started_unix_seconds: None,
                restarts: 0,
            })
            .collect();
        let share = |stage: Vec<Component>| stage.into_iter().map(Arc::new).collect();
        Self {
            stages: stages.into_iter().map(share).collect(),
            state,
            state_file,
            tell,
            running: Vec::new(),
            sender,
            reports,
        }
    }

    /// Runs until told to stop; every component is ready within `ready_within` of its start, or the whole start fails.
    ///
    /// Whatever the outcome, nothing runs any more on return.
    ///
    /// # Errors
    /// [`StartError::Failed`] if a component dies or is not ready in time at the start. Later deaths are not errors: the
    /// component is started again.
    pub async fn run(mut self, stops: &mut mpsc::Receiver<Stop>, ready_within: Duration) -> Result<(), StartError> {
        self.enter(Phase::Starting);
        let outcome = self.start(stops, ready_within).await;
        if let Ok(Started::AllReady { after }) = outcome {
            // Written first: whoever is told may look.
            self.enter(Phase::Ready);
            (self.tell)(Notice::AllReady { after });
            self.serve(stops).await;
        }
        self.enter(Phase::Stopping);
        (self.tell)(Notice::Stopping);
        self.stop(stops).await;
        self.state.supervisor = None;
        self.enter(Phase::Stopped);
        outcome.map(|_| ())
    }

    async fn start(&mut self, stops: &mut mpsc::Receiver<Stop>, ready_within: Duration) -> Result<Started, StartError> {
        let since = Instant::now();
        while let Some(stage) = self.stages.pop_front() {
            for component in stage {
                self.launch(component)?;
            }
            let deadline = tokio::time::sleep(ready_within);
            tokio::pin!(deadline);
            while self.running.iter().any(|running| !running.has_been_ready) {
                tokio::select! {
                    Some((index, report)) = self.reports.recv() => {
                        if let Some(failure) = self.note(index, report) {
                            return Err(StartError::Failed(failure));
                        }
                    }
                    Some(Stop) = stops.recv() => return Ok(Started::Stopped),
                    () = &mut deadline => return Err(self.not_ready(ready_within).await),
                }
            }
        }
        Ok(Started::AllReady { after: since.elapsed() })
    }

    fn launch(&mut self, component: Arc<Component>) -> Result<(), StartError> {
        let endpoint = match &component.probe.ca {
            None => Endpoint::plain(component.port),
            Some(ca) => Endpoint::tls(component.port, ca)?,
        };
        let index = self.running.len();
        self.state.components[index].condition = Condition::Starting;
        let keeper = Keeper::start(component.clone(), endpoint.clone(), index, self.sender.clone());
        self.running.push(Running { component, endpoint, keeper, has_been_ready: false, ended: false });
        Ok(())
    }

    async fn serve(&mut self, stops: &mut mpsc::Receiver<Stop>) {
        loop {
            tokio::select! {
                Some((index, report)) = self.reports.recv() => {
                    self.note(index, report);
                }
                // A closed channel means that nobody could ever stop this.
                _ = stops.recv() => return,
            }
        }
    }

    async fn stop(&mut self, stops: &mut mpsc::Receiver<Stop>) {
        for index in (0..self.running.len()).rev() {
            let since = Instant::now();
            self.running[index].keeper.end();
            while !self.running[index].ended {
                tokio::select! {
                    Some((index, report)) = self.reports.recv() => {
                        self.note_end(index, report, since);
                    }
                    Some(Stop) = stops.recv() => {
                        self.running.iter().for_each(|running| running.keeper.kill());
                    }
                }
            }
        }
    }

    /// Writes a report down and tells about it; answers with the failure if it is one of a component that was never ready.
    fn note(&mut self, index: usize, report: Report) -> Option<Failure> {
        let recorded = &mut self.state.components[index];
        let running = &mut self.running[index];
        let component = running.component.clone();
        let mut failed = None;
        match report {
            Report::Started(process) => {
                recorded.condition = Condition::Starting;
                recorded.process = process;
                recorded.started_unix_seconds = Some(unix_seconds(SystemTime::now()));
            }
            Report::Ready(after) => {
                recorded.condition = Condition::Ready;
                running.has_been_ready = true;
                (self.tell)(Notice::Ready { component: component.name, port: component.port, after });
            }
            Report::Died { cause, pause } => {
                recorded.condition = Condition::BackingOff;
                recorded.process = None;
                recorded.started_unix_seconds = None;
                recorded.restarts += 1;
                let failure = failure(&component, cause);
                if running.has_been_ready {
                    (self.tell)(Notice::Restarting(failure, pause));
                } else {
                    failed = Some(failure);
                }
            }
            Report::Ended(_) => {
                recorded.condition = Condition::Stopped;
                recorded.process = None;
                recorded.started_unix_seconds = None;
                running.ended = true;
            }
        }
        self.save();
        failed
    }

    /// Like [`Self::note`] while ending: a death is what is wanted now, and no news.
    fn note_end(&mut self, index: usize, report: Report, since: Instant) {
        match report {
            Report::Ended(how) => {
                let component = self.running[index].component.name;
                self.note(index, Report::Ended(how));
                (self.tell)(Notice::Ended { component, how, after: since.elapsed() });
            }
            Report::Started(process) => {
                self.note(index, Report::Started(process));
            }
            Report::Ready(_) | Report::Died { .. } => {}
        }
    }

    async fn not_ready(&self, within: Duration) -> StartError {
        let late = self
            .running
            .iter()
            .find(|running| !running.has_been_ready)
            .expect("the deadline only runs while a component is not ready");
        let answer = late.endpoint.ask(late.component.probe.path).await;
        let reason = answer.map_or_else(|error| error.to_string(), |_| "it is ready now".into());
        StartError::Failed(failure(&late.component, format!("was not ready within {}s ({reason})", within.as_secs())))
    }

    fn enter(&mut self, phase: Phase) {
        self.state.phase = phase;
        self.save();
    }

    fn save(&mut self) {
        if let Err(error) = self.state.save(&self.state_file) {
            (self.tell)(Notice::StateNotWritten(error));
        }
    }
}

/// How the start came out, unless it failed.
enum Started {
    AllReady { after: Duration },
    Stopped,
}

fn failure(component: &Component, cause: String) -> Failure {
    Failure {
        component: component.name,
        cause,
        log: component.log.clone(),
        tail: log::tail(&component.log, SHOWN_LINES),
    }
}

fn unix_seconds(time: SystemTime) -> u64 {
    time.duration_since(UNIX_EPOCH).unwrap_or_default().as_secs()
}
