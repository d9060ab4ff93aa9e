//! Git's lock on one reference, whose owner can be identified after a crash.
use std::ffi::OsStr;
use std::fs::{self, File};
use std::io::ErrorKind;
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use git2::Oid;
use gitcd_core::durable;
use rustix::fs::FlockOperation;

use super::{RefError, Refs, packed, parent};

/// This permission bit has no effect on files. A lock with it is gitcd's, even if a power loss removed the file that it is a link
/// to.
const MARK: u32 = 0o1000;

/// The folder, in the repository, with the files that locks are hard links to, by reference.
const STAGED: &str = "gitcd-refs";

const FIRST_PAUSE: Duration = Duration::from_millis(1);
const LONGEST_PAUSE: Duration = Duration::from_millis(50);

/// The lock `<ref>.lock`, which durably holds the new value. Removed on drop, unless renamed.
#[derive(Debug)]
pub(super) struct Lock {
    path: PathBuf,
    is_held: bool,
    /// Removed after the lock: while the lock exists, its owner is known.
    staged: Staged,
}

/// A file that is removed on drop. Until then, a system lock on it shows that its process is running.
#[derive(Debug)]
struct Staged {
    path: PathBuf,
    lives: File,
}

impl Drop for Staged {
    fn drop(&mut self) {
        // If this fails, the next release removes the file.
        let _gone = fs::remove_file(&self.path);
    }
}

