//! The lock that ensures one writer for each branch on this machine.

use std::fs::File;
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use gitcd_core::durable;
use gitcd_repo::branch::Config;
use gitcd_repo::git_dir;
use rustix::fs::FlockOperation;

use super::{OpenError, state_folder};

/// The exclusive right to write a branch: locks that the system releases when the process exits.
#[derive(Debug)]
pub struct StateLock {
    _files: Vec<File>,
    folder: PathBuf,
    continues_import: bool,
}

/// The folder of a branch's local state and its parents, up to the repository.
const FOLDERS: usize = 3;

impl StateLock {
    /// Takes the lock.
    ///
    /// # Errors
    /// [`OpenError::Locked`] if another process holds it, [`OpenError::Folder`].
    pub fn take(config: &Config) -> Result<Self, OpenError> {
        let folder = state_folder(config);
        durable::make_folder(&folder)?;
        // One lock for the local state and one for each reference, so that a branch under another name is locked, too.
        let locks = folder.with_file_name("locks");
        durable::make_folder(&locks)?;
        let of_reference = |name: &str| locks.join(file_name(name));
        let paths =
            [folder.join("lock"), of_reference(&config.data_reference), of_reference(&config.metadata_reference)];
        // Sync the folders in any case: the process that created them may have been killed before it did.
        let folders = folder.ancestors().take(FOLDERS).collect::<Vec<_>>();
        durable::sync_all(&folders)?;
        warn_if_wide(&folder);
        let files = paths.iter().map(|path| lock_file(config, path)).collect::<Result<_, _>>()?;
        Ok(Self { _files: files, folder, continues_import: false })
    }

    /// With this lock, a branch that is being imported is opened, and not refused.
    #[must_use]
    pub fn for_import(self) -> Self {
        Self { continues_import: true, ..self }
    }

    pub(super) fn continues_import(&self) -> bool {
        self.continues_import
    }

    /// Returns whether a process on this machine writes the branch with this reference, whatever its name.
    pub fn is_taken(repository: &Path, reference: &str) -> bool {
        let path = git_dir(repository).join("gitcd/locks").join(file_name(reference));
        let Ok(file) = File::open(path) else { return false };
        rustix::fs::flock(&file, FlockOperation::NonBlockingLockShared) == Err(rustix::io::Errno::WOULDBLOCK)
    }

    /// Returns the folder of the branch's local state.
    pub fn folder(&self) -> &Path {
        &self.folder
    }
}

/// Warns about a state folder that other users can read, such as one that an earlier version created.
fn warn_if_wide(folder: &Path) {
    if let Ok(found) = std::fs::metadata(folder)
        && is_wide(found.mode())
    {
        let (mode, folder) = (format!("{:o}", found.mode() & 0o7777), folder.display());
        tracing::warn!(
            mode,
            "other users can access {folder}, which holds all keys and values; run: chmod -R go-rwx {folder}"
        );
    }
}

/// Returns whether others than the owner have permissions. A group that the folder passes on to its content (set-group-ID) is
/// intended: Kubernetes gives the pod's group access to its volumes so.
fn is_wide(mode: u32) -> bool {
    let others = if mode & 0o2000 == 0 { 0o077 } else { 0o007 };
    mode & others != 0
}

fn file_name(reference: &str) -> String {
    reference.replace('%', "%25").replace('/', "%2F")
}

fn lock_file(config: &Config, path: &Path) -> Result<File, OpenError> {
    let failed = |source| durable::Error::of("lock", path)(source);
    let mut options = File::options();
    let file = options.create(true).truncate(false).write(true).mode(durable::PRIVATE_FILE).open(path);
    let file = file.map_err(failed)?;
    match rustix::fs::flock(&file, FlockOperation::NonBlockingLockExclusive) {
        Ok(()) => Ok(file),
        Err(rustix::io::Errno::WOULDBLOCK) => Err(OpenError::Locked {
            repository: config.repository.clone(),
            reference: config.data_reference.clone(),
            lock: path.to_owned(),
        }),
        Err(error) => Err(failed(error.into()).into()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_folder_is_wide_if_others_than_its_owner_or_its_own_group_have_access() {
        for (mode, expected) in
            [(0o700, false), (0o2770, false), (0o750, true), (0o701, true), (0o755, true), (0o2775, true)]
        {
            assert_eq!(is_wide(mode), expected, "{mode:o}");
        }
    }
}
