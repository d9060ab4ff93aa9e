//! Starts the components in order, keeps them running, and stops them in reverse order.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, Instant};

use tokio::sync::mpsc;

mod folder;
mod notes;
mod notices;
mod order;
mod turns;

use self::folder::{Folder, folder_checks};
pub use self::notices::{Notice, PeriodicWork, StartError, WorkDone};
use self::order::order;
use super::components::Component;
pub use super::failure::Failure;
use super::log;
use super::prober::Prober;
use super::runner::{Probes, Report, Runner};
use super::state::{self, Condition, Phase, State};

/// Every component reports a handful of times; a full channel only delays runners.
const REPORTS: usize = 64;
/// How often the sizes of logs are checked.
const ROTATE_EVERY: Duration = Duration::from_secs(10);
/// After so many exits, the start no longer waits for a component that is not essential.
const MOST_EXITS: u32 = 3;
/// A server that takes turns is usually ready within this time, unless another one writes.
const TURN: Duration = Duration::from_secs(20);

/// The longest sleep before renewal is checked: clocks may be set, and machines may sleep.
const LONGEST_WAIT: Duration = Duration::from_hours(1);
/// Delay after a failed renewal.
const RETRY_AFTER: Duration = Duration::from_mins(1);

/// A request to stop. The first one stops gracefully, the second one kills.
#[derive(Clone, Copy, Debug)]
pub struct Stop;

/// Supervisor of the components of one control plane.
pub struct Supervisor<'a> {
    state: State,
    state_file: PathBuf,
    folder: Option<Folder<'a>>,
    notify: &'a mut dyn FnMut(Notice),
    periodic_work: Option<PeriodicWork<'a>>,
    running: Vec<Running>,
    sender: mpsc::Sender<(usize, Report)>,
    reports: mpsc::Receiver<(usize, Report)>,
}

/// A component and its progress.
struct Running {
    component: Arc<Component>,
    probes: Probes,
    /// Indices of the components that must be ready before it.
    after: Vec<usize>,
    /// Its runner and the time of its start; `None` before that.
    launched: Option<Launched>,
    /// When it was asked to stop.
    stop_requested: Option<Instant>,
    course: Course,
    /// Whether it was asked to stop temporarily, and restarts as soon as nothing blocks it.
    is_suspended: bool,
    /// Why its last preparation failed.
    not_prepared: Option<String>,
    ended: bool,
}

/// The progress of a component.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Course {
    /// The start waits for it to become ready.
    Awaited,
    /// It has been ready: from now on an exit is an incident, not a failed start.
    Up,
    /// The start no longer waits for it; it keeps restarting.
    GivenUp,
    /// Probably another server writes.
    StandsBy,
}

struct Launched {
    runner: Runner,
    since: Instant,
}

impl Running {
    /// Whether the components after it must wait.
    fn blocks_others(&self) -> bool {
        self.is_suspended || matches!(self.course, Course::Awaited | Course::StandsBy)
    }

    /// Whether the start must wait for it. A component without a runner waits for others, which are counted.
    fn is_awaited(&self) -> bool {
        self.course == Course::Awaited && self.launched.is_some()
    }

    /// How long the start waits for it.
    fn patience(&self, ready_within: Duration) -> Duration {
        // A failing preparation does not mean that another server writes.
        let takes_turns = self.component.takes_turns && self.not_prepared.is_none();
        if takes_turns { ready_within.min(TURN) } else { ready_within }
    }
}

impl<'a> Supervisor<'a> {
    /// Creates a supervisor. It owns the state from now on, and writes every change to `state_file`.
    ///
    /// # Errors
    /// [`StartError::Order`] if a component comes after a missing one, or after itself.
    pub fn new(
        components: Vec<Component>,
        mut state: State,
        state_file: PathBuf,
        notify: &'a mut dyn FnMut(Notice),
    ) -> Result<Self, StartError> {
        let (sender, reports) = mpsc::channel(REPORTS);
        let mut running: Vec<Running> = Vec::new();
        let orders = order(&components)?;
        for (component, after) in components.into_iter().zip(orders) {
            let alive = component.alive.as_ref().map(|alive| Prober::of(&alive.probe)).transpose()?;
            let probes = Probes { ready: Prober::of(&component.probe)?, alive };
            running.push(Running {
                component: Arc::new(component),
                probes,
                after,
                launched: None,
                stop_requested: None,
                course: Course::Awaited,
                is_suspended: false,
                not_prepared: None,
                ended: false,
            });
        }
        state.components = running
            .iter()
            .map(|running| state::Component {
                name: running.component.name.clone(),
                port: running.component.port,
                condition: Condition::Stopped,
                process: None,
                started_unix_seconds: None,
                restarts: 0,
                last_exit: None,
            })
            .collect();
        Ok(Self { state, state_file, folder: None, notify, periodic_work: None, running, sender, reports })
    }

