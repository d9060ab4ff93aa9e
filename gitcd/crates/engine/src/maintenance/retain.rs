//! Cuts the history of a repository: older commits are archived in another repository, and removed from this one.
//!
//! The steps, each durable before the next one:
//!
//! 1. All commits that will be removed are pushed to the [archive], which checks that it has every object.
//! 2. The cut is recorded. This has no effect until step 3.
//! 3. The file `shallow` makes the oldest kept commits the boundary of the history. From here on, no program reads beyond it, and no
//!    merge and no fetch takes a removed commit for a new one.
//! 4. The removed objects are unreachable, and are pruned like any others.
//!
//! A crash between two steps leaves a repository with more objects than needed, never with fewer. Running it again continues.
//!
//! Source: `docs/design/retention.md`.

use std::collections::BTreeMap;
use std::path::Path;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use git2::Oid;
use gitcd_core::durable;
use gitcd_core::program::Program;
use gitcd_mvcc::snapshot::Snapshot;
use gitcd_repo::alternates;
use gitcd_repo::boundary::{self, Boundary};
use gitcd_repo::graph::CutPlan;
use gitcd_repo::partial::is_partial;
use tokio::sync::watch;

use super::join::JoinError;
use super::prune::PruneScope;
use super::{MaintenanceLock, graph, is_being_collected, prune};

mod archive;
mod branch_locks;
mod error;
mod planned;

pub use branch_locks::BranchLocks;
pub use error::RetainError;
pub use planned::references;

/// A cut to make.
#[derive(Clone, Debug)]
pub struct CutRequest {
    /// The oldest revision that is kept.
    pub revision: i64,
    /// The data commit with this revision, and the metadata commit that describes it.
    pub oldest: [Oid; 2],
    /// The references of the branch: of its data and of its metadata.
    pub references: [String; 2],
    /// The commits that lose their parents, and those that are removed.
    pub plan: CutPlan,
    /// All references, as [read](references) before the plan was made.
    pub planned: BTreeMap<String, Oid>,
}

/// The right to cut the history of a repository: no other maintenance runs meanwhile.
pub struct Retention {
    turn: MaintenanceLock,
    git: Program,
    stopped: watch::Receiver<bool>,
}

impl std::fmt::Debug for Retention {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Retention").field("repository", &self.turn.place.repository).finish_non_exhaustive()
    }
}

impl Retention {
    /// Checks whether the history of the repository in this folder can be cut at all. Changes nothing.
    ///
    /// # Errors
    /// [`RetainError::Shared`], [`RetainError::Partial`] or [`RetainError::Collected`].
    pub fn check(repository: &Path) -> Result<(), RetainError> {
        if alternates::has_any(repository) {
            return Err(RetainError::Shared(repository.to_owned()));
        }
        if is_partial(repository) {
            return Err(RetainError::Partial(repository.to_owned()));
        }
        if is_being_collected(repository, SystemTime::now()) {
            return Err(RetainError::Collected(repository.join("gc.pid")));
        }
        Ok(())
    }

    /// Locks the repository in this folder.
    ///
    /// # Errors
    /// [`RetainError`]; nothing was changed.
    pub fn start(git: Program, repository: &Path, stopped: watch::Receiver<bool>) -> Result<Self, RetainError> {
        Self::check(repository)?;
        let Some(turn) = MaintenanceLock::take(repository)? else {
            return Err(RetainError::Busy(repository.to_owned()));
        };
        Ok(Self { turn, git, stopped })
    }

    fn repository(&self) -> &Path {
        &self.turn.place.repository
    }

    /// Takes the locks of all branches: as long as they are held, the repository is neither served nor pushed to.
    ///
    /// # Errors
    /// [`RetainError::Served`], or [`JoinError::InUse`]; nothing was changed.
    pub fn lock_branches(&self) -> Result<BranchLocks, RetainError> {
        let locks = BranchLocks::take(self.repository())?;
        // Checked again when objects are deleted.
        drop(prune::alone(self.repository())?);
        Ok(locks)
    }

    /// Removes what an interrupted run left.
    ///
    /// # Errors
    /// [`RetainError`].
    pub fn prepare(&self) -> Result<(), RetainError> {
        if boundary::is_cut(self.repository())? { self.finish() } else { Ok(()) }
    }

