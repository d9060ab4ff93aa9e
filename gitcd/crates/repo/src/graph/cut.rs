//! Which commits a cut of the history removes, and which it must keep.

use std::collections::{BTreeSet, HashSet};

use git2::{Oid, Repository};

use super::{Graph, GraphError};
use crate::boundary::Boundary;

/// The commits that a cut concerns.
#[derive(Clone, Debug, Default)]
pub struct CutPlan {
    /// The boundary before the cut.
    pub before: Boundary,
    /// The commits that lose their parents, and those that lost them before and stay.
    pub boundary: BTreeSet<Oid>,
    /// The commits that go.
    pub removed: BTreeSet<Oid>,
    /// The first of the oldest commits, and what is before it, also if it stays.
    pub older: BTreeSet<Oid>,
}

impl Graph {
    /// Returns the boundary of the history as the graph knows it.
    ///
    /// # Errors
    /// [`GraphError::Boundary`].
    pub(super) fn boundary(&mut self, repository: &Repository) -> Result<Boundary, GraphError> {
        self.refresh(repository)?;
        Ok(self.boundary.clone().unwrap_or_default())
    }

    /// Returns these commits and their ancestors, except those in `without` and what only they lead to.
    ///
    /// # Errors
    /// [`GraphError`].
    pub fn ancestors(
        &mut self,
        repository: &Repository,
        from: &[Oid],
        without: &HashSet<Oid>,
    ) -> Result<HashSet<Oid>, GraphError> {
        let mut found = HashSet::new();
        let mut waiting: Vec<Oid> = from.iter().copied().filter(|oid| !without.contains(oid)).collect();
        while let Some(oid) = waiting.pop() {
            if found.insert(oid) {
                let commit = self.commit(repository, oid)?;
                waiting.extend(commit.parents.iter().filter(|oid| !without.contains(*oid) && !found.contains(*oid)));
            }
        }
        Ok(found)
    }

    /// Returns the commits that a merge of two commits reads: the merge bases, and all that the search for the last edits finds if
    /// it reads up to `limit` commits. If a cut keeps them, merges afterwards have the same result as without the cut. Nothing, if an
    /// earlier cut removed some of them: no later cut makes that worse.
    ///
    /// # Errors
    /// [`GraphError`].
    pub fn read_by_merge(
        &mut self,
        repository: &Repository,
        one: Oid,
        other: Oid,
        limit: usize,
    ) -> Result<HashSet<Oid>, GraphError> {
        let bases = match self.meeting(repository, one, other) {
            Err(error) if error.is_cut() => return Ok(HashSet::new()),
            meeting => meeting?.bases.clone(),
        };
        let mut found: HashSet<Oid> = bases.iter().copied().collect();
        // The last edits are not searched for a fast-forward, or if nothing is new.
        if bases != [one] && bases != [other] {
            found.extend(self.separate(repository, one, other, limit)?.0.into_keys());
        }
        Ok(found)
    }

    /// Plans a cut after which the commits in `oldest` have no parents, if the repository has references to `tips`. The boundary
    /// also has every other ancestor of theirs that is a parent of a commit that stays.
    ///
    /// Reads every commit.
    ///
    /// # Errors
    /// [`GraphError`].
    pub fn plan_cut(&mut self, repository: &Repository, oldest: &[Oid], tips: &[Oid]) -> Result<CutPlan, GraphError> {
        let before = self.boundary(repository)?;
        let older = self.ancestors(repository, &oldest[..oldest.len().min(1)], &HashSet::new())?;
        let mut removed = self.ancestors(repository, oldest, &HashSet::new())?;
        let kept = self.ancestors(repository, tips, &removed)?;
        let mut boundary: BTreeSet<Oid> = oldest.iter().copied().collect();
        boundary.extend(tips.iter().filter(|tip| removed.contains(*tip)));
        for oid in &kept {
            let commit = self.commit(repository, *oid)?;
            boundary.extend(commit.parents.iter().filter(|parent| removed.contains(*parent)));
            if commit.is_boundary {
                boundary.insert(*oid);
            }
        }
        for oid in &boundary {
            removed.remove(oid);
        }
        let (removed, older) = (removed.into_iter().collect(), older.into_iter().collect());
        Ok(CutPlan { before, boundary, removed, older })
    }
}

#[cfg(test)]
mod tests;
