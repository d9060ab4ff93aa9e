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
use super::{OpenError, StateLock};
use crate::backup::Backup;

/// Name of the file that marks a branch that is being imported.
const IMPORTING: &str = "importing";

/// Where a branch that is being imported comes from.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Origin {
    /// The ID of etcd's cluster.
    pub cluster_id: u64,
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

/// Ends the import: from now on, the branch can be served.
///
/// # Errors
/// [`OpenError::Folder`].
pub fn end(lock: &StateLock) -> Result<(), OpenError> {
    let path = path(lock.folder());
    std::fs::remove_file(&path).map_err(|source| OpenError::Folder { action: "remove", path: path.clone(), source })?;
    Ok(durable::sync(lock.folder())?)
}

fn path(folder: &Path) -> PathBuf {
    folder.join(IMPORTING)
}