    /// Adds periodic work while everything runs.
    #[must_use]
    pub fn with_periodic_work(mut self, periodic_work: PeriodicWork<'a>) -> Self {
        self.periodic_work = Some(periodic_work);
        self
    }

    /// Runs until a request to stop. Each component must be ready within `ready_within` of its start, or the whole start
    /// fails. One that [takes turns](Component::takes_turns) may wait without limit, and the components after it wait
    /// with it.
    ///
    /// On return, nothing runs any more, whatever the outcome.
    ///
    /// # Errors
    /// [`StartError::Failed`] if a component exits or is not ready in time during the start. Later exits are not errors:
    /// the component restarts. [`StartError::FolderGone`] if the folder was removed, moved away or replaced.
    pub async fn run(mut self, stops: &mut mpsc::Receiver<Stop>, ready_within: Duration) -> Result<(), StartError> {
        self.enter(Phase::Starting);
        let mut outcome = self.start(stops, ready_within).await;
        if let Ok(Started::AllReady { after }) = outcome {
            // State first: a reader of the notice may look at it.
            self.enter(Phase::Ready);
            let first = |course: Course| {
                let found = self.running.iter().find(|running| running.course == course);
                found.map(|running| running.component.name.clone())
            };
            let notice = match (first(Course::GivenUp), first(Course::StandsBy)) {
                (Some(component), _) => Notice::Degraded { after, component },
                (None, Some(component)) => Notice::StandingBy { component },
                (None, None) => Notice::AllReady { after },
            };
            (self.notify)(notice);
            if let Err(gone) = self.serve(stops).await {
                outcome = Err(gone);
            }
        }
        // A component may have failed because of it, and a new control plane at the path stops this one.
        if let Err(gone) = self.check_folder() {
            outcome = Err(gone);
        }
        self.enter(Phase::Stopping);
        (self.notify)(Notice::Stopping);
        self.stop(stops).await;
        self.state.supervisor = None;
        self.enter(Phase::Stopped);
        outcome.map(|_| ())
    }

    async fn start(&mut self, stops: &mut mpsc::Receiver<Stop>, ready_within: Duration) -> Result<Started, StartError> {
        let since = Instant::now();
        let mut check = folder_checks();
        loop {
            self.launch();
            let late = self.running.iter().enumerate().filter(|(_, running)| running.is_awaited());
            let late = late.filter_map(|(at, running)| {
                Some((running.launched.as_ref()?.since + running.patience(ready_within), at))
            });
            let Some((deadline, at)) = late.min() else { break };
            tokio::select! {
                Some((index, report)) = self.reports.recv() => {
                    if let Some(failure) = self.note(index, report) {
                        return Err(StartError::Failed(failure));
                    }
                }
                Some(Stop) = stops.recv() => return Ok(Started::Stopped),
                _ = check.tick() => self.check_folder()?,
                () = tokio::time::sleep_until(deadline.into()) => {
                    let late = &self.running[at];
                    if late.component.takes_turns && late.not_prepared.is_none() {
                        self.stand_by(at);
                        continue;
                    }
                    let failure = self.not_ready(at, ready_within).await;
                    if self.running[at].component.is_essential {
                        return Err(StartError::Failed(failure));
                    }
                    self.running[at].course = Course::GivenUp;
                    (self.notify)(Notice::Late(failure));
                }
            }
        }
        Ok(Started::AllReady { after: since.elapsed() })
    }

