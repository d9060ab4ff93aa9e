//! The expiry of leases.

use std::time::{Duration, Instant};

use super::{Error, Store, writer};

/// First and longest delay before an expiry without room in the journal is retried; the delay doubles each time. A client's
/// successful write triggers an immediate retry, but there may be none, and file systems do not report free space.
const PAUSES: [Duration; 2] = [Duration::from_millis(100), Duration::from_secs(5)];

impl Store {
    /// Revokes leases as they expire, until the store stops or is poisoned.
    pub async fn expire_leases(&self) {
        self.expire(PAUSES).await;
    }

    async fn expire(&self, [first, last]: [Duration; 2]) {
        let mut pause = first;
        loop {
            let next = self.leases.lock().next_deadline();
            let Some((deadline, id)) = next else {
                self.lease_granted.notified().await;
                continue;
            };
            if deadline > Instant::now() {
                // A lease granted meanwhile may expire earlier.
                let _ = tokio::time::timeout_at(deadline.into(), self.lease_granted.notified()).await;
                continue;
            }
            let client = Some(writer::EXPIRY.into());
            match self.send(|reply| writer::Command::Revoke { id, only_if_due: true, client, reply }).await {
                // `LeaseNotFound` also means that the lease was kept alive meanwhile.
                Ok(_) | Err(Error::LeaseNotFound) => pause = first,
                // Only a restart helps, and it restarts the time of every lease.
                Err(Error::Stopped | Error::Poisoned(_)) => return,
                Err(error) => {
                    tracing::debug!(%error, lease = id, ?pause, "lease not expired");
                    let _ = tokio::time::timeout(pause, self.room.notified()).await;
                    pause = (pause * 2).min(last);
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

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
}
