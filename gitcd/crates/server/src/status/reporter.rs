//! Collects the status of a branch.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

use git2::{Oid, Repository};
use gitcd_core::supervisor::{Supervisor, TaskStatus};
use gitcd_engine::committer;
use gitcd_mvcc::Store;
use gitcd_repo::git_dir;
use gitcd_repo::graph::{Graph, GraphError, Missing};
use gitcd_sync::Puller;
use gitcd_sync::lease::Lease;
use gitcd_sync::status::{Condition, ConflictStatus, LATEST_CONFLICTS, RemoteStatus, now};
use parking_lot::Mutex;

use super::{Branch, Remote, Status, Task};

/// Returns why clients cannot write, if so. The reason that only a restart removes comes first.
pub(crate) fn refusal(store: &Store) -> Option<gitcd_mvcc::Error> {
    store.poisoned().map(gitcd_mvcc::Error::Poisoned).or_else(|| store.unavailable())
}

/// Limit for counting commits.
const MOST: usize = 1000;

/// Collects the status of a branch and its remotes.
#[derive(Debug)]
pub struct Reporter {
    puller: Arc<Puller>,
    lease: Option<Arc<Lease>>,
    supervisor: Supervisor,
    git: Mutex<Git>,
}

#[derive(Default)]
struct Git {
    graph: Graph,
    counted: HashMap<String, Counted>,
}

impl std::fmt::Debug for Git {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Git").field("counted", &self.counted).finish_non_exhaustive()
    }
}

/// The last count for a remote.
#[derive(Clone, Copy, Debug)]
struct Counted {
    theirs: Oid,
    ours: Oid,
    missing: Missing,
}

impl Reporter {
    /// Creates a reporter for the branch of a puller, its lease if it has one, and the tasks of its server.
    pub fn new(puller: Arc<Puller>, lease: Option<Arc<Lease>>, supervisor: Supervisor) -> Self {
        Self { puller, lease, supervisor, git: Mutex::default() }
    }

    /// Returns the internal tasks of the server.
    pub fn supervisor(&self) -> &Supervisor {
        &self.supervisor
    }

    /// Returns the status of the lease.
    pub fn lease(&self) -> Option<super::LeaseStatus> {
        self.lease.as_deref().map(Lease::status)
    }

    /// Returns the complete status. Blocks: reads the commits that are new since the last call.
    pub fn status(&self) -> Status {
        Status { gitcd: env!("CARGO_PKG_VERSION").into(), time: now(), branches: vec![self.branch()] }
    }

    /// Returns the status of the remotes only, at the same cost.
    pub fn remotes(&self) -> Vec<Remote> {
        let known = self.puller.statuses().all();
        self.remotes_of(&known)
    }

    /// Returns the number of rejected files in external commits.
    pub fn rejected(&self) -> usize {
        let known = self.puller.statuses().all();
        self.people(&known).map(|status| status.rejected.len()).sum()
    }

    /// Returns whether external commits cannot be noticed or merged at the moment.
    pub fn has_external_error(&self) -> bool {
        let known = self.puller.statuses().all();
        self.people(&known).any(|status| status.error.is_some())
    }

    fn branch(&self) -> Branch {
        let merger = self.puller.merger();
        let (store, config) = (merger.store(), merger.config());
        let known = self.puller.statuses().all();
        let (keys, _) = store.sizes();
        // In this order, so that a commit in between does not show as lag.
        let revision = store.revision();
        let committed = store.committed_revision();
        Branch {
            name: config.name.clone(),
            reference: config.data_reference.clone(),
            role: match self.lease.as_deref() {
                Some(lease) => lease.role().into(),
                None if store.is_standby() => "standby".into(),
                None if store.is_past() => "past".into(),
                None => "writer".into(),
            },
            lease: self.lease(),
            revision: revision.get(),
            committed_revision: committed.get(),
            compact_revision: store.compacted().get(),
            head: merger.head().data.to_string(),
            commit_lag_revisions: revision.since(committed) as u64,
            commit_lag_seconds: committer::lag(store).as_secs_f64(),
            connections: None,
            keys: keys as u64,
            writes_refused: refusal(store).map(|error| error.to_string()),
            merges: self.people(&known).map(|status| status.merges).sum(),
            conflicts: self.people(&known).map(|status| status.conflicts).sum(),
            latest_conflicts: self.latest_conflicts(&known),
            rejected: self.people(&known).flat_map(|status| status.rejected.clone()).collect(),
            rejected_from: self.people(&known).flat_map(|status| status.rejected_from.clone()).collect(),
            error: self.people(&known).find_map(|status| status.error.clone()),
            remotes: self.remotes_of(&known),
            tasks: self.tasks(),
        }
    }

