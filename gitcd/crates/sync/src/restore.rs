//! Restores commits that were removed when the history was cut, because another branch, or an external commit, continues from them.

use std::path::Path;

use git2::{Oid, Repository};
use gitcd_repo::boundary::Boundary;

use super::plan::PlanError;

/// Limit on commits that one merge restores.
pub(super) const MAX_RESTORED: usize = 1000;

/// What became of a commit at which a walk ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Restored {
    /// It is a part of the boundary now.
    Yes,
    /// It was removed, and is not here.
    Missing,
    /// It was not removed, or cannot be restored.
    No,
}

/// Plans a merge. Whenever the plan needs a removed commit that is here, the commit becomes a part of the boundary, and the merge is
/// planned again.
///
/// # Errors
/// [`PlanError`], also if the history that is needed was cut.
pub(super) fn restoring<T>(git_dir: &Path, mut plan: impl FnMut() -> Result<T, PlanError>) -> Result<T, PlanError> {
    let mut restored = 0;
    loop {
        match plan() {
            Err(error)
                if restored < MAX_RESTORED
                    && error.cut_at().is_some_and(|oid| restore(git_dir, oid) == Restored::Yes) =>
            {
                restored += 1;
            }
            planned => return planned,
        }
    }
}

/// Makes a removed commit, which was sent again, a part of the boundary.
pub(super) fn restore(git_dir: &Path, oid: Oid) -> Restored {
    let is_there = Repository::open(git_dir).is_ok_and(|opened| opened.odb().is_ok_and(|odb| odb.exists(oid)));
    match Boundary::read(git_dir) {
        // A former boundary, whose objects were pruned.
        Ok(boundary) if boundary.has(oid) && !is_there => return Restored::Missing,
        Ok(boundary) if boundary.removed(oid).unwrap_or(false) => {}
        _ => return Restored::No,
    }
    match Boundary::restore(git_dir, &[oid]) {
        Ok(()) if is_there => Restored::Yes,
        Ok(()) => Restored::Missing,
        Err(error) => {
            tracing::warn!(commit = %oid, %error, "cannot restore a commit that was removed when the history was cut");
            Restored::No
        }
    }
}
