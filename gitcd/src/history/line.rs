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
    /// Its revisions here, as far as they are known.
    pub(super) revisions: Option<Revisions>,
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
            steps.push(Step { commit, before, revisions: None });
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

    /// Finds out which of the commits between two flushes have revisions of this store.
    pub(super) fn judge(
        &self,
        odb: &Odb<'_>,
        steps: &mut [Step],
        older: Option<&Flush>,
        newer: &Flush,
    ) -> Result<(), HistoryError> {
        let floor = older.map_or(0, |older| older.revision);
        let (mut above, mut has_others) = (newer.revision + 1, false);
        let mut sure = vec![false; steps.len()];
        for (at, step) in steps.iter_mut().enumerate() {
            let Some(own) = step.commit.revisions() else { continue };
            if own.first <= floor || own.last >= above {
                has_others = true;
                continue;
            }
            match self.is_own(odb, step, own, newer)? {
                Some(false) => has_others = true,
                told => {
                    (step.revisions, above) = (Some(own), own.first);
                    sure[at] = told == Some(true);
                }
            }
        }
        if has_others {
            for (step, sure) in steps.iter_mut().zip(sure) {
                step.revisions = step.revisions.filter(|_| sure);
            }
        }
        Ok(())
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
