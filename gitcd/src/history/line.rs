//! The commits of a branch itself between two flushes.
//!
//! A merge commit has its parents in the order of their ids, so which of them was this branch only the flush before tells. And commits of
//! another store may have become ours (a fast-forward), with revisions that are other ones here: what the metadata says of a key that such
//! a commit changed tells.

use git2::{Odb, Oid};

use super::flush::Flush;
use super::{CommitInfo, History, HistoryError, Revisions};
use crate::git::changes;
use crate::git::lookup::Lookup;

/// A commit of the branch.
#[derive(Clone, Debug)]
pub(super) struct Step {
    pub(super) commit: CommitInfo,
    /// The commit before it on this branch.
    pub(super) before: Option<Oid>,
}

/// Tells which of the commits between two flushes have revisions of this store. Each that is asked about costs a comparison of two trees.
pub(super) struct Judge<'h> {
    history: &'h History,
    odb: &'h Odb<'h>,
    floor: i64,
    newer: &'h Flush,
    /// Whether there are commits of another store, so that only what is sure counts.
    has_others: bool,
}

/// Keys of a commit that are looked up to find out whose it is.
const ASKED: usize = 4;

impl History {
    /// The commits from `newer` back to the data of `older`, which is left out; the newest first, at most `limit`.
    pub(super) fn line(
        &self,
        odb: &Odb<'_>,
        older: Option<&Flush>,
        newer: Oid,
        limit: usize,
    ) -> Result<Vec<Step>, HistoryError> {
        let until = older.map(|older| older.data);
        let (mut steps, mut next) = (Vec::new(), Some(newer).filter(|newer| Some(*newer) != until));
        while let Some(oid) = next.filter(|_| steps.len() < limit) {
            let commit = CommitInfo::read(odb, oid)?;
            let before = self.own_parent(odb, &commit, older);
            next = before.filter(|before| Some(*before) != until);
            steps.push(Step { commit, before });
        }
        Ok(steps)
    }

    /// The parent that was this branch.
    fn own_parent(&self, odb: &Odb<'_>, commit: &CommitInfo, older: Option<&Flush>) -> Option<Oid> {
        let there: Vec<Oid> = commit.parents.iter().copied().filter(|parent| !self.is_cut(odb, *parent)).collect();
        let (Some(older), true) = (older, there.len() > 1) else { return there.first().copied() };
        if there.contains(&older.data) {
            return Some(older.data);
        }
        let leads_to = |parent: &Oid| self.repository.graph_descendant_of(*parent, older.data).unwrap_or(false);
        let mut ours: Vec<Oid> = there.iter().copied().filter(leads_to).collect();
        if ours.len() > 1 {
            // The other one had ours already: its commits have other revisions.
            let is_next = |parent: &Oid| {
                let revisions = CommitInfo::read(odb, *parent).ok().and_then(|parent| parent.revisions());
                revisions.is_some_and(|own| own.first > older.revision)
            };
            ours.sort_by_key(|parent| !is_next(parent));
        }
        ours.first().or(there.first()).copied()
    }

    /// Whether a shallow clone ends before a commit.
    pub(super) fn is_cut(&self, odb: &Odb<'_>, commit: Oid) -> bool {
        self.repository.is_shallow() && !odb.exists(commit)
    }

    /// Whether a commit has these revisions here; `None` if all that it changed has changed again since.
    fn is_own(&self, odb: &Odb<'_>, step: &Step, own: Revisions, newer: &Flush) -> Result<Option<bool>, HistoryError> {
        let before = step.before.map(|before| CommitInfo::read(odb, before)).transpose()?.map(|before| before.tree);
        let changed = changes::between(&self.repository, before, Some(step.commit.tree))?.keys;
        for (relative, _) in changed.into_iter().filter(|(_, change)| change.to.is_some()).take(ASKED) {
            let key = self.config.keys.absolute(&relative);
            match super::known(&mut Lookup::new(&key), odb, newer)?.map(|known| known.record.mod_revision) {
                Some(revision) if revision < own.first => return Ok(Some(false)),
                Some(revision) if revision <= own.last => return Ok(Some(true)),
                _ => {}
            }
        }
        Ok(None)
    }
}

impl<'h> Judge<'h> {
    /// For these commits, the newest first.
    pub(super) fn new(
        history: &'h History,
        odb: &'h Odb<'h>,
        older: Option<&Flush>,
        newer: &'h Flush,
        steps: &[Step],
    ) -> Result<Self, HistoryError> {
        let floor = older.map_or(0, |older| older.revision);
        let mut judge = Self { history, odb, floor, newer, has_others: false };
        // Commits of another store came last, if any did.
        if let Some(last) = steps.first() {
            judge.revisions(last)?;
        }
        Ok(judge)
    }

    /// The revisions of a commit here, as far as they are known.
    pub(super) fn revisions(&mut self, step: &Step) -> Result<Option<Revisions>, HistoryError> {
        let Some(own) = step.commit.revisions() else { return Ok(None) };
        let is_own = if own.first <= self.floor || own.last > self.newer.revision {
            Some(false)
        } else {
            self.history.is_own(self.odb, step, own, self.newer)?
        };
        self.has_others |= is_own == Some(false);
        Ok(Some(own).filter(|_| is_own.unwrap_or(!self.has_others)))
    }
}
