//! The commits of a branch, each with the keys that it changed.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use git2::{ErrorCode, Oid};
use gitcd_repo::changes::{self, Changes};
use gitcd_repo::graph::{Commit, Graph, GraphError};

use super::moment::Moment;
use super::{CommitInfo, History, HistoryError, Revisions};

/// A commit of a branch, and what it follows there.
#[derive(Clone, Debug)]
pub struct BranchCommit {
    /// The commit.
    pub commit: CommitInfo,
    /// Its revisions, if this store made it.
    pub revisions: Option<Revisions>,
    /// The commit before it: on this branch, if it is one of its commits; otherwise its first parent.
    pub before: Option<Oid>,
}

/// The commits that a merge brought from other branches.
#[derive(Clone, Debug, Default)]
pub struct Brought {
    /// The commits, newest first.
    pub commits: Vec<BranchCommit>,
    /// Whether there are more than the limit allows.
    pub has_more: bool,
}

/// Commits that are read to find those of a merge, if their number is limited.
const COMPARED: usize = 20_000;

/// Why a commit is not found.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum FindCommitError {
    /// No commit has this name.
    #[error("there is no commit {0:?} in the repository; `gitcd log` shows the commits of the branch")]
    Unknown(String),
    /// Several objects begin with this.
    #[error("{0:?} is the start of several IDs; give more digits")]
    Ambiguous(String),
    /// The branch does not have it.
    #[error("commit {0} is not in the history of this branch")]
    Elsewhere(Oid),
    /// The history cannot be read.
    #[error(transparent)]
    History(#[from] HistoryError),
}

impl History {
    /// Returns the commits of this branch after a moment up to the last flush, newest first; all without a moment. Reads one
    /// object for each.
    ///
    /// # Errors
    /// [`HistoryError`]. The history of a shallow clone ends where the clone does.
    pub fn commits_after(&self, moment: Option<&Moment>) -> Result<Vec<BranchCommit>, HistoryError> {
        let until = moment.map(|moment| moment.commit.oid);
        let mut found = Vec::new();
        self.each_commit(|commit| {
            let is_after = Some(commit.commit.oid) != until;
            if is_after {
                found.push(commit);
            }
            is_after
        })?;
        Ok(found)
    }

    /// Finds a commit by its ID, or the start of it.
    ///
    /// Reads one object for each commit of the branch that is newer.
    ///
    /// # Errors
    /// [`FindCommitError`].
    pub fn find_commit(&self, id: &str) -> Result<BranchCommit, FindCommitError> {
        let may_be = (4..=40).contains(&id.len()) && id.chars().all(|c| c.is_ascii_hexdigit());
        let object = if may_be { self.repository.revparse_single(id) } else { Err(git2::Error::from_str("no ID")) };
        let commit = object.and_then(|object| object.peel_to_commit()).map_err(|error| match error.code() {
            ErrorCode::Ambiguous => FindCommitError::Ambiguous(id.to_owned()),
            _ => FindCommitError::Unknown(id.to_owned()),
        })?;
        let wanted = commit.id();
        let mut found = None;
        self.each_commit(|commit| {
            let is_it = commit.commit.oid == wanted;
            if is_it {
                found = Some(commit);
            }
            !is_it
        })?;
        if let Some(found) = found {
            return Ok(found);
        }
        // A merge brought it from another branch.
        let is_merged = self.repository.graph_descendant_of(self.tip.data, wanted).unwrap_or(false);
        if !is_merged {
            return Err(FindCommitError::Elsewhere(wanted));
        }
        let commit = CommitInfo::read(&self.odb()?, wanted)?;
        let before = commit.parents.first().copied();
        Ok(BranchCommit { commit, revisions: None, before })
    }

