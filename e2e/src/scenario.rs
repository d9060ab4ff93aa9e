//! Scenarios: claims about a shared control plane.

use std::process::ExitCode;
use std::sync::{Arc, Condvar, Mutex, OnceLock, PoisonError};

use libtest_mimic::{Arguments, Failed, Trial};

use crate::{Cluster, Options};

/// A claim about something shared, with the function that proves it.
pub struct Scenario<S = Cluster> {
    name: String,
    needs_git: bool,
    show: fn(&Arc<S>) -> anyhow::Result<()>,
}

impl<S> Scenario<S> {
    /// Creates a scenario named after the function that proves it.
    #[must_use]
    pub fn new(path: &str, show: fn(&Arc<S>) -> anyhow::Result<()>) -> Self {
        Self { name: path.replace(' ', ""), needs_git: false, show }
    }

    /// The path of the function.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Restricts the claim to Git: it is ignored on another store.
    #[must_use]
    pub fn on_git(mut self) -> Self {
        self.needs_git = true;
        self
    }
}

/// The scenarios of these functions.
#[macro_export]
macro_rules! scenarios {
    ($($show:path),* $(,)?) => {
        vec![$($crate::Scenario::new(stringify!($show), $show)),*]
    };
}

/// The resource that scenarios share.
pub trait Shared: Send + Sync + 'static {
    /// The ends of all logs, for the message of a failed scenario.
    fn last_words(&self) -> String;
}

impl Shared for Cluster {
    fn last_words(&self) -> String {
        Self::last_words(self)
    }
}

/// The order of scenarios.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Order {
    /// As many at once as there are cores.
    AtOnce,
    /// One by one in the given order, printing each name at its start.
    OneByOne,
    /// The same beside other runs: each line is printed at the end of its scenario.
    InTurns,
}

/// The main function of a test binary: runs the scenarios selected by the command line on one control plane.
///
/// The first scenario starts the control plane; it is stopped when all are done.
#[must_use]
pub fn run(options: &Options, order: Order, scenarios: Vec<Scenario>) -> ExitCode {
    let options = options.clone();
    run_groups(order, vec![(Box::new(move || Cluster::start(options.clone())), scenarios)])
}

/// Starts a control plane.
pub type Start = Box<dyn Fn() -> anyhow::Result<Cluster> + Send + Sync>;

/// Like [`run`], on several control planes: each group has its own. The order applies within a group, and with
/// [`Order::InTurns`], the groups run beside each other.
#[must_use]
pub fn run_groups(order: Order, groups: Vec<(Start, Vec<Scenario>)>) -> ExitCode {
    let arguments = Arguments::from_args();
    let is_ignored = |scenario: &Scenario| scenario.needs_git && !Cluster::is_on_git();
    let of_group = |(start, scenarios)| trials(start, &arguments, order, scenarios, is_ignored);
    let trials = groups.into_iter().flat_map(of_group).collect();
    run_trials(arguments, order, trials)
}

/// Like [`run`], on any shared resource.
#[must_use]
pub fn run_on<S: Shared>(
    start: impl Fn() -> anyhow::Result<S> + Send + Sync + 'static,
    order: Order,
    scenarios: Vec<Scenario<S>>,
    is_ignored: impl Fn(&Scenario<S>) -> bool,
) -> ExitCode {
    let arguments = Arguments::from_args();
    let trials = trials(start, &arguments, order, scenarios, is_ignored);
    run_trials(arguments, order, trials)
}

fn run_trials(mut arguments: Arguments, order: Order, trials: Vec<Trial>) -> ExitCode {
    match order {
        Order::AtOnce => {}
        // One for each, since most of them wait for their turn; one thread alone would print each name at its start.
        Order::InTurns if !arguments.ignored => arguments.test_threads = Some(trials.len().max(2)),
        Order::InTurns | Order::OneByOne => arguments.test_threads = Some(1),
    }
    libtest_mimic::run(&arguments, trials).exit_code()
}

/// The trials of one group. Only they hold the shared resource, so it is stopped when the last one is done.
fn trials<S: Shared>(
    start: impl Fn() -> anyhow::Result<S> + Send + Sync + 'static,
    arguments: &Arguments,
    order: Order,
    scenarios: Vec<Scenario<S>>,
    is_ignored: impl Fn(&Scenario<S>) -> bool,
) -> Vec<Trial> {
    let in_turns = order == Order::InTurns && !arguments.ignored;
    let (shared, start, turns) = (Arc::new(OnceLock::new()), Arc::new(start), Arc::new(Turns::default()));
    let mut number = 0;
    let trials = scenarios.into_iter().map(|scenario| {
        let is_ignored = is_ignored(&scenario);
        let is_run = is_selected(arguments, &scenario.name) && (!is_ignored || arguments.include_ignored);
        let turn = (in_turns && is_run).then(|| Turn { turns: turns.clone(), number });
        number += usize::from(is_run);
        trial(&scenario, start.clone(), shared.clone(), turn).with_ignored_flag(is_ignored)
    });
    trials.collect()
}

/// Whether the command line selects a scenario.
fn is_selected(arguments: &Arguments, name: &str) -> bool {
    let is_meant = |filter: &String| if arguments.exact { name == filter } else { name.contains(filter) };
    arguments.filter.as_ref().is_none_or(is_meant) && !arguments.skip.iter().any(is_meant)
}

/// The number of finished scenarios.
#[derive(Default)]
struct Turns(Mutex<usize>, Condvar);

/// The position of a scenario in the sequence.
struct Turn {
    turns: Arc<Turns>,
    number: usize,
}

impl Turn {
    /// Waits until all earlier ones have finished. Its own turn ends when the returned value is dropped.
    fn wait(&self) -> Ended<'_> {
        let ended = self.turns.0.lock().unwrap_or_else(PoisonError::into_inner);
        let _ended = self.turns.1.wait_while(ended, |ended| *ended < self.number);
        Ended(&self.turns)
    }
}

struct Ended<'t>(&'t Turns);

impl Drop for Ended<'_> {
    fn drop(&mut self) {
        *self.0.0.lock().unwrap_or_else(PoisonError::into_inner) += 1;
        self.0.1.notify_all();
    }
}

type Once<S> = Arc<OnceLock<Result<Arc<S>, String>>>;

fn trial<S: Shared>(
    scenario: &Scenario<S>,
    start: Arc<impl Fn() -> anyhow::Result<S> + Send + Sync + 'static>,
    shared: Once<S>,
    turn: Option<Turn>,
) -> Trial {
    let show = scenario.show;
    Trial::test(scenario.name.clone(), move || {
        let _ended = turn.as_ref().map(Turn::wait);
        let shared = shared
            .get_or_init(|| start().map(Arc::new).map_err(|error| format!("{error:#}")))
            .as_ref()
            .map_err(|error| Failed::from(format!("cannot start the shared control plane: {error}")))?;
        show(shared).map_err(|error| Failed::from(format!("{error:#}\n{}", shared.last_words())))
    })
}
