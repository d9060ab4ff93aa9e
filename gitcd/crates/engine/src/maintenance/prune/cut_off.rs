//! Objects of a history that was cut.

use std::collections::BTreeMap;
use std::fs;
use std::io::ErrorKind;
use std::path::PathBuf;

use git2::Oid;
use gitcd_core::durable;
use gitcd_core::program::Program;
use gitcd_repo::boundary::Boundary;
use tokio::sync::watch;

use super::super::index::Id;
use super::super::join::{JoinError, MaintenancePaths};
use super::{Unreachable, blocking, ids, list};

/// Marks the unreachable objects that cuts removed: commits, and all objects of their trees.
pub(super) async fn mark(
    git: &Program,
    place: &MaintenancePaths,
    unreachable: &mut BTreeMap<Id, Unreachable>,
    stopped: &watch::Receiver<bool>,
) -> Result<(), JoinError> {
    let repository = place.repository.clone();
    let removed = blocking(move || {
        let boundary = Boundary::read(&repository)?;
        // A commit of the boundary may have been kept for a reflog, which has expired.
        Ok(boundary.all_removed()?.into_iter().chain(boundary.commits()).collect::<Vec<_>>())
    });
    let removed = removed.await?;
    let mut input = Vec::new();
    for oid in removed {
        let line = format!("{oid}\n");
        // Most were pruned after an earlier cut.
        if Id::parse(line.trim_end()).is_some_and(|id| unreachable.contains_key(&id)) {
            input.extend_from_slice(line.as_bytes());
        }
    }
    if input.is_empty() {
        return Ok(());
    }
    // Without their parents: those of an earlier cut need not be there. After a crash, neither need some of the objects.
    let walk = [
        "rev-list",
        "--objects",
        "--no-object-names",
        "--no-walk",
        "--ignore-missing",
        "--missing=allow-any",
        "--stdin",
    ];
    let listed = place.draft.join("cut-off");
    list(git, place, &walk, input, &listed, stopped).await?;
    for id in ids(&listed)? {
        if let Some(found) = unreachable.get_mut(&id?) {
            found.is_cut_off = true;
        }
    }
    Ok(())
}

/// Writes a file like `shallow` that also has the removed commits among some objects.
pub(super) fn ends<'i>(place: &MaintenancePaths, objects: impl Iterator<Item = &'i Id>) -> Result<PathBuf, JoinError> {
    let path = place.repository.join("shallow");
    let mut text = match fs::read_to_string(&path) {
        Err(error) if error.kind() == ErrorKind::NotFound => String::new(),
        text => text.map_err(durable::Error::of("read", &path))?,
    };
    let boundary = Boundary::read(&place.repository)?;
    for id in objects {
        let hex = id.hex();
        if Oid::from_str(&hex).is_ok_and(|oid| boundary.removed(oid).unwrap_or(true)) {
            text.push_str(&hex);
            text.push('\n');
        }
    }
    let ends = place.draft.join("ends");
    fs::write(&ends, text).map_err(durable::Error::of("write", &ends))?;
    Ok(ends)
}
