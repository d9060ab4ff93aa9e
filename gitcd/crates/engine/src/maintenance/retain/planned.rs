//! Whether a plan still fits: while the archive gets the older commits, references may be created and moved.

use std::collections::{BTreeMap, HashSet};
use std::path::Path;

use git2::{Oid, Repository};
use gitcd_repo::graph::{Graph, GraphError};
use gitcd_repo::refs::Refs;

use super::{CutRequest, RetainError};

/// Returns all references of a repository, to be read before a cut is planned.
///
/// # Errors
/// [`RetainError::References`].
pub fn references(repository: &Path) -> Result<BTreeMap<String, Oid>, RetainError> {
    Ok(Refs::open(repository)?.list()?.into_iter().collect())
}

/// Fails if a reference that is new, or was moved, may need more than the plan keeps. It needs no more if it continues one that was
/// planned for, by commits that need no removed commit: it may do that at any time after the cut as well.
pub(super) fn check(repository: &Path, cut: &CutRequest) -> Result<(), RetainError> {
    let opened = Repository::open_bare(repository);
    let opened = opened.map_err(|error| GraphError::unreadable(cut.oldest[0], error.message()))?;
    let planned: HashSet<Oid> = cut.planned.values().copied().collect();
    for (name, oid) in references(repository)? {
        if !planned.contains(&oid) && !continues(&opened, cut, &planned, oid)? {
            return Err(RetainError::Moved(name));
        }
    }
    Ok(())
}

/// Returns whether a commit continues one that was planned for, and needs no removed commit.
fn continues(repository: &Repository, cut: &CutRequest, planned: &HashSet<Oid>, tip: Oid) -> Result<bool, GraphError> {
    // A tag may be of anything.
    if repository.find_commit(tip).is_err() {
        return Ok(false);
    }
    let removed = &cut.plan.removed;
    let without: HashSet<Oid> = removed.iter().chain(&cut.plan.boundary).chain(planned).copied().collect();
    let mut graph = Graph::lenient();
    let mut is_continued = false;
    for oid in graph.ancestors(repository, &[tip], &without)? {
        for parent in &graph.commit(repository, oid)?.parents {
            if removed.contains(parent) {
                return Ok(false);
            }
            is_continued |= planned.contains(parent);
        }
    }
    Ok(is_continued)
}
