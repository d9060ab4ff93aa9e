//! Where a remote is, and the state that exchanges with it share.

use std::path::PathBuf;
use std::sync::Arc;

use parking_lot::Mutex;

use super::local::Copier;
use super::progress::FetchProgress;
use super::smart::Session;

/// State that exchanges with a remote share: connections, and open packs, so that many small exchanges leave few packs. Clones share it.
#[derive(Clone, Debug)]
pub struct Link {
    pub(super) fetching: Arc<Mutex<Copier>>,
    pub(super) pushing: Arc<Mutex<Copier>>,
    pub(super) session: Arc<Session>,
    pub(super) progress: FetchProgress,
}

/// The location of a remote.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Location {
    /// A repository in a folder on this machine.
    Folder(PathBuf),
    /// A repository with a URL.
    Url(String),
}

impl Link {
    /// Returns a link that counts its fetches here.
    pub fn counted(progress: FetchProgress) -> Self {
        Self::new(Arc::default(), progress)
    }

    /// Returns a link with the same connections, and new packs.
    pub(super) fn with_new_packs(&self) -> Self {
        Self::new(self.session.clone(), self.progress.clone())
    }

    fn new(session: Arc<Session>, progress: FetchProgress) -> Self {
        let fetching = Arc::new(Mutex::new(Copier::counted(progress.clone())));
        Self { fetching, pushing: Arc::default(), session, progress }
    }
}

impl Default for Link {
    fn default() -> Self {
        Self::counted(FetchProgress::default())
    }
}
