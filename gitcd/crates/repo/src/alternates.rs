//! Repositories that read the objects of others: Git's *alternates* (`objects/info/alternates`, gitrepository-layout(5)).
//!
//! A gitcd that reads objects of another repository has a shared lock (flock(2)) on the folder `objects` of that one. So has one that
//! receives objects, on its own folder, until references lead to them: what they need may be unreachable here. A process
//! that deletes objects needs the lock alone. So what a running gitcd reads is not deleted. The lock ends with its process and leaves nothing
//! behind, and it needs no permission to write.
//!
//! As for `git gc`, other repositories that share objects are not known.

use std::ffi::OsStr;
use std::fs::{self, File};
use std::io::{self, ErrorKind};
use std::os::unix::ffi::OsStrExt as _;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};
use std::thread;
use std::time::{Duration, Instant};

use rustix::fs::FlockOperation;
use rustix::io::Errno;

/// Limit on the wait for a folder that another process has locked: every user who can read a folder can lock it.
const WAIT: Duration = Duration::from_secs(30);
/// After this time, the wait is logged.
const LOGGED_AFTER: Duration = Duration::from_secs(1);
/// The pause between two attempts.
const PAUSE: Duration = Duration::from_millis(20);

/// Another process has kept the objects of a repository locked for too long.
#[derive(Debug, thiserror::Error)]
#[error("another process has locked {folder:?} for {} seconds; it may be pruning objects: try again", WAIT.as_secs())]
pub struct StaysLocked {
    /// The folder of the objects.
    pub folder: PathBuf,
}

/// Objects that are being read. Until this is dropped, no gitcd deletes objects there.
#[derive(Debug, Default)]
pub struct ObjectsInUse {
    locks: Vec<FolderLock>,
}

/// The right to delete objects of a repository. Until this is dropped, no gitcd starts to read them for another repository, or to
/// receive objects.
#[derive(Debug)]
pub struct ObjectsUnused {
    _lock: Option<FolderLock>,
}

#[derive(Debug)]
struct FolderLock(File);

impl Drop for FolderLock {
    fn drop(&mut self) {
        // A process that is just being spawned may have inherited the descriptor for a moment.
        let _ended = rustix::fs::flock(&self.0, FlockOperation::Unlock);
    }
}

impl FolderLock {
    /// Locks a folder together with others who read it; `None` if it cannot be locked at all, which the log has then.
    fn shared(path: &Path, limit: Duration) -> Result<Option<Self>, StaysLocked> {
        let opened = File::open(path).inspect_err(|error| log_unlocked(path, error));
        let Ok(folder) = opened else { return Ok(None) };
        let (started, mut is_logged) = (Instant::now(), false);
        loop {
            match rustix::fs::flock(&folder, FlockOperation::NonBlockingLockShared) {
                Ok(()) => return Ok(Some(Self(folder))),
                Err(Errno::WOULDBLOCK) => {}
                Err(error) => {
                    log_unlocked(path, &io::Error::from(error));
                    return Ok(None);
                }
            }
            let waited = started.elapsed();
            if waited >= limit {
                return Err(StaysLocked { folder: path.to_owned() });
            }
            if !is_logged && waited >= LOGGED_AFTER {
                tracing::info!(folder = %path.display(), "waiting for another process that has locked the folder");
                is_logged = true;
            }
            thread::sleep(PAUSE);
        }
    }
}

/// Logs why a folder is used without a lock. Some file systems have no locks, and a folder need not exist.
fn log_unlocked(folder: &Path, error: &io::Error) {
    let folder = folder.display();
    let is_without_locks = matches!(Errno::from_io_error(error), Some(Errno::NOLCK | Errno::OPNOTSUPP));
    if is_without_locks || matches!(error.kind(), ErrorKind::NotFound | ErrorKind::Unsupported) {
        tracing::debug!(%folder, %error, "cannot be locked");
    } else {
        tracing::warn!(%folder, %error, "cannot lock the folder; continuing without a lock: a prune elsewhere is not prevented");
    }
}

impl ObjectsInUse {
    /// Marks the objects as being read that the repository in this Git directory has, and those that it reads from others. Blocks
    /// while a gitcd deletes some, for at most 30 seconds for each folder.
    ///
    /// Where a folder cannot be locked, nothing is marked: on some network file systems, if the folder does not exist, and if another
    /// process keeps it locked. The log has every other reason.
    pub fn all(git_dir: &Path) -> Self {
        Self::of(&folders(git_dir), WAIT)
    }

    /// Does the same with those only that the repository reads from others. Costs one system call if there are none.
    pub fn others(git_dir: &Path) -> Self {
        let mut folders = folders(git_dir);
        folders.remove(0);
        Self::of(&folders, WAIT)
    }

    /// Does the same as [`Self::all`] before objects are received. A process that has locked a folder may delete what they continue from,
    /// so a folder that stays locked is an error here.
    ///
    /// # Errors
    /// [`StaysLocked`] after 30 seconds; nothing is marked.
    pub fn to_receive(git_dir: &Path) -> Result<Self, StaysLocked> {
        Self::try_of(&folders(git_dir), WAIT)
    }

    fn of(folders: &[PathBuf], limit: Duration) -> Self {
        let lock = |folder: &PathBuf| match FolderLock::shared(folder, limit) {
            Ok(lock) => lock,
            Err(StaysLocked { folder }) => {
                tracing::warn!(
                    folder = %folder.display(),
                    "another process keeps the folder locked; continuing without a lock: a prune elsewhere is not prevented, and may \
                     delete objects that are read here"
                );
                None
            }
        };
        Self { locks: folders.iter().filter_map(lock).collect() }
    }

