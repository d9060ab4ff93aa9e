//! `trishanku demo`: creates a Deployment at the desk, and shows from the heavens' commits which branch did what.
//!
//! `watch` records when the branches move, `story` groups their commits, and `node` is a placeholder until a real
//! node joins.

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

/// Settings of the demo.
#[derive(Clone, Debug)]
pub struct Demo {
    /// The cluster's folder.
    pub home: Home,
    /// The number of pods.
    pub replicas: u32,
    /// Whether the objects are kept afterwards, also by later demos.
    pub keep: bool,
}

/// Why the demo failed.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum DemoError {
    /// The control plane is not running.
    #[error("the control plane in {dir:?} is not running; start it with `trishanku up`")]
    NotRunning {
        /// Its folder.
        dir: PathBuf,
    },
    /// The control plane has no branches to show.
    #[error("the control plane in {dir:?} is not a headless cluster; `trishanku --name NAME up` brings one up")]
    NotHeadless {
        /// Its folder.
        dir: PathBuf,
    },
    /// The pods were not bound in time.
    #[error("{bound} of {wanted} pods have a node after {seconds}s; see `trishanku status`")]
    NotBound {
        /// The pods with a node.
        bound: usize,
        /// The pods that should have one.
        wanted: u32,
        /// The waiting time.
        seconds: u64,
    },
    /// Git cannot read the commits.
    #[error("cannot read the commits in {repository:?}: {reason}")]
    Git {
        /// The repository.
        repository: PathBuf,
        /// The error of Git.
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

/// The result of the demo.
#[derive(Clone, Debug)]
pub struct Outcome {
    /// The name of the Deployment.
    pub deployment: String,
    /// What the branches did.
    pub story: Story,
    /// Time from just before `kubectl create` until the desk showed the last pod with a node.
    pub bound_after: Duration,
    /// Whether the placeholder node was left, since other pods are bound to it.
    pub node_stays: bool,
}

/// Limit for pods to be bound, and for branches to settle.
const PATIENCE: Duration = Duration::from_mins(1);
/// Branches that have not moved for this long have settled.
const SETTLED: Duration = Duration::from_millis(700);
/// The name of the Deployment, unless another one has it.
const NAME: &str = "demo";

impl Demo {
    /// Runs the demo. Blocks the thread.
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
        // Removes objects of an interrupted demo.
        kubectl.remove_demos()?;
        let deployment = kubectl.free_name(NAME)?;
        let node = StandIn::ensure(&kubectl)?;
        let shown = self.show(&kubectl, &heavens, &deployment);
        let mut node_stays = false;
        if !self.keep {
            kubectl.remove_demos()?;
            node_stays = node.remove_unless_used(&kubectl)?;
        }
        shown.map(|(story, bound_after)| Outcome { deployment, story, bound_after, node_stays })
    }

    /// Returns what the branches did, and how long it took to bind the pods.
    fn show(
        &self,
        kubectl: &Kubectl,
        heavens: &[HeavenRecord],
        deployment: &str,
    ) -> Result<(Story, Duration), DemoError> {
        let branches = Branches::watch(heavens);
        branches.until_settled(SETTLED, PATIENCE);
        let since = Instant::now();
        let mut pods = kubectl.follow_demo(deployment)?;
        let made = Instant::now();
        let deployment = Kubectl::demo(deployment, self.replicas, self.keep).to_string();
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
