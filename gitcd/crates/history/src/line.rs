//! The commits of a branch itself between two flushes.
//!
//! Metadata commits say where histories came together ([`Join`]): which parent of a merge was this branch, and which commits are those of
//! another store, whose revisions are other ones here.

use git2::{Odb, Oid};
use gitcd_repo::join::Join;

use super::flush::Flush;
use super::named::Named;
use super::{CommitInfo, History, HistoryError, Revisions};

/// A commit of the branch.
#[derive(Clone, Debug)]
pub(super) struct Step {
    pub(super) commit: CommitInfo,
    /// The commit before it on this branch.
    pub(super) before: Option<Oid>,
    /// Whether this store made it.
    is_own: bool,
}

impl Step {
    /// Whether the key may be in it, as far as its subject tells.
    pub(super) fn may_have(&self, key: &Named) -> bool {
        let is_plain = self.revisions().is_some() && self.commit.parents.len() == 1;
        !is_plain || key.may_be_in(self.commit.subject())
    }

    /// The revisions that it has here, if it is a commit of this store.
    pub(super) fn revisions(&self) -> Option<Revisions> {
        self.commit.revisions().filter(|_| self.is_own)
    }
}

impl History {
    /// The commits from `head` back to the data of `older`, which is left out; the newest first, at most `limit`. Those after the last flush
    /// have no `newer` one.
    pub(super) fn line(
        &self,
        odb: &Odb<'_>,
        older: Option<&Flush>,
        newer: Option<&Flush>,
        head: Oid,
        limit: usize,
    ) -> Result<Vec<Step>, HistoryError> {
        let until = older.map(|older| older.data);
        let joins = newer.map_or(&[][..], |newer| &newer.joins);
        let (mut steps, mut next) = (Vec::new(), Some(head).filter(|head| Some(*head) != until));
        // What other stores and people made was all there before the first commit of this one since the flush before.
        let mut is_own = newer.is_some();
        while let Some(oid) = next.filter(|_| steps.len() < limit) {
            is_own &= !joins.iter().any(|join| match join {
                Join::FastForward { theirs: taken, .. } | Join::Adopted { data: taken } => *taken == oid,
                Join::Merged { .. } | Join::Converted { .. } => false,
            });
            let commit = CommitInfo::read(odb, oid)?;
            let before = self.own_parent(odb, &commit, until, joins);
            next = before.filter(|before| Some(*before) != until);
            steps.push(Step { commit, before, is_own });
        }
        Ok(steps)
    }

    /// The parent that was this branch; of a commit of somebody else, one that leads to where this branch was.
    fn own_parent(&self, odb: &Odb<'_>, commit: &CommitInfo, until: Option<Oid>, joins: &[Join]) -> Option<Oid> {
        let there: Vec<Oid> = commit.parents.iter().copied().filter(|parent| !self.is_cut(odb, *parent)).collect();
        if there.len() < 2 {
            return there.first().copied();
        }
        let own = joins.iter().find_map(|join| match join {
            Join::Merged { ours, theirs } => (there.contains(ours) && there.contains(theirs)).then_some(*ours),
            _ => None,
        });
        let leads_to = |parent: &Oid| {
            let descends = |until| self.repository.graph_descendant_of(*parent, until).unwrap_or(false);
            until.is_some_and(|until| *parent == until || descends(until))
        };
        own.or_else(|| there.iter().copied().find(leads_to)).or(there.first().copied())
    }

    /// Whether a shallow clone ends before a commit.
    pub(super) fn is_cut(&self, odb: &Odb<'_>, commit: Oid) -> bool {
        self.is_shallow && !odb.exists(commit)
    }
}
