//! Status of the remotes of a branch, for `/status`, metrics and `gitcd status`.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::SystemTime;

use git2::Oid;
use gitcd_merge::Conflict;
use parking_lot::Mutex;
use serde::{Deserialize, Serialize};

use super::merger::{Conflicts, Merger};
use super::plan::Rejected;

/// The condition of a remote.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub enum Condition {
    /// Not pulled yet.
    #[default]
    Unknown,
    /// Pulled, and pushed if configured.
    Synced,
    /// The remote cannot be reached.
    Unreachable,
    /// The remote rejects our credentials.
    Denied,
    /// The remote does not have the branch.
    NoBranch,
    /// The remote's objects or references are missing or damaged.
    Damaged,
    /// Our disk is full.
    NoSpace,
    /// Other servers push to our branch there faster than we can merge.
    Raced,
    /// Another failure; see the error.
    Failed,
}

/// The status of a remote.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct RemoteStatus {
    /// Its condition.
    pub condition: Condition,
    /// Why it is not synced.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub error: Option<String>,
    /// The commit that was last merged.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub merged: Option<String>,
    /// When it was merged, in seconds since 1970.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub merged_at: Option<u64>,
    /// The remote's commit at the last fetch.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub seen: Option<String>,
    /// Our commit that was last pushed.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub pushed: Option<String>,
    /// When the last successful exchange ended, in seconds since 1970.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub synced_at: Option<u64>,
    /// Number of merges.
    pub merges: u64,
    /// Total seconds of merges, from the fetched commit to the merge commit.
    #[serde(default)]
    pub merge_seconds: f64,
    /// Number of successful pulls.
    #[serde(default)]
    pub pulls: u64,
    /// Seconds that the last of them took, with its fetch, merges and push.
    #[serde(default)]
    pub pull_seconds: f64,
    /// Number of keys and fields that both sides changed.
    pub conflicts: u64,
    /// The newest of these conflicts, at most ten; the latest merge first.
    #[serde(default)]
    pub latest_conflicts: Vec<ConflictStatus>,
    /// Bytes of objects fetched.
    pub fetched_bytes: u64,
    /// Bytes of objects pushed.
    pub pushed_bytes: u64,
    /// Number of consecutive failures.
    pub failures: u64,
    /// Rejected files with the reason; at most the newest hundred. A file stays listed until a corrected version, or its
    /// deletion, is merged from the same reference.
    pub rejected: BTreeMap<String, String>,
    /// The sources of rejected files.
    #[serde(default)]
    pub rejected_from: BTreeMap<String, Source>,
}

/// The source of a rejected file.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Source {
    /// The reference that has it, or to which it was pushed.
    pub reference: String,
    /// The first commit in which it was found.
    pub commit: String,
    /// When it was found, in seconds since 1970.
    pub time: u64,
}

/// A conflict: a key or field that both sides of a merge changed.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ConflictStatus {
    /// The path of the key's file.
    pub path: String,
    /// The field; empty for the whole value.
    pub field: String,
    /// The start of the kept value as JSON; `None` if the field is removed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub kept: Option<String>,
    /// The start of the lost value as JSON; `None` if that side removed the field.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub lost: Option<String>,
    /// The commit that was merged.
    pub commit: String,
    /// When it was merged, in seconds since 1970.
    pub time: u64,
}

impl std::fmt::Display for ConflictStatus {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let (field, kept, lost) = (self.field.clone(), self.kept.clone(), self.lost.clone());
        write!(f, "{} {}", self.path, Conflict { field, kept, lost })
    }
}

impl RemoteStatus {
    pub(super) fn record_merge(&mut self, theirs: Oid, conflicts: &Conflicts) {
        let time = now();
        self.merges += 1;
        self.conflicts += conflicts.count as u64;
        self.merged = Some(theirs.to_string());
        self.merged_at = Some(time);
        let latest = conflicts.first.iter().map(|(path, conflict)| {
            let Conflict { field, kept, lost } = conflict.clone();
            ConflictStatus { path: path.clone(), field, kept, lost, commit: theirs.to_string(), time }
        });
        self.latest_conflicts.splice(0..0, latest);
        self.latest_conflicts.truncate(LATEST_CONFLICTS);
    }

    /// Records the rejected files of a commit.
    fn record_rejected(&mut self, reference: &str, commit: Oid, files: &[Rejected], time: u64) {
        for Rejected { path, reason } in files {
            let is_known = self.rejected.get(path) == Some(reason)
                && self.rejected_from.get(path).is_some_and(|source| source.reference == reference);
            if !is_known {
                let source = Source { reference: reference.to_owned(), commit: commit.to_string(), time };
                self.rejected.insert(path.clone(), reason.clone());
                self.rejected_from.insert(path.clone(), source);
            }
        }
        while self.rejected.len() > MOST_REJECTED {
            let oldest = self.rejected_from.iter().min_by_key(|(path, source)| (source.time, *path));
            let Some(oldest) = oldest.map(|(path, _)| path.clone()) else { return };
            self.forget(&oldest);
        }
    }

