//! The commits of a branch, each with the keys that it changed.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use git2::Oid;
use gitcd_repo::changes::{self, Changes};
use gitcd_repo::graph::{Commit, Graph};

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
        let most = if limit == usize::MAX { usize::MAX } else { COMPARED };
        let Some(brought) = self.only_in_merge(merge, most)? else {
            return Ok(Brought { commits: Vec::new(), has_more: true });
        };
        let sorted = newest_first(brought, |commit| commit.time).into_iter();
        let mut sorted = sorted.filter(|(_, commit)| commit.parents.len() < 2).map(|(oid, _)| oid);
        let mut commits = Vec::new();
        for oid in sorted.by_ref().take(limit) {
            self.proceed()?;
            let commit = CommitInfo::read(&odb, oid)?;
            commits.push(BranchCommit { before: commit.parents.first().copied(), revisions: None, commit });
        }
        Ok(Brought { commits, has_more: sorted.next().is_some() })
    }

    /// Returns the commits that a merge brought from other branches, also merges; `None` if more than `most` have to be read.
    pub(super) fn only_in_merge(
        &self,
        merge: &BranchCommit,
        most: usize,
    ) -> Result<Option<BTreeMap<Oid, Arc<Commit>>>, HistoryError> {
        let odb = self.odb()?;
        let parents = &merge.commit.parents;
        let mut brought = BTreeMap::new();
        let Some(before) = merge.before.filter(|before| parents.len() > 1 && !self.is_cut(&odb, *before)) else {
            return Ok(Some(brought));
        };
        let mut graph = Graph::default();
        for theirs in parents.iter().filter(|parent| **parent != before && !self.is_cut(&odb, **parent)) {
            self.proceed()?;
            let apart = match graph.apart(&self.repository, *theirs, before, most) {
                // They begin before the cut.
                Err(error) if error.is_cut() => None,
                apart => apart?,
            };
            let Some(apart) = apart else {
                return Ok(None);
            };
            for oid in apart.one {
                brought.insert(oid, graph.commit(&self.repository, oid)?);
            }
        }
        Ok(Some(brought))
    }

    /// Returns whether the history begins with a commit although it has parents: they were removed, or are not in a clone with a limited
    /// depth. What such a commit changed is not known.
    ///
    /// # Errors
    /// [`HistoryError`].
    pub fn is_oldest(&self, commit: &BranchCommit) -> Result<bool, HistoryError> {
        let BranchCommit { commit, before, .. } = commit;
        if !self.is_shallow || commit.parents.is_empty() {
            return Ok(false);
        }
        let odb = self.odb()?;
        Ok(self.boundary.has(commit.oid) || before.is_none_or(|before| self.is_cut(&odb, before)))
    }

    /// Returns the keys that a commit changed, without the key prefix, with their blobs before and after; none if the history
    /// [begins with it](Self::is_oldest).
    ///
    /// # Errors
    /// [`HistoryError`].
    pub fn changes_of(&self, commit: &BranchCommit) -> Result<Changes, HistoryError> {
        self.proceed()?;
        if self.is_oldest(commit)? {
            return Ok(Changes::default());
        }
        let odb = self.odb()?;
        let before = commit.before.map(|before| CommitInfo::read(&odb, before)).transpose()?;
        Ok(changes::between(&self.repository, before.map(|before| before.tree), Some(commit.commit.tree))?)
    }

    /// Calls `next` with each commit of this branch up to the last flush, newest first, until it returns false.
    pub(super) fn each_commit(&self, mut next: impl FnMut(BranchCommit) -> bool) -> Result<(), HistoryError> {
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

/// Sorts commits so that each comes before its parents, and otherwise by a number, the highest first.
pub(super) fn newest_first(
    mut commits: BTreeMap<Oid, Arc<Commit>>,
    number: impl Fn(&Commit) -> i64,
) -> Vec<(Oid, Arc<Commit>)> {
    let mut children: BTreeMap<Oid, usize> = BTreeMap::new();
    for parent in commits.values().flat_map(|commit| &commit.parents) {
        *children.entry(*parent).or_default() += 1;
    }
    let mut ready: BTreeSet<(i64, Oid)> = commits
        .iter()
        .filter(|(oid, _)| !children.contains_key(oid))
        .map(|(oid, commit)| (number(commit), *oid))
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
                ready.insert((number(known), *parent));
            }
        }
        sorted.push((oid, commit));
    }
    sorted
}