    /// Starts the components that nothing blocks any more.
    fn launch(&mut self) {
        for index in 0..self.running.len() {
            let running = &self.running[index];
            let is_free = running.after.iter().all(|&before| !self.running[before].blocks_others());
            if running.launched.is_some() || !is_free {
                continue;
            }
            // After the start there is no deadline: readiness shows that it is its turn.
            let waits = running.component.takes_turns && self.state.phase == Phase::Ready;
            if waits {
                self.running[index].course = Course::StandsBy;
            }
            self.state.components[index].condition = if waits { Condition::Waiting } else { Condition::Starting };
            let running = &self.running[index];
            let (component, probes) = (running.component.clone(), running.probes.clone());
            let runner = Runner::start(component, probes, index, self.sender.clone());
            self.running[index].launched = Some(Launched { runner, since: Instant::now() });
        }
    }

    async fn serve(&mut self, stops: &mut mpsc::Receiver<Stop>) -> Result<(), StartError> {
        let mut check = folder_checks();
        let mut rotate = tokio::time::interval(ROTATE_EVERY);
        let in_time = |due: Duration| tokio::time::Instant::now() + due.min(LONGEST_WAIT);
        let mut due = self.periodic_work.as_ref().map(|work| in_time(work.due_in));
        loop {
            let is_due = tokio::time::sleep_until(due.unwrap_or_else(tokio::time::Instant::now));
            // Starts what was waiting for a turn.
            self.launch();
            tokio::select! {
                Some((index, report)) = self.reports.recv() => {
                    self.note(index, report);
                }
                _ = rotate.tick() => self.rotate(),
                () = is_due, if due.is_some() => due = self.do_periodic_work().map(in_time),
                // Also if the channel is closed: no request to stop could ever arrive.
                _ = stops.recv() => return Ok(()),
                _ = check.tick() => self.check_folder()?,
            }
        }
    }

    /// Runs the due work; returns the time until the next one.
    fn do_periodic_work(&mut self) -> Option<Duration> {
        let done = match (self.periodic_work.as_mut()?.run)() {
            Ok(done) => done,
            Err(error) => {
                (self.notify)(Notice::NotRenewed(error));
                return Some(RETRY_AFTER);
            }
        };
        for running in &mut self.running {
            let has_to = done.restart.contains(&running.component.name) && !running.is_suspended;
            if let Some(launched) = running.launched.as_ref().filter(|_| has_to) {
                launched.runner.end();
                running.is_suspended = true;
            }
        }
        let due = done.due_in;
        if !done.renewed.is_empty() {
            (self.notify)(Notice::Renewed(done));
        }
        Some(due)
    }

    fn rotate(&mut self) {
        for running in &self.running {
            if let Err(error) = log::rotate_if_large(&running.component.log) {
                (self.notify)(Notice::LogNotRotated(running.component.log.clone(), error));
            }
        }
    }

    /// Stops everything, each component after the ones that depend on it.
    async fn stop(&mut self, stops: &mut mpsc::Receiver<Stop>) {
        for running in &mut self.running {
            running.ended |= running.launched.is_none();
        }
        let mut check = folder_checks();
        loop {
            for index in 0..self.running.len() {
                let is_needed = |other: &Running| !other.ended && other.after.contains(&index);
                if self.running[index].stop_requested.is_none() && !self.running.iter().any(is_needed) {
                    let running = &mut self.running[index];
                    running.stop_requested = Some(Instant::now());
                    if let Some(launched) = &running.launched {
                        launched.runner.end();
                    }
                }
            }
            if self.running.iter().all(|running| running.ended) {
                return;
            }
            tokio::select! {
                Some((index, report)) = self.reports.recv() => self.note_end(index, report),
                Some(Stop) = stops.recv() => self.kill(),
                // The components must not write to another folder at their path. Stores are durable anyway.
                _ = check.tick() => if self.check_folder().is_err() { self.kill() },
            }
        }
    }

    fn kill(&self) {
        self.running.iter().filter_map(|running| running.launched.as_ref()).for_each(|launched| launched.runner.kill());
    }

    fn enter(&mut self, phase: Phase) {
        self.state.phase = phase;
        self.save();
    }
}

/// The outcome of a start that did not fail.
enum Started {
    AllReady { after: Duration },
    Stopped,
}
