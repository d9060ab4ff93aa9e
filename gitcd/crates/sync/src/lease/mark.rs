//! What this very state folder last did with the lease: who starts on it again need not wait for itself.

use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use git2::Oid;

/// The file `lease` of a state folder. It is read by whoever has the folder's lock: the process that wrote it has ended. A copy of
/// the folder does not have its mark: that is bound to the folder's place on the disk, and to this run of the machine.
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

    /// Before the reference is moved from one value to the next. Not synced: what a power loss takes with it only costs a wait.
    pub(super) fn write(&self, from: Option<Oid>, to: Oid) {
        let Some(place) = &self.place else { return };
        let from = from.unwrap_or(Oid::ZERO_SHA1);
        if let Err(error) = fs::write(&self.file, format!("{place}\n{from}\n{to}\n")) {
            tracing::debug!(%error, "waiting for the lease to expire after a crash");
        }
    }

    /// Whether the reference is as the process before this one left it.
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
    fn a_folder_knows_what_it_did_and_its_copy_does_not() {
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
