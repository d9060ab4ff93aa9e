//! Git's lock on one reference, taken so that its owner can be told after a crash.
use std::fs;
use std::io::ErrorKind;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use git2::Oid;

use super::{RefError, Refs, parent};
use crate::durable;

/// In the repository's folder: the files that locks are hard links to, by reference.
const STAGED: &str = "gitcd-refs";

const FIRST_PAUSE: Duration = Duration::from_millis(1);
const LONGEST_PAUSE: Duration = Duration::from_millis(50);

/// `<ref>.lock`, holding the new value durably. Gone when dropped, unless renamed.
#[derive(Debug)]
pub(super) struct Lock {
    path: PathBuf,
    is_held: bool,
    /// Removed after the lock: as long as there is a lock, its origin is known.
    _staged: Staged,
}

/// A file that is removed when dropped.
#[derive(Debug)]
struct Staged(PathBuf);

impl Drop for Staged {
    fn drop(&mut self) {
        // A file that stays is removed by the next release.
        let _gone = fs::remove_file(&self.0);
    }
}

impl Lock {
    /// Takes the lock on `name`, with `new` in it; waits as long as `refs` has patience.
    pub(super) fn acquire(refs: &Refs, name: &str, new: Oid) -> Result<Self, RefError> {
        let staged = stage(&staging_folder(refs, name), new)?;
        let path = lock_file(refs, name);
        let deadline = Instant::now() + refs.patience;
        let mut pause = FIRST_PAUSE;
        loop {
            let error = match fs::hard_link(&staged.0, &path) {
                Ok(()) => {
                    return Ok(Self { path, is_held: true, _staged: staged });
                }
                Err(error) => error,
            };
            let is_late = Instant::now() >= deadline;
            match error.kind() {
                ErrorKind::AlreadyExists if is_late => return Err(RefError::Locked { path }),
                ErrorKind::AlreadyExists => {
                    std::thread::sleep(pause);
                    pause = (pause * 2).min(LONGEST_PAUSE);
                }
                // Git removes folders that have become empty, so this can be needed again.
                ErrorKind::NotFound if !is_late => {
                    if let Err(source) = fs::create_dir_all(parent(&path)) {
                        refs.check_names(name)?;
                        return Err(RefError::Io { path, source });
                    }
                }
                _ => {
                    refs.check_names(name)?;
                    let source = error;
                    return Err(RefError::Io { path, source });
                }
            }
        }
    }

    /// Makes the lock the reference.
    pub(super) fn rename_to(mut self, path: &Path) -> Result<(), RefError> {
        durable::rename(&self.path, path)?;
        self.is_held = false;
        Ok(())
    }

    /// Removes the lock on `name` if it was made by [`Lock::acquire`], and what else is left of it.
    pub(super) fn release(refs: &Refs, name: &str) -> Result<bool, RefError> {
        let folder = staging_folder(refs, name);
        let lock = lock_file(refs, name);
        let io = |path: &Path, source| RefError::Io { path: path.to_owned(), source };
        let entries = match fs::read_dir(&folder) {
            Ok(entries) => entries,
            Err(error) if error.kind() == ErrorKind::NotFound => return Ok(false),
            Err(source) => return Err(io(&folder, source)),
        };
        let mut released = false;
        for entry in entries {
            let entry = entry.map_err(|source| io(&folder, source))?;
            let staged = entry.metadata().map_err(|source| io(&entry.path(), source))?;
            if !staged.is_file() {
                continue;
            }
            if let Ok(found) = fs::symlink_metadata(&lock)
                && (found.dev(), found.ino()) == (staged.dev(), staged.ino())
            {
                fs::remove_file(&lock).map_err(|source| io(&lock, source))?;
                released = true;
            }
            fs::remove_file(entry.path()).map_err(|source| io(&entry.path(), source))?;
        }
        Ok(released)
    }
}

impl Drop for Lock {
    fn drop(&mut self) {
        if self.is_held {
            // A lock that stays is reported by whoever wants it next.
            let _gone = fs::remove_file(&self.path);
        }
    }
}

fn lock_file(refs: &Refs, name: &str) -> PathBuf {
    refs.root.join([name, ".lock"].concat())
}

fn staging_folder(refs: &Refs, name: &str) -> PathBuf {
    refs.root.join(STAGED).join(name)
}

/// Writes and syncs `id` in a new file. No part of a reference's name ends with `.lock`, so the
/// file is in the way of no other reference's folder.
fn stage(folder: &Path, id: Oid) -> Result<Staged, RefError> {
    let path = folder.join(format!("{:016x}.lock", rand::random::<u64>()));
    fs::create_dir_all(folder).map_err(durable::Error::of("create", folder))?;
    let staged = Staged(path);
    durable::create(&staged.0, 0o666, format!("{id}\n").as_bytes())?;
    Ok(staged)
}
