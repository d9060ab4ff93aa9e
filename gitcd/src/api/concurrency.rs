//! What locks and elections are made of (etcd: `client/v3/concurrency`): a key for each one that waits, under a common
//! prefix and bound to a lease; whoever's key is the oldest has it.

use std::sync::Arc;

use bytes::Bytes;
use tonic::Status;

use super::status;
use crate::git::path;
use crate::proto::mvccpb::KeyValue;
use crate::store::Store;
use crate::store::index::KeyRange;
use crate::store::query::{Filter, Found, Range, Sort, SortBy};
use crate::store::revision::Revision;
use crate::store::txn::{Compare, Delete, Done, Op, Put, Relation, Target, Txn};
use crate::watch::{Mailbox, Registration};

/// Time to live in seconds of the lease of those who bring none.
const SESSION_TTL: i64 = 60;
/// The one watcher of a waiter's mailbox.
const WAITER: i64 = 0;

/// One that waits in line, or is at its head.
#[derive(Debug)]
pub(super) struct Place {
    /// All that wait for the same.
    pub line: KeyRange,
    /// The waiter's own key.
    pub key: Bytes,
    /// When it was made.
    pub created: Revision,
    /// The lease that it is bound to.
    pub lease: i64,
    /// Whether it was there already, and what it said then.
    pub former: Option<Bytes>,
    /// The newest revision that is known to have it.
    pub seen: Revision,
}

/// The keys that start with `prefix`.
pub(super) fn starting_with(prefix: &[u8]) -> KeyRange {
    let mut end = prefix.to_vec();
    while let Some(last) = end.last_mut() {
        if *last < u8::MAX {
            *last += 1;
            return KeyRange::Span(Bytes::copy_from_slice(prefix), end.into());
        }
        end.pop();
    }
    KeyRange::From(Bytes::copy_from_slice(prefix))
}

/// Takes a place in the line `name`: its key is `name/<lease in hexadecimal>`. The same lease gets the same place.
/// Without a lease, one of a minute is granted, which nobody keeps alive, as etcd does.
///
/// # Errors
/// Those of a put: no such lease, no space.
pub(super) async fn enter(store: &Store, name: &[u8], lease: i64, value: Bytes) -> Result<Place, Status> {
    let prefix = [name, b"/"].concat();
    // Before a lease is granted for nothing.
    if !path::fits(&prefix) {
        return Err(Status::unknown(status::too_deep().message()));
    }
    let lease = session(store, lease).await?;
    let key = Bytes::from([&prefix[..], hexadecimal(lease).as_bytes()].concat());
    let put = Put { key: key.clone(), value: Some(value), lease: Some(lease), previous: false };
    let txn = Txn {
        compares: vec![created_at(&key, Revision::ZERO)],
        success: vec![Op::Put(put)],
        failure: vec![Op::Range(one(&key))],
    };
    let done = transact(store, txn).await?;
    let line = starting_with(&prefix);
    let place = Place { line, key, created: done.revision, lease, former: None, seen: done.revision };
    match done.done.into_iter().next() {
        Some(Done::Range(found)) => {
            let pair = found.pairs.first().ok_or_else(status::session_expired)?;
            let former = pair.value(store.segments()).map_err(|lost| status::from_inner_client(lost.into()))?;
            Ok(Place { created: pair.create_revision, former: Some(former), ..place })
        }
        _ => Ok(place),
    }
}

/// The given lease, or a new one for those who bring none.
async fn session(store: &Store, lease: i64) -> Result<i64, Status> {
    match lease {
        0 => Ok(store.grant(0, SESSION_TTL).await.map_err(status::from_inner_client)?.0),
        lease => Ok(lease),
    }
}

/// What a put would refuse.
///
/// # Errors
/// With the code that all errors of a client within the server have.
pub(super) fn check(key: &[u8]) -> Result<(), Status> {
    let refused = |status: Status| Err(Status::unknown(status.message()));
    match key {
        [] => refused(status::empty_key()),
        key if !path::fits(key) => refused(status::too_deep()),
        _ => Ok(()),
    }
}

/// As Go writes it: with a sign, not as the number's bits.
fn hexadecimal(lease: i64) -> String {
    let sign = if lease < 0 { "-" } else { "" };
    format!("{sign}{:x}", lease.unsigned_abs())
}

/// Waits until nobody is in front. Returns whether there was somebody.
///
/// # Errors
/// If the server stops.
pub(super) async fn reach_head(store: &Arc<Store>, place: &Place) -> Result<bool, Status> {
    let in_front = Range {
        filter: Filter { max_create: place.created.get() - 1, ..Filter::default() },
        sort: Some(Sort { by: SortBy::Create, descending: true, after_limit: false }),
        limit: 1,
        ..one_of(place.line.clone())
    };
    let mut waited = false;
    // The one right in front only: when a place becomes free, not all that wait wake up.
    while let Some(next) = store.range(&in_front).map_err(status::from_inner_client)?.pairs.first() {
        waited = true;
        let mut changes = Changes::of(store, KeyRange::One(next.key.clone()));
        let there = || {
            store.with_index(|index, current| {
                let now = index.range(&KeyRange::One(next.key.clone()), current).next();
                now.is_some_and(|now| now.create_revision == next.create_revision)
            })
        };
        while there() {
            changes.next().await?;
        }
    }
    Ok(waited)
}

