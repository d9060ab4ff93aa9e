//! Scenarios: claims about one control plane that they share.

use std::process::ExitCode;
use std::sync::{Arc, OnceLock};

use libtest_mimic::{Arguments, Failed, Trial};

use crate::{Cluster, Options};

/// A claim about something that scenarios share, and how it is shown.
pub struct Scenario<S = Cluster> {
    name: String,
    needs_git: bool,
    show: fn(&Arc<S>) -> anyhow::Result<()>,
}

impl<S> Scenario<S> {
    /// A claim that is named like the function that shows it.
    #[must_use]
    pub fn new(path: &str, show: fn(&Arc<S>) -> anyhow::Result<()>) -> Self {
        Self { name: path.replace(' ', ""), needs_git: false, show }
    }

    /// Its name: the path of the function that shows it.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.name
    }

    /// The claim is about Git, so there is nothing to show on another store.
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

/// What scenarios share.
pub trait Shared: Send + Sync + 'static {
    /// The ends of all logs, for the message of a failed scenario.
    fn last_words(&self) -> String;
}

impl Shared for Cluster {
    fn last_words(&self) -> String {
        Self::last_words(self)
    }
}

/// The main function of a test binary: runs the scenarios that the command line selects, on one control plane.
///
/// The control plane is brought up by the first scenario, and ended when all are done. With `one_at_a_time` the scenarios run in the given
/// order, each alone; otherwise as many at once as there are cores.
#[must_use]
pub fn run(options: &Options, one_at_a_time: bool, scenarios: Vec<Scenario>) -> ExitCode {
    let options = options.clone();
    let is_ignored = |scenario: &Scenario| scenario.needs_git && !Cluster::is_on_git();
    run_on(move || Cluster::start(options.clone()), one_at_a_time, scenarios, is_ignored)
}

/// [`run`] on anything that scenarios can share.
#[must_use]
pub fn run_on<S: Shared>(
    start: impl Fn() -> anyhow::Result<S> + Send + Sync + 'static,
    one_at_a_time: bool,
    scenarios: Vec<Scenario<S>>,
    is_ignored: impl Fn(&Scenario<S>) -> bool,
) -> ExitCode {
    let mut arguments = Arguments::from_args();
    if one_at_a_time {
        arguments.test_threads = Some(1);
    }
    let (shared, start) = (Arc::new(OnceLock::new()), Arc::new(start));
    let trials = scenarios.into_iter().map(|scenario| {
        let is_ignored = is_ignored(&scenario);
        trial(&scenario, start.clone(), shared.clone()).with_ignored_flag(is_ignored)
    });
    let conclusion = libtest_mimic::run(&arguments, trials.collect());
    // Ends what was shared: the trials, which had the only other handles, are done.
    drop(shared);
    conclusion.exit_code()
}

type Once<S> = Arc<OnceLock<Result<Arc<S>, String>>>;

fn trial<S: Shared>(
    scenario: &Scenario<S>,
    start: Arc<impl Fn() -> anyhow::Result<S> + Send + Sync + 'static>,
    shared: Once<S>,
) -> Trial {
    let show = scenario.show;
    Trial::test(scenario.name.clone(), move || {
        let shared = shared
            .get_or_init(|| start().map(Arc::new).map_err(|error| format!("{error:#}")))
            .as_ref()
            .map_err(|error| Failed::from(format!("there is nothing to show it on: {error}")))?;
        show(shared).map_err(|error| Failed::from(format!("{error:#}\n{}", shared.last_words())))
    })
}
