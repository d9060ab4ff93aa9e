//! The forks that share the objects of a repository.
//!
//! `gitcd fork` registers a fork in every repository whose objects it needs: its origin, and what that one shares objects with, along
//! `objects/info/alternates` (gitrepository-layout(5)). No cut and no prune removes objects while a fork is registered that may need
//! them. A lock orders the two: either the fork starts from what is left after a prune, or the prune finds the fork.
//!
//! A fork has a random ID, in its folder and as the name of its records. So a record is not taken for that of another repository which
//! is at the same path now. Opening a branch of a repository with alternates [renews](renew) its records.
//!
//! Repositories that share the objects in other ways, as `git clone --shared` makes them, are known once gitcd serves them.

use std::fs::File;
use std::io::ErrorKind;
use std::path::{Path, PathBuf};

use gitcd_core::durable;
use rustix::fs::FlockOperation;

use super::boundary::FOLDER;
use super::own_folder;

mod entry;
mod id;
mod registration;
mod shared;

pub use entry::{Fork, ForkState};
pub(crate) use registration::warn;
pub use registration::{Registered, Registration, Unregistered, lock_all, renew};

/// Why forks cannot be listed or registered.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ForksError {
    /// A file cannot be read or written.
    #[error(transparent)]
    File(#[from] durable::Error),
    /// The objects of the origin are incomplete, so it is not known which repositories a fork would need.
    #[error("{path:?} names {objects:?}, whose objects cannot be found: {source}")]
    Alternates {
        /// The file with the names.
        path: PathBuf,
        /// The folder.
        objects: PathBuf,
        /// The system's error.
        source: std::io::Error,
    },
    /// A fork cannot be registered.
    #[error(
        "cannot register the fork in {repository:?}, whose objects it would share: {source}; fork as its owner, or use `git clone`, \
         which shares nothing"
    )]
    Register {
        /// The repository.
        repository: PathBuf,
        /// The system's error.
        source: durable::Error,
    },
    /// A fork cannot be registered here, and objects may be deleted elsewhere.
    #[error(
        "cannot register the fork in {0:?}, whose objects it would share, because the file system is mounted read only here: another \
         machine or container, where it is writable, may delete objects that the fork needs; mount it writable, use `git clone`, which \
         shares nothing, or add --unregistered if no gitcd deletes objects there while the fork exists"
    )]
    ReadOnly(PathBuf),
    /// A fork that is to be forgotten is there.
    #[error("{0:?} still shares the objects of this repository, so it is not forgotten: remove its folder first")]
    Present(PathBuf),
}

/// The right to register forks of a repository, or to rely on those that are registered.
#[derive(Debug)]
pub struct ForksLock {
    git_dir: PathBuf,
    lock: File,
}

impl Drop for ForksLock {
    fn drop(&mut self) {
        // A process that is just being spawned may have inherited the descriptor for a moment.
        let _ended = rustix::fs::flock(&self.lock, FlockOperation::Unlock);
    }
}

impl ForksLock {
    /// Takes the lock of the repository in this folder. Waits while a fork is made, or while objects are deleted.
    ///
    /// # Errors
    /// [`durable::Error`].
    pub fn take(git_dir: &Path) -> Result<Self, durable::Error> {
        own_folder::make(git_dir)?;
        let path = git_dir.join(FOLDER).join("forks.lock");
        let lock = own_folder::lock_file(git_dir, &path)?;
        rustix::fs::flock(&lock, FlockOperation::LockExclusive)
            .map_err(|error| durable::Error::of("lock", &path)(error.into()))?;
        Ok(Self { git_dir: git_dir.to_owned(), lock })
    }

    /// Returns the forks that need the objects of the repository, or may do so, in the order of [`registered`]. Removes the records of
    /// those that surely do not.
    ///
    /// # Errors
    /// [`ForksError`].
    pub fn clean(&self) -> Result<Vec<Fork>, ForksError> {
        let mut left = Vec::new();
        for fork in registered(&self.git_dir)? {
            if fork.state == ForkState::Gone { fork.remove()? } else { left.push(fork) }
        }
        Ok(left)
    }

    /// Removes the records of forks that cannot be seen. Each is named by its path, by its ID, or by the path of its record. Returns the
    /// forks that are left. A name that is not registered is ignored.
    ///
    /// # Errors
    /// [`ForksError`]; nothing is removed if it is [`ForksError::Present`].
    pub fn forget(&self, names: &[PathBuf]) -> Result<Vec<Fork>, ForksError> {
        let forks = self.clean()?;
        let mut forgotten = Vec::new();
        for name in names {
            let meant: Vec<&Fork> = forks.iter().filter(|fork| fork.is_named(name)).collect();
            // Another fork may be at the path of one that was moved away or replaced.
            let unseen = meant.iter().filter(|fork| fork.state != ForkState::Present);
            let before = forgotten.len();
            forgotten.extend(unseen);
            if let Some(fork) = meant.first().filter(|_| forgotten.len() == before) {
                return Err(ForksError::Present(fork.path.clone()));
            }
        }
        forgotten.into_iter().try_for_each(Fork::remove)?;
        self.clean()
    }
}

/// Returns the registered forks of the repository in this folder, also those that surely do not need its objects. A fork comes before
/// those through which it shares the objects, and those that cannot be seen come first: in this order, they can be made independent.
///
/// # Errors
/// [`ForksError`].
pub fn registered(git_dir: &Path) -> Result<Vec<Fork>, ForksError> {
    let folder = folder(git_dir);
    let entries = match std::fs::read_dir(&folder) {
        Err(error) if error.kind() == ErrorKind::NotFound => return Ok(Vec::new()),
        entries => entries.map_err(durable::Error::of("read", &folder))?,
    };
    let mut found = Vec::new();
    for entry in entries {
        let file = entry.map_err(durable::Error::of("read", &folder))?.path();
        // Left by a crash, before the fork was made.
        if file.extension().is_some_and(|extension| extension == "new") {
            continue;
        }
        found.extend(Fork::read(git_dir, &file));
    }
    let depth = |fork: &Fork| match fork.state {
        ForkState::Present => found.iter().filter(|other: &&Fork| fork.shares_with(other)).count(),
        ForkState::Unseen(_) | ForkState::Gone => usize::MAX,
    };
    let mut ordered: Vec<(usize, Fork)> = found.iter().map(|fork| (depth(fork), fork.clone())).collect();
    ordered
        .sort_by(|(one_depth, one), (other_depth, other)| other_depth.cmp(one_depth).then(one.path.cmp(&other.path)));
    Ok(ordered.into_iter().map(|(_, fork)| fork).collect())
}

fn folder(git_dir: &Path) -> PathBuf {
    git_dir.join(FOLDER).join("forks")
}

/// How long a fork is used.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Lifetime {
    /// Until it is seen to have its own objects. If its folder is not found, it may be elsewhere.
    Permanent,
    /// While a process runs that removes it: it no longer exists when its folder is not found, and no process has it open.
    Temporary,
}

/// Describes forks that prevent a deletion, and what to do about them: an error's text, on several lines.
pub fn describe(forks: &[Fork]) -> String {
    let lines = forks.iter().fold(String::new(), |lines, fork| lines + &format!("\n  {fork}"));
    format!(
        "{lines}\nremove each of them, or make it independent with `gitcd fork --independent FOLDER` while no gitcd serves it, in this \
         order; run `gitcd retain --forget-fork=FOLDER` only for a fork that no longer exists: one that still exists is damaged by that"
    )
}

#[cfg(test)]
mod tests;
