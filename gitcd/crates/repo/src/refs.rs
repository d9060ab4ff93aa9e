//! Durable updates of references, compatible with stock Git.
//!
//! libgit2 syncs neither references nor their folders, so gitcd moves them itself, in Git's own way: the new value is written to
//! `<ref>.lock`, which only one process can create, and renamed over the old one after a comparison.
//!
//! A crash must not leave a lock that no program dares to remove. So the value is first written and synced to a file of gitcd,
//! and the lock is a hard link to it: after a restart, [`Refs::release`] can distinguish gitcd's locks from others.
//!
//! ```
//! use gitcd_repo::refs::{RefError, Refs};
//!
//! let folder = tempfile::tempdir()?;
//! git2::Repository::init_bare(folder.path())?;
//! let refs = Refs::open(folder.path())?;
//! let commit = git2::Oid::from_str("c0ffee00c0ffee00c0ffee00c0ffee00c0ffee00")?;
//!
//! refs.update("refs/heads/main", commit, None)?;
//! assert_eq!(refs.read("refs/heads/main")?, Some(commit));
//! assert!(matches!(refs.update("refs/heads/main", commit, None), Err(RefError::Moved { .. })));
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! [`Refs::update_all`] moves several references, all or none; [`Refs::list`] reads all.
use std::collections::BTreeSet;
use std::fs;
use std::io::ErrorKind;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

use git2::Oid;
use parking_lot::Mutex;

use gitcd_core::durable;
use lock::Lock;

pub use batch::{Change, Refused};
pub use error::RefError;
pub(crate) use list::Listing;

mod batch;
mod error;
mod list;
mod lock;
mod packed;
#[cfg(test)]
mod tests;

/// How long an update waits for another process that holds the lock.
const PATIENCE: Duration = Duration::from_secs(2);

/// Longest chain of symbolic references that is followed; Git's own limit.
const MAX_SYMBOLIC: usize = 5;

/// The references of a repository, which other processes may read and write as well.
///
/// References that only a linked work tree has (its `HEAD`, `refs/bisect`) are not visible. Calls block on the disk. The file
/// system must support hard links.
#[derive(Debug)]
pub struct Refs {
    root: PathBuf,
    patience: Duration,
}

/// Folders that this process has made durable, up to the root of their references. They are identified by device, inode number
/// and birth time too, since another folder may get the same path, or even the same inode number.
static SETTLED: Mutex<BTreeSet<Folder>> = Mutex::new(BTreeSet::new());
type Folder = (u64, u64, Option<SystemTime>, PathBuf);
/// Limit of these folders.
const MOST_SETTLED: usize = 10_000;

/// What a move has to survive.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum After {
    /// A crash of this process.
    Crash,
    PowerLoss,
}

/// The stored value of a reference.
#[derive(Debug, PartialEq, Eq)]
enum Stored {
    Absent,
    Direct(Oid),
    Symbolic(String),
}

impl Refs {
    /// Opens the references of the repository at `git_dir`: a bare one, a `.git` folder or the folder around it.
    ///
    /// # Errors
    /// [`RefError::Storage`] if the repository does not keep references in files,
    /// [`RefError::Open`] if there is no repository.
    pub fn open(git_dir: &Path) -> Result<Self, RefError> {
        let open = |source| RefError::Open { path: git_dir.to_owned(), source };
        if is_plain(git_dir)
            && let Ok(root) = git_dir.canonicalize()
        {
            return Ok(Self { root, patience: PATIENCE });
        }
        // libgit2 would refuse such a repository as well, but without a helpful message.
        for config in [git_dir.join("config"), git_dir.join(".git/config")] {
            if config.is_file() {
                let config = git2::Config::open(&config).map_err(open)?;
                match config.get_string("extensions.refStorage") {
                    Ok(storage) if storage != "files" => {
                        let path = git_dir.to_owned();
                        return Err(RefError::Storage { path, storage });
                    }
                    _ => {}
                }
            }
        }
        let repository = git2::Repository::open(git_dir).map_err(open)?;
        Ok(Self { root: repository.commondir().to_owned(), patience: PATIENCE })
    }

