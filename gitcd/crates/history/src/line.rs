//! The first-parent line of a branch between two flushes.
//!
//! Metadata commits record history links ([`Join`]): which parent of a merge was this branch, and which commits are from another
//! store, whose revisions do not apply here.

use git2::{Odb, Oid};
use gitcd_repo::history_link::HistoryLink;

use super::commit_text::{self, CommitText};
use super::flush::Flush;
use super::named::Named;
use super::{CommitInfo, History, HistoryError, Revisions};

/// A commit of the branch.
#[derive(Clone, Debug)]
pub(super) struct Step {
    pub(super) commit: CommitInfo,
    /// The previous commit of this branch.
    pub(super) before: Option<Oid>,
    /// Whether this store made the commit.
    pub(super) is_own: bool,
}

impl Step {
    /// Returns whether the history begins here although the commit has parents.
    pub(super) fn is_oldest(&self) -> bool {
        self.before.is_none() && !self.commit.parents.is_empty()
    }

    /// Returns whether the commit may change the key, judged by its subject.
    pub(super) fn may_have(&self, key: &Named) -> bool {
        let CommitInfo { parents, message, .. } = &self.commit;
        may_have(key, message, parents, self.before, self.is_own)
    }

    /// Returns the commit's revisions here, if this store made it.
    pub(super) fn revisions(&self) -> Option<Revisions> {
        self.commit.revisions().filter(|_| self.is_own)
    }
}

/// A commit of the branch, of which nothing has been copied.
pub(super) struct StepText<'t> {
    commit: &'t CommitText<'t>,
    before: Option<Oid>,
    is_own: bool,
}

impl StepText<'_> {
    /// Returns whether the commit may change the key, judged by its subject.
    pub(super) fn may_have(&self, key: &Named) -> bool {
        may_have(key, self.commit.message, &self.commit.parents, self.before, self.is_own)
    }
}

/// Returns whether a commit of the branch may change a key. Only the subjects of this store's commits rule a key out.
fn may_have(key: &Named, message: &str, parents: &[Oid], before: Option<Oid>, is_own: bool) -> bool {
    let is_plain = || is_own && before.is_some() && parents.len() == 1 && commit_text::revisions(message).is_some();
    key.may_be_in(commit_text::subject(message)) || !is_plain()
}

impl History {
    /// Returns the commits from `head` back to the data of `older`, which is excluded; newest first, at most `limit`. For commits
    /// after the last flush, `newer` is `None`.
    pub(super) fn line(
        &self,
        odb: &Odb<'_>,
        older: Option<&Flush>,
        newer: Option<&Flush>,
        head: Oid,
        limit: usize,
    ) -> Result<Vec<Step>, HistoryError> {
        self.line_where(odb, older, newer, head, limit, |_| true)
    }

    /// Returns those commits of [`line`](Self::line) that are wanted, at most `limit`. The others are read, but not copied.
    pub(super) fn line_where(
        &self,
        odb: &Odb<'_>,
        older: Option<&Flush>,
        newer: Option<&Flush>,
        head: Oid,
        limit: usize,
        is_wanted: impl Fn(&StepText<'_>) -> bool,
    ) -> Result<Vec<Step>, HistoryError> {
        let until = older.map(|older| older.data);
        let joins = newer.map_or(&[][..], |newer| &newer.joins);
        let (mut steps, mut next) = (Vec::new(), Some(head).filter(|head| Some(*head) != until));
        // Commits of other stores and external ones precede all commits of this store since the previous flush.
        let mut is_own = newer.is_some();
        while let Some(oid) = next.filter(|_| steps.len() < limit) {
            self.proceed()?;
            is_own &= !joins.iter().any(|join| match join {
                HistoryLink::FastForward { theirs: taken, .. } | HistoryLink::Adopted { data: taken } => *taken == oid,
                HistoryLink::Merged { .. } | HistoryLink::Converted { .. } => false,
            });
            next = CommitText::read(odb, oid, |commit| {
                let before = self.own_parent(odb, commit, until, joins);
                if is_wanted(&StepText { commit, before, is_own }) {
                    steps.push(Step { commit: commit_text::info(commit), before, is_own });
                }
                before
            })?
            .filter(|before| Some(*before) != until);
        }
        Ok(steps)
    }

    /// Returns the parent on this branch; for an external merge, a parent that descends from this branch.
    fn own_parent(
        &self,
        odb: &Odb<'_>,
        commit: &CommitText<'_>,
        until: Option<Oid>,
        joins: &[HistoryLink],
    ) -> Option<Oid> {
        // A parent that is here, of several, may be that of another branch.
        if self.boundary.has(commit.oid) {
            return None;
        }
        let parents = &commit.parents;
        if let [only] = parents[..] {
            return Some(only).filter(|only| !self.is_cut(odb, *only));
        }
        let there: Vec<Oid> = parents.iter().copied().filter(|parent| !self.is_cut(odb, *parent)).collect();
        let own = joins.iter().find_map(|join| match join {
            HistoryLink::Merged { ours, theirs } => {
                (parents.contains(ours) && parents.contains(theirs)).then_some(*ours)
            }
            _ => None,
        });
        if let Some(own) = own {
            return there.contains(&own).then_some(own);
        }
        let leads_to = |parent: &Oid| until.is_some_and(|until| self.has(*parent, until));
        let is_whole = there.len() == parents.len();
        // Of a merge of which a parent is not here, the other one may be that of another branch.
        there.iter().copied().find(leads_to).or(there.first().copied().filter(|_| is_whole))
    }

    /// Returns whether a shallow clone lacks this commit, or gitcd removed it, although its object may still exist.
    pub(super) fn is_cut(&self, odb: &Odb<'_>, commit: Oid) -> bool {
        self.is_shallow && (self.boundary.removed(commit).unwrap_or(true) || !odb.exists(commit))
    }
}
