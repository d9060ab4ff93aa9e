//! Exclusive use of a repository: no gitcd serves one of its branches, and no Git host receives a push.

use std::fs::File;
use std::path::{Path, PathBuf};

use gitcd_core::durable;
use rustix::fs::FlockOperation;

use super::RetainError;

/// Prefix of the folders in which a Git host receives pushes (`gitcd-host`, `push/quarantine.rs`).
const QUARANTINE: &str = "tmp_objdir-";

/// The locks of all branches of a repository, and of the pushes that a Git host left. Released on drop.
#[derive(Debug)]
pub struct BranchLocks {
    repository: PathBuf,
    held: Vec<(PathBuf, File)>,
}

impl BranchLocks {
    pub(super) fn take(repository: &Path) -> Result<Self, RetainError> {
        let mut taken = Self { repository: repository.to_owned(), held: Vec::new() };
        taken.extend()?;
        Ok(taken)
    }

    /// Takes the locks that were created since the others were taken.
    pub(super) fn extend(&mut self) -> Result<(), RetainError> {
        let is_push =
            |path: &PathBuf| path.file_name().is_some_and(|name| name.to_string_lossy().starts_with(QUARANTINE));
        let pushes = durable::entries(&self.repository.join("objects"))?.into_iter().filter(is_push);
        for path in durable::entries(&self.repository.join("gitcd/locks"))?.into_iter().chain(pushes) {
            if self.held.iter().any(|(held, _)| *held == path) {
                continue;
            }
            let file = File::open(&path).map_err(durable::Error::of("open", &path))?;
            match rustix::fs::flock(&file, FlockOperation::NonBlockingLockExclusive) {
                Ok(()) => self.held.push((path, file)),
                Err(rustix::io::Errno::WOULDBLOCK) => return Err(RetainError::Served(path)),
                Err(error) => return Err(durable::Error::of("lock", &path)(error.into()).into()),
            }
        }
        Ok(())
    }
}

impl Drop for BranchLocks {
    fn drop(&mut self) {
        for (_, file) in &self.held {
            // A process that is just being spawned may have inherited the descriptor for a moment.
            let _ended = rustix::fs::flock(file, FlockOperation::Unlock);
        }
    }
}
