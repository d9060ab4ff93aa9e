//! Change notifications for waiters.

use std::sync::Arc;

use gitcd_mvcc::Store;
use gitcd_mvcc::hub::{Mailbox, Registration};
use gitcd_mvcc::index::KeyRange;
use tonic::Status;

use crate::api::status;

/// The one watcher of a waiter's mailbox.
const WAITER: i64 = 0;

/// Changes of keys in a range.
#[derive(Debug)]
pub(in crate::api) struct Changes {
    mailbox: Arc<Mailbox>,
    store: Arc<Store>,
    _registration: Registration,
}

impl Changes {
    /// Watches a range from now on.
    pub(in crate::api) fn of(store: &Arc<Store>, keys: KeyRange) -> Self {
        let mailbox = store.hub().open();
        let registration = store.hub().register(keys, &mailbox, WAITER, || None);
        Self { mailbox, store: store.clone(), _registration: registration }
    }

    /// Waits for the next change.
    ///
    /// # Errors
    /// If the server stops.
    pub(in crate::api) async fn next(&mut self) -> Result<(), Status> {
        loop {
            if !self.mailbox.changed().await {
                return Err(status::stopped());
            }
            // Compactions wake all mailboxes.
            if !self.mailbox.take(self.store.revision()).is_empty() {
                return Ok(());
            }
        }
    }
}
