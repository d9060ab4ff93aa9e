//! Record of the last lease update in the state folder: a server that restarts on it need not wait for its own lease to expire.

use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use git2::Oid;

/// The file `lease` of a state folder. Only a process with the folder's lock reads it, so the process that wrote it has
/// exited. It is bound to the folder's device and inode and to the boot id, so it does not count in a copy of the folder or
/// after a reboot.
#[derive(Debug)]
pub(super) struct Mark {
    file: PathBuf,
    place: Option<String>,
}

impl Mark {
    pub(super) fn of(folder: &Path) -> Self {
        let boot = fs::read_to_string("/proc/sys/kernel/random/boot_id").ok();
        let folder_is = fs::metadata(folder).ok();
        let place = boot.zip(folder_is).map(|(boot, is)| format!("{} {} {}", boot.trim(), is.dev(), is.ino()));
        Self { file: folder.join("lease"), place }
    }

    /// Records the two values that the reference may have, before it is moved. Not synced: after a power failure, the server
    /// waits anyway.
    pub(super) fn write(&self, from: Option<Oid>, to: Oid) {
        let Some(place) = &self.place else { return };
        let from = from.unwrap_or(Oid::ZERO_SHA1);
        if let Err(error) = fs::write(&self.file, format!("{place}\n{from}\n{to}\n")) {
            tracing::debug!(%error, "cannot record the lease: after a crash, this server waits until it expires");
        }
    }

    /// Returns whether the reference has one of the values that the previous process recorded.
    pub(super) fn is_own(&self, found: Option<Oid>) -> bool {
        let (Some(place), Some(found)) = (&self.place, found) else { return false };
        let text = fs::read_to_string(&self.file).unwrap_or_default();
        let mut lines = text.lines();
        lines.next() == Some(place) && text.ends_with('\n') && lines.any(|line| line == found.to_string())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_mark_counts_in_its_folder_and_not_in_a_copy() {
        let folder = tempfile::tempdir().unwrap();
        let mark = Mark::of(folder.path());
        let id = |number| Oid::from_bytes(&[number; 20]).unwrap();
        assert!(!mark.is_own(Some(id(1))));
        mark.write(Some(id(1)), id(2));
        assert!(mark.is_own(Some(id(1))) && mark.is_own(Some(id(2))));
        assert!(!mark.is_own(Some(id(3))) && !mark.is_own(None));
        let copy = tempfile::tempdir().unwrap();
        fs::copy(folder.path().join("lease"), copy.path().join("lease")).unwrap();
        assert!(!Mark::of(copy.path()).is_own(Some(id(2))));
    }
}