/// Gives a place up, if it is still the same. Returns the revision.
///
/// # Errors
/// Those of a deletion.
pub(super) async fn leave(store: &Store, key: &Bytes, created: Revision) -> Result<Revision, Status> {
    check(key)?;
    let delete = Delete { keys: KeyRange::One(key.clone()), previous: false };
    let txn = Txn { compares: vec![created_at(key, created)], success: vec![Op::Delete(delete)], failure: Vec::new() };
    Ok(transact(store, txn).await?.revision)
}

/// Gives a place up when a client goes away while it waits.
#[derive(Debug)]
pub(super) struct GiveUp {
    place: Option<(Arc<Store>, Bytes, Revision)>,
}

impl GiveUp {
    /// Unless [`GiveUp::keep`] is called.
    pub(super) fn unless_kept(store: &Arc<Store>, place: &Place) -> Self {
        Self { place: Some((store.clone(), place.key.clone(), place.created)) }
    }

    /// The place is the client's now.
    pub(super) fn keep(mut self) {
        self.place = None;
    }
}

impl Drop for GiveUp {
    fn drop(&mut self) {
        let Some((store, key, created)) = self.place.take() else { return };
        if let Ok(runtime) = tokio::runtime::Handle::try_current() {
            runtime.spawn(async move {
                if let Err(error) = leave(&store, &key, created).await {
                    tracing::debug!(%error, "a place in line is left to its lease");
                }
            });
        }
    }
}

/// Replaces what a place says. `None` if the place is gone.
///
/// # Errors
/// Those of a put.
pub(super) async fn say(
    store: &Store,
    key: &Bytes,
    created: Revision,
    lease: i64,
    value: Bytes,
) -> Result<Option<Revision>, Status> {
    check(key)?;
    let lease = session(store, lease).await?;
    let put = Put { key: key.clone(), value: Some(value), lease: Some(lease), previous: false };
    let txn = Txn { compares: vec![created_at(key, created)], success: vec![Op::Put(put)], failure: Vec::new() };
    let done = transact(store, txn).await?;
    Ok(done.succeeded.then_some(done.revision))
}

/// The oldest place in a line, and the revision at which it was.
///
/// # Errors
/// If its value cannot be read back.
pub(super) fn head(store: &Store, line: &KeyRange) -> Result<(Revision, Option<KeyValue>), Status> {
    let oldest = Range {
        sort: Some(Sort { by: SortBy::Create, descending: false, after_limit: false }),
        limit: 1,
        ..one_of(line.clone())
    };
    let found = store.range(&oldest).map_err(status::from_inner_client)?;
    store.newest().map_err(status::from_inner_client)?;
    Ok((found.revision, pair(store, &found)?))
}

/// Whether a place is still there, and the revision at which that was looked up.
pub(super) fn still_there(store: &Store, place: &Place) -> Result<(Revision, bool), Status> {
    let found = store.range(&one(&place.key)).map_err(status::from_inner_client)?;
    store.newest().map_err(status::from_inner_client)?;
    Ok((found.revision, found.pairs.first().is_some_and(|pair| pair.create_revision == place.created)))
}

/// Tells when something in a range changes.
#[derive(Debug)]
pub(super) struct Changes {
    mailbox: Arc<Mailbox>,
    store: Arc<Store>,
    _registration: Registration,
}

impl Changes {
    /// Changes from now on.
    pub(super) fn of(store: &Arc<Store>, keys: KeyRange) -> Self {
        let mailbox = store.hub().open();
        let registration = store.hub().register(keys, &mailbox, WAITER, || None);
        Self { mailbox, store: store.clone(), _registration: registration }
    }

    /// Waits for the next one.
    ///
    /// # Errors
    /// If the server stops.
    pub(super) async fn next(&mut self) -> Result<(), Status> {
        loop {
            if !self.mailbox.changed().await {
                return Err(status::stopped());
            }
            // Compactions wake everybody.
            if !self.mailbox.take(self.store.revision()).is_empty() {
                return Ok(());
            }
        }
    }
}

fn pair(store: &Store, found: &Found) -> Result<Option<KeyValue>, Status> {
    let Some(version) = found.pairs.first() else { return Ok(None) };
    let value = version.value(store.segments()).map_err(|lost| status::from_inner_client(lost.into()))?;
    Ok(Some(super::key_value(version, value)))
}

fn one_of(keys: KeyRange) -> Range {
    Range {
        keys,
        revision: None,
        limit: 0,
        count_only: false,
        sort: None,
        filter: Filter::default(),
        known_count: None,
    }
}

fn one(key: &Bytes) -> Range {
    one_of(KeyRange::One(key.clone()))
}

fn created_at(key: &Bytes, revision: Revision) -> Compare {
    Compare { keys: KeyRange::One(key.clone()), relation: Relation::Equal, target: Target::Create(revision.get()) }
}

async fn transact(store: &Store, txn: Txn) -> Result<crate::store::txn::TxnDone, Status> {
    match store.execute(Op::Txn(txn), None).await.map_err(status::from_inner_client)? {
        Done::Txn(done) => Ok(done),
        _ => unreachable!("a transaction is answered as one"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_prefix_ends_where_no_key_with_it_can_be() {
        let span = |start: &'static [u8], end: &'static [u8]| KeyRange::Span(start.into(), end.into());
        assert_eq!(starting_with(b"a/"), span(b"a/", b"a0"));
        assert_eq!(starting_with(b"a\xff"), span(b"a\xff", b"b"));
        assert_eq!(starting_with(b"\xff\xff"), KeyRange::From(Bytes::from_static(b"\xff\xff")));
    }
}
