//! What is known of the remotes of a branch: for `/status`, metrics and people.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::SystemTime;

use git2::Oid;
use parking_lot::Mutex;
use serde::{Deserialize, Serialize};

use super::plan::Rejected;

/// How a remote is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub enum Condition {
    /// Nothing was tried yet.
    #[default]
    Unknown,
    /// Pulled, and pushed where that was asked for.
    Synced,
    /// It cannot be reached.
    Unreachable,
    /// It refuses our credentials.
    Denied,
    /// It does not have the branch.
    NoBranch,
    /// What it has cannot be read.
    Damaged,
    /// Our disk is full.
    NoSpace,
    /// Our branch there moves on faster than we can follow.
    Raced,
    /// Something else; see the error.
    Failed,
}

/// A remote of a branch.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct RemoteStatus {
    /// How it is.
    pub condition: Condition,
    /// Why, if it is not synced.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub error: Option<String>,
    /// The commit that was last merged.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub merged: Option<String>,
    /// When, in seconds since 1970.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub merged_at: Option<u64>,
    /// The commit that the remote had when last looked at.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub seen: Option<String>,
    /// Our commit that was last pushed.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub pushed: Option<String>,
    /// When something was last exchanged without an error, in seconds since 1970.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub synced_at: Option<u64>,
    /// Merges made.
    pub merges: u64,
    /// Seconds that they took, from the fetched commit to the merge commit.
    #[serde(default)]
    pub merge_seconds: f64,
    /// Pulls that ended without an error.
    #[serde(default)]
    pub pulls: u64,
    /// Seconds that the last one took, with its fetch, merges and push.
    #[serde(default)]
    pub pull_seconds: f64,
    /// Keys and fields that both sides had changed.
    pub conflicts: u64,
    /// Bytes of objects fetched.
    pub fetched_bytes: u64,
    /// Bytes of objects pushed.
    pub pushed_bytes: u64,
    /// Attempts in a row that failed.
    pub failures: u64,
    /// Files of the last merged commits that did not enter, with the reason.
    pub rejected: BTreeMap<String, String>,
}

impl RemoteStatus {
    pub(super) fn joined(&mut self, theirs: Oid, conflicts: usize, rejected: &[Rejected]) {
        self.merges += 1;
        self.conflicts += conflicts as u64;
        self.merged = Some(theirs.to_string());
        self.merged_at = Some(now());
        self.refused(rejected);
    }

    pub(super) fn refused(&mut self, rejected: &[Rejected]) {
        for Rejected { path, reason } in rejected {
            self.rejected.insert(path.clone(), reason.clone());
        }
        while self.rejected.len() > MOST_REJECTED {
            self.rejected.pop_last();
        }
    }
}

/// So many rejected files are told.
const MOST_REJECTED: usize = 100;

pub(crate) fn now() -> u64 {
    SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).map_or(0, |since| since.as_secs())
}

/// The remotes of a branch, by name. Cheap to share.
#[derive(Clone, Debug, Default)]
pub struct Statuses(Arc<Mutex<BTreeMap<String, RemoteStatus>>>);

impl Statuses {
    /// All of them.
    pub fn all(&self) -> BTreeMap<String, RemoteStatus> {
        self.0.lock().clone()
    }

    pub(super) fn change(&self, remote: &str, change: impl FnOnce(&mut RemoteStatus)) {
        change(self.0.lock().entry(remote.to_owned()).or_default());
    }
}
