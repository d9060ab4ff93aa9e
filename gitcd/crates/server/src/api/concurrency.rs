//! Basis of locks and elections (etcd: `client/v3/concurrency`): every waiter has a key under a common prefix, bound to a
//! lease; the oldest key wins.

use std::sync::Arc;

use bytes::Bytes;
use gitcd_core::path;
use gitcd_core::revision::Revision;
use gitcd_mvcc::Store;
use gitcd_mvcc::index::KeyRange;
use gitcd_mvcc::query::{Filter, Found, Range, Sort, SortBy};
use tonic::{Request, Status};

use super::{Backend, status};
use crate::proto::etcdserverpb as pb;
use crate::proto::etcdserverpb::compare::{CompareResult, CompareTarget, TargetUnion};
use crate::proto::etcdserverpb::request_op::Request as Op;
use crate::proto::etcdserverpb::response_op::Response as Answer;
use crate::proto::mvccpb::KeyValue;

mod changes;
mod give_up;

pub(super) use self::changes::Changes;
pub(super) use self::give_up::GiveUp;

/// TTL, in seconds, of the lease for a client that sends none.
const SESSION_TTL: i64 = 60;

/// A waiter's place in line, or at its head.
#[derive(Debug)]
pub(super) struct Place {
    /// The keys of all waiters for the same name.
    pub line: KeyRange,
    /// The waiter's own key.
    pub key: Bytes,
    /// The key's create revision.
    pub created: Revision,
    /// The key's lease.
    pub lease: i64,
    /// The key's value, if it existed before.
    pub former: Option<Bytes>,
    /// The newest revision at which the key is known to exist.
    pub seen: Revision,
}

/// Returns the range of the keys that start with `prefix`.
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

/// Caller of a service that in etcd is a client of the server itself (`api/v3client`): limits and alarms apply to its writes.
#[derive(Clone, Debug)]
pub(super) struct Caller {
    backend: Backend,
    client: Option<Arc<str>>,
}

impl Caller {
    pub(super) fn of<T>(backend: &Backend, request: &Request<T>) -> Self {
        Self { backend: backend.clone(), client: super::kv::client(request) }
    }

    /// Takes a place in the line `name`: its key is `name/<lease in hexadecimal>`. The same lease gets the same place.
    /// As in etcd, a client without a lease gets one of a minute, which is not kept alive.
    ///
    /// # Errors
    /// Those of a put: no such lease, no space.
    pub(super) async fn enter(&self, name: &[u8], lease: i64, value: Bytes) -> Result<Place, Status> {
        let prefix = [name, b"/"].concat();
        // Checked first, so that no lease is granted in vain.
        if !path::fits(&prefix) {
            return Err(inner(&status::too_deep()));
        }
        let lease = self.session(lease).await?;
        let key = Bytes::from([&prefix[..], hexadecimal(lease).as_bytes()].concat());
        let put = pb::PutRequest { key: key.clone(), value, lease, ..pb::PutRequest::default() };
        let get = pb::RangeRequest { key: key.clone(), ..pb::RangeRequest::default() };
        let done = self.transact(pb::TxnRequest {
            compare: vec![created_at(&key, Revision::ZERO)],
            success: op(Op::RequestPut(put)),
            failure: op(Op::RequestRange(get)),
        });
        let done = done.await?;
        let seen = revision(done.header);
        let place = Place { line: starting_with(&prefix), key, created: seen, lease, former: None, seen };
        match done.responses.into_iter().next().and_then(|response| response.response) {
            Some(Answer::ResponseRange(found)) => {
                let pair = found.kvs.into_iter().next().ok_or_else(status::session_expired)?;
                Ok(Place { created: Revision::new(pair.create_revision), former: Some(pair.value), ..place })
            }
            _ => Ok(place),
        }
    }

    /// Returns the given lease, or a new one for 0.
    ///
    /// # Errors
    /// No space.
    pub(super) async fn session(&self, lease: i64) -> Result<i64, Status> {
        if lease != 0 {
            return Ok(lease);
        }
        let request = pb::LeaseGrantRequest { id: 0, ttl: SESSION_TTL };
        Ok(self.backend.grant(request).await.map_err(|status| inner(&status))?.id)
    }

