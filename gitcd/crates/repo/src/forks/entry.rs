//! The record of a fork.

use std::ffi::OsStr;
use std::fs::{self, File};
use std::io::ErrorKind;
use std::os::unix::ffi::OsStrExt as _;
use std::path::{Path, PathBuf};

use gitcd_core::durable;
use rustix::fs::FlockOperation;

use super::shared::{self, Sharing};
use super::{ForksError, Lifetime, folder, id};
use crate::own_folder;

/// The start of the file; the path follows up to the end.
const PERMANENT: &[u8] = b"gitcd fork 2\npermanent\n";
const TEMPORARY: &[u8] = b"gitcd fork 2\ntemporary\n";

/// A registered fork.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Fork {
    /// Its folder; that of the record if the record cannot be read.
    pub path: PathBuf,
    /// Whether it needs the objects of the repository.
    pub state: ForkState,
    file: PathBuf,
}

/// Whether a fork needs the objects of the repository in which it is registered.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ForkState {
    /// It shares them.
    Present,
    /// It may share them: it cannot be seen now, for this reason.
    Unseen(String),
    /// It was removed, or has its own objects.
    Gone,
}

impl Fork {
    /// Reads a record and looks for the fork; `None` if the record is gone.
    pub(super) fn read(git_dir: &Path, file: &Path) -> Option<Self> {
        let (path, state) = match content(file) {
            Ok(Some((lifetime, path))) => {
                let state = state(git_dir, file, &path, lifetime);
                (path, state)
            }
            Ok(None) => return None,
            Err(why) => (file.to_owned(), ForkState::Unseen(why)),
        };
        Some(Self { path, state, file: file.to_owned() })
    }

    /// Removes the record.
    pub(super) fn remove(&self) -> Result<(), ForksError> {
        match fs::remove_file(&self.file) {
            Err(error) if error.kind() == ErrorKind::NotFound => {}
            removed => removed.map_err(durable::Error::of("remove", &self.file))?,
        }
        self.file.parent().map_or(Ok(()), durable::sync)?;
        Ok(())
    }

    /// Returns the ID of the fork.
    pub fn id(&self) -> &OsStr {
        self.file.file_name().unwrap_or_default()
    }

    /// Returns whether this is the path of the fork, its ID, or the path of its record.
    pub(super) fn is_named(&self, name: &Path) -> bool {
        let real = || Some(name.parent()?.canonicalize().ok()?.join(name.file_name()?));
        let is_it = |name: &Path| self.path == name || self.file == name;
        is_it(name) || self.id() == name.file_name().unwrap_or_default() || real().is_some_and(|name| is_it(&name))
    }

    /// Returns whether this fork shares the objects of another one, which is there.
    pub(super) fn shares_with(&self, other: &Self) -> bool {
        let is_there = other.state == ForkState::Present && self.file != other.file;
        is_there && shared::shares(&self.path.join("objects"), &other.path.join("objects")) == Sharing::Yes
    }
}

impl std::fmt::Display for Fork {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}", self.path.display())?;
        match &self.state {
            ForkState::Unseen(why) => write!(f, " (ID {}: {why})", self.id().display()),
            ForkState::Present | ForkState::Gone => Ok(()),
        }
    }
}

/// Returns the file that registers a fork in a repository.
pub(super) fn file(git_dir: &Path, id: &str) -> PathBuf {
    folder(git_dir).join(id)
}

/// Returns the content of a record: how the fork is used, and its path. `None` if there is no record, a reason if it is unreadable.
pub(super) fn content(file: &Path) -> Result<Option<(Lifetime, PathBuf)>, String> {
    let content = match fs::read(file) {
        Err(error) if error.kind() == ErrorKind::NotFound => return Ok(None),
        content => content.map_err(|error| format!("the record cannot be read: {error}"))?,
    };
    let of = |start: &[u8]| content.strip_prefix(start).map(|path| PathBuf::from(OsStr::from_bytes(path)));
    let found = of(PERMANENT).map(|path| (Lifetime::Permanent, path));
    let found = found.or_else(|| of(TEMPORARY).map(|path| (Lifetime::Temporary, path)));
    found.map(Some).ok_or_else(|| "the record is damaged".to_owned())
}

pub(super) fn write(git_dir: &Path, file: &Path, path: &Path, lifetime: Lifetime) -> Result<(), durable::Error> {
    own_folder::make_in(git_dir, &folder(git_dir))?;
    let start = match lifetime {
        Lifetime::Permanent => PERMANENT,
        Lifetime::Temporary => TEMPORARY,
    };
    own_folder::replace(git_dir, file, &[start, path.as_os_str().as_bytes()].concat())
}

/// Looks for a fork. Only what is certain counts: an empty mount point, for example, may be that of the fork.
fn state(git_dir: &Path, file: &Path, path: &Path, lifetime: Lifetime) -> ForkState {
    match fs::read_dir(path) {
        Err(error) if error.kind() == ErrorKind::NotFound && lifetime == Lifetime::Temporary => {
            return if is_in_use(file) {
                ForkState::Unseen("a process on this machine uses it, and sees other folders than this one".into())
            } else {
                ForkState::Gone
            };
        }
        Err(error) => return ForkState::Unseen(error.to_string()),
        Ok(_) => {}
    }
    let is_repository = path.join("HEAD").is_file();
    match id::read(path) {
        Err(error) => return ForkState::Unseen(format!("its ID cannot be read: {error}")),
        Ok(_) if !is_repository => return ForkState::Unseen("it is not a Git repository now".into()),
        Ok(found) if found.as_deref().map(OsStr::new) != file.file_name() => {
            return ForkState::Unseen("another repository is there now; the fork may have been moved".into());
        }
        Ok(_) => {}
    }
    match shared::shares(&path.join("objects"), &git_dir.join("objects")) {
        Sharing::Yes => ForkState::Present,
        Sharing::Unknown(why) => ForkState::Unseen(why),
        Sharing::No => ForkState::Gone,
    }
}

/// Returns whether a process has locked the record of its fork, or may have done so.
fn is_in_use(file: &Path) -> bool {
    let locked = File::open(file).map(|file| {
        let locked = rustix::fs::flock(&file, FlockOperation::NonBlockingLockExclusive);
        // A process that is just being spawned may have inherited the descriptor for a moment.
        let _ended = locked.and_then(|()| rustix::fs::flock(&file, FlockOperation::Unlock));
        locked.is_ok()
    });
    !locked.unwrap_or(false)
}
