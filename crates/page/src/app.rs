//! The shared state of the request handlers.

use std::sync::Arc;

use gitcd_repo::watch::RefWatcher;
use tokio::sync::Semaphore;

use crate::health::HealthReader;
use crate::rights::Rights;
use crate::session::Session;
use crate::settings::Settings;
use crate::undo::Undo;
use crate::work::Work;

/// What handlers share.
pub(crate) struct App {
    pub(crate) settings: Arc<Settings>,
    pub(crate) rights: Arc<dyn Rights>,
    pub(crate) undo: Option<Arc<dyn Undo>>,
    pub(crate) health: Option<HealthReader>,
    pub(crate) session: Session,
    pub(crate) watcher: RefWatcher,
    pub(crate) work: Work,
    pub(crate) streams: Arc<Semaphore>,
    /// The bound address as a host of URLs.
    pub(crate) host: String,
}
