//! External commits on the data reference.

use git2::{Oid, Repository};

use super::super::boundary::Boundary;
use super::super::graph::Graph;

/// Returns whether a commit on the data reference has to be merged: it can be read, and is not one of our older commits that the
/// reference was moved back to. It may continue from a removed commit, which the merge restores.
pub(super) fn is_to_be_merged(repository: &Repository, found: Oid, ours: Oid) -> bool {
    match Graph::default().is_ancestor(repository, found, ours) {
        Err(error) if error.is_cut() => Boundary::read(repository.commondir())
            .and_then(|boundary| Ok(!boundary.has(found) && !boundary.removed(found)?))
            .unwrap_or(false),
        is_ancestor => is_ancestor.is_ok_and(|is_ancestor| !is_ancestor),
    }
}
