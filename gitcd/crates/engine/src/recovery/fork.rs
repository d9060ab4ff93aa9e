//! Creation of a fork: a branch of its own that continues from a moment of another one.

use std::path::Path;
use std::sync::Arc;

use gitcd_core::durable;
use gitcd_core::revision::Revision;
use gitcd_mvcc::snapshot::{Incarnation, hex};
use gitcd_repo::branch::{Branch, Config, ForkObjects, ForkPoint};

use super::{OpenError, first_snapshot, start_journal, state_folder};

/// Creates a branch in a new repository that continues from a moment of a branch in the Git directory `origin`; `gitcd serve` can
/// serve it. Returns its first revision, before which everything is compacted. The time to live of leases starts again.
///
/// The origin is not changed, and may be served meanwhile. Its objects must have been
/// [marked as being read](gitcd_repo::alternates::ObjectsInUse::all) before `point` was read.
///
/// # Errors
/// [`OpenError`]; an incomplete fork can be removed with its folder.
pub fn fork(config: &Config, origin: &Path, objects: ForkObjects, point: ForkPoint) -> Result<Revision, OpenError> {
    let incarnation: Incarnation = rand::random();
    let branch = Branch::fork(config.clone(), origin, objects, point, hex(&incarnation)).map_err(Box::new)?;
    let folder = state_folder(config);
    durable::make_folder(&folder)?;
    start_journal(&folder.join("journal"), incarnation, 0, 1 << 12, &Arc::default())?;
    let state = branch.state();
    let revision = Revision::new(state.revision);
    let mut snapshot = first_snapshot(incarnation, revision, branch.head().metadata);
    snapshot.compacted = revision;
    snapshot.leases.clone_from(&state.leases);
    snapshot.write(&folder)?;
    Ok(revision)
}