    /// Returns the rejected files of a reference.
    fn rejected_of(&self, reference: &str) -> Vec<String> {
        let found = self.rejected_from.iter().filter(|(_, source)| source.reference == reference);
        found.map(|(path, _)| path.clone()).collect()
    }

    fn forget(&mut self, path: &str) {
        self.rejected.remove(path);
        self.rejected_from.remove(path);
    }
}

/// Limit on listed conflicts.
pub const LATEST_CONFLICTS: usize = 10;
/// Limit on listed rejected files.
const MOST_REJECTED: usize = 100;

/// Returns the current time in seconds since 1970.
pub fn now() -> u64 {
    SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).map_or(0, |since| since.as_secs())
}

/// The statuses of a branch's remotes, by name. Cheap to clone; clones share them.
#[derive(Clone, Debug, Default)]
pub struct Statuses(Arc<Mutex<BTreeMap<String, RemoteStatus>>>);

impl Statuses {
    /// Returns all statuses.
    pub fn all(&self) -> BTreeMap<String, RemoteStatus> {
        self.0.lock().clone()
    }

    pub(super) fn change(&self, remote: &str, change: impl FnOnce(&mut RemoteStatus)) {
        change(self.0.lock().entry(remote.to_owned()).or_default());
    }

    /// Records that a commit was not merged because of these files.
    pub(super) fn record_rejected(&self, name: &str, reference: &str, commit: Oid, files: &[Rejected]) {
        self.change(name, |status| status.record_rejected(reference, commit, files, now()));
    }

    /// Records that a commit of a reference was merged except for these files. Removes the reference's other rejected files,
    /// unless their paths map to no key and are still in the commit: merges report unmappable paths only once.
    pub(super) async fn settle_rejected(
        &self,
        merger: &Merger,
        name: &str,
        reference: &str,
        commit: Oid,
        files: &[Rejected],
    ) {
        let known = self.0.lock().get(name).map(|status| status.rejected_of(reference)).unwrap_or_default();
        let mut open: BTreeSet<String> = known.into_iter().collect();
        for file in files {
            open.remove(&file.path);
        }
        if !open.is_empty() {
            for path in merger.unmappable(commit, open.iter().cloned().collect()).await {
                open.remove(&path);
            }
        }
        self.change(name, |status| {
            open.iter().for_each(|path| status.forget(path));
            status.record_rejected(reference, commit, files, now());
        });
    }
}

/// The status of a writer lease, as reported by its holder or a standby.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct LeaseStatus {
    /// The remote that stores the lease.
    pub remote: String,
    /// The lease reference.
    pub reference: String,
    /// How often the lease was acquired, including this time.
    pub epoch: u64,
    /// How long other servers wait after the last renewal.
    pub duration_seconds: f64,
    /// How long the holder may acknowledge writes unless the lease is renewed; 0 if it may not.
    pub remaining_seconds: f64,
    /// Why the last renewal failed, or which server has taken the lease.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub error: Option<String>,
}

#[cfg(test)]
mod tests {
    use super::*;

    fn file(path: &str) -> Rejected {
        Rejected { path: path.to_owned(), reason: "not JSON".to_owned() }
    }

    #[test]
    fn a_rejected_file_is_listed_with_its_first_commit_and_the_oldest_are_dropped() {
        let (mut status, commit) = (RemoteStatus::default(), |digit: u8| Oid::from_bytes(&[digit; 20]).unwrap());
        status.record_rejected("refs/heads/main", commit(1), &[file("b")], 10);
        status.record_rejected("refs/heads/main", commit(2), &[file("b"), file("a")], 20);
        let first = Source { reference: "refs/heads/main".into(), commit: commit(1).to_string(), time: 10 };
        assert_eq!((status.rejected.len(), &status.rejected_from["b"]), (2, &first), "the first commit is kept");
        status.record_rejected(
            "refs/heads/main",
            commit(3),
            &[Rejected { reason: "another name".into(), ..file("b") }],
            30,
        );
        assert_eq!((&*status.rejected["b"], status.rejected_from["b"].time), ("another name", 30));
        assert_eq!(status.rejected_of("refs/heads/main"), ["a", "b"]);
        assert!(status.rejected_of("refs/heads/work").is_empty());
        let many: Vec<_> = (0..MOST_REJECTED - 1).map(|number| file(&format!("c{number}"))).collect();
        status.record_rejected("refs/heads/main", commit(4), &many, 40);
        assert_eq!((status.rejected.len(), status.rejected_from.len()), (MOST_REJECTED, MOST_REJECTED));
        assert!(status.rejected.contains_key("b") && !status.rejected.contains_key("a"), "a is the oldest");
    }
}
