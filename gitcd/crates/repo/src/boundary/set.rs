//! Replacement of the file `shallow`, under Git's own lock.

use std::fs;
use std::io::ErrorKind;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};

use gitcd_core::durable;

use super::{FOLDER, ShallowState};
use crate::own_folder;

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
    /// The boundary cannot be written.
    #[error(transparent)]
    Write(#[from] durable::Error),
}

/// Git's lock on the file `shallow`. It is a hard link to a file of gitcd, so that one that a killed gitcd left is recognized. Only
/// one gitcd at a time makes it ([`super::change`]), so what is found is not of another one that still runs.
struct ShallowLock {
    lock: PathBuf,
    own: PathBuf,
    is_held: bool,
}

impl ShallowLock {
    fn take(git_dir: &Path, content: &str) -> Result<Self, SetError> {
        let (lock, own) = (git_dir.join("shallow.lock"), git_dir.join(FOLDER).join("shallow"));
        if is_one_file(&own, &lock) {
            fs::remove_file(&lock).map_err(durable::Error::of("remove", &lock))?;
        }
        // Other users may read it if they may read the repository (core.sharedRepository, umask).
        own_folder::replace(git_dir, &own, content.as_bytes())?;
        match fs::hard_link(&own, &lock) {
            Ok(()) => Ok(Self { lock, own, is_held: true }),
            Err(error) if error.kind() == ErrorKind::AlreadyExists => Err(SetError::Locked(lock)),
            Err(error) => Err(durable::Error::of("create", &lock)(error).into()),
        }
    }
}

impl Drop for ShallowLock {
    fn drop(&mut self) {
        // What cannot be removed is recognized by the next run. If it became the file, another program may have the lock now.
        let _lock = self.is_held.then(|| fs::remove_file(&self.lock));
        let _own = fs::remove_file(&self.own);
    }
}

/// Replaces the file, if it is still as it was `seen`.
pub(super) fn set(git_dir: &Path, seen: ShallowState, lines: &str) -> Result<(), SetError> {
    let path = git_dir.join("shallow");
    let mut held = ShallowLock::take(git_dir, lines)?;
    if ShallowState::of(git_dir) != seen {
        return Err(SetError::Changed(path));
    }
    durable::rename(&held.lock, &path)?;
    held.is_held = false;
    durable::sync(git_dir)?;
    Ok(())
}

fn is_one_file(one: &Path, other: &Path) -> bool {
    let inode = |path: &Path| fs::metadata(path).ok().map(|file| (file.dev(), file.ino()));
    inode(one).is_some_and(|own| inode(other) == Some(own))
}