impl Lock {
    /// Locks `name`, with `new` as content; waits as long as the patience of `refs`.
    pub(super) fn acquire(refs: &Refs, name: &str, new: Oid) -> Result<Self, RefError> {
        let staged = stage(refs, &staging_folder(refs, name), 0o666 | MARK, format!("{new}\n").as_bytes())?;
        let path = lock_file(refs, name);
        let deadline = Instant::now() + refs.patience;
        let (mut pause, mut has_looked) = (FIRST_PAUSE, false);
        loop {
            let error = match fs::hard_link(&staged.path, &path) {
                Ok(()) => {
                    return Ok(Self { path, is_held: true, staged });
                }
                Err(error) => error,
            };
            let is_late = Instant::now() >= deadline;
            match error.kind() {
                // A lock held for so long may be of a killed process. In a repository that no gitcd serves, no other process
                // would release it.
                ErrorKind::AlreadyExists if !has_looked && (is_late || pause >= LONGEST_PAUSE) => {
                    has_looked = true;
                    let (_released, _folders) = release_in(refs, &staging_folder(refs, name))?;
                }
                ErrorKind::AlreadyExists if is_late => return Err(RefError::Locked { path }),
                ErrorKind::AlreadyExists => {
                    std::thread::sleep(pause);
                    pause = (pause * 2).min(LONGEST_PAUSE);
                }
                // Git removes empty folders, so this can be needed again.
                ErrorKind::NotFound if !is_late => {
                    if let Err(error) = durable::make_folder_in(&refs.root, parent(&path)) {
                        refs.check_names(name)?;
                        return Err(error.into());
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

    /// Renames the lock to the reference.
    pub(super) fn rename_to(&mut self, path: &Path) -> Result<(), RefError> {
        durable::rename(&self.path, path)?;
        self.is_held = false;
        Ok(())
    }

    /// Removes the mark: the file is now a reference, which no power loss turns back into a lock. A remaining mark does no harm.
    pub(super) fn unmark(&self) {
        let lives = &self.staged.lives;
        if let Ok(found) = lives.metadata() {
            let _as_good = lives.set_permissions(fs::Permissions::from_mode(found.mode() & 0o777));
        }
    }

    /// Removes the lock on `name` if a process that has exited made it with [`Lock::acquire`], and other leftovers of that
    /// process.
    pub(super) fn release(refs: &Refs, name: &str) -> Result<bool, RefError> {
        let (released, _folders) = release_in(refs, &staging_folder(refs, name))?;
        Ok(released > 0)
    }

    /// Leaves everything as if the process were killed now.
    #[cfg(test)]
    pub(super) fn abandon(self) {
        rustix::fs::flock(&self.staged.lives, FlockOperation::Unlock).expect("it is locked");
        std::mem::forget(self);
    }
}

impl Drop for Lock {
    fn drop(&mut self) {
        if self.is_held {
            // If this fails, the next update reports the lock.
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

/// Replaces `packed-refs`, durably. The caller holds its lock.
pub(super) fn replace_packed(refs: &Refs, content: &[u8]) -> Result<(), RefError> {
    let staged = stage(refs, &staging_folder(refs, packed::FILE), 0o666, content)?;
    durable::rename(&staged.path, &refs.root.join(packed::FILE))?;
    durable::sync(&refs.root)?;
    Ok(())
}

/// Releases the locks on all references whose processes have exited, and returns how many.
pub(super) fn release_all(refs: &Refs) -> Result<usize, RefError> {
    let (mut released, mut folders) = (0, vec![refs.root.join(STAGED)]);
    while let Some(folder) = folders.pop() {
        let (here, below) = release_in(refs, &folder)?;
        released += here;
        folders.extend(below);
    }
    Ok(released)
}

/// Releases what is staged in this folder; returns the number of locks, and the subfolders.
fn release_in(refs: &Refs, folder: &Path) -> Result<(usize, Vec<PathBuf>), RefError> {
    let io = |path: &Path, source| RefError::Io { path: path.to_owned(), source };
    let name = folder.strip_prefix(refs.root.join(STAGED)).unwrap_or(folder);
    let lock = refs.root.join([name.as_os_str(), OsStr::new(".lock")].join(OsStr::new("")));
    let mut released = usize::from(release_marked(&lock)?);
    let entries = match fs::read_dir(folder) {
        Ok(entries) => entries,
        Err(error) if error.kind() == ErrorKind::NotFound => return Ok((released, Vec::new())),
        Err(source) => return Err(io(folder, source)),
    };
    let mut folders = Vec::new();
    for entry in entries {
        let entry = entry.map_err(|source| io(folder, source))?;
        let path = entry.path();
        let kind = entry.file_type().map_err(|source| io(&path, source))?;
        if kind.is_dir() {
            folders.push(path);
            continue;
        }
        let staged = match File::open(&path) {
            Ok(staged) => staged,
            Err(error) if error.kind() == ErrorKind::NotFound => continue,
            Err(source) => return Err(io(&path, source)),
        };
        // A running process holds it.
        if rustix::fs::flock(&staged, FlockOperation::NonBlockingLockExclusive).is_err() {
            continue;
        }
        let staged = staged.metadata().map_err(|source| io(&path, source))?;
        if let Ok(found) = fs::symlink_metadata(&lock)
            && (found.dev(), found.ino()) == (staged.dev(), staged.ino())
        {
            fs::remove_file(&lock).map_err(|source| io(&lock, source))?;
            released += 1;
        }
        fs::remove_file(&path).map_err(|source| io(&path, source))?;
    }
    Ok((released, folders))
}

/// Releases a lock that has the mark and is not held by a running process; returns whether there was one.
fn release_marked(lock: &Path) -> Result<bool, RefError> {
    let io = |source| RefError::Io { path: lock.to_owned(), source };
    let Ok(found) = fs::symlink_metadata(lock) else { return Ok(false) };
    if !found.is_file() || found.mode() & MARK == 0 {
        return Ok(false);
    }
    let file = match File::open(lock) {
        Ok(file) => file,
        Err(error) if error.kind() == ErrorKind::NotFound => return Ok(false),
        Err(source) => return Err(io(source)),
    };
    if rustix::fs::flock(&file, FlockOperation::NonBlockingLockExclusive).is_err() {
        return Ok(false);
    }
    // The file may have been replaced by another lock.
    let (held, now) = (file.metadata().map_err(io)?, fs::symlink_metadata(lock));
    if !now.is_ok_and(|now| (now.dev(), now.ino()) == (held.dev(), held.ino())) {
        return Ok(false);
    }
    fs::remove_file(lock).map_err(io)?;
    Ok(true)
}

/// Writes and syncs `content` to a new file. No part of a reference's name ends with `.lock`, so the file never conflicts with a
/// folder for another reference.
fn stage(refs: &Refs, folder: &Path, mode: u32, content: &[u8]) -> Result<Staged, RefError> {
    loop {
        let path = folder.join(format!("{:016x}.lock", rand::random::<u64>()));
        durable::make_folder_in(&refs.root, folder)?;
        durable::create(&path, mode, content)?;
        let io = |source| RefError::Io { path: path.clone(), source };
        let lives = match File::open(&path) {
            Ok(lives) => lives,
            // A process that releases stale locks took it for one.
            Err(error) if error.kind() == ErrorKind::NotFound => continue,
            Err(source) => return Err(io(source)),
        };
        rustix::fs::flock(&lives, FlockOperation::LockExclusive).map_err(|error| io(error.into()))?;
        if lives.metadata().map_err(io)?.nlink() > 0 {
            return Ok(Staged { path, lives });
        }
    }
}