    /// Sets how long updates wait for another process that holds a lock (2 s by default).
    #[must_use]
    pub fn with_patience(mut self, patience: Duration) -> Self {
        self.patience = patience;
        self
    }

    /// Returns the object that `name` refers to, following symbolic references; `None` if the reference does not exist.
    ///
    /// Reads one file, and all of `packed-refs` if the reference has no file of its own.
    ///
    /// # Errors
    /// [`RefError::Invalid`], [`RefError::Corrupt`], [`RefError::Symbolic`] or [`RefError::Io`].
    pub fn read(&self, name: &str) -> Result<Option<Oid>, RefError> {
        let mut at = valid(name)?.to_owned();
        for _ in 0..=MAX_SYMBOLIC {
            match self.stored(&at)? {
                Stored::Absent => return Ok(None),
                Stored::Direct(id) => return Ok(Some(id)),
                Stored::Symbolic(target) => at = target,
            }
        }
        let name = name.to_owned();
        Err(RefError::Symbolic { name })
    }

    /// Returns the target of `name` if it is a symbolic reference. Reads one file: `packed-refs` has no symbolic references.
    ///
    /// # Errors
    /// As for [`Refs::read`].
    pub fn symbolic(&self, name: &str) -> Result<Option<String>, RefError> {
        match self.stored_in_file(valid(name)?)? {
            Stored::Symbolic(target) => Ok(Some(target)),
            Stored::Absent | Stored::Direct(_) => Ok(None),
        }
    }

    /// Moves `name` to `new` if it refers to `expected` now (`None`: does not exist).
    ///
    /// When this returns, the move survives a power loss. A symbolic reference is followed, not replaced. Writes no reflog, and
    /// does not check whether `new` exists. Costs two or more fsyncs: of the file, of its folder, and the first time of the
    /// folders above.
    ///
    /// # Errors
    /// [`RefError::Moved`] if the reference is not as expected, [`RefError::Locked`] if another process holds its lock too long,
    /// [`RefError::Conflict`] if another name prevents it; then nothing was changed. After [`RefError::Io`] it may have moved or
    /// not, durably or not.
    pub fn update(&self, name: &str, new: Oid, expected: Option<Oid>) -> Result<(), RefError> {
        self.advance(name, new, expected, After::PowerLoss)
    }

    fn advance(&self, name: &str, new: Oid, expected: Option<Oid>, after: After) -> Result<(), RefError> {
        let mut at = valid(name)?.to_owned();
        for _ in 0..=MAX_SYMBOLIC {
            if expected.is_none() && self.stored(&at)? == Stored::Absent {
                self.check_names(&at)?;
            }
            let lock = Lock::acquire(self, &at, new)?;
            let found = match self.stored(&at)? {
                Stored::Symbolic(target) => {
                    at = target;
                    continue;
                }
                Stored::Direct(id) => Some(id),
                Stored::Absent => None,
            };
            if found == expected {
                return self.publish(&at, lock, after);
            }
            let name = at;
            return Err(RefError::Moved { name, expected, found });
        }
        let name = name.to_owned();
        Err(RefError::Symbolic { name })
    }

    /// Moves `name` to `new`, whatever it refers to now. Writes nothing if that is the case already. The last of several
    /// concurrent calls wins.
    ///
    /// # Errors
    /// Those of [`Refs::update`]; [`RefError::Moved`] only if others keep moving the reference.
    pub fn set(&self, name: &str, new: Oid) -> Result<(), RefError> {
        self.put(name, new, After::PowerLoss)
    }

    /// Does the same for a reference that can be reconstructed: after a power loss it may have its former value. Costs one fsync
    /// less.
    ///
    /// # Errors
    /// As for [`Refs::set`].
    pub fn note(&self, name: &str, new: Oid) -> Result<(), RefError> {
        self.put(name, new, After::Crash)
    }

    fn put(&self, name: &str, new: Oid, after: After) -> Result<(), RefError> {
        const TRIES: usize = 100;
        let mut left = TRIES;
        loop {
            left -= 1;
            let before = self.read(name)?;
            if before == Some(new) {
                return Ok(());
            }
            match self.advance(name, new, before, after) {
                Err(RefError::Moved { .. }) if left > 0 => {}
                done => return done,
            }
        }
    }

