//! The threads of a branch: the store's writer and the committer.

use std::sync::Arc;

use gitcd_engine::audit::Audit;
use gitcd_engine::committer::{self, Committer, Head};
use gitcd_engine::recovery::{Opened, StateLock};
use gitcd_mvcc::{self as store, Store};
use gitcd_sync::lease::Lease;
use gitcd_sync::{Merger, Puller};
use tokio::runtime::Handle;
use tokio::sync::watch;

use super::{Config, ServeError};

/// The threads of a branch that is being started, and what uses them.
pub(super) struct Threads {
    pub(super) store: Arc<Store>,
    pub(super) writer: store::Handle,
    pub(super) committer: std::thread::JoinHandle<bool>,
    pub(super) puller: Arc<Puller>,
    pub(super) audit: Option<Arc<Audit>>,
    pub(super) lock: StateLock,
}

impl Threads {
    /// Starts the store's writer and the committer. Blocks: reads the repository, and takes time for each key.
    pub(super) fn start(
        config: &Config,
        opened: Opened,
        lease: Option<&Lease>,
        counters: Arc<committer::Counters>,
    ) -> Result<Self, ServeError> {
        let Opened { branch, start, bases, incarnation, lock } = opened;
        let (store, writer) = Store::start(start, config.store.clone()).map_err(ServeError::Thread)?;
        if let Some(lease) = lease {
            store.fence(lease.gate().clone());
        }
        let settings = committer::Settings { audit: config.audit.settings, ..config.committer.clone() };
        let of_branch = config.branch.clone();
        let committer = Committer::new(store.clone(), branch, of_branch, settings, incarnation, bases, counters);
        let audit = committer.audit();
        let puller = puller(config, &store, committer.heads());
        match puller.and_then(|puller| Ok((puller, committer.spawn().map_err(ServeError::Thread)?))) {
            Ok((puller, committer)) => {
                config.served.add(puller.merger().clone(), puller.statuses().clone());
                Ok(Self { store, writer, committer, puller, audit, lock })
            }
            Err(error) => {
                // The thread must not outlive the lock.
                Handle::current().block_on(store.stop());
                writer.join();
                Err(error)
            }
        }
    }

    /// Stops the threads and waits for them: they must not outlive the lock.
    pub(super) async fn end(self) {
        let Self { store, writer, committer, puller: _, audit: _, lock } = self;
        store.stop().await;
        let joined = tokio::task::spawn_blocking(move || {
            writer.join();
            let _is_committed = committer.join();
            drop(lock);
        });
        // The runtime shuts down otherwise.
        let _ended = joined.await;
    }
}

/// Returns the puller of a branch.
fn puller(config: &Config, store: &Arc<Store>, heads: watch::Receiver<Head>) -> Result<Arc<Puller>, ServeError> {
    let merger = Merger::new(store.clone(), heads, config.branch.clone())?
        .with_secret_kinds(&config.pull.secret_kinds)
        .with_api_server(config.pull.api_server.clone());
    Ok(Arc::new(Puller::new(Arc::new(merger), config.pull.clone())))
}
