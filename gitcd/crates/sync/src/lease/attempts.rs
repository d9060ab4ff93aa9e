//! Attempts to acquire the lease, and their withdrawal by a server that does not start.

use std::sync::{Arc, OnceLock};

use git2::Oid;
use gitcd_core::error::chain as describe;
use gitcd_core::fence::Moment;
use parking_lot::Mutex;
use tokio::sync::{OwnedRwLockReadGuard, RwLock};

use super::record::{Record, reference};
use super::remote::LeaseRemote;
use super::renewer::{limit, within};
use super::{Lease, chain};
use crate::remote::RemoteError;
use crate::status::Condition;

/// The attempts of a server to acquire a lease, and the lease once it is acquired. They outlive the future that makes them: a
/// server that does not start must [withdraw](Self::withdraw) them, or other servers wait until the lease expires.
#[derive(Debug, Default)]
pub struct Attempts {
    acquired: OnceLock<Arc<Lease>>,
    upstream: OnceLock<LeaseRemote>,
    /// Each may have succeeded or not.
    sent: Mutex<Vec<Attempt>>,
    /// Locked for reading by each attempt that is still being sent.
    sending: Arc<RwLock<()>>,
}

/// An attempt to acquire the lease.
#[derive(Clone, Debug)]
pub(super) struct Attempt {
    /// The value of the lease reference after it.
    pub(super) commit: Oid,
    /// When it was sent.
    pub(super) at: Moment,
    pub(super) record: Record,
}

impl Attempts {
    /// Returns the lease, if it is acquired.
    pub fn acquired(&self) -> Option<&Arc<Lease>> {
        self.acquired.get()
    }

    pub(super) fn succeeded(&self, lease: Arc<Lease>) {
        let _first = self.acquired.set(lease);
    }

    /// Records an attempt that is about to be sent. It counts as being sent until the guard is dropped.
    pub(super) async fn sends(&self, upstream: &LeaseRemote, attempt: Attempt) -> OwnedRwLockReadGuard<()> {
        let _same = self.upstream.set(upstream.clone());
        self.sent.lock().push(attempt);
        self.sending.clone().read_owned().await
    }

    /// Returns the attempt that moved the reference to this value.
    pub(super) fn of(&self, found: Option<Oid>) -> Option<Attempt> {
        self.sent.lock().iter().find(|attempt| Some(attempt.commit) == found).cloned()
    }

    /// Hands the lease over if any attempt acquired it, also one that is still being sent: then waits for its outcome. Makes no
    /// request if nothing was sent. Takes as long as the remote needs; dropping the future leaves the lease to expire.
    pub async fn withdraw(&self) {
        if let Some(lease) = self.acquired() {
            return lease.release().await;
        }
        let Some(upstream) = self.upstream.get() else { return };
        drop(self.sending.write().await);
        if let Err(error) = self.hand_over(upstream).await {
            tracing::warn!(
                error = describe(&error),
                "cannot find out whether an attempt has acquired the writer lease: if so, other servers wait until it expires"
            );
        }
    }

    async fn hand_over(&self, upstream: &LeaseRemote) -> Result<(), RemoteError> {
        let Some(limit) = self.sent.lock().last().map(|attempt| limit(attempt.record.duration)) else { return Ok(()) };
        let (at, name) = (upstream.clone(), reference(&upstream.config.data_reference));
        let looked = name.clone();
        let [found] = within(limit, &upstream.remote.name, move || at.find([&looked], limit)).await?;
        let Some(attempt) = self.of(found) else { return Ok(()) };
        let (at, record) = (upstream.clone(), Record { is_held: false, ..attempt.record });
        let epoch = record.epoch;
        let released = within(limit, &upstream.remote.name, move || {
            let last = chain::last(&at, &record).map_err(|error| at.failed(Condition::Failed, &describe(&error)))?;
            at.push(vec![(name, last, found)], limit)
        });
        released.await?;
        tracing::info!(epoch, "the writer lease is handed over: an attempt acquired it during the stop");
        Ok(())
    }
}
