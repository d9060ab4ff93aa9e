//! Brings the components up in order, keeps them up, and takes them down in reverse order.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, Instant};

use tokio::sync::mpsc;

mod notes;
mod notices;
mod order;
mod turns;

pub use self::notices::{KeptUp, Notice, StartError, Upkeep};
use self::order::order;
use super::components::Component;
pub use super::failure::Failure;
use super::keeper::{Keeper, Looks, Report};
use super::log;
use super::look::Look;
use super::state::{self, Condition, Phase, State};

/// Every component reports a handful of times; a full channel only makes keepers wait.
const REPORTS: usize = 64;
/// How often logs are looked at whether they have become too large.
const ROTATE_EVERY: Duration = Duration::from_secs(10);
/// A server that takes turns with others is ready within this time, or it is most likely not its turn.
const TURN: Duration = Duration::from_secs(20);

/// When upkeep is looked at at the latest: a clock may be set, and a machine may sleep.
const UPKEEP: Duration = Duration::from_hours(1);
/// After upkeep that failed.
const UPKEEP_AGAIN: Duration = Duration::from_mins(1);

/// A request to end. The first one ends gracefully, the second one kills.
#[derive(Clone, Copy, Debug)]
pub struct Stop;

/// Runs the components of one control plane.
pub struct Supervisor<'a> {
    state: State,
    state_file: PathBuf,
    tell: &'a mut dyn FnMut(Notice),
    upkeep: Option<Upkeep<'a>>,
    running: Vec<Running>,
    sender: mpsc::Sender<(usize, Report)>,
    reports: mpsc::Receiver<(usize, Report)>,
}

/// A component, with what is known of it.
struct Running {
    component: Arc<Component>,
    looks: Looks,
    /// Those that it comes after.
    after: Vec<usize>,
    /// Since when it has been kept; nobody keeps it before.
    kept: Option<Kept>,
    /// Since when it has been told to end.
    told: Option<Instant>,
    course: Course,
    /// Whether it was told to end, and is started again as soon as nothing is in the way.
    rests: bool,
    /// Why it could not be started yet.
    not_prepared: Option<String>,
    ended: bool,
}

/// How far a component has come.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Course {
    /// It is to become ready.
    Awaited,
    /// It has been ready once: from then on a death is an incident, before it is a failed start.
    Up,
    /// Nobody waits any longer for it to be ready; it goes on being tried.
    GivenUp,
    /// It is not its turn, as far as is known.
    StandsBy,
}

struct Kept {
    keeper: Keeper,
    since: Instant,
}

impl Running {
    /// Whether those that come after it have to wait.
    fn is_in_the_way(&self) -> bool {
        self.rests || matches!(self.course, Course::Awaited | Course::StandsBy)
    }

    /// Whether the start has to wait for it. What is not kept yet waits for others, which are.
    fn is_waited_for(&self) -> bool {
        self.course == Course::Awaited && self.kept.is_some()
    }

    /// How long the start waits for it.
    fn patience(&self, ready_within: Duration) -> Duration {
        // What cannot even be prepared does not wait for its turn.
        let takes_turns = self.component.takes_turns && self.not_prepared.is_none();
        if takes_turns { ready_within.min(TURN) } else { ready_within }
    }
}

