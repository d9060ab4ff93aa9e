//! What is known of the remotes of a branch: for `/status`, metrics and people.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::SystemTime;

use git2::Oid;
use gitcd_merge::Conflict;
use parking_lot::Mutex;
use serde::{Deserialize, Serialize};

use super::join::{Conflicts, Joiner};
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
    /// The newest of them, the latest merge first: at most ten.
    #[serde(default)]
    pub latest_conflicts: Vec<ConflictStatus>,
    /// Bytes of objects fetched.
    pub fetched_bytes: u64,
    /// Bytes of objects pushed.
    pub pushed_bytes: u64,
    /// Attempts in a row that failed.
    pub failures: u64,
    /// Files that did not enter, with the reason, until something is taken from the same reference that has them no more, or has
    /// them so that they can enter. The newest hundred.
    pub rejected: BTreeMap<String, String>,
    /// Where these came from.
    #[serde(default)]
    pub rejected_from: BTreeMap<String, Source>,
}

/// Where a file came from that did not enter.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Source {
    /// The reference that has it, or that it was pushed to.
    pub reference: String,
    /// The first commit that it was found in.
    pub commit: String,
    /// When that was, in seconds since 1970.
    pub time: u64,
}

/// A key or field that both sides of a merge had changed.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ConflictStatus {
    /// The path of the key's file.
    pub path: String,
    /// The field; empty for the whole value.
    pub field: String,
    /// What is kept there, the beginning of its JSON; nothing if it is gone.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub kept: Option<String>,
    /// What is lost.
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
    pub(super) fn joined(&mut self, theirs: Oid, conflicts: &Conflicts) {
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

    /// These files of a commit did not enter.
    fn refused(&mut self, reference: &str, commit: Oid, files: &[Rejected], time: u64) {
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

    /// Files of a reference that did not enter.
    fn rejected_of(&self, reference: &str) -> Vec<String> {
        let found = self.rejected_from.iter().filter(|(_, source)| source.reference == reference);
        found.map(|(path, _)| path.clone()).collect()
    }

    fn forget(&mut self, path: &str) {
        self.rejected.remove(path);
        self.rejected_from.remove(path);
    }
}

/// How many conflicts are listed, the newest first.
pub const LATEST_CONFLICTS: usize = 10;
/// So many rejected files are told: the newest ones.
const MOST_REJECTED: usize = 100;

/// The current time, in seconds since 1970.
pub fn now() -> u64 {
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

    /// Nothing of a commit that was pushed to a reference entered, because of these files.
    pub(super) fn refused(&self, name: &str, reference: &str, commit: Oid, files: &[Rejected]) {
        self.change(name, |status| status.refused(reference, commit, files, now()));
    }

    /// A commit of a reference was taken, or there was nothing to take, but for these files. Others that did not enter before are
    /// forgotten unless they are as before: merges come back to keys, not to what stands for none.
    pub(super) async fn taken(&self, joiner: &Joiner, name: &str, reference: &str, commit: Oid, files: &[Rejected]) {
        let known = self.0.lock().get(name).map(|status| status.rejected_of(reference)).unwrap_or_default();
        let mut open: BTreeSet<String> = known.into_iter().collect();
        for file in files {
            open.remove(&file.path);
        }
        if !open.is_empty() {
            for path in joiner.strange(commit, open.iter().cloned().collect()).await {
                open.remove(&path);
            }
        }
        self.change(name, |status| {
            open.iter().for_each(|path| status.forget(path));
            status.refused(reference, commit, files, now());
        });
    }
}

/// The writer lease of a branch, as its holder, or the standby that waits for it, reports it.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct LeaseStatus {
    /// The remote that has it.
    pub remote: String,
    /// Its reference there.
    pub reference: String,
    /// How often it was taken, this time included.
    pub epoch: u64,
    /// How long others wait after the last renewal.
    pub duration_seconds: f64,
    /// How long clients may be told of writes unless it is renewed; 0 if they may not.
    pub remaining_seconds: f64,
    /// Why it was not renewed, or whose it is.
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
    fn a_file_is_told_with_its_first_commit_and_the_oldest_ones_make_room() {
        let (mut status, commit) = (RemoteStatus::default(), |digit: u8| Oid::from_bytes(&[digit; 20]).unwrap());
        status.refused("refs/heads/main", commit(1), &[file("b")], 10);
        status.refused("refs/heads/main", commit(2), &[file("b"), file("a")], 20);
        let first = Source { reference: "refs/heads/main".into(), commit: commit(1).to_string(), time: 10 };
        assert_eq!((status.rejected.len(), &status.rejected_from["b"]), (2, &first), "since then it is as it is");
        status.refused("refs/heads/main", commit(3), &[Rejected { reason: "another name".into(), ..file("b") }], 30);
        assert_eq!((&*status.rejected["b"], status.rejected_from["b"].time), ("another name", 30));
        assert_eq!(status.rejected_of("refs/heads/main"), ["a", "b"]);
        assert!(status.rejected_of("refs/heads/work").is_empty());
        let many: Vec<_> = (0..MOST_REJECTED - 1).map(|number| file(&format!("c{number}"))).collect();
        status.refused("refs/heads/main", commit(4), &many, 40);
        assert_eq!((status.rejected.len(), status.rejected_from.len()), (MOST_REJECTED, MOST_REJECTED));
        assert!(status.rejected.contains_key("b") && !status.rejected.contains_key("a"), "a is the oldest");
    }
}
