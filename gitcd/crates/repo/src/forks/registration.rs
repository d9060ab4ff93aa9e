//! Registration of forks: of a new one before it is made, and of an existing one when it is opened.

use std::fs::{self, File};
use std::io::{self, ErrorKind};
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};

use gitcd_core::durable;
use rustix::fs::FlockOperation;

use super::shared::chain;
use super::{ForksError, ForksLock, Lifetime, entry, id};

/// What to do if a fork cannot be registered, because the origin is mounted read only here, or belongs to another user.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Unregistered {
    /// Fail: objects may be deleted elsewhere that the fork needs.
    Refused,
    /// Log a warning.
    Accepted,
}

/// A fork that is registered and being made. Until this is dropped, nothing that it needs is deleted, and no boundary is moved.
#[derive(Debug)]
pub struct Registration {
    origin: PathBuf,
    fork: PathBuf,
    id: String,
    lifetime: Lifetime,
    files: Vec<PathBuf>,
    is_made: bool,
    locks: Vec<ForksLock>,
}

impl Registration {
    /// Registers a fork in a folder that need not exist yet: in its origin, and in every repository whose objects that one shares.
    /// Waits while one of them deletes objects.
    ///
    /// # Errors
    /// [`ForksError`]; no fork is registered that was not before.
    pub fn start(
        origin: &Path,
        fork: &Path,
        lifetime: Lifetime,
        unregistered: Unregistered,
    ) -> Result<Self, ForksError> {
        let fork = absolute(fork)?;
        let origin = origin.canonicalize().map_err(durable::Error::of("find", origin))?;
        let repositories = ordered(chain(&origin)?)?;
        let (id, files, locks) = (id::new(), Vec::new(), Vec::new());
        let mut made = Self { origin, fork, id, lifetime, files, is_made: false, locks };
        for repository in repositories {
            match made.register(&repository) {
                Err(source) if unregistered == Unregistered::Accepted && is_forbidden(&source) => {
                    warn(&made.fork, &ForksError::Register { repository, source });
                }
                Err(source) if has_kind(&source, ErrorKind::ReadOnlyFilesystem) => {
                    return Err(ForksError::ReadOnly(repository));
                }
                Err(source) => return Err(ForksError::Register { repository, source }),
                Ok(()) => {}
            }
        }
        Ok(made)
    }

    fn register(&mut self, repository: &Path) -> Result<(), durable::Error> {
        self.locks.push(ForksLock::take(repository)?);
        let file = entry::file(repository, &self.id);
        entry::write(repository, &file, &self.fork, self.lifetime)?;
        self.files.push(file);
        Ok(())
    }

    /// Returns the Git directory of the origin.
    pub fn origin(&self) -> &Path {
        &self.origin
    }

    /// Gives the new repository in the folder of the fork its ID. Before this, it must not share objects.
    ///
    /// # Errors
    /// [`durable::Error`].
    pub fn identify(&self) -> Result<(), durable::Error> {
        id::write(&self.fork, &self.id)
    }

    /// Keeps the fork registered, which is complete.
    pub fn complete(mut self) -> Registered {
        self.is_made = true;
        Registered::hold(&self.fork, self.lifetime, std::mem::take(&mut self.files))
    }
}

impl Drop for Registration {
    fn drop(&mut self) {
        // An incomplete fork that shares the objects already stays registered until its folder is removed.
        let is_there = || {
            let is_it = id::read(&self.fork).map_or(true, |found| found.as_ref() == Some(&self.id));
            is_it && fs::metadata(self.fork.join("objects/info/alternates")).is_ok()
        };
        if !self.is_made && !is_there() {
            for file in &self.files {
                let _next_time = fs::remove_file(file);
            }
        }
    }
}

/// The records of a fork that is in use. Until this is dropped, a temporary fork counts as one that exists, even for processes that do
/// not see its folder. If the folder is gone then, so are the records.
#[derive(Debug, Default)]
pub struct Registered {
    fork: PathBuf,
    records: Vec<(PathBuf, File)>,
}

impl Registered {
    fn hold(fork: &Path, lifetime: Lifetime, files: Vec<PathBuf>) -> Self {
        let mut records = Vec::new();
        for file in files.into_iter().filter(|_| lifetime == Lifetime::Temporary) {
            let locked = File::open(&file).and_then(|opened| {
                rustix::fs::flock(&opened, FlockOperation::LockShared)?;
                Ok(opened)
            });
            match locked {
                Ok(opened) => records.push((file, opened)),
                Err(error) => {
                    tracing::warn!(file = %file.display(), %error, "cannot lock the record of a temporary fork");
                }
            }
        }
        Self { fork: fork.to_owned(), records }
    }
}

impl Drop for Registered {
    fn drop(&mut self) {
        let is_gone = fs::symlink_metadata(&self.fork).is_err_and(|error| error.kind() == ErrorKind::NotFound);
        for (file, opened) in &self.records {
            let _next_time = is_gone.then(|| fs::remove_file(file));
            // A process that is just being spawned may have inherited the descriptor for a moment.
            let _ended = rustix::fs::flock(opened, FlockOperation::Unlock);
        }
    }
}

