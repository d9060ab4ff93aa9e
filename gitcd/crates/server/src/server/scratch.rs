//! Temporary folders of this process in the system's folder for them. A folder is locked while it is used, so that a later process
//! recognizes and removes those that a killed one left behind.

use std::fs::{self, File};
use std::io;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};

use rustix::fs::{FlockOperation, Mode, OFlags, flock, open};
use rustix::process::geteuid;
use tempfile::TempDir;

/// How often a folder is created again because another process took it for a leftover.
const ATTEMPTS: usize = 5;

/// Why there is no temporary folder.
#[derive(Debug, thiserror::Error)]
#[error("cannot create a temporary folder in {folder:?}: {source}; set TMPDIR to a folder with free space")]
pub struct ScratchError {
    folder: PathBuf,
    source: io::Error,
}

/// A temporary folder that only this user can read; removed on drop.
#[derive(Debug)]
pub(super) struct ScratchFolder {
    folder: TempDir,
    /// Released after the folder is removed.
    _lock: File,
}

impl ScratchFolder {
    /// Creates a folder whose name starts with `prefix` in the system's temporary folder.
    ///
    /// # Errors
    /// [`ScratchError`].
    pub(super) fn create(prefix: &str) -> Result<Self, ScratchError> {
        Self::create_in(&std::env::temp_dir(), prefix)
    }

    fn create_in(parent: &Path, prefix: &str) -> Result<Self, ScratchError> {
        let failed = |source| ScratchError { folder: parent.to_owned(), source };
        for _ in 0..ATTEMPTS {
            let folder = tempfile::Builder::new().prefix(prefix).tempdir_in(parent).map_err(failed)?;
            if let Some(lock) = lock(folder.path()) {
                return Ok(Self { folder, _lock: lock });
            }
        }
        Err(failed(io::Error::new(io::ErrorKind::ResourceBusy, "another process keeps removing it")))
    }

    pub(super) fn path(&self) -> &Path {
        self.folder.path()
    }
}

/// Removes the folders that killed processes of this user left behind. Errors are logged.
pub(super) fn remove_leftovers(prefix: &str) {
    remove_leftovers_in(&std::env::temp_dir(), prefix);
}

fn remove_leftovers_in(parent: &Path, prefix: &str) {
    let entries = fs::read_dir(parent).into_iter().flatten().flatten();
    let named = entries.filter(|entry| entry.file_name().as_encoded_bytes().starts_with(prefix.as_bytes()));
    // Those of other users are not ours to remove, and a link may lead anywhere.
    let own = named.filter(|entry| entry.metadata().is_ok_and(|of| of.is_dir() && of.uid() == geteuid().as_raw()));
    for path in own.map(|entry| entry.path()) {
        let Some(_lock) = lock(&path) else { continue };
        match fs::remove_dir_all(&path) {
            Ok(()) => {
                tracing::info!(folder = %path.display(), "removed a temporary folder that a killed gitcd left behind");
            }
            Err(error) => tracing::warn!(folder = %path.display(), %error, "cannot remove a leftover temporary folder"),
        }
    }
}

/// Locks an existing folder; returns `None` if another process has locked or removed it.
fn lock(path: &Path) -> Option<File> {
    let folder = open(path, OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC, Mode::empty()).ok()?;
    flock(&folder, FlockOperation::NonBlockingLockExclusive).ok()?;
    let folder = File::from(folder);
    // It may have been removed between the two calls.
    let (here, there) = (fs::symlink_metadata(path).ok()?, folder.metadata().ok()?);
    (here.ino() == there.ino() && here.dev() == there.dev()).then_some(folder)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_folders_that_no_process_uses_are_removed() {
        let parent = tempfile::tempdir().unwrap();
        let used = ScratchFolder::create_in(parent.path(), "gitcd-past-").unwrap();
        let (left, other) = (parent.path().join("gitcd-past-left"), parent.path().join("gitcd-of-another-kind"));
        for folder in [&left, &other] {
            fs::create_dir_all(folder.join("repo.git/objects")).unwrap();
        }
        std::os::unix::fs::symlink(&other, parent.path().join("gitcd-past-link")).unwrap();
        remove_leftovers_in(parent.path(), "gitcd-past-");
        assert!(used.path().exists() && other.join("repo.git").exists() && !left.exists());
        let path = used.path().to_owned();
        drop(used);
        assert!(!path.exists());
    }

    #[test]
    fn an_unusable_parent_is_an_error_with_what_to_do() {
        let said = ScratchFolder::create_in(Path::new("/nonexistent"), "x").unwrap_err().to_string();
        assert!(said.contains("/nonexistent") && said.contains("TMPDIR"), "{said}");
    }
}
