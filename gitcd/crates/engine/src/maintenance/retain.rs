//! Cuts the history of a repository: older commits are archived in another repository, and removed from this one.
//!
//! The steps, each durable before the next one:
//!
//! 1. The [archive](archive) gets all commits that go, by a push, and so checks that it has every object.
//! 2. `gitcd-maintenance/cut` and `removed` record the cut, so that no merge and no fetch takes a removed commit for a new one.
//! 3. The file `shallow` makes the oldest kept commits the boundary of the history, in forks and then here. From here on, no program
//!    reads beyond it.
//! 4. The removed objects are unreachable, and are pruned like any others.
//!
//! A crash between two steps leaves a repository with more objects than needed, never with fewer. Running it again continues.
//!
//! Source: `docs/design/retention.md`.

use std::fs::{self, File};
use std::io::{self, ErrorKind};
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use git2::Oid;
use gitcd_core::durable;
use gitcd_core::program::Program;
use gitcd_mvcc::snapshot::{Snapshot, SnapshotError};
use gitcd_repo::boundary::{self, Boundary, BoundaryError, RecordError, SetError};
use gitcd_repo::forks::{self, Fork, ForksError};
use gitcd_repo::graph::CutPlan;
use gitcd_repo::refs::{RefError, Refs};
use rustix::fs::FlockOperation;
use tokio::sync::watch;

use super::join::{JoinError, run};
use super::record::Record;
use super::{MaintenanceLock, graph, is_being_collected, is_partial, prune};

mod archive;

/// A cut to make.
#[derive(Clone, Debug)]
pub struct Cut {
    /// The oldest revision that is kept.
    pub revision: i64,
    /// The data commit with this revision, and the metadata commit that describes it.
    pub oldest: [Oid; 2],
    /// The references of the branch: of its data and of its metadata.
    pub references: [String; 2],
    /// The commits that lose their parents, and those that go.
    pub plan: CutPlan,
}