    /// Makes the current value of `name` survive a power loss: the process that moved it may have been killed before. Costs a few
    /// concurrent fsyncs.
    ///
    /// # Errors
    /// [`RefError::Invalid`] or [`RefError::Io`].
    pub fn settle(&self, name: &str) -> Result<(), RefError> {
        let file = self.file(valid(name)?);
        let packed = self.root.join(packed::FILE);
        let above = file.ancestors().skip(1).take_while(|folder| folder.starts_with(&self.root));
        let all: Vec<&Path> = [&file, &packed].into_iter().map(PathBuf::as_path).chain(above).collect();
        let found: Vec<_> = all.into_iter().filter(|path| path.exists()).collect();
        match durable::sync_all(&found) {
            // Git has just packed or moved the reference.
            Err(error) if error.source.kind() == ErrorKind::NotFound => Ok(durable::sync(&self.root)?),
            synced => Ok(synced?),
        }
    }

    /// Removes the lock of `name` if a gitcd that crashed during an update left it; returns whether it did. Locks of other
    /// programs stay.
    ///
    /// The caller ensures that no other gitcd is updating this reference.
    ///
    /// # Errors
    /// [`RefError::Invalid`] or [`RefError::Io`].
    pub fn release(&self, name: &str) -> Result<bool, RefError> {
        Lock::release(self, valid(name)?)
    }

    /// Removes the locks of all references that crashed gitcd processes left, and returns how many. Locks of other programs, and
    /// of running gitcd processes, stay.
    ///
    /// # Errors
    /// [`RefError::Io`].
    pub fn release_all(&self) -> Result<usize, RefError> {
        lock::release_all(self)
    }

    /// Renames the lock to the reference and syncs the folders.
    fn publish(&self, name: &str, mut lock: Lock, after: After) -> Result<(), RefError> {
        let path = self.file(name);
        let folder = parent(&path).to_owned();
        let is_new = !path.is_file();
        if path.is_dir() {
            // Git leaves empty folders behind when it deletes or packs references.
            remove_empty_folders(&path);
        }
        if let Err(error) = lock.rename_to(&path) {
            self.check_names(name)?;
            return Err(error);
        }
        if after == After::Crash {
            return Ok(());
        }
        let identity = fs::metadata(&folder).ok();
        let identity = identity.map(|found| (found.dev(), found.ino(), found.created().ok(), folder.clone()));
        // An existing file may be in folders that were never synced.
        let is_settled = !is_new && identity.as_ref().is_some_and(|folder| SETTLED.lock().contains(folder));
        for above in folder.ancestors() {
            durable::sync(above)?;
            if is_settled || above == self.root {
                break;
            }
        }
        lock.unmark();
        if let Some(identity) = identity {
            let mut settled = SETTLED.lock();
            if settled.len() >= MOST_SETTLED {
                settled.clear();
            }
            settled.insert(identity);
        }
        Ok(())
    }

    /// Fails if `name`, which does not exist, conflicts with an existing name: a file cannot be a folder.
    fn check_names(&self, name: &str) -> Result<(), RefError> {
        let conflict =
            |existing: &str| Err(RefError::Conflict { name: name.to_owned(), existing: existing.to_owned() });
        for (slash, _) in name.match_indices('/') {
            if self.stored(&name[..slash])? != Stored::Absent {
                return conflict(&name[..slash]);
            }
        }
        if let Some(below) = packed::first_below(&self.root, name)? {
            return conflict(&below);
        }
        if let Some(below) = first_file(&self.file(name)) {
            let below = below.strip_prefix(&self.root).unwrap_or(&below);
            return conflict(&below.to_string_lossy());
        }
        Ok(())
    }

    /// Returns the value stored under `name`: in its own file, otherwise in `packed-refs`.
    ///
    /// In this order: `git pack-refs` writes the packed file before it deletes the others.
    fn stored(&self, name: &str) -> Result<Stored, RefError> {
        match self.stored_in_file(name)? {
            Stored::Absent => {
                let id = packed::find(&self.root, name)?;
                Ok(id.map_or(Stored::Absent, Stored::Direct))
            }
            stored => Ok(stored),
        }
    }

