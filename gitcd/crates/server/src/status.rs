//! How the branches of a server are: what `/status` says, and `gitcd status` reads.
//!
//! The names of the fields are those of `docs/design/status.md`; they stay.
//!
//! ```
//! use gitcd::status::Status;
//!
//! let status: Status = serde_json::from_str(r#"{"gitcd":"0.1.0","time":1763757085,"branches":[]}"#)?;
//! assert!(status.is_good());
//! # Ok::<(), serde_json::Error>(())
//! ```

mod reporter;

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use gitcd_sync::status::{Condition, ConflictStatus, RemoteStatus, Source};

pub use gitcd_sync::status::LeaseStatus;

pub use self::reporter::Reporter;

/// What a server says of its branches.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Status {
    /// The version of gitcd.
    pub gitcd: String,
    /// When this was true, in seconds since 1970.
    pub time: u64,
    /// The branches behind this port: one.
    pub branches: Vec<Branch>,
}

impl Status {
    /// Whether all branches take writes, and all remotes are synced.
    pub fn is_good(&self) -> bool {
        self.branches.iter().all(|branch| {
            branch.writes_refused.is_none()
                && branch.error.is_none()
                && branch.rejected.is_empty()
                && branch
                    .remotes
                    .iter()
                    .all(|remote| remote.known.condition == Condition::Synced && remote.known.rejected.is_empty())
        })
    }
}

/// A branch.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Branch {
    /// Its name among the flags.
    pub name: String,
    /// The reference that holds its data.
    pub reference: String,
    /// What this server is to it: `writer`, `suspended` while its lease cannot be renewed, `deposed` once another server has the lease,
    /// `standby` while it waits for its turn.
    pub role: String,
    /// Its right to write, if it needs one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub lease: Option<LeaseStatus>,
    /// The newest durable revision.
    pub revision: i64,
    /// The newest revision that is in Git.
    pub committed_revision: i64,
    /// History below this revision is dropped.
    pub compact_revision: i64,
    /// The commit that has everything up to the committed revision.
    pub head: String,
    /// Durable revisions that are not in Git yet.
    pub commit_lag_revisions: u64,
    /// Age of the oldest of them, in seconds.
    pub commit_lag_seconds: f64,
    /// Keys, deleted ones that history still knows included.
    pub keys: u64,
    /// Why writes are refused, if they are.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub writes_refused: Option<String>,
    /// Commits of people that were merged since the start: pushed, or made in the repository.
    pub merges: u64,
    /// Keys and fields that these and the branch both had changed.
    pub conflicts: u64,
    /// The newest of them, the latest merge first: at most ten.
    #[serde(default)]
    pub latest_conflicts: Vec<ConflictStatus>,
    /// Files in commits of people that did not enter, with the reason, until something else is taken from them.
    pub rejected: BTreeMap<String, String>,
    /// Where these came from.
    #[serde(default)]
    pub rejected_from: BTreeMap<String, Source>,
    /// Why the latest commit of a person cannot be merged, if it cannot.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub error: Option<String>,
    /// The remotes, in the order of the flags.
    pub remotes: Vec<Remote>,
}

/// A remote of a branch.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Remote {
    /// Its name in the repository's configuration.
    pub name: String,
    /// The reference there that is merged.
    pub reference: String,
    /// Commits that it had when last looked at, and that are not in our history; nothing if it was never seen, or they
    /// cannot be counted.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub lag_commits: Option<u64>,
    /// There may be more: counting ends at 1,000.
    #[serde(default)]
    pub lag_more: bool,
    /// Age of the oldest of them, in seconds.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub lag_seconds: Option<u64>,
    /// What else is known of it.
    #[serde(flatten)]
    pub known: RemoteStatus,
}
