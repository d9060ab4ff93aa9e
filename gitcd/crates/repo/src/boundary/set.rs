//! Replacement of the file `shallow`, under Git's own lock.

use std::collections::{BTreeSet, HashSet};
use std::fs::{self, Permissions};
use std::io::ErrorKind;
use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _};
use std::path::{Path, PathBuf};

use git2::Oid;
use gitcd_core::durable;

use super::{BoundaryError, FOLDER, shallow};

/// Why the boundary of a repository was not moved.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum SetError {
    /// Another program changes the boundary.
    #[error("{0:?} exists: another Git program changes the boundary of the history; if none runs, remove the file")]
    Locked(PathBuf),
    /// Another program changed the boundary.
    #[error("another program changed {0:?} meanwhile; run the command again")]
    Changed(PathBuf),
    /// The boundary cannot be read.
    #[error(transparent)]
    Read(#[from] BoundaryError),
    /// The boundary cannot be written.
    #[error(transparent)]
    Write(#[from] durable::Error),
}

/// Git's lock on the file `shallow`. It is a hard link to a file of gitcd, so that one that a killed gitcd left is recognized.
struct Lock {
    lock: PathBuf,
    own: PathBuf,
}

impl Lock {
    fn take(git_dir: &Path, content: &str) -> Result<Self, SetError> {
        let (lock, own) = (git_dir.join("shallow.lock"), git_dir.join(FOLDER).join("shallow"));
        if is_one_file(&own, &lock) {
            fs::remove_file(&lock).map_err(durable::Error::of("remove", &lock))?;
        }
        durable::make_folder(&git_dir.join(FOLDER))?;
        durable::replace(&own, content.as_bytes())?;
        // Other users may read it if they may read the repository (core.sharedRepository, umask).
        let head = git_dir.join("HEAD");
        let mode = fs::metadata(&head).map_err(durable::Error::of("read", &head))?.mode() & 0o666;
        fs::set_permissions(&own, Permissions::from_mode(mode)).map_err(durable::Error::of("change", &own))?;
        match fs::hard_link(&own, &lock) {
            Ok(()) => Ok(Self { lock, own }),
            Err(error) if error.kind() == ErrorKind::AlreadyExists => Err(SetError::Locked(lock)),
            Err(error) => Err(durable::Error::of("create", &lock)(error).into()),
        }
    }
}

impl Drop for Lock {
    fn drop(&mut self) {
        // If the lock became the file, it is gone. What cannot be removed is recognized by the next run.
        let _lock = fs::remove_file(&self.lock);
        let _own = fs::remove_file(&self.own);
    }
}

/// Makes these commits the boundary, if it is still as `expected`.
pub(super) fn set(git_dir: &Path, expected: &HashSet<Oid>, commits: &BTreeSet<Oid>) -> Result<(), SetError> {
    let path = git_dir.join("shallow");
    let lines = commits.iter().fold(String::new(), |lines, oid| lines + &oid.to_string() + "\n");
    let held = Lock::take(git_dir, &lines)?;
    if shallow(git_dir)? != *expected {
        return Err(SetError::Changed(path));
    }
    durable::rename(&held.lock, &path)?;
    durable::sync(git_dir)?;
    Ok(())
}

fn is_one_file(one: &Path, other: &Path) -> bool {
    let inode = |path: &Path| fs::metadata(path).ok().map(|file| (file.dev(), file.ino()));
    inode(one).is_some_and(|own| inode(other) == Some(own))
}