/// Takes the locks of all repositories whose objects the one in this folder needs, and its own: until they are dropped, nothing is
/// deleted there.
///
/// # Errors
/// [`ForksError`].
pub fn lock_all(git_dir: &Path) -> Result<Vec<ForksLock>, ForksError> {
    Ok(ordered(chain(git_dir)?)?.iter().map(|repository| ForksLock::take(repository)).collect::<Result<_, _>>()?)
}

/// Registers an existing repository in all repositories whose objects it needs, if it is not: after it was moved or copied, after an
/// origin was restored from a backup, or if another program made it. A copy of a fork gets an ID of its own, if the other one is there.
///
/// Costs a few system calls if there is nothing to do. Otherwise waits while one of the repositories deletes objects.
///
/// # Errors
/// [`ForksError`]; the repository may be registered in some of them.
pub fn renew(git_dir: &Path) -> Result<Registered, ForksError> {
    if !git_dir.join("objects/info/alternates").exists() {
        return Ok(Registered::default());
    }
    let path = git_dir.canonicalize().map_err(durable::Error::of("find", git_dir))?;
    let read = |path: &Path| id::read(path).map_err(durable::Error::of("read the ID of", path));
    let others = || -> Result<Vec<PathBuf>, ForksError> {
        let own = inode(&path).ok();
        Ok(ordered(chain(&path)?)?.into_iter().filter(|repository| inode(repository).ok() != own).collect())
    };
    let files = |id: &str, others: &[PathBuf]| others.iter().map(|other| entry::file(other, id)).collect::<Vec<_>>();
    let known = |file: &PathBuf| entry::content(file).ok().flatten();
    let others = others()?;
    if let Some(id) = read(&path)? {
        let files = files(&id, &others);
        let records: Vec<_> = files.iter().filter_map(known).collect();
        if records.len() == files.len() && records.iter().all(|(_, recorded)| is_one(recorded, &path)) {
            return Ok(Registered::hold(&path, used(&records), files));
        }
    }
    let _locks = lock_all(&path)?;
    let found = read(&path)?;
    let records: Vec<_> = found.iter().flat_map(|id| files(id, &others)).filter_map(|file| known(&file)).collect();
    let is_copy = |recorded: &Path| !is_one(recorded, &path) && id::read(recorded).is_ok_and(|other| other == found);
    let known_id = found.clone().filter(|_| !records.iter().any(|(_, recorded)| is_copy(recorded)));
    let id = known_id.unwrap_or_else(id::new);
    let lifetime = if Some(&id) == found.as_ref() { used(&records) } else { Lifetime::Permanent };
    for other in &others {
        let failed = |source| ForksError::Register { repository: other.clone(), source };
        entry::write(other, &entry::file(other, &id), &path, lifetime).map_err(failed)?;
    }
    if Some(&id) != found.as_ref() {
        // Until then, the records are those of an unknown fork.
        id::write(&path, &id)?;
    }
    tracing::info!(repository = %path.display(), "registered in the repositories whose objects this one shares");
    Ok(Registered::hold(&path, lifetime, files(&id, &others)))
}

/// Returns how a fork is used according to its records.
fn used(records: &[(Lifetime, PathBuf)]) -> Lifetime {
    let is_temporary = !records.is_empty() && records.iter().all(|(lifetime, _)| *lifetime == Lifetime::Temporary);
    if is_temporary { Lifetime::Temporary } else { Lifetime::Permanent }
}

/// Logs that a repository is not protected.
pub(crate) fn warn(fork: &Path, error: &ForksError) {
    tracing::warn!(
        fork = %fork.display(), %error,
        "the fork is not registered: `gitcd retain` and maintenance there may delete objects that it needs"
    );
}

/// Returns the repositories in one order for all processes, each once, by whatever paths they are reached.
fn ordered(repositories: Vec<PathBuf>) -> Result<Vec<PathBuf>, durable::Error> {
    let mut found = Vec::new();
    for path in repositories {
        found.push((inode(&path).map_err(durable::Error::of("find", &path))?, path));
    }
    found.sort();
    found.dedup_by_key(|(inode, _)| *inode);
    Ok(found.into_iter().map(|(_, path)| path).collect())
}

fn inode(path: &Path) -> io::Result<(u64, u64)> {
    fs::metadata(path).map(|found| (found.dev(), found.ino()))
}

fn is_one(one: &Path, other: &Path) -> bool {
    inode(one).ok().is_some_and(|one| inode(other).is_ok_and(|other| one == other))
}

/// Returns the path with the real path of its folder.
fn absolute(path: &Path) -> Result<PathBuf, durable::Error> {
    let path = std::path::absolute(path).map_err(durable::Error::of("find", path))?;
    let (Some(folder), Some(name)) = (path.parent(), path.file_name()) else { return Ok(path) };
    durable::make_folder(folder)?;
    Ok(folder.canonicalize().map_err(durable::Error::of("find", folder))?.join(name))
}

fn is_forbidden(error: &durable::Error) -> bool {
    has_kind(error, ErrorKind::ReadOnlyFilesystem) || has_kind(error, ErrorKind::PermissionDenied)
}

fn has_kind(error: &durable::Error, kind: ErrorKind) -> bool {
    error.source.kind() == kind
}