/// Why a history was not cut.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum RetainError {
    /// Maintenance is running.
    #[error("maintenance of {0:?} is running; try again when it has finished")]
    Busy(PathBuf),
    /// `git gc` is running.
    #[error("{0:?} exists: `git gc` is running; try again when it has finished")]
    Collected(PathBuf),
    /// The repository fetches objects on demand.
    #[error("{0:?} is a partial clone, in which it is not known which objects are needed")]
    Partial(PathBuf),
    /// The repository is a fork.
    #[error("{0:?} shares the objects of another repository; cut the history of that one")]
    Fork(PathBuf),
    /// A gitcd serves the repository, or receives a push.
    #[error("{0:?} is locked: stop every `gitcd serve` and `gitcd host` of the repository before --prune=now")]
    Served(PathBuf),
    /// The archive is not a repository of its own.
    #[error("{0:?} is the repository itself, or shares its objects; an archive is another repository")]
    Same(PathBuf),
    /// The archive borrows objects.
    #[error("{0:?} has objects/info/alternates: an archive must have every object itself; name another folder")]
    Borrows(PathBuf),
    /// The path of the archive cannot be given to Git, or not be recorded.
    #[error("{0:?} is not an absolute path in UTF-8 without line breaks")]
    Path(PathBuf),
    /// A reference leads to a commit that goes.
    #[error("{0} was moved to a commit that is to be removed; nothing was cut; run the command again")]
    Moved(String),
    /// A step failed. Nothing is lost; run it again to continue.
    #[error(transparent)]
    Maintenance(#[from] JoinError),
    /// The local state of a branch cannot be read, so it is not known which history it needs.
    #[error(transparent)]
    Snapshot(#[from] SnapshotError),
    /// The boundary cannot be read.
    #[error(transparent)]
    Boundary(#[from] BoundaryError),
    /// The cut cannot be recorded.
    #[error(transparent)]
    Record(#[from] RecordError),
    /// The boundary cannot be moved.
    #[error(transparent)]
    Set(#[from] SetError),
    /// The forks are not known.
    #[error(transparent)]
    Forks(#[from] ForksError),
    /// The references cannot be read.
    #[error(transparent)]
    References(#[from] RefError),
    /// A file cannot be read or written.
    #[error(transparent)]
    Durable(#[from] durable::Error),
}

/// The right to cut the history of a repository: no other maintenance runs meanwhile.
pub struct Retention {
    turn: MaintenanceLock,
    git: Program,
    forks: Vec<Fork>,
    stopped: watch::Receiver<bool>,
}

impl std::fmt::Debug for Retention {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Retention").field("repository", &self.turn.place.repository).finish_non_exhaustive()
    }
}

impl Retention {
    /// Locks the repository in this folder, and forgets forks that no longer exist.
    ///
    /// # Errors
    /// [`RetainError`]; nothing was changed.
    pub async fn start(git: Program, repository: &Path, stopped: watch::Receiver<bool>) -> Result<Self, RetainError> {
        if repository.join("objects/info/alternates").exists() {
            return Err(RetainError::Fork(repository.to_owned()));
        }
        if is_partial(repository) {
            return Err(RetainError::Partial(repository.to_owned()));
        }
        if is_being_collected(repository, SystemTime::now()) {
            return Err(RetainError::Collected(repository.join("gc.pid")));
        }
        let Some(turn) = MaintenanceLock::take(repository)? else {
            return Err(RetainError::Busy(repository.to_owned()));
        };
        let (forks, gone): (Vec<Fork>, Vec<Fork>) =
            forks::registered(repository)?.into_iter().partition(|fork| fork.exists(repository));
        for fork in gone {
            for reference in &fork.references {
                let words = ["update-ref", "-d", reference];
                run(git.command(&words), &turn.place, "update-ref", Vec::new(), &stopped).await?;
            }
            fs::remove_file(&fork.file).map_err(durable::Error::of("remove", &fork.file))?;
        }
        Ok(Self { turn, git, forks, stopped })
    }

    fn repository(&self) -> &Path {
        &self.turn.place.repository
    }

    /// Returns the forks that share the objects of the repository.
    pub fn forks(&self) -> impl Iterator<Item = &Path> {
        self.forks.iter().map(|fork| &*fork.path)
    }

    /// Cuts the history, after what goes is in the archive.
    ///
    /// Takes the time of a push of what goes.
    ///
    /// # Errors
    /// [`RetainError`]. Unless the last step failed, nothing was cut.
    pub async fn cut(&self, cut: &Cut, archive: Option<&Path>) -> Result<(), RetainError> {
        let before = Boundary::read(self.repository())?;
        if let Some(archive) = archive {
            archive::keep(self, cut, archive, !before.commits().is_empty()).await?;
        }
        let at = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_secs();
        let record = boundary::Cut {
            reference: cut.references[0].clone(),
            revision: cut.revision,
            at: at.cast_signed(),
            archive: archive.map(|archive| archive.display().to_string()).unwrap_or_default(),
            boundary: cut.plan.boundary.clone(),
        };
        let removed: Vec<Oid> = cut.plan.removed.iter().copied().collect();
        for fork in &self.forks {
            let own = Boundary::read(&fork.path)?;
            Boundary::record(&fork.path, &record, &removed)?;
            own.replace(&fork.path, &record.boundary)?;
        }
        self.expire(cut).await?;
        // A branch may have been created meanwhile.
        for (reference, oid) in Refs::open(self.repository())?.list()? {
            if cut.plan.removed.contains(&oid) {
                return Err(RetainError::Moved(reference));
            }
        }
        Boundary::record(self.repository(), &record, &removed)?;
        before.replace(self.repository(), &record.boundary)?;
        graph::remove_all(self.repository())?;
        Ok(())
    }

    /// Records the objects that go as unreachable since long ago, so that [`Self::prune`] need not wait. The record has no effect on
    /// objects that are reachable.
    async fn expire(&self, cut: &Cut) -> Result<(), RetainError> {
        let place = &self.turn.place;
        place.clear()?;
        let listed = place.draft.join("cut");
        let roots: Vec<u8> = cut.plan.newest_removed.iter().flat_map(|oid| format!("{oid}\n").into_bytes()).collect();
        let walk = ["rev-list", "--objects", "--no-object-names", "--stdin"];
        prune::list(&self.git, place, &walk, roots, &listed, &self.stopped).await?;
        let mut known = Record::read(place);
        for id in prune::ids(&listed)? {
            known.add(id?, UNIX_EPOCH);
        }
        Ok(known.write(place)?)
    }

    /// Prunes what this cut, or an earlier one that was interrupted, removed; returns the number of objects. What is unreachable for
    /// another reason keeps its own grace period.
    ///
    /// # Errors
    /// [`RetainError::Served`] if another process may be about to refer to a removed object.
    pub async fn prune(&self) -> Result<usize, RetainError> {
        let _held = exclusive(self.repository())?;
        let now = SystemTime::now() + prune::UNTOUCHED;
        Ok(prune::prune(&self.git, &self.turn.place, Duration::from_hours(24 * 365), now, &self.stopped).await?)
    }
}

/// Takes the locks of all branches of a repository; fails if one is served, or if a Git host is receiving a push.
fn exclusive(repository: &Path) -> Result<Vec<File>, RetainError> {
    let mut held = Vec::new();
    let (locks, objects) = (repository.join("gitcd/locks"), repository.join("objects"));
    let quarantines = entries(&objects)?
        .into_iter()
        .filter(|path| path.file_name().is_some_and(|name| name.to_string_lossy().starts_with(QUARANTINE)));
    for path in entries(&locks)?.into_iter().chain(quarantines) {
        let file = File::open(&path).map_err(durable::Error::of("open", &path))?;
        match rustix::fs::flock(&file, FlockOperation::NonBlockingLockExclusive) {
            Ok(()) => held.push(file),
            Err(rustix::io::Errno::WOULDBLOCK) => return Err(RetainError::Served(path)),
            Err(error) => return Err(durable::Error::of("lock", &path)(error.into()).into()),
        }
    }
    Ok(held)
}

/// Prefix of the folders in which a Git host receives pushes (`gitcd-host`, `push/quarantine.rs`).
const QUARANTINE: &str = "tmp_objdir-";

/// Returns the metadata commits from which gitcds would replay their journals, each with the name of its branch: they must stay.
///
/// # Errors
/// [`RetainError`]: a snapshot that cannot be read may need any commit.
pub fn replayed_from(repository: &Path) -> Result<Vec<(String, Oid)>, RetainError> {
    let mut found = Vec::new();
    for path in entries(&repository.join("gitcd"))?.into_iter().filter(|path| path.is_dir()) {
        if let Some(snapshot) = Snapshot::read(&path)? {
            let oid = Oid::from_bytes(&snapshot.metadata).expect("an object ID has 20 bytes");
            found.push((path.file_name().unwrap_or_default().to_string_lossy().into_owned(), oid));
        }
    }
    Ok(found)
}

/// Returns what is in a folder; nothing if there is none.
fn entries(folder: &Path) -> Result<Vec<PathBuf>, durable::Error> {
    let failed = |error: io::Error| durable::Error::of("read", folder)(error);
    match fs::read_dir(folder) {
        Err(error) if error.kind() == ErrorKind::NotFound => Ok(Vec::new()),
        Err(error) => Err(failed(error)),
        Ok(entries) => entries.map(|entry| Ok(entry.map_err(failed)?.path())).collect(),
    }
}

#[cfg(test)]
mod tests;
