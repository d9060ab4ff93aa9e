//! Writes the changes of an etcd to a store, each revision as one transaction.

use std::collections::{HashMap, VecDeque};
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context as _, ensure};
use futures::{StreamExt as _, TryStreamExt as _};
use gitcd_core::path;
use gitcd_core::revision::Revision;
use gitcd_mvcc::index::KeyRange;
use gitcd_mvcc::txn::{Delete, Done, Op, Put, Txn};
use gitcd_mvcc::{Error, QueuedWrite, Store};
use gitcd_server::proto::mvccpb::Event;
use gitcd_server::proto::mvccpb::event::EventType;
use parking_lot::Mutex;

use super::client::EtcdClient;

/// Number of writes in progress, which share fsyncs.
const WINDOW: usize = 256;
/// Bytes that may be in the journal and not in Git yet: far below the size at which the store refuses writes.
const MOST_UNCOMMITTED: u64 = 256 << 20;
/// Bytes of a change in the journal beside its key and value.
const OVERHEAD: u64 = 64;
/// How long to wait before looking again whether the committer has caught up.
const PAUSE: Duration = Duration::from_millis(20);
/// Time to live of a lease that etcd no longer has when its key is copied. The deletion of the key follows, unless the lease is
/// granted again.
const UNKNOWN_TTL: i64 = 3600;
/// Number of leases that are looked up at the same time.
const LOOKUPS: usize = 32;

/// Copies changes and leases to a store.
pub(super) struct RevisionCopier {
    store: Arc<Store>,
    client: Arc<str>,
    /// The leases of the store, with their times to live in seconds.
    leases: Mutex<HashMap<i64, i64>>,
    uncommitted: Mutex<Uncommitted>,
}

/// Revisions that may not be in Git yet.
#[derive(Default)]
struct Uncommitted {
    /// Each with its size in the journal.
    revisions: VecDeque<(i64, u64)>,
    bytes: u64,
}

impl Uncommitted {
    /// Adds a revision if there is room for it.
    fn add(&mut self, committed: i64, revision: i64, bytes: u64) -> bool {
        while let Some((_, bytes)) = self.revisions.pop_front_if(|(revision, _)| *revision <= committed) {
            self.bytes -= bytes;
        }
        let has_room = self.revisions.is_empty() || self.bytes + bytes <= MOST_UNCOMMITTED;
        if has_room {
            self.revisions.push_back((revision, bytes));
            self.bytes += bytes;
        }
        has_room
    }
}

impl RevisionCopier {
    pub(super) fn new(store: Arc<Store>) -> Self {
        let leases = Mutex::new(store.leases().into_iter().collect());
        Self { store, client: "imported from etcd".into(), leases, uncommitted: Mutex::default() }
    }

    pub(super) fn store(&self) -> &Arc<Store> {
        &self.store
    }

    /// The newest revision that was copied.
    pub(super) fn revision(&self) -> i64 {
        self.store.revision().get()
    }

    /// Writes changes of one or more whole revisions. When it returns, also with an error, no write is in progress. So it must not be
    /// cancelled.
    ///
    /// # Errors
    /// Those of the store, and of etcd when leases are looked up there.
    pub(super) async fn write(&self, etcd: &EtcdClient, events: Vec<Event>) -> anyhow::Result<()> {
        let mut queued = VecDeque::new();
        let mut outcome = self.enqueue(etcd, events, &mut queued).await;
        for (revision, write) in queued {
            let done = expect(revision, write.done().await);
            outcome = outcome.and(done);
        }
        outcome
    }

    async fn enqueue(
        &self,
        etcd: &EtcdClient,
        events: Vec<Event>,
        queued: &mut VecDeque<(i64, QueuedWrite)>,
    ) -> anyhow::Result<()> {
        let mut events = events.into_iter().peekable();
        while let Some(first) = events.peek() {
            let (revision, mut changes, mut bytes) = (revision_of(first)?, Vec::new(), 0);
            while let Some(event) = events.next_if(|event| revision_of(event).is_ok_and(|next| next == revision)) {
                bytes += OVERHEAD + event.kv.as_ref().map_or(0, |pair| pair.key.len() + pair.value.len()) as u64;
                changes.push(self.change(etcd, event).await?);
            }
            self.wait_for_commits(revision, bytes).await;
            let transaction = Op::Txn(Txn { compares: Vec::new(), success: changes, failure: Vec::new() });
            queued.push_back((revision, self.store.enqueue(transaction, Some(self.client.clone())).await?));
            if queued.len() >= WINDOW
                && let Some((revision, write)) = queued.pop_front()
            {
                expect(revision, write.done().await)?;
            }
        }
        Ok(())
    }

    /// Waits until the journal has room for a revision.
    async fn wait_for_commits(&self, revision: i64, bytes: u64) {
        while !self.uncommitted.lock().add(self.store.committed_revision().get(), revision, bytes) {
            tokio::time::sleep(PAUSE).await;
        }
    }