    fn try_of(folders: &[PathBuf], limit: Duration) -> Result<Self, StaysLocked> {
        let locks = folders.iter().filter_map(|folder| FolderLock::shared(folder, limit).transpose());
        Ok(Self { locks: locks.collect::<Result<_, _>>()? })
    }

    /// Returns how many folders of objects are marked.
    pub fn count(&self) -> usize {
        self.locks.len()
    }
}

impl ObjectsUnused {
    /// Returns the right to delete objects of the repository in this Git directory; `None` if a gitcd reads them for another repository, or
    /// receives objects.
    ///
    /// # Errors
    /// The folder of the objects cannot be opened. Where it cannot be locked (on some network file systems), the right is
    /// returned.
    pub fn take(git_dir: &Path) -> io::Result<Option<Self>> {
        let folder = File::open(git_dir.join("objects"))?;
        match rustix::fs::flock(&folder, FlockOperation::NonBlockingLockExclusive) {
            Ok(()) => Ok(Some(Self { _lock: Some(FolderLock(folder)) })),
            Err(Errno::WOULDBLOCK) => Ok(None),
            Err(error) => {
                log_unlocked(&git_dir.join("objects"), &io::Error::from(error));
                Ok(Some(Self { _lock: None }))
            }
        }
    }
}

/// Returns the folder of the objects of a repository, and then those that it reads from others, each once.
pub(crate) fn folders(git_dir: &Path) -> Vec<PathBuf> {
    let inode = |path: &Path| fs::metadata(path).ok().map(|found| (found.dev(), found.ino()));
    let mut found = vec![git_dir.join("objects")];
    let mut seen = vec![inode(&found[0])];
    let mut at = 0;
    while let Some(objects) = found.get(at) {
        for path in named(objects) {
            let inode = inode(&path);
            if inode.is_some() && !seen.contains(&inode) {
                seen.push(inode);
                found.push(path);
            }
        }
        at += 1;
    }
    found
}

/// Returns whether the repository in this Git directory reads objects of others.
pub fn has_any(git_dir: &Path) -> bool {
    fs::metadata(git_dir.join("objects/info/alternates")).is_ok()
}

/// Returns the folders that a file `alternates` names. Git reports those that it cannot find.
fn named(objects: &Path) -> Vec<PathBuf> {
    let path = objects.join("info/alternates");
    let text = match fs::read(&path) {
        Err(error) if error.kind() != ErrorKind::NotFound => {
            tracing::debug!(file = %path.display(), %error, "cannot be read");
            Vec::new()
        }
        text => text.unwrap_or_default(),
    };
    let lines = text.split(|byte| *byte == b'\n').filter(|line| !line.is_empty() && line[0] != b'#');
    // A relative path is meant from the objects.
    lines.map(|line| objects.join(OsStr::from_bytes(line))).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn repository(folder: &Path, name: &str, alternates: &str) -> PathBuf {
        let path = folder.join(name);
        fs::create_dir_all(path.join("objects/info")).unwrap();
        if !alternates.is_empty() {
            fs::write(path.join("objects/info/alternates"), alternates).unwrap();
        }
        path
    }

    #[test]
    fn nothing_is_deleted_while_it_is_read_directly_or_through_others() {
        let folder = tempfile::tempdir().unwrap();
        let origin = repository(folder.path(), "origin", "");
        let between = repository(folder.path(), "between", &format!("{}\n", origin.join("objects").display()));
        let fork = repository(folder.path(), "fork", "# of people\n../../between/objects\n../../gone/objects\n");
        let is_unused = |of: &Path| ObjectsUnused::take(of).unwrap().is_some();
        assert_eq!(ObjectsInUse::others(&origin).count(), 0);
        let reads = ObjectsInUse::others(&fork);
        assert_eq!(reads.count(), 2);
        assert!(!is_unused(&origin) && !is_unused(&between) && is_unused(&fork));
        let reads_too = ObjectsInUse::all(&fork);
        drop(reads);
        assert!(!is_unused(&origin) && !is_unused(&between) && !is_unused(&fork));
        drop(reads_too);
        assert!(is_unused(&origin) && is_unused(&between) && is_unused(&fork));
    }

    #[test]
    fn a_folder_that_stays_locked_is_read_without_a_lock_and_receives_nothing() {
        let folder = tempfile::tempdir().unwrap();
        let objects = [repository(folder.path(), "one", "").join("objects"), folder.path().join("missing")];
        let deletes = ObjectsUnused::take(&folder.path().join("one")).unwrap().unwrap();
        assert_eq!(ObjectsInUse::of(&objects, Duration::ZERO).count(), 0);
        let refused = ObjectsInUse::try_of(&objects, Duration::ZERO).unwrap_err();
        assert_eq!(refused.folder, objects[0]);
        let ends = thread::spawn(move || {
            thread::sleep(PAUSE);
            drop(deletes);
        });
        assert_eq!(ObjectsInUse::try_of(&objects, WAIT).unwrap().count(), 1);
        ends.join().unwrap();
    }

    #[test]
    fn what_names_itself_is_read_once() {
        let folder = tempfile::tempdir().unwrap();
        let one = repository(folder.path(), "one", "../../two/objects\n../../one/objects\n");
        repository(folder.path(), "two", "../../one/objects\n");
        assert_eq!(ObjectsInUse::all(&one).count(), 2);
        assert_eq!(ObjectsInUse::others(&one).count(), 1);
        assert!(ObjectsUnused::take(&folder.path().join("missing")).is_err());
    }
}