    /// Waits until the place is at the head of its line. Returns whether it was behind others.
    ///
    /// # Errors
    /// If the server stops.
    pub(super) async fn reach_head(&self, place: &Place) -> Result<bool, Status> {
        let store = &self.backend.store;
        let in_front = Range {
            filter: Filter { max_create: place.created.get() - 1, ..Filter::default() },
            sort: Some(Sort { by: SortBy::Create, descending: true, after_limit: false }),
            limit: 1,
            ..one_of(place.line.clone())
        };
        let mut waited = false;
        // Watches only the place right ahead, so that a free place does not wake all waiters.
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

    /// Gives up a place, if its key is still the same. Returns the revision.
    ///
    /// # Errors
    /// Those of a deletion.
    pub(super) async fn leave(&self, key: &Bytes, created: Revision) -> Result<Revision, Status> {
        check(key)?;
        let delete = pb::DeleteRangeRequest { key: key.clone(), ..pb::DeleteRangeRequest::default() };
        let done = self.transact(pb::TxnRequest {
            compare: vec![created_at(key, created)],
            success: op(Op::RequestDeleteRange(delete)),
            failure: Vec::new(),
        });
        Ok(revision(done.await?.header))
    }

    /// Replaces the value of a place; `None` if the place is gone.
    ///
    /// # Errors
    /// Those of a put.
    pub(super) async fn say(
        &self,
        key: &Bytes,
        created: Revision,
        lease: i64,
        value: Bytes,
    ) -> Result<Option<Revision>, Status> {
        check(key)?;
        let put = pb::PutRequest { key: key.clone(), value, lease, ..pb::PutRequest::default() };
        let done = self.transact(pb::TxnRequest {
            compare: vec![created_at(key, created)],
            success: op(Op::RequestPut(put)),
            failure: Vec::new(),
        });
        let done = done.await?;
        Ok(done.succeeded.then(|| revision(done.header)))
    }

    /// Returns the current revision, and whether a place still exists at it.
    pub(super) fn still_there(&self, place: &Place) -> Result<(Revision, bool), Status> {
        let store = &self.backend.store;
        let found = store.range(&one_of(KeyRange::One(place.key.clone()))).map_err(status::from_inner_client)?;
        store.newest().map_err(status::from_inner_client)?;
        Ok((found.revision, found.pairs.first().is_some_and(|pair| pair.create_revision == place.created)))
    }

    /// Deletes a key.
    ///
    /// # Errors
    /// Those of a deletion.
    pub(super) async fn delete(&self, key: Bytes) -> Result<Option<pb::ResponseHeader>, Status> {
        check(&key)?;
        let request = pb::DeleteRangeRequest { key, ..pb::DeleteRangeRequest::default() };
        let done = self.backend.delete(request, self.client.clone()).await;
        Ok(done.map_err(|status| inner(&status))?.header)
    }

    async fn transact(&self, request: pb::TxnRequest) -> Result<pb::TxnResponse, Status> {
        self.backend.transact(request, self.client.clone()).await.map_err(|status| inner(&status))
    }
}

/// Converts a status as a client inside the server does: it keeps the text, not the code.
fn inner(status: &Status) -> Status {
    Status::unknown(status.message())
}

/// Refuses keys that a put would refuse.
///
/// # Errors
/// With the code of all errors of a client inside the server.
fn check(key: &[u8]) -> Result<(), Status> {
    match key {
        [] => Err(inner(&status::empty_key())),
        key if !path::fits(key) => Err(inner(&status::too_deep())),
        _ => Ok(()),
    }
}

/// Formats a lease as Go does: with a sign, not in two's complement.
fn hexadecimal(lease: i64) -> String {
    let sign = if lease < 0 { "-" } else { "" };
    format!("{sign}{:x}", lease.unsigned_abs())
}

/// Returns the current revision, and the oldest place in a line at it.
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

/// Returns etcd's comparison of a key's create revision; 0 for a key that does not exist.
fn created_at(key: &Bytes, revision: Revision) -> pb::Compare {
    pb::Compare {
        result: CompareResult::Equal.into(),
        target: CompareTarget::Create.into(),
        key: key.clone(),
        range_end: Bytes::new(),
        target_union: Some(TargetUnion::CreateRevision(revision.get())),
    }
}

fn op(request: Op) -> Vec<pb::RequestOp> {
    vec![pb::RequestOp { request: Some(request) }]
}

fn revision(header: Option<pb::ResponseHeader>) -> Revision {
    Revision::new(header.map_or(0, |header| header.revision))
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