    async fn change(&self, etcd: &EtcdClient, event: Event) -> anyhow::Result<Op> {
        let is_deletion = event.r#type() == EventType::Delete;
        let pair = event.kv.context("an event of etcd has no key")?;
        if is_deletion {
            return Ok(Op::Delete(Delete { keys: KeyRange::One(pair.key), previous: false }));
        }
        ensure!(
            path::fits(&pair.key),
            "the key {:?} is too long for a path in Git; delete it in etcd, and import again",
            String::from_utf8_lossy(&pair.key)
        );
        if pair.lease != 0 && !self.leases.lock().contains_key(&pair.lease) {
            let ttl = etcd.granted_ttl(pair.lease).await?.unwrap_or(UNKNOWN_TTL);
            self.grant(pair.lease, ttl).await?;
        }
        Ok(Op::Put(Put { key: pair.key, value: Some(pair.value), lease: Some(pair.lease), previous: false }))
    }

    async fn grant(&self, id: i64, ttl: i64) -> anyhow::Result<()> {
        self.store.grant(id, ttl).await?;
        self.leases.lock().insert(id, ttl);
        Ok(())
    }

    /// Reconciles the leases with those of etcd. Leases of keys are granted with the keys; those without keys are in no change.
    ///
    /// # Errors
    /// Those of the store and of etcd.
    pub(super) async fn reconcile_leases(&self, etcd: &EtcdClient) -> anyhow::Result<()> {
        let ids = futures::stream::iter(etcd.leases().await?);
        let ttls = ids.map(async |id| anyhow::Ok((id, etcd.granted_ttl(id).await?))).buffer_unordered(LOOKUPS);
        let found: Vec<_> = ttls.try_collect().await?;
        let theirs: HashMap<_, _> = found.into_iter().filter_map(|(id, ttl)| Some((id, ttl?))).collect();
        let ours = self.leases.lock().clone();
        let different = ours.into_iter().filter(|(id, ttl)| theirs.get(id) != Some(ttl));
        let ends = futures::stream::iter(different).map(|(id, ttl)| self.end_lease(id, ttl, theirs.get(&id).copied()));
        ends.buffer_unordered(LOOKUPS).try_collect::<()>().await?;
        let ours = self.leases.lock().clone();
        let missing = theirs.into_iter().filter(|(id, _)| !ours.contains_key(id));
        let grants = futures::stream::iter(missing).map(|(id, ttl)| self.grant(id, ttl));
        grants.buffer_unordered(LOOKUPS).try_collect().await
    }

    /// Revokes a lease that etcd does not have, or has with another time to live.
    async fn end_lease(&self, id: i64, ttl: i64, theirs: Option<i64>) -> anyhow::Result<()> {
        let has_keys = self.store.lease(id, true).await?.is_some_and(|report| !report.keys.is_empty());
        if !has_keys {
            self.store.revoke(id, None).await?;
            self.leases.lock().remove(&id);
        } else if let Some(theirs) = theirs {
            // Revoking it would delete its keys.
            tracing::warn!(
                "lease {id:x} has a time to live of {ttl} s instead of {theirs} s until it is granted again"
            );
        }
        Ok(())
    }

    /// Compacts the history that etcd has compacted.
    ///
    /// # Errors
    /// Those of the store and of etcd.
    pub(super) async fn compact(&self, etcd: &EtcdClient) -> anyhow::Result<()> {
        let ours = self.store.compacted();
        // A store that was never compacted can be read from its first revision on.
        let from = ours.get().max(Revision::INITIAL.get());
        let theirs = etcd.compact_revision(from, self.revision()).await?;
        if theirs > from {
            self.store.compact(Revision::new(theirs)).await?;
        }
        Ok(())
    }
}

fn revision_of(event: &Event) -> anyhow::Result<i64> {
    Ok(event.kv.as_ref().context("an event of etcd has no key")?.mod_revision)
}

/// A revision that would be another one in the branch ends the copy.
fn expect(revision: i64, done: Result<Done, Error>) -> anyhow::Result<()> {
    let written = done.with_context(|| format!("cannot write revision {revision}"))?.revision();
    ensure!(
        written == Revision::new(revision),
        "revision {revision} of etcd became revision {written} of the branch; remove the branch, and import again"
    );
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn revisions_have_room_until_those_before_them_are_committed() {
        let mut uncommitted = Uncommitted::default();
        // One that is too large for the rest has room alone.
        assert!(uncommitted.add(1, 2, MOST_UNCOMMITTED + 1));
        assert!(!uncommitted.add(1, 3, 1));
        assert!(uncommitted.add(2, 3, MOST_UNCOMMITTED - 1) && uncommitted.add(2, 4, 1));
        assert!(!uncommitted.add(2, 5, 1));
        assert!(uncommitted.add(3, 5, 1) && uncommitted.bytes == 2);
    }
}
