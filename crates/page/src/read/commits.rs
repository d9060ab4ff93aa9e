//! The commits of the branch, with those that merges brought.

use std::collections::BTreeSet;

use git2::Oid;
use gitcd_history::commits::{BranchCommit, Brought};
use gitcd_history::conflicts::ConflictLine;
use gitcd_history::{CommitInfo, HistoryError, Revisions};

use super::{Branch, by};
use crate::keys::Key;
use crate::problem::Problem;
use crate::query::Filter;
use crate::rights::{Granted, ObjectRef};
use crate::work::Deadline;

/// Commits of a page.
pub(crate) const PAGE: usize = 100;
/// Commits that a filter compares for a page.
const SCANNED: usize = 2000;
/// Commits that can be reached page by page.
const REACHED: usize = 60_000;
/// Commits of another branch that a merge shows.
const MERGED: usize = 5;
/// Keys that a row remembers; a commit with more is shown without names to users with limited rights.
const KEYS: usize = 200;

/// What to list.
#[derive(Clone, Debug, Default)]
pub(crate) struct Request {
    /// Only commits before this one.
    pub(crate) before: Option<String>,
    pub(crate) filter: Filter,
    /// Whether rows have the keys that the commits changed. Reads the trees of each commit.
    pub(crate) with_keys: bool,
}

/// A page of commits, newest first.
pub(crate) struct Listing {
    pub(crate) rows: Vec<Row>,
    /// The commit after which the next page starts.
    pub(crate) last: Option<String>,
    pub(crate) head: String,
    pub(crate) reference: String,
    pub(crate) revision: i64,
}

/// A commit of the branch.
pub(crate) struct Row {
    pub(crate) commit: CommitInfo,
    pub(crate) revisions: Option<Revisions>,
    pub(crate) by: String,
    pub(crate) conflicts: usize,
    /// The changed keys, if requested: those that match the filter.
    pub(crate) keys: Option<Vec<Key>>,
    /// Whether the commit changed more than `keys`.
    pub(crate) is_partial: bool,
    pub(crate) merged: Vec<Merged>,
    pub(crate) has_more_merged: bool,
}

/// A commit of another branch that a merge brought.
pub(crate) struct Merged {
    pub(crate) id: String,
    pub(crate) subject: String,
    pub(crate) author: String,
    pub(crate) time: i64,
}

impl Listing {
    /// Returns the objects whose rights decide what is shown.
    pub(crate) fn objects(&self) -> BTreeSet<ObjectRef> {
        let keys = self.rows.iter().filter_map(|row| row.keys.as_ref()).flatten();
        keys.filter_map(|key| key.object.clone()).collect()
    }

    /// Drops rows that a filter found by objects or users that the user may not read: their presence would say that these exist.
    /// Then cuts the page: rows that are dropped do not count.
    pub(crate) fn retain_allowed(&mut self, filter: &Filter, granted: &Granted) {
        let is_allowed = |row: &Row| {
            let mut keys = row.keys.iter().flatten().map(|key| granted.allows(key.object.as_ref()));
            // The users of a commit are shown with all of its objects only.
            if filter.user.is_some() {
                !row.is_partial && keys.all(|allowed| allowed)
            } else {
                keys.any(|allowed| allowed)
            }
        };
        self.rows.retain(is_allowed);
        if self.rows.len() > PAGE {
            self.rows.truncate(PAGE);
            self.last = self.rows.last().map(|row| row.commit.oid.to_string());
        }
    }
}

impl Branch {
    /// Lists commits. With a filter, a page may have fewer rows than the limit, even none, before the last one; and if the rights
    /// of the user decide which of these are shown, it has all rows that were found.
    pub(crate) fn list(&self, request: &Request, deadline: &Deadline) -> Result<Listing, Problem> {
        let Request { before, filter, with_keys } = request;
        let wanted = if filter.is_any() { SCANNED } else { PAGE };
        let page = if *with_keys { wanted } else { PAGE };
        let commits = self.window(before.as_deref(), wanted + 1)?;
        let (mut rows, mut last) = (Vec::new(), None);
        for (at, (revisions, commit)) in commits.iter().enumerate().take(wanted) {
            let is_first = last.is_none();
            deadline.check()?;
            if rows.len() == page || filter.is_any() && !is_first && deadline.is_over() {
                break;
            }
            last = Some(at);
            let next = commits.get(at + 1).map(|(_, next)| next.oid);
            let before = next.or(commit.parents.first().copied());
            rows.extend(self.row(request, *revisions, commit, before)?);
        }
        let is_end = last.is_none_or(|last| last + 1 >= commits.len());
        let last = last.filter(|_| !is_end).map(|last| commits[last].1.oid.to_string());
        let (head, reference) = (self.head.clone(), self.settings.branch.data_reference.clone());
        Ok(Listing { rows, last, head, reference, revision: self.history.revision() })
    }