    /// Returns the commits that a merge brought from other branches, newest first and at most `limit`, without merges among them;
    /// none for a commit that is not a merge. Their changes are those against their own first parents.
    ///
    /// Reads each commit that only one side of the merge has. With a limit, not more than 20,000 of them: where these do not
    /// suffice, no commit is returned, and `has_more` is true.
    ///
    /// # Errors
    /// [`HistoryError`].
    pub fn brought_by(&self, merge: &BranchCommit, limit: usize) -> Result<Brought, HistoryError> {
        let odb = self.odb()?;
        let parents = &merge.commit.parents;
        let Some(before) = merge.before.filter(|before| parents.len() > 1 && !self.is_cut(&odb, *before)) else {
            return Ok(Brought::default());
        };
        let failed = |error: GraphError| HistoryError::object(error.oid, error.problem);
        let theirs = parents.iter().filter(|parent| **parent != before && !self.is_cut(&odb, **parent));
        let (mut graph, mut brought) = (Graph::default(), BTreeMap::new());
        let most = if limit == usize::MAX { usize::MAX } else { COMPARED };
        for theirs in theirs {
            self.proceed()?;
            let Some(apart) = graph.apart(&self.repository, *theirs, before, most).map_err(failed)? else {
                return Ok(Brought { commits: Vec::new(), has_more: true });
            };
            for oid in apart.one {
                brought.insert(oid, graph.commit(&self.repository, oid).map_err(failed)?);
            }
        }
        let sorted = newest_first(brought).into_iter();
        let mut sorted = sorted.filter(|(_, commit)| commit.parents.len() < 2).map(|(oid, _)| oid);
        let mut commits = Vec::new();
        for oid in sorted.by_ref().take(limit) {
            self.proceed()?;
            let commit = CommitInfo::read(&odb, oid)?;
            commits.push(BranchCommit { before: commit.parents.first().copied(), revisions: None, commit });
        }
        Ok(Brought { commits, has_more: sorted.next().is_some() })
    }

    /// Returns the keys that a commit changed, without the key prefix, with their blobs before and after.
    ///
    /// # Errors
    /// [`HistoryError`].
    pub fn changes_of(&self, commit: &BranchCommit) -> Result<Changes, HistoryError> {
        self.proceed()?;
        let odb = self.odb()?;
        let before = commit.before.filter(|before| !self.is_cut(&odb, *before));
        let before = before.map(|before| CommitInfo::read(&odb, before)).transpose()?;
        Ok(changes::between(&self.repository, before.map(|before| before.tree), Some(commit.commit.tree))?)
    }

    /// Calls `next` with each commit of this branch up to the last flush, newest first, until it returns false.
    fn each_commit(&self, mut next: impl FnMut(BranchCommit) -> bool) -> Result<(), HistoryError> {
        let odb = self.odb()?;
        let mut newer = Some(self.tip.clone());
        while let Some(flush) = newer {
            let older = self.before(&odb, &flush)?;
            for step in self.line(&odb, older.as_ref(), Some(&flush), flush.data, usize::MAX)? {
                let revisions = step.revisions();
                if !next(BranchCommit { commit: step.commit, revisions, before: step.before }) {
                    return Ok(());
                }
            }
            newer = older;
        }
        Ok(())
    }
}

/// Sorts commits so that each comes before its parents, and otherwise the newest first.
fn newest_first(mut commits: BTreeMap<Oid, Arc<Commit>>) -> Vec<(Oid, Arc<Commit>)> {
    let mut children: BTreeMap<Oid, usize> = BTreeMap::new();
    for parent in commits.values().flat_map(|commit| &commit.parents) {
        *children.entry(*parent).or_default() += 1;
    }
    let mut ready: BTreeSet<(i64, Oid)> = commits
        .iter()
        .filter(|(oid, _)| !children.contains_key(oid))
        .map(|(oid, commit)| (commit.time, *oid))
        .collect();
    let mut sorted = Vec::new();
    while let Some((_, oid)) = ready.pop_last() {
        let Some(commit) = commits.remove(&oid) else { continue };
        for parent in &commit.parents {
            let left = children.get_mut(parent).map(|left| {
                *left -= 1;
                *left
            });
            if let (Some(0), Some(known)) = (left, commits.get(parent)) {
                ready.insert((known.time, *parent));
            }
        }
        sorted.push((oid, commit));
    }
    sorted
}
