//! Which commits a cut of the history removes, and which it must keep.

use std::collections::{BTreeSet, HashSet};
use std::fs;
use std::io::ErrorKind;
use std::path::Path;

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
    /// The commits that are removed.
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
    /// Reads every commit once. Memory: some 100 bytes for each.
    ///
    /// # Errors
    /// [`GraphError`].
    pub fn plan_cut(&mut self, repository: &Repository, oldest: &[Oid], tips: &[Oid]) -> Result<CutPlan, GraphError> {
        let before = self.boundary(repository)?;
        let older = self.ancestors(repository, &oldest[..oldest.len().min(1)], &HashSet::new())?;
        let mut removed = self.ancestors(repository, oldest, &older)?;
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
        if has_reflogs(repository) {
            // A reflog may lead to the former boundary, and its parents may be gone: `git gc` would fail.
            let odb = repository.odb().map_err(|error| GraphError::unreadable(oldest[0], error.message()))?;
            boundary.extend(before.commits().filter(|oid| odb.exists(*oid)));
        }
        for oid in &boundary {
            removed.remove(oid);
        }
        let (removed, older) = (removed.into_iter().collect(), older.into_iter().collect());
        Ok(CutPlan { before, boundary, removed, older })
    }
}

/// Returns whether commits may be named by reflogs, or by work trees. They are no references, but Git counts them as roots.
fn has_reflogs(repository: &Repository) -> bool {
    let git_dir = repository.commondir();
    has_content(&git_dir.join("logs")) || git_dir.join("worktrees").exists()
}

/// Returns whether a folder has a file that is not empty, or may have one.
fn has_content(folder: &Path) -> bool {
    let entries = match fs::read_dir(folder) {
        Err(error) if error.kind() == ErrorKind::NotFound => return false,
        Err(_) => return true,
        Ok(entries) => entries,
    };
    entries.into_iter().any(|entry| {
        entry
            .and_then(|entry| Ok((entry.path(), entry.metadata()?)))
            .map_or(true, |(path, found)| if found.is_dir() { has_content(&path) } else { found.len() > 0 })
    })
}

#[cfg(test)]
mod tests;
