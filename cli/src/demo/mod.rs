//! `trishanku demo`: a Deployment is made at the desk, and what happens is told by the commits that the heavens made.
//!
//! [`watch`] sees when the branches move, [`story`] makes a story of the commits, [`node`] is a node that stands in until a real one joins.

mod kubectl;
mod node;
mod story;
mod watch;

use std::path::PathBuf;
use std::time::{Duration, Instant};

pub use self::kubectl::{Kubectl, KubectlError};
pub use self::node::StandIn;
pub use self::story::{Chapter, Story};
use self::watch::Branches;
use crate::headless::DESK;
use crate::heavens::{HeavenRecord, Kind};
use crate::plane::{Assets, Home, State};

/// What is shown.
#[derive(Clone, Debug)]
pub struct Demo {
    /// The cluster.
    pub home: Home,
    /// How many pods.
    pub replicas: u32,
    /// Whether what was made stays.
    pub keep: bool,
}

/// Why there is nothing to show.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum DemoError {
    /// It does not run.
    #[error("the control plane in {dir:?} does not run; start it with `trishanku up`")]
    NotRunning {
        /// Its folder.
        dir: PathBuf,
    },
    /// It has no branches that could be told about.
    #[error("the control plane in {dir:?} is no headless cluster; `trishanku --name NAME up` brings one up")]
    NotHeadless {
        /// Its folder.
        dir: PathBuf,
    },
    /// The pods were not bound in time.
    #[error("{bound} of {wanted} pods have a node after {seconds}s; see `trishanku status`")]
    NotBound {
        /// How many are.
        bound: usize,
        /// How many should be.
        wanted: u32,
        /// How long that took.
        seconds: u64,
    },
    /// Git cannot be asked.
    #[error("cannot read the commits in {repository:?}: {reason}")]
    Git {
        /// The repository.
        repository: PathBuf,
        /// Why.
        reason: String,
    },
    /// See [`KubectlError`].
    #[error(transparent)]
    Kubectl(#[from] KubectlError),
    /// See [`crate::plane::state::StateError`].
    #[error(transparent)]
    State(#[from] crate::plane::state::StateError),
    /// See [`crate::plane::assets::AssetsError`].
    #[error(transparent)]
    Assets(#[from] crate::plane::assets::AssetsError),
}

/// What came of it.
#[derive(Clone, Debug)]
pub struct Outcome {
    /// What the branches did.
    pub story: Story,
    /// From the moment before `kubectl create` until the desk showed the last pod with a node.
    pub bound_after: Duration,
    /// Whether the node that stands in was left, since other pods are bound to it.
    pub node_stays: bool,
}

/// How long pods may take.
const PATIENCE: Duration = Duration::from_mins(1);
/// Branches that did not move for so long have settled.
const SETTLED: Duration = Duration::from_millis(700);
/// The name of what is made.
const NAME: &str = "demo";

impl Demo {
    /// Shows it. Blocks the thread.
    ///
    /// # Errors
    /// See [`DemoError`].
    pub fn run(&self) -> Result<Outcome, DemoError> {
        let dir = || self.home.dir().into();
        let state = State::load(&self.home.state_file())?;
        if !state.is_supervised() {
            return Err(DemoError::NotRunning { dir: dir() });
        }
        let heavens: Vec<HeavenRecord> =
            state.heavens.into_iter().filter(|heaven| heaven.kind == Kind::Heaven).collect();
        if !heavens.iter().any(|heaven| heaven.name == DESK) {
            return Err(DemoError::NotHeadless { dir: dir() });
        }
        let kubectl = Kubectl::new(Assets::find(None)?.program("kubectl"), self.home.kubeconfig());
        // What an earlier one left, if it was interrupted.
        kubectl.remove_demo(NAME)?;
        let node = StandIn::ensure(&kubectl)?;
        let shown = self.show(&kubectl, &heavens);
        let mut node_stays = false;
        if !self.keep {
            kubectl.remove_demo(NAME)?;
            node_stays = node.remove_unless_used(&kubectl)?;
        }
        shown.map(|(story, bound_after)| Outcome { story, bound_after, node_stays })
    }

    /// What the branches did, and how long it took until the pods were bound.
    fn show(&self, kubectl: &Kubectl, heavens: &[HeavenRecord]) -> Result<(Story, Duration), DemoError> {
        let branches = Branches::watch(heavens);
        branches.until_settled(SETTLED, PATIENCE);
        let since = Instant::now();
        let mut pods = kubectl.follow_demo()?;
        let made = Instant::now();
        let deployment = Kubectl::demo(NAME, self.replicas).to_string();
        kubectl.run_with(&["create", "--filename=-"], &deployment)?;
        let wanted = self.replicas as usize;
        let bound = pods.until_bound(wanted, PATIENCE);
        let bound_after = made.elapsed();
        if bound < wanted {
            return Err(DemoError::NotBound { bound, wanted: self.replicas, seconds: PATIENCE.as_secs() });
        }
        branches.until_settled(SETTLED, PATIENCE);
        let moves = branches.end();
        Ok((Story::of(heavens, DESK, &moves, since, made)?, bound_after))
    }
}
