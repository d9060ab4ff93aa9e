//! Blocking Git work: the only place where this crate leaves the async threads.

use std::path::Path;
use std::sync::Arc;

use git2::Repository;
use gitcd_repo::graph::Graph;
use gitcd_repo::refs::{RefError, Refs};
use parking_lot::Mutex;

/// Runs blocking work on a thread for such work, and returns its result. If the caller is dropped, work that was started
/// continues.
///
/// # Panics
/// Panics if the work panics.
pub(crate) async fn blocking<T: Send + 'static>(work: impl FnOnce() -> T + Send + 'static) -> T {
    match tokio::task::spawn_blocking(work).await {
        Ok(done) => done,
        Err(error) => match error.try_into_panic() {
            Ok(panic) => std::panic::resume_unwind(panic),
            // The work was cancelled, because the runtime shuts down: it drops this task next.
            Err(_) => std::future::pending().await,
        },
    }
}

/// The repository of a branch, which stays open from merge to merge. One piece of work at a time uses it.
#[derive(Clone, Debug)]
pub(crate) struct GitWorker(Arc<Mutex<Git>>);

/// What the work uses.
pub(crate) struct Git {
    pub(crate) repository: Repository,
    pub(crate) refs: Refs,
    pub(crate) graph: Graph,
}

impl std::fmt::Debug for Git {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Git").field("repository", &self.repository.path()).finish_non_exhaustive()
    }
}

/// Why a repository cannot be opened.
#[derive(Debug)]
pub(crate) enum OpenError {
    /// libgit2 cannot open it.
    Repository(git2::Error),
    /// Its references cannot be read.
    References(RefError),
}

impl GitWorker {
    /// Opens a repository, given its Git directory.
    pub(crate) fn open(git_dir: &Path) -> Result<Self, OpenError> {
        let repository = Repository::open(git_dir).map_err(OpenError::Repository)?;
        let refs = Refs::open(git_dir).map_err(OpenError::References)?;
        Ok(Self(Arc::new(Mutex::new(Git { repository, refs, graph: Graph::default() }))))
    }

    /// Runs blocking work on the repository, and returns its result.
    pub(crate) async fn run<T: Send + 'static>(&self, work: impl FnOnce(&mut Git) -> T + Send + 'static) -> T {
        let git = self.0.clone();
        blocking(move || work(&mut git.lock())).await
    }
}

impl Git {
    /// Opens the repository again, because every fetch and repack changes the packs, and an open repository keeps deleted ones.
    pub(crate) fn reopen(&mut self) -> Result<(), git2::Error> {
        self.repository = Repository::open(self.repository.path())?;
        Ok(())
    }
}
