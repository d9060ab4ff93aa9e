//! Branches that are being imported from a running etcd: copies that are not served before the cut-over.
//!
//! Until then, a file in the branch's state folder says from which etcd the branch is copied. gitcd refuses to serve the branch:
//! clients would get the state of an earlier moment, and their writes would take the revisions of writes that etcd still
//! accepts.

use std::path::{Path, PathBuf};

use gitcd_core::durable;
use gitcd_core::revision::Revision;
use gitcd_repo::branch::Config;
use serde::{Deserialize, Serialize};

use super::restore::restore_marked;
use super::{OpenError, StateLock, state_folder};
use crate::backup::Backup;

/// Name of the file that marks a branch that is being imported.
const IMPORTING: &str = "importing";

/// Where a branch that is being imported comes from.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Origin {
    /// The ID of etcd's cluster.
    pub cluster_id: u64,
    /// The member whose alarm makes etcd refuse writes; recorded before the alarm is raised.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub frozen_member: Option<u64>,
}

/// Creates a branch from a snapshot of a running etcd, and marks it as being imported.
///
/// # Errors
/// As [`restore`](super::restore()).
pub fn begin(config: &Config, backup: &Backup, origin: &Origin) -> Result<Revision, OpenError> {
    let text = serde_json::to_vec(origin).expect("numbers can be written as JSON");
    restore_marked(config, backup, None, &[(IMPORTING, text)])
}

/// Returns where a branch is being imported from; `None` if it is not.
///
/// # Errors
/// [`OpenError::Folder`] if the file cannot be read.
pub fn origin(lock: &StateLock) -> Result<Option<Origin>, OpenError> {
    let path = path(lock.folder());
    let failed = |source| OpenError::Folder { action: "read", path: path.clone(), source };
    match std::fs::read(&path) {
        Ok(text) => serde_json::from_slice(&text).map(Some).map_err(std::io::Error::other).map_err(failed),
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => Ok(None),
        Err(error) => Err(failed(error)),
    }
}

/// Records a change of the origin, by the process that holds the branch's lock.
///
/// # Errors
/// [`OpenError::Folder`].
pub fn record(config: &Config, origin: &Origin) -> Result<(), OpenError> {
    let text = serde_json::to_vec(origin).expect("numbers can be written as JSON");
    Ok(durable::replace(&path(&state_folder(config)), &text)?)
}

/// Ends the import: from now on, the branch can be served. If the folder cannot be synced afterwards, that is logged: after a loss
/// of power, the import may have to be ended again.
///
/// # Errors
/// [`OpenError::Folder`]; the branch is still being imported.
pub fn end(lock: &StateLock) -> Result<(), OpenError> {
    let path = path(lock.folder());
    std::fs::remove_file(&path).map_err(|source| OpenError::Folder { action: "remove", path: path.clone(), source })?;
    if let Err(error) = durable::sync(lock.folder()) {
        tracing::warn!("the branch can be served, but a loss of power may undo that: {error}");
    }
    Ok(())
}

fn path(folder: &Path) -> PathBuf {
    folder.join(IMPORTING)
}
