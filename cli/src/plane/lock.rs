//! The lock of a control plane's folder, which also shows whether the folder is still in its place.

use std::fs::{File, OpenOptions};
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

use super::home::HomeError;

/// Identifies a folder by its lock file. The number of a lock file is not reused while a supervisor holds the lock, so a
/// new folder at the same path has another identity.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct LockId {
    /// The device of the file system.
    pub device: u64,
    /// The inode on it.
    pub inode: u64,
}

impl LockId {
    /// Identifies the lock file at `path`; `None` if there is none.
    ///
    /// # Errors
    /// If the path cannot be looked up for another reason.
    pub fn of(path: &Path) -> io::Result<Option<Self>> {
        match path.metadata() {
            Ok(metadata) => Ok(Some(Self { device: metadata.dev(), inode: metadata.ino() })),
            Err(error) if matches!(error.kind(), io::ErrorKind::NotFound | io::ErrorKind::NotADirectory) => Ok(None),
            Err(error) => Err(error),
        }
    }
}

/// The exclusive lock on the folder of a control plane. The system releases it when the process exits, however that
/// happens.
#[derive(Debug)]
pub struct HomeLock {
    /// Keeps the lock.
    _file: File,
    path: PathBuf,
    id: LockId,
}

impl HomeLock {
    /// Locks the file at `path`, which is created if need be; `None` if another process holds it.
    ///
    /// # Errors
    /// [`HomeError::Lock`] if the file cannot be opened or locked at all.
    pub(crate) fn take(path: &Path) -> Result<Option<Self>, HomeError> {
        let failed = |source| HomeError::Lock { path: path.into(), source };
        loop {
            let file = OpenOptions::new().create(true).truncate(false).write(true).open(path).map_err(failed)?;
            match file.try_lock() {
                Ok(()) => {}
                Err(std::fs::TryLockError::WouldBlock) => return Ok(None),
                Err(std::fs::TryLockError::Error(source)) => return Err(failed(source)),
            }
            let metadata = file.metadata().map_err(failed)?;
            let id = LockId { device: metadata.dev(), inode: metadata.ino() };
            // A `delete` may have removed the file after it was opened.
            if LockId::of(path).map_err(failed)? == Some(id) {
                return Ok(Some(Self { _file: file, path: path.into(), id }));
            }
        }
    }

    /// The identity of the locked folder.
    #[must_use]
    pub fn id(&self) -> LockId {
        self.id
    }

    /// Whether the folder is still at its path: not removed, not moved away, not replaced. Takes one system call.
    #[must_use]
    pub fn is_in_place(&self) -> bool {
        // If it cannot be looked up for another reason, such as a network file system that does not answer, it may be.
        LockId::of(&self.path).map_or(true, |found| found == Some(self.id))
    }
}

#[cfg(test)]
mod tests {
    use crate::plane::Home;

    #[test]
    fn the_lock_is_exclusive_and_goes_with_its_holder() {
        let dir = tempfile::tempdir().unwrap();
        let home = Home::at(dir.path());
        let held = home.try_lock().unwrap();
        assert!(held.is_some());
        assert!(home.try_lock().unwrap().is_none());
        drop(held);
        assert!(home.try_lock().unwrap().is_some());
    }

    #[test]
    fn a_folder_that_is_moved_away_or_replaced_is_not_in_its_place() {
        let dir = tempfile::tempdir().unwrap();
        let (here, there) = (dir.path().join("here"), dir.path().join("there"));
        std::fs::create_dir(&here).unwrap();
        let lock = Home::at(&here).try_lock().unwrap().unwrap();
        assert!(lock.is_in_place());
        std::fs::rename(&here, &there).unwrap();
        assert!(!lock.is_in_place());
        std::fs::create_dir(&here).unwrap();
        let other = Home::at(&here).try_lock().unwrap().unwrap();
        assert!(other.is_in_place() && !lock.is_in_place() && other.id() != lock.id());
        std::fs::remove_dir_all(&here).unwrap();
        assert!(!other.is_in_place());
        std::fs::rename(&there, &here).unwrap();
        assert!(lock.is_in_place());
    }
}
