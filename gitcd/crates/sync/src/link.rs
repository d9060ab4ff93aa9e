//! Where a remote is, and the state that exchanges with it share.

use std::path::PathBuf;
use std::sync::Arc;

use parking_lot::Mutex;

use super::local::Copier;
use super::smart::Session;

/// State that exchanges with a remote share: connections, and open packs, so that many small exchanges leave few packs. Clones share it.
#[derive(Clone, Debug, Default)]
pub struct Link {
    pub(super) fetching: Arc<Mutex<Copier>>,
    pub(super) pushing: Arc<Mutex<Copier>>,
    pub(super) session: Arc<Session>,
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
    /// Returns a link with the same connections, and new packs.
    pub(super) fn with_new_packs(&self) -> Self {
        Self { session: self.session.clone(), ..Self::default() }
    }
}
