//! Status of a server's branches, as served at `/status` and read by `gitcd status`.
//!
//! The field names are documented in `docs/design/status.md` and stable.
//!
//! ```
//! use gitcd_server::status::Status;
//!
//! let status: Status = serde_json::from_str(r#"{"gitcd":"0.1.0","time":1763757085,"branches":[]}"#)?;
//! assert!(status.is_good());
//! # Ok::<(), serde_json::Error>(())
//! ```

mod metrics;
mod reporter;

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use gitcd_sync::status::{Condition, ConflictStatus, RemoteStatus, Source};

pub use gitcd_sync::progress::Fetching;
pub use gitcd_sync::status::LeaseStatus;

pub(crate) use self::metrics::ExternalMetrics;
pub use self::reporter::Reporter;
pub(crate) use self::reporter::refusal;
pub use crate::connections::ConnectionStatus;

/// Status of a server and its branches.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Status {
    /// The version of gitcd.
    pub gitcd: String,
    /// Time of this status, in seconds since 1970.
    pub time: u64,
    /// The branches behind this port: always one.
    pub branches: Vec<Branch>,
}

impl Status {
    /// Removes what may quote values of keys: the values of conflicts, and why files were rejected.
    #[must_use]
    pub fn without_values(mut self) -> Self {
        const ELSEWHERE: &str = "the reason is in gitcd's log, and in the status on the port of its clients";
        let hide = |conflicts: &mut Vec<ConflictStatus>, rejected: &mut BTreeMap<String, String>| {
            conflicts.iter_mut().for_each(|conflict| (conflict.kept, conflict.lost) = (None, None));
            rejected.values_mut().for_each(|reason| ELSEWHERE.clone_into(reason));
        };
        for branch in &mut self.branches {
            hide(&mut branch.latest_conflicts, &mut branch.rejected);
            for remote in &mut branch.remotes {
                hide(&mut remote.known.latest_conflicts, &mut remote.known.rejected);
            }
        }
        self
    }

    /// Whether all branches accept writes, all remotes are synced, and no files are rejected.
    pub fn is_good(&self) -> bool {
        self.branches.iter().all(|branch| {
            // A standby refuses writes while the writer lease is held by another server: that is its job.
            (branch.writes_refused.is_none() || branch.role == "standby")
                && branch.error.is_none()
                && branch.rejected.is_empty()
                && branch.tasks.values().all(|task| !task.down)
                && branch
                    .remotes
                    .iter()
                    .all(|remote| remote.known.condition == Condition::Synced && remote.known.rejected.is_empty())
        })
    }
}

/// Status of a branch.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Branch {
    /// Its name in the flags.
    pub name: String,
    /// The reference that holds its data.
    pub reference: String,
    /// This server's role: `writer`, `suspended` while its lease cannot be renewed, `deposed` once another server has the lease,
    /// `standby` while it waits for the lease, `past` if it shows a moment of the past.
    pub role: String,
    /// Its writer lease, if it uses one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub lease: Option<LeaseStatus>,
    /// The newest durable revision.
    pub revision: i64,
    /// The newest revision that is in Git.
    pub committed_revision: i64,
    /// History below this revision is compacted.
    pub compact_revision: i64,
    /// The commit with everything up to the committed revision.
    pub head: String,
    /// Durable revisions that are not in Git yet.
    pub commit_lag_revisions: u64,
    /// Age of the oldest of them, in seconds.
    pub commit_lag_seconds: f64,
    /// The connections of its listeners.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub connections: Option<ConnectionStatus>,
    /// Keys, including deleted ones that are still in the history.
    pub keys: u64,
    /// Why writes are refused, if they are.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub writes_refused: Option<String>,
    /// External commits merged since the start: pushed, or made in the repository.
    pub merges: u64,
    /// Keys and fields that both these and the branch had changed.
    pub conflicts: u64,
    /// The newest conflicts, latest merge first; at most ten.
    #[serde(default)]
    pub latest_conflicts: Vec<ConflictStatus>,
    /// Rejected files of external commits, with the reason, until a corrected version or a deletion is merged.
    pub rejected: BTreeMap<String, String>,
    /// Sources of the rejected files.
    #[serde(default)]
    pub rejected_from: BTreeMap<String, Source>,
    /// Why the latest external commit cannot be merged, if so.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub error: Option<String>,
    /// The remotes, in the order of the flags.
    pub remotes: Vec<Remote>,
    /// Internal tasks that have panicked since the start, by name.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub tasks: BTreeMap<String, Task>,
}

/// An internal task that has panicked. That is a bug: please report it with the log.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Task {
    /// How often it was started again.
    pub restarts: u64,
    /// The message of the latest panic.
    pub error: String,
    /// Whether it is down until its next start.
    pub down: bool,
}

/// Status of a branch's remote.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Remote {
    /// Its name in the repository's configuration.
    pub name: String,
    /// The remote's reference that is merged.
    pub reference: String,
    /// Commits that the remote had at the last fetch and that are not in our history; `None` if it was never fetched, or they
    /// cannot be counted.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub lag_commits: Option<u64>,
    /// Whether there are more: counting ends at 1,000.
    #[serde(default)]
    pub lag_more: bool,
    /// Age of the oldest of them, in seconds.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub lag_seconds: Option<u64>,
    /// The fetch in progress.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub fetching: Option<Fetching>,
    /// The rest of its status.
    #[serde(flatten)]
    pub known: RemoteStatus,
}
