//! The expiry of leases.

use std::sync::Arc;
use std::time::{Duration, Instant};

use super::{Error, Store, writer};

/// First and longest delay before an expiry without room in the journal is retried; the delay doubles each time. A client's
/// successful write triggers an immediate retry, but there may be none, and file systems do not report free space.
const PAUSES: [Duration; 2] = [Duration::from_millis(100), Duration::from_secs(5)];
/// Number of expired leases that are revoked together, so that they share an fsync. Less than the writer's batch, so that requests
/// of clients are in the same batch.
const TOGETHER: usize = 256;

impl Store {
    /// Revokes leases as they expire, until the store stops or is poisoned.
    pub async fn expire_leases(&self) {
        self.expire(PAUSES).await;
    }

    async fn expire(&self, [first, last]: [Duration; 2]) {
        let mut pause = first;
        loop {
            let (expired, next) = {
                let leases = self.leases.lock();
                (leases.expired(Instant::now(), TOGETHER), leases.next_deadline())
            };
            match next {
                _ if !expired.is_empty() => {}
                // A lease granted meanwhile may expire earlier.
                Some((deadline, _)) => {
                    let _ = tokio::time::timeout_at(deadline.into(), self.lease_granted.notified()).await;
                    continue;
                }
                None => {
                    self.lease_granted.notified().await;
                    continue;
                }
            }
            match self.revoke_expired(&expired).await {
                Ok(()) => pause = first,
                // Only a restart helps, and it restarts the time of every lease.
                Err(Error::Stopped | Error::Poisoned(_)) => return,
                Err(error) => {
                    tracing::debug!(%error, leases = expired.len(), ?pause, "leases not expired");
                    let _ = tokio::time::timeout(pause, self.room.notified()).await;
                    pause = (pause * 2).min(last);
                }
            }
        }
    }

    /// Revokes leases together. Waits for the writer once, however many they are.
    ///
    /// # Errors
    /// The error of one of them, after all are answered; others may have been revoked.
    async fn revoke_expired(&self, ids: &[i64]) -> Result<(), Error> {
        let client: Arc<str> = writer::EXPIRY.into();
        let mut answers = Vec::with_capacity(ids.len());
        for &id in ids {
            let client = Some(client.clone());
            answers.push(self.submit(|reply| writer::Command::Revoke { id, only_if_due: true, client, reply }).await?);
        }
        let mut outcome = Ok(());
        for answer in answers {
            match answer.await.map_err(|_| Error::Stopped)? {
                // `LeaseNotFound` also means that the lease was kept alive meanwhile.
                Ok(_) | Err(Error::LeaseNotFound) => {}
                Err(error) => outcome = Err(error),
            }
        }
        outcome
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::lease::Lease;
    use crate::writer::tests::{Disk, Step};
    use gitcd_journal::fault::{self, Fault};

    /// Returns a store with an expired lease, and the task that has to revoke it. The test acts as the writer.
    fn overdue(pauses: [Duration; 2]) -> (Disk, Arc<Store>, tokio::task::JoinHandle<()>) {
        let disk = Disk::new();
        let store = disk.store().clone();
        let lease = Lease { ttl: 2, deadline: Instant::now(), keys: std::collections::BTreeSet::new() };
        store.leases.lock().insert(7, lease);
        let expiring = store.clone();
        (disk, store, tokio::spawn(async move { expiring.expire(pauses).await }))
    }

    #[tokio::test]
    async fn an_expiry_without_room_is_tried_again_ever_more_seldom_until_there_is() {
        let (mut disk, store, expiry) = overdue([1, 8].map(Duration::from_millis));
        let start = Instant::now();
        for pauses in [0, 1, 1 + 2, 1 + 2 + 4, 1 + 2 + 4 + 8, 1 + 2 + 4 + 8 + 8] {
            fault::fail_next(Fault::Full);
            disk.next_batch().await;
            assert!(start.elapsed() >= Duration::from_millis(pauses), "{:?} instead of {pauses} ms", start.elapsed());
            assert!(store.leases.lock().find(7).is_some());
        }
        // There is room, but no other write.
        disk.next_batch().await;
        assert!(store.leases.lock().find(7).is_none());
        expiry.abort();
    }

    #[tokio::test]
    async fn an_expiry_is_tried_again_as_soon_as_a_write_shows_that_there_is_room() {
        let hours = [Duration::from_hours(1); 2];
        let (mut disk, store, expiry) = overdue(hours);
        fault::fail_next(Fault::Full);
        disk.next_batch().await;
        assert_eq!(disk.batch(&[Step::Put(1, 0)]), [Ok(())]);
        tokio::time::timeout(Duration::from_mins(1), disk.next_batch()).await.expect("the retry comes in time");
        assert!(store.leases.lock().find(7).is_none());
        expiry.abort();
    }

    #[tokio::test]
    async fn nothing_expires_once_writes_are_refused_until_a_restart() {
        let (mut disk, store, expiry) = overdue(PAUSES);
        fault::fail_next(Fault::Fsync);
        disk.next_batch().await;
        expiry.await.expect("the task ends");
        assert!(store.leases.lock().find(7).is_some());
    }

    /// Time of an fsync on a slow disk.
    const SLOW_FSYNC: Duration = Duration::from_millis(5);

    #[tokio::test]
    async fn leases_that_expire_together_share_fsyncs() {
        let mut disk = Disk::new();
        let store = disk.store().clone();
        let expired = Instant::now();
        for id in 1..=10_000 {
            let lease = Lease { ttl: 2, deadline: expired, keys: std::collections::BTreeSet::new() };
            store.leases.lock().insert(id, lease);
        }
        let expiring = store.clone();
        let expiry = tokio::spawn(async move { expiring.expire(PAUSES).await });
        let mut fsyncs = 0;
        while store.leases.lock().next_deadline().is_some() {
            disk.next_batch().await;
            fsyncs += 1;
        }
        assert!(SLOW_FSYNC * fsyncs <= Duration::from_secs(2), "{fsyncs} fsyncs for 10,000 leases");
        assert_eq!(disk.batch(&[Step::Put(1, 0)]), [Ok(())]);
        expiry.abort();
    }
}
