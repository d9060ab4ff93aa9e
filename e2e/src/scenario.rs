//! Scenarios: claims about one control plane that they share.

use std::process::ExitCode;
use std::sync::{Arc, OnceLock};

use libtest_mimic::{Arguments, Failed, Trial};

use crate::{Cluster, Options};

/// A claim, and how it is shown.
pub struct Scenario {
    name: String,
    needs_git: bool,
    show: fn(&Arc<Cluster>) -> anyhow::Result<()>,
}

impl Scenario {
    /// A claim that is named like the function that shows it.
    #[must_use]
    pub fn new(path: &str, show: fn(&Arc<Cluster>) -> anyhow::Result<()>) -> Self {
        Self { name: path.replace(' ', ""), needs_git: false, show }
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

/// The main function of a test binary: runs the scenarios that the command line selects, on one control plane.
///
/// The control plane is brought up by the first scenario, and ended when all are done. With `one_at_a_time` the scenarios run in the given
/// order, each alone; otherwise as many at once as there are cores.
#[must_use]
pub fn run(options: &Options, one_at_a_time: bool, scenarios: Vec<Scenario>) -> ExitCode {
    let mut arguments = Arguments::from_args();
    if one_at_a_time {
        arguments.test_threads = Some(1);
    }
    let shared = Arc::new(OnceLock::new());
    let trials = scenarios.into_iter().map(|scenario| trial(&scenario, options, &shared)).collect();
    let conclusion = libtest_mimic::run(&arguments, trials);
    // Ends the control plane: the trials, which had the only other handles, are done.
    drop(shared);
    conclusion.exit_code()
}

type Shared = Arc<OnceLock<Result<Arc<Cluster>, String>>>;

fn trial(scenario: &Scenario, options: &Options, shared: &Shared) -> Trial {
    let (show, options, shared) = (scenario.show, options.clone(), shared.clone());
    let ignored = scenario.needs_git && !Cluster::is_on_git();
    Trial::test(scenario.name.clone(), move || {
        let cluster = shared
            .get_or_init(|| {
                let started = Cluster::start(options).map(Arc::new);
                started.map_err(|error| format!("{error:#}"))
            })
            .as_ref()
            .map_err(|error| Failed::from(format!("no control plane: {error}")))?;
        show(cluster).map_err(|error| Failed::from(format!("{error:#}\n{}", cluster.last_words())))
    })
    .with_ignored_flag(ignored)
}
