//! Which commits a cut of the history removes, and which it must keep.

use std::collections::{BTreeSet, HashSet};
use std::path::Path;

use git2::{Oid, Repository};

use super::{Commit, Graph, GraphError};
use crate::boundary::{Boundary, Cut, OlderCommits, RecordError, add_scope};

/// The commits that a cut concerns.
#[derive(Clone, Debug, Default)]
pub struct CutPlan {
    /// The boundary before the cut.
    pub before: Boundary,
    /// The commits that lose their parents, and those that lost them before and stay.
    pub boundary: BTreeSet<Oid>,
    /// Those of them that no reference leads to: of the boundary before, as long as their objects exist. A reference may be made to a
    /// commit after them, whose history ends there.
    pub former: BTreeSet<Oid>,
    /// The commits that are removed.
    pub removed: BTreeSet<Oid>,
    /// The first of the oldest commits, and what is before it, also if it stays.
    pub older: OlderCommits,
}

impl CutPlan {
    /// Records the cut before it is made, see [`Boundary::record`].
    ///
    /// # Errors
    /// [`RecordError`].
    pub fn record(&self, git_dir: &Path, cut: &Cut) -> Result<(), RecordError> {
        self.before.record(git_dir, cut, &self.boundary, &self.removed, &self.older)
    }

    /// Makes the recorded cut, see [`Boundary::apply`].
    ///
    /// # Errors
    /// [`RecordError`]; the boundary is as it was.
    pub fn apply(&self, git_dir: &Path) -> Result<(), RecordError> {
        self.before.apply(git_dir, &self.boundary)
    }
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
        self.visit_ancestors(repository, from, without, |_| {})
    }

    /// Does the same, and visits each of them.
    fn visit_ancestors(
        &mut self,
        repository: &Repository,
        from: &[Oid],
        without: &HashSet<Oid>,
        mut visit: impl FnMut(&Commit),
    ) -> Result<HashSet<Oid>, GraphError> {
        let mut found = HashSet::new();
        let mut waiting: Vec<Oid> = from.iter().copied().filter(|oid| !without.contains(oid)).collect();
        while let Some(oid) = waiting.pop() {
            if found.insert(oid) {
                let commit = self.commit(repository, oid)?;
                visit(&commit);
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
    /// also has every other ancestor of theirs that is a parent of a commit that stays, and former boundaries that were not pruned yet.
    ///
    /// Reads every commit once. Memory: some 100 bytes for each.
    ///
    /// # Errors
    /// [`GraphError`].
    pub fn plan_cut(&mut self, repository: &Repository, oldest: &[Oid], tips: &[Oid]) -> Result<CutPlan, GraphError> {
        let before = self.boundary(repository)?;
        let mut scopes = Vec::new();
        let mut visit = |commit: &Commit| {
            if let Some((_, scope)) = &commit.partial {
                add_scope(&mut scopes, scope);
            }
        };
        let first = &oldest[..oldest.len().min(1)];
        let older = self.visit_ancestors(repository, first, &HashSet::new(), &mut visit)?;
        let mut removed = self.visit_ancestors(repository, oldest, &older, &mut visit)?;
        removed.extend(&older);
        let mut boundary: BTreeSet<Oid> = oldest.iter().copied().collect();
        let (mut kept, mut waiting) = (HashSet::new(), tips.to_vec());
        while let Some(oid) = waiting.pop() {
            if removed.contains(&oid) {
                boundary.insert(oid);
            } else if kept.insert(oid) {
                let commit = self.commit(repository, oid)?;
                waiting.extend(&commit.parents);
                if commit.is_boundary {
                    boundary.insert(oid);
                }
            }
        }
        // A reflog may lead to the former boundary, or a reference that is made later. Its parents may be gone: `git gc` would fail.
        let odb = repository.odb().map_err(|error| GraphError::unreadable(oldest[0], error.message()))?;
        let former: BTreeSet<Oid> =
            before.commits().filter(|oid| !boundary.contains(oid) && odb.exists(*oid)).collect();
        boundary.extend(&former);
        for oid in &boundary {
            removed.remove(oid);
        }
        let older = OlderCommits { commits: older.into_iter().collect(), scopes };
        Ok(CutPlan { before, boundary, former, removed: removed.into_iter().collect(), older })
    }
}

#[cfg(test)]
mod tests;