impl<'a> Supervisor<'a> {
    /// A supervisor for these components. It owns the state from now on, and writes every change to `state_file`.
    ///
    /// # Errors
    /// [`StartError::Order`] if a component comes after one that is not there, or after itself.
    pub fn new(
        components: Vec<Component>,
        mut state: State,
        state_file: PathBuf,
        tell: &'a mut dyn FnMut(Notice),
    ) -> Result<Self, StartError> {
        let (sender, reports) = mpsc::channel(REPORTS);
        let mut running: Vec<Running> = Vec::new();
        let orders = order(&components)?;
        for (component, after) in components.into_iter().zip(orders) {
            let alive = component.alive.as_ref().map(|alive| Look::of(&alive.probe)).transpose()?;
            let looks = Looks { ready: Look::of(&component.probe)?, alive };
            running.push(Running {
                component: Arc::new(component),
                looks,
                after,
                kept: None,
                told: None,
                course: Course::Awaited,
                rests: false,
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
            })
            .collect();
        Ok(Self { state, state_file, tell, upkeep: None, running, sender, reports })
    }

    /// Does this from time to time while everything runs.
    #[must_use]
    pub fn keeping_up(mut self, upkeep: Upkeep<'a>) -> Self {
        self.upkeep = Some(upkeep);
        self
    }

    /// Runs until told to stop; every component is ready within `ready_within` of its start, or the whole start fails. One that
    /// [takes turns](Component::takes_turns) may wait for as long as it takes, and those that come after it with it.
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
            let waits = self.running.iter().find(|running| running.course == Course::StandsBy);
            let waits = waits.map(|running| running.component.name.clone());
            (self.tell)(match waits {
                Some(component) => Notice::StandingBy { component },
                None => Notice::AllReady { after },
            });
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
        loop {
            self.launch();
            let late = self.running.iter().enumerate().filter(|(_, running)| running.is_waited_for());
            let late = late
                .filter_map(|(at, running)| Some((running.kept.as_ref()?.since + running.patience(ready_within), at)));
            let Some((deadline, at)) = late.min() else { break };
            tokio::select! {
                Some((index, report)) = self.reports.recv() => {
                    if let Some(failure) = self.note(index, report) {
                        return Err(StartError::Failed(failure));
                    }
                }
                Some(Stop) = stops.recv() => return Ok(Started::Stopped),
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
                    (self.tell)(Notice::Late(failure));
                }
            }
        }
        Ok(Started::AllReady { after: since.elapsed() })
    }

    /// Starts what nothing is in the way of any more.
    fn launch(&mut self) {
        for index in 0..self.running.len() {
            let running = &self.running[index];
            let is_free = running.after.iter().all(|&before| !self.running[before].is_in_the_way());
            if running.kept.is_some() || !is_free {
                continue;
            }
            // Nobody looks at the clock any more once the start is over: whether it is its turn shows when it is ready.
            let waits = running.component.takes_turns && self.state.phase == Phase::Ready;
            if waits {
                self.running[index].course = Course::StandsBy;
            }
            self.state.components[index].condition = if waits { Condition::Waiting } else { Condition::Starting };
            let running = &self.running[index];
            let (component, looks) = (running.component.clone(), running.looks.clone());
            let keeper = Keeper::start(component, looks, index, self.sender.clone());
            self.running[index].kept = Some(Kept { keeper, since: Instant::now() });
        }
    }

    async fn serve(&mut self, stops: &mut mpsc::Receiver<Stop>) {
        let mut rotate = tokio::time::interval(ROTATE_EVERY);
        let in_time = |due: Duration| tokio::time::Instant::now() + due.min(UPKEEP);
        let mut due = self.upkeep.as_ref().map(|upkeep| in_time(upkeep.due_in));
        loop {
            let upkeep = tokio::time::sleep_until(due.unwrap_or_else(tokio::time::Instant::now));
            // What waited for somebody's turn.
            self.launch();
            tokio::select! {
                Some((index, report)) = self.reports.recv() => {
                    self.note(index, report);
                }
                _ = rotate.tick() => self.rotate(),
                () = upkeep, if due.is_some() => due = self.keep_up().map(in_time),
                // A closed channel means that nobody could ever stop this.
                _ = stops.recv() => return,
            }
        }
    }

    /// Does what is due; answers with how long it is until something is due again.
    fn keep_up(&mut self) -> Option<Duration> {
        let kept_up = match (self.upkeep.as_mut()?.keep_up)() {
            Ok(kept_up) => kept_up,
            Err(error) => {
                (self.tell)(Notice::NotRenewed(error));
                return Some(UPKEEP_AGAIN);
            }
        };
        for running in &mut self.running {
            let has_to = kept_up.restart.contains(&running.component.name) && !running.rests;
            if let Some(kept) = running.kept.as_ref().filter(|_| has_to) {
                kept.keeper.end();
                running.rests = true;
            }
        }
        let due = kept_up.due_in;
        if !kept_up.renewed.is_empty() {
            (self.tell)(Notice::Renewed(kept_up));
        }
        Some(due)
    }

    fn rotate(&mut self) {
        for running in &self.running {
            if let Err(error) = log::rotate_if_large(&running.component.log) {
                (self.tell)(Notice::LogNotRotated(running.component.log.clone(), error));
            }
        }
    }

    /// Ends everything, each component when those that come after it have ended.
    async fn stop(&mut self, stops: &mut mpsc::Receiver<Stop>) {
        for running in &mut self.running {
            running.ended |= running.kept.is_none();
        }
        loop {
            for index in 0..self.running.len() {
                let is_needed = |other: &Running| !other.ended && other.after.contains(&index);
                if self.running[index].told.is_none() && !self.running.iter().any(is_needed) {
                    let running = &mut self.running[index];
                    running.told = Some(Instant::now());
                    if let Some(kept) = &running.kept {
                        kept.keeper.end();
                    }
                }
            }
            if self.running.iter().all(|running| running.ended) {
                return;
            }
            tokio::select! {
                Some((index, report)) = self.reports.recv() => self.note_end(index, report),
                Some(Stop) = stops.recv() => {
                    self.running.iter().filter_map(|running| running.kept.as_ref()).for_each(|kept| kept.keeper.kill());
                }
            }
        }
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
