//! Commits that a user names, in the order of the history.

use std::collections::{BTreeMap, BTreeSet, HashMap};

use git2::{ErrorCode, Oid};
use gitcd_repo::boundary::Cut;
use gitcd_repo::changes;

use super::commits::{BranchCommit, newest_first};
use super::{CommitInfo, History, HistoryError};

/// A commit that is in the history of a branch.
#[derive(Clone, Debug)]
pub struct FoundCommit {
    /// The commit.
    pub commit: BranchCommit,
    /// The merge that brought it from another branch; `None` for a commit of this branch.
    pub merge: Option<BranchCommit>,
}

/// The values of a key around a merge.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct MergeSides {
    /// Where this branch and a commit that the merge brought separated.
    pub base: Option<Vec<u8>>,
    /// On this branch before the merge.
    pub ours: Option<Vec<u8>>,
    /// In the merge.
    pub merged: Option<Vec<u8>>,
}

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
    /// Finds a commit by its ID, or the start of it.
    ///
    /// Reads one object for each commit of the branch that is newer.
    ///
    /// # Errors
    /// [`FindCommitError`].
    pub fn find_commit(&self, id: &str) -> Result<BranchCommit, FindCommitError> {
        let found = self.find_commits(&[id])?.pop();
        Ok(found.ok_or_else(|| FindCommitError::Unknown(id.to_owned()))?.commit)
    }

    /// Finds commits by their IDs, or the starts of them. Returns each once.
    ///
    /// They are ordered by history, not by the clocks of those who made them: a commit precedes all commits that it follows. A
    /// commit of another branch has the place of the merge that brought it, after the merge itself.
    ///
    /// Reads one object for each commit of the branch that is newer. For a commit of another branch, reads one object for each
    /// commit of this branch, and for several of one merge also those that the merge brought.
    ///
    /// # Errors
    /// [`FindCommitError`].
    pub fn find_commits<S: AsRef<str>>(&self, ids: &[S]) -> Result<Vec<FoundCommit>, FindCommitError> {
        let wanted = ids.iter().map(|id| self.resolve(id.as_ref())).collect::<Result<BTreeSet<Oid>, _>>()?;
        let (mut line, mut others) = (Vec::new(), wanted.clone());
        self.each_commit(|commit| {
            others.remove(&commit.commit.oid);
            line.push(commit);
            !others.is_empty()
        })?;
        // Each commit of the line has the history of the next one, which is older.
        let mut brought: BTreeMap<usize, BTreeSet<Oid>> = BTreeMap::new();
        for other in others {
            match line.partition_point(|commit| self.has(commit.commit.oid, other)) {
                0 => {
                    return Err(self
                        .removed(other)?
                        .map_or(FindCommitError::Elsewhere(other), FindCommitError::History));
                }
                newer => brought.entry(newer - 1).or_default().insert(other),
            };
        }
        let mut found = Vec::new();
        for (place, commit) in line.iter().enumerate() {
            if wanted.contains(&commit.commit.oid) {
                found.push(FoundCommit { commit: commit.clone(), merge: None });
            }
            if let Some(wanted) = brought.get(&place) {
                found.extend(self.in_order(commit, wanted)?);
            }
        }
        Ok(found)
    }

    /// Returns these commits, which a merge brought, each before those that it follows.
    fn in_order(&self, merge: &BranchCommit, wanted: &BTreeSet<Oid>) -> Result<Vec<FoundCommit>, HistoryError> {
        let odb = self.odb()?;
        // One commit has no order.
        let all =
            if wanted.len() > 1 { self.only_in_merge(merge, usize::MAX)?.unwrap_or_default() } else { BTreeMap::new() };
        let places: HashMap<Oid, usize> =
            newest_first(all, |_| 0).into_iter().enumerate().map(|(place, (oid, _))| (oid, place)).collect();
        let mut ordered: Vec<Oid> = wanted.iter().copied().collect();
        ordered.sort_by_key(|oid| places.get(oid));
        let found = |oid| {
            let commit = CommitInfo::read(&odb, oid)?;
            let before = commit.parents.first().copied();
            let commit = BranchCommit { commit, revisions: None, before };
            Ok(FoundCommit { commit, merge: Some(merge.clone()) })
        };
        ordered.into_iter().map(found).collect()
    }

    /// Returns the commit that names a moment.
    pub(super) fn resolve_moment(&self, id: &str) -> Result<Oid, HistoryError> {
        let resolved = self.resolve(id);
        let whole = (id.len() == 40).then(|| Oid::from_str(id).ok()).flatten();
        if let Some(oid) = resolved.as_ref().ok().copied().or(whole)
            && let Some(removed) = self.removed(oid)?
        {
            return Err(removed);
        }
        resolved.map_err(|error| HistoryError::NoMoment { asked: id.to_owned(), problem: error.to_string() })
    }

    /// Returns an error for a commit that a cut of the history removed, although its object may still exist.
    fn removed(&self, oid: Oid) -> Result<Option<HistoryError>, HistoryError> {
        if !self.boundary.removed(oid)? {
            return Ok(None);
        }
        let error = |cut: &Cut| {
            let asked = format!("commit {}", &oid.to_string()[..10]);
            let (date, archive_status) = (cut.date(), cut.archive_status());
            HistoryError::Cut { asked, first: cut.revision, date, archive_status }
        };
        Ok(self.boundary.cut_at(oid)?.map(error))
    }

    /// Returns why a commit is not a state of the branch.
    pub(super) fn no_moment(&self, id: &str) -> HistoryError {
        let problem = match self.find_commits(&[id]).map(|mut found| found.pop()) {
            Ok(Some(FoundCommit { merge: Some(merge), .. })) => {
                format!("it was merged from another branch, by {}; give that commit", merge.commit.oid)
            }
            Ok(_) => "gitcd has not merged it yet".to_owned(),
            Err(FindCommitError::History(error)) => return error,
            Err(error) => error.to_string(),
        };
        HistoryError::NoMoment { asked: id.to_owned(), problem }
    }

    /// Returns the only commit whose ID begins with a text.
    fn resolve(&self, id: &str) -> Result<Oid, FindCommitError> {
        let may_be = (4..=40).contains(&id.len()) && id.chars().all(|c| c.is_ascii_hexdigit());
        let object = if may_be { self.repository.revparse_single(id) } else { Err(git2::Error::from_str("no ID")) };
        let commit = object.and_then(|object| object.peel_to_commit()).map_err(|error| match error.code() {
            ErrorCode::Ambiguous => FindCommitError::Ambiguous(id.to_owned()),
            _ => FindCommitError::Unknown(id.to_owned()),
        })?;
        Ok(commit.id())
    }

    /// Returns the values of a whole key around a merge, which brought `commit` from another branch. A value that is not known,
    /// because a shallow clone lacks the commit, is absent.
    ///
    /// # Errors
    /// [`HistoryError`].
    pub fn merge_sides(&self, merge: &BranchCommit, commit: Oid, key: &[u8]) -> Result<MergeSides, HistoryError> {
        self.proceed()?;
        let odb = self.odb()?;
        let Some(relative) = self.relative(key) else { return Ok(MergeSides::default()) };
        let value = |commit: Option<Oid>| {
            let Some(commit) = commit.filter(|commit| !self.is_cut(&odb, *commit)) else { return Ok(None) };
            let tree = CommitInfo::read(&odb, commit)?.tree;
            let blob = changes::find(&self.repository, tree, relative)?;
            blob.map(|blob| self.value(blob, None)).transpose()
        };
        let base = merge.before.and_then(|before| self.repository.merge_base(before, commit).ok());
        Ok(MergeSides { base: value(base)?, ours: value(merge.before)?, merged: value(Some(merge.commit.oid))? })
    }
}