    /// Returns the tasks that have panicked.
    fn tasks(&self) -> BTreeMap<String, Task> {
        let report = |(name, task): (&str, TaskStatus)| {
            Some((name.to_owned(), Task { restarts: task.restarts, error: task.error?, down: task.is_down }))
        };
        self.supervisor.statuses().into_iter().filter_map(report).collect()
    }

    /// Returns the merges of external commits since the start, and their conflicts.
    pub fn external(&self) -> (u64, u64) {
        let known = self.puller.statuses().all();
        self.people(&known)
            .fold((0, 0), |(merges, conflicts), status| (merges + status.merges, conflicts + status.conflicts))
    }

    fn latest_conflicts(&self, known: &Known) -> Vec<ConflictStatus> {
        let mut all: Vec<_> = self.people(known).flat_map(|status| status.latest_conflicts.clone()).collect();
        all.sort_by_key(|conflict| std::cmp::Reverse(conflict.time));
        all.truncate(LATEST_CONFLICTS);
        all
    }

    /// Returns the statuses of external commits, which are kept under the reference that they were pushed to.
    fn people<'s>(&self, known: &'s Known) -> impl Iterator<Item = &'s RemoteStatus> {
        let is_remote = |name: &str| self.puller.remotes().iter().any(|remote| remote.name == name);
        let people: Vec<_> = known.iter().filter(|(name, _)| !is_remote(name)).map(|(_, status)| status).collect();
        people.into_iter()
    }

    fn remotes_of(&self, known: &Known) -> Vec<Remote> {
        let remotes = self.puller.remotes().iter();
        let statuses = remotes.map(|remote| {
            let mut known = known.get(&remote.name).cloned().unwrap_or_default();
            let problem = self.lease.as_deref().and_then(|lease| lease.problem(&remote.name));
            if let Some((condition, said)) = problem.filter(|_| known.condition == Condition::Synced) {
                (known.condition, known.error) = (condition, Some(said));
            }
            // A merged commit may not be in our history, if no change of it applies here.
            let missing = known.seen.as_deref().and_then(|seen| {
                if known.merged.as_deref() == Some(seen) {
                    return Some(Missing::default());
                }
                self.missing(&remote.name, Oid::from_str(seen).ok()?)
            });
            let age = |oldest: i64| now().saturating_sub(oldest.max(0) as u64);
            Remote {
                name: remote.name.clone(),
                reference: remote.data_reference.clone(),
                lag_commits: missing.map(|missing| missing.commits as u64),
                lag_more: missing.is_some_and(|missing| missing.more),
                lag_seconds: missing.map(|missing| missing.oldest.map_or(0, age)),
                fetching: self.puller.fetching(&remote.name),
                known,
            }
        });
        statuses.collect()
    }

    /// Counts the commits that the remote has and we do not.
    fn missing(&self, remote: &str, theirs: Oid) -> Option<Missing> {
        let ours = self.puller.merger().head().data;
        let git = &mut *self.git.lock();
        // Commits in our history stay in it, so a count of zero stays valid.
        let is_known = |counted: &&Counted| {
            counted.theirs == theirs && (counted.ours == ours || counted.missing == Missing::default())
        };
        if let Some(counted) = git.counted.get(remote).filter(is_known) {
            return Some(counted.missing);
        }
        let found = git.count(&git_dir(&self.puller.merger().config().repository), theirs, ours);
        match found {
            Ok(missing) => {
                git.counted.insert(remote.to_owned(), Counted { theirs, ours, missing });
                Some(missing)
            }
            Err(error) => {
                tracing::debug!(remote, %error, "cannot count the commits that a remote is ahead");
                // The next attempt starts from scratch.
                git.graph = Graph::default();
                None
            }
        }
    }
}

type Known = std::collections::BTreeMap<String, RemoteStatus>;

impl Git {
    fn count(&mut self, folder: &std::path::Path, theirs: Oid, ours: Oid) -> Result<Missing, GraphError> {
        let problem = |error: git2::Error| GraphError::unreadable(theirs, error.message());
        // Fetches and pushes add and remove packs, and an open repository keeps removed ones open.
        let repository = Repository::open(folder).map_err(problem)?;
        self.graph.missing(&repository, theirs, ours, MOST)
    }
}