    /// Pushes the commits that will be removed to the archive, and cuts the history.
    ///
    /// Takes the time of that push.
    ///
    /// # Errors
    /// [`RetainError`]. Unless the last step failed, nothing was cut. If the request [is outdated](RetainError::is_outdated), make
    /// another plan.
    pub async fn cut(&self, cut: &CutRequest, archive: Option<&Path>) -> Result<(), RetainError> {
        // Until the cut is made, no other run changes the archive.
        let _kept = match archive {
            Some(archive) => Some(archive::keep(self, cut, archive).await?),
            None => None,
        };
        self.make(cut, archive)?;
        self.finish()
    }

    /// Makes the cut.
    fn make(&self, cut: &CutRequest, archive: Option<&Path>) -> Result<(), RetainError> {
        planned::check(self.repository(), cut)?;
        self.record(cut, archive)?;
        // Git ignores it in such a repository, and libgit2 would read beyond the boundary.
        graph::remove_all(self.repository())?;
        Ok(cut.plan.apply(self.repository())?)
    }

    fn record(&self, cut: &CutRequest, archive: Option<&Path>) -> Result<(), RetainError> {
        let at = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_secs();
        let record = boundary::Cut {
            reference: cut.references[0].clone(),
            revision: cut.revision,
            data: cut.oldest[0],
            at: at.cast_signed(),
            archive: archive.map(|archive| archive.display().to_string()).unwrap_or_default(),
        };
        Ok(cut.plan.record(self.repository(), &record)?)
    }

    /// Removes what the boundary made useless.
    fn finish(&self) -> Result<(), RetainError> {
        if Boundary::read(self.repository())?.cut().is_some() {
            // Another program may have written it just before the cut.
            graph::remove_all(self.repository())?;
        }
        Ok(Boundary::tidy(self.repository())?)
    }

    /// Records what is unreachable now, so that its grace period starts.
    ///
    /// Takes as long as `git rev-list --objects --all`.
    ///
    /// # Errors
    /// [`RetainError`]. The daily search of a gitcd that serves the repository does the same.
    pub async fn search(&self) -> Result<(), RetainError> {
        let which = PruneScope::Since(Duration::MAX);
        match prune::prune(&self.git, &self.turn.place, which, SystemTime::now(), &self.stopped).await {
            // The daily search of a gitcd that serves the repository tries again.
            Ok(_) | Err(JoinError::InUse(_)) => Ok(()),
            Err(error) => Err(error.into()),
        }
    }

    /// Prunes what this cut, or an earlier one, removed; returns the number of objects. What is unreachable for another reason keeps
    /// its own grace period.
    ///
    /// # Errors
    /// [`RetainError::Served`], or [`JoinError::InUse`], if another process may be about to refer to a removed object.
    pub async fn prune(&self, locks: &mut BranchLocks) -> Result<usize, RetainError> {
        // A push may have started. One that starts later has moved its references before the last walk, or waits until the objects
        // are deleted, and then misses them.
        locks.extend()?;
        // No process uses the repository, so no object is about to be used again, however recent its file is.
        let now = SystemTime::now() + prune::UNTOUCHED;
        Ok(prune::prune(&self.git, &self.turn.place, PruneScope::CutOff, now, &self.stopped).await?)
    }
}

/// Returns the metadata commits from which gitcds would replay their journals, each with the name of its branch: they must stay.
///
/// # Errors
/// [`RetainError`]: a snapshot that cannot be read may need any commit.
pub fn replayed_from(repository: &Path) -> Result<Vec<(String, Oid)>, RetainError> {
    let mut found = Vec::new();
    for path in durable::entries(&repository.join("gitcd"))?.into_iter().filter(|path| path.is_dir()) {
        if let Some(snapshot) = Snapshot::read(&path)? {
            let oid = Oid::from_bytes(&snapshot.metadata).expect("an object ID has 20 bytes");
            found.push((path.file_name().unwrap_or_default().to_string_lossy().into_owned(), oid));
        }
    }
    Ok(found)
}

#[cfg(test)]
mod tests;
