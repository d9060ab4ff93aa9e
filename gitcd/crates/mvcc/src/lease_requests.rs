//! What clients do with leases. In a store that shows the past, they can only be read.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use gitcd_core::revision::Revision;

use super::lease::Report;
use super::{Error, Store, writer};

impl Store {
    /// Grants a lease; `id` 0 chooses one. Returns ID and time to live in seconds.
    ///
    /// # Errors
    /// [`Error::LeaseExists`].
    pub async fn grant(&self, id: i64, ttl: i64) -> Result<(i64, i64), Error> {
        let granted = self.send(|reply| writer::Command::Grant { id, ttl, reply }).await?;
        self.counters.work.lease_ttl.add(granted.1.max(0) as u64);
        self.lease_granted.notify_one();
        Ok(granted)
    }

    /// Revokes a lease and deletes its keys, in one revision of the client.
    ///
    /// # Errors
    /// [`Error::LeaseNotFound`].
    pub async fn revoke(&self, id: i64, client: Option<Arc<str>>) -> Result<Revision, Error> {
        self.send(|reply| writer::Command::Revoke { id, only_if_due: false, client, reply }).await
    }

    /// Restarts a lease's time; returns its time to live in seconds, or `None` if it does not exist or has expired.
    ///
    /// # Errors
    /// [`Error::Stopped`].
    pub async fn keep_alive(&self, id: i64) -> Result<Option<i64>, Error> {
        let left = self.send(|reply| writer::Command::KeepAlive { id, reply }).await?;
        self.counters.work.leases_renewed.fetch_add(u64::from(left.is_some()), Ordering::Relaxed);
        Ok(left)
    }

    /// Returns what is known about a lease. Blocks writes while it copies the keys, if requested.
    ///
    /// # Errors
    /// [`Error::Stopped`].
    pub async fn lease(&self, id: i64, keys: bool) -> Result<Option<Report>, Error> {
        if self.is_past() {
            return Ok(self.past_lease(id, keys));
        }
        self.send(|reply| writer::Command::Lease { id, keys, reply }).await
    }

    /// Returns all leases: ID and granted time to live in seconds.
    ///
    /// # Errors
    /// [`Error::Stopped`].
    pub async fn list_leases(&self) -> Result<Vec<(i64, i64)>, Error> {
        if self.is_past() {
            return Ok(self.leases());
        }
        self.send(|reply| writer::Command::Leases { reply }).await
    }

    /// Returns all leases as the writer has them, for snapshots and metrics: one that is being granted or revoked may be missing
    /// or not.
    pub fn leases(&self) -> Vec<(i64, i64)> {
        self.leases.lock().list()
    }

    /// Returns all leases that keys may have as of a revision, and younger ones, for the commit of that revision.
    pub fn leases_at(&self, revision: Revision) -> Vec<(i64, i64)> {
        self.leases.lock().list_at(revision)
    }
}