    /// Returns the value in the reference's own file.
    fn stored_in_file(&self, name: &str) -> Result<Stored, RefError> {
        let path = self.file(name);
        let text = match fs::read(&path) {
            Ok(text) => text,
            Err(error) if is_no_file(&error) => return Ok(Stored::Absent),
            Err(source) => return Err(RefError::Io { path, source }),
        };
        let text = text.trim_ascii_end();
        let stored = if let Some(target) = text.strip_prefix(b"ref:") {
            str::from_utf8(target.trim_ascii_start())
                .ok()
                .filter(|target| is_valid(target))
                .map(|target| Stored::Symbolic(target.to_owned()))
        } else {
            object_id(text).map(Stored::Direct)
        };
        stored.ok_or(RefError::Corrupt { path })
    }

    /// Returns the folder of the references.
    pub(crate) fn root(&self) -> &Path {
        &self.root
    }

    /// Fails if the repository was removed.
    pub(crate) fn check_root(&self) -> Result<(), RefError> {
        let path = self.file("refs");
        fs::metadata(&path).map(drop).map_err(|source| RefError::Io { path, source })
    }

    fn file(&self, name: &str) -> PathBuf {
        self.root.join(name)
    }
}

/// Returns whether a folder is itself a repository that stores references in files. libgit2 could find out as well, but reads
/// every configuration file, which would be most of the cost of reading one reference.
fn is_plain(folder: &Path) -> bool {
    let is_folder = |name: &str| fs::metadata(folder.join(name)).is_ok_and(|found| found.is_dir());
    let is_missing = |name: &str| fs::symlink_metadata(folder.join(name)).is_err();
    // Leave later formats, extensions and the ownership of other users' repositories to libgit2.
    let is_usual = fs::read_to_string(folder.join("config")).is_ok_and(|text| {
        let text = text.to_ascii_lowercase();
        let version =
            text.split_once("repositoryformatversion").map(|(_, rest)| rest.lines().next().unwrap_or_default());
        !text.contains("extensions")
            && version.is_some_and(|version| version.trim_start_matches([' ', '\t', '=']).trim() == "0")
    });
    let is_own = fs::metadata(folder).is_ok_and(|found| found.uid() == rustix::process::geteuid().as_raw());
    let is_repository = folder.join("HEAD").is_file() && is_folder("objects") && is_folder("refs");
    // A linked work tree has its references elsewhere, and so has a folder around a repository.
    is_repository && is_usual && is_own && is_missing("commondir") && is_missing(".git")
}

fn valid(name: &str) -> Result<&str, RefError> {
    if is_valid(name) {
        Ok(name)
    } else {
        let name = name.to_owned();
        Err(RefError::Invalid { name })
    }
}

/// Checks a name. Outside `refs/` it could mean other files of the repository, unless it is like `HEAD`.
fn is_valid(name: &str) -> bool {
    git2::Reference::is_valid_name(name) && (name.starts_with("refs/") || !name.contains('/'))
}

/// Parses a full object ID; git2 would also accept a prefix.
fn object_id(text: &[u8]) -> Option<Oid> {
    let text = str::from_utf8(text).ok()?;
    Oid::from_str(text).ok().filter(|_| text.len() == 40)
}

fn is_no_file(error: &std::io::Error) -> bool {
    matches!(error.kind(), ErrorKind::NotFound | ErrorKind::NotADirectory | ErrorKind::IsADirectory)
}

fn parent(path: &Path) -> &Path {
    path.parent().expect("files of references lie in the repository's folder")
}

/// Removes `folder` and its subfolders as far as they have no files. If something remains, the rename that needs the place fails.
fn remove_empty_folders(folder: &Path) {
    for entry in fs::read_dir(folder).into_iter().flatten().flatten() {
        if entry.file_type().is_ok_and(|kind| kind.is_dir()) {
            remove_empty_folders(&entry.path());
        }
    }
    let _not_empty = fs::remove_dir(folder);
}

/// Returns a file in `folder` or below.
fn first_file(folder: &Path) -> Option<PathBuf> {
    let mut entries = fs::read_dir(folder).into_iter().flatten().flatten();
    entries.find_map(|entry| match entry.file_type() {
        Ok(kind) if kind.is_dir() => first_file(&entry.path()),
        _ => Some(entry.path()),
    })
}