    /// Returns a row; `None` if the filter excludes it.
    fn row(
        &self,
        request: &Request,
        revisions: Option<Revisions>,
        commit: &CommitInfo,
        before: Option<Oid>,
    ) -> Result<Option<Row>, Problem> {
        let by = by(commit);
        if !request.filter.covers_user(&by) {
            return Ok(None);
        }
        let (mut keys, mut is_partial) = (None, false);
        if request.with_keys || request.filter.is_any() {
            let step = BranchCommit { commit: commit.clone(), revisions, before };
            let changed = self.history.changes_of(&step)?.keys;
            let catalog = if request.filter.kind.is_some() { self.catalog()? } else { &self.settings.catalog };
            let keys_of = changed.keys().map(|relative| self.key_of(relative));
            let found: Vec<Key> = keys_of.filter(|key| request.filter.covers(key, catalog)).take(KEYS).collect();
            is_partial = found.len() < changed.len();
            if found.is_empty() && request.filter.is_any() {
                return Ok(None);
            }
            keys = Some(found);
        }
        let (merged, has_more_merged) = self.merged(commit, revisions, before)?;
        let conflicts = ConflictLine::all(&commit.message).count();
        Ok(Some(Row { commit: commit.clone(), revisions, by, conflicts, keys, is_partial, merged, has_more_merged }))
    }

    /// Returns the newest commits that a merge brought, without merges among them, and whether there are more.
    fn merged(
        &self,
        merge: &CommitInfo,
        revisions: Option<Revisions>,
        before: Option<Oid>,
    ) -> Result<(Vec<Merged>, bool), Problem> {
        if merge.parents.len() < 2 {
            return Ok((Vec::new(), false));
        }
        let step = BranchCommit { commit: merge.clone(), revisions, before };
        let Brought { commits, has_more } = match self.history.brought_by(&step, MERGED) {
            Ok(brought) => brought,
            // The history of the other branch is cut.
            Err(HistoryError::Object { .. } | HistoryError::Graph(_)) if self.history.repository().is_shallow() => {
                Brought { commits: Vec::new(), has_more: true }
            }
            Err(error) => return Err(error.into()),
        };
        let merged = commits.into_iter().map(|BranchCommit { commit, .. }| Merged {
            id: commit.oid.to_string(),
            subject: commit.subject().to_owned(),
            time: commit.time,
            author: commit.author,
        });
        Ok((merged.collect(), has_more))
    }

    /// Returns commits of the branch after one of them; the newest without one. Reads all newer ones.
    fn window(&self, before: Option<&str>, wanted: usize) -> Result<Vec<(Option<Revisions>, CommitInfo)>, Problem> {
        let Some(before) = before else { return Ok(self.history.commits(wanted, None)?) };
        let mut limit = wanted * 2;
        loop {
            let mut commits = self.history.commits(limit, None)?;
            let found = commits.iter().position(|(_, commit)| commit.oid.to_string() == before);
            let is_all = commits.len() < limit;
            if let Some(at) = found.filter(|at| is_all || commits.len() - at > wanted) {
                commits.drain(..=at);
                commits.truncate(wanted);
                return Ok(commits);
            }
            if is_all {
                return Err(Problem::Missing(format!(
                    "there is no commit {before:?} on this branch; start at its newest one"
                )));
            }
            if limit >= REACHED {
                return Err(Problem::Unusable(format!(
                    "pages end after {REACHED} commits; search for an object, or use `trishanku log --since`"
                )));
            }
            limit = (limit * 4).min(REACHED);
        }
    }
}
