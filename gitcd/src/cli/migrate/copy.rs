//! Writes the changes of an etcd to a store, each revision as one transaction.

use std::collections::{HashSet, VecDeque};
use std::sync::Arc;
use std::task::Poll;

use anyhow::{Context as _, ensure};
use futures::future::BoxFuture;
use gitcd_core::path;
use gitcd_core::revision::Revision;
use gitcd_mvcc::index::KeyRange;
use gitcd_mvcc::txn::{Delete, Done, Op, Put, Txn};
use gitcd_mvcc::{Error, Store};
use gitcd_server::proto::mvccpb::Event;
use gitcd_server::proto::mvccpb::event::EventType;
use parking_lot::Mutex;

use super::source::Source;

/// Number of writes in progress: they share one fsync. Less than the store's queue has room for, so that each is queued at once, in
/// its order.
const WINDOW: usize = 256;
/// Time to live of a lease that etcd no longer has when its key is copied: the deletion of the key follows.
const SHORT: i64 = 1;

/// The store to which changes are copied.
pub(super) struct Copy {
    store: Arc<Store>,
    client: Arc<str>,
    leases: Mutex<HashSet<i64>>,
}

impl Copy {
    pub(super) fn new(store: Arc<Store>) -> Self {
        let leases = store.leases().into_iter().map(|(id, _)| id).collect();
        Self { store, client: "imported from etcd".into(), leases: Mutex::new(leases) }
    }

    pub(super) fn store(&self) -> &Arc<Store> {
        &self.store
    }

    /// The newest revision that was copied.
    pub(super) fn revision(&self) -> i64 {
        self.store.revision().get()
    }

    /// Writes changes of one or more whole revisions.
    ///
    /// # Errors
    /// Those of the store, and of etcd when leases are looked up there.
    pub(super) async fn write(&self, source: &Source, events: Vec<Event>) -> anyhow::Result<()> {
        let mut under_way: VecDeque<(i64, BoxFuture<'_, Result<Done, Error>>)> = VecDeque::new();
        let mut events = events.into_iter().peekable();
        while let Some(first) = events.peek() {
            let revision = revision_of(first)?;
            let mut changes = Vec::new();
            while let Some(event) = events.next_if(|event| revision_of(event).is_ok_and(|next| next == revision)) {
                changes.push(self.change(source, event).await?);
            }
            let transaction = Op::Txn(Txn { compares: Vec::new(), success: changes, failure: Vec::new() });
            let mut written: BoxFuture<'_, _> = Box::pin(self.store.execute(transaction, Some(self.client.clone())));
            // The first poll queues it.
            match futures::poll!(&mut written) {
                Poll::Ready(done) => expect(revision, done)?,
                Poll::Pending => under_way.push_back((revision, written)),
            }
            if under_way.len() >= WINDOW
                && let Some((revision, written)) = under_way.pop_front()
            {
                expect(revision, written.await)?;
            }
        }
        for (revision, written) in under_way {
            expect(revision, written.await)?;
        }
        Ok(())
    }

    async fn change(&self, source: &Source, event: Event) -> anyhow::Result<Op> {
        let is_deletion = event.r#type() == EventType::Delete;
        let pair = event.kv.context("an event of etcd has no key")?;
        ensure!(
            path::fits(&pair.key),
            "the key {:?} is too long for a path in Git",
            String::from_utf8_lossy(&pair.key)
        );
        if is_deletion {
            return Ok(Op::Delete(Delete { keys: KeyRange::One(pair.key), previous: false }));
        }
        if pair.lease != 0 && !self.leases.lock().contains(&pair.lease) {
            let ttl = source.granted_ttl(pair.lease).await?.unwrap_or(SHORT);
            self.grant(pair.lease, ttl).await?;
        }
        Ok(Op::Put(Put { key: pair.key, value: Some(pair.value), lease: Some(pair.lease), previous: false }))
    }

    async fn grant(&self, id: i64, ttl: i64) -> anyhow::Result<()> {
        self.store.grant(id, ttl).await?;
        self.leases.lock().insert(id);
        Ok(())
    }

    /// Makes the leases those of etcd. Leases of keys are granted with the keys; those without keys are in no change.
    ///
    /// # Errors
    /// Those of the store and of etcd.
    pub(super) async fn settle_leases(&self, source: &Source) -> anyhow::Result<()> {
        let theirs: HashSet<_> = source.leases().await?.into_iter().collect();
        let ours = self.leases.lock().clone();
        for id in theirs.difference(&ours) {
            if let Some(ttl) = source.granted_ttl(*id).await? {
                self.grant(*id, ttl).await?;
            }
        }
        for id in ours.difference(&theirs) {
            // One that still has keys was revoked after the last change that was copied.
            let has_keys = self.store.lease(*id, true).await?.is_some_and(|report| !report.keys.is_empty());
            if !has_keys {
                self.store.revoke(*id, None).await?;
                self.leases.lock().remove(id);
            }
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
        "revision {revision} of etcd became revision {written} of the branch; remove the branch, and import it again"
    );
    Ok(())
}
