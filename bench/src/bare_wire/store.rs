//! The state of the server, and what reads and watchers see of it.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicI64, Ordering};
use std::sync::{RwLock, RwLockReadGuard, RwLockWriteGuard};

use bytes::Bytes;
use gitcd::proto::etcdserverpb::{RangeRequest, RangeResponse};
use gitcd::proto::mvccpb::event::EventType;
use gitcd::proto::mvccpb::{Event, KeyValue};
use tokio::sync::watch;
use tonic::Status;

use super::keys::{KeyRange, KeyVersion, Keys};
use super::{header, unsupported};

/// The revision of an empty store, as in etcd.
const FIRST: i64 = 1;
/// Events after which an answer to a watcher ends with the revision.
const EVENTS: usize = 1_000;
const LOCKED: &str = "no thread panics while holding the lock";

/// A change of a key.
#[derive(Clone, Debug)]
pub(super) struct KeyChange {
    pub(super) key: Bytes,
    pub(super) version: KeyVersion,
    pub(super) previous: Option<KeyVersion>,
}

impl KeyChange {
    fn event(&self, prev_kv: bool) -> Event {
        let previous = self.previous.as_ref().filter(|_| prev_kv).map(|previous| previous.pair(&self.key));
        Event { r#type: EventType::Put.into(), kv: Some(self.version.pair(&self.key)), prev_kv: previous }
    }
}

/// Everything up to the newest write, which may not be durable yet.
#[derive(Debug)]
pub(super) struct State {
    pub(super) keys: Keys,
    pub(super) revision: i64,
    compacted: i64,
    /// All changes after the last compaction.
    changes: VecDeque<KeyChange>,
}

impl State {
    /// Applies a put.
    pub(super) fn put(&mut self, key: Bytes, value: Bytes, revision: i64) -> KeyChange {
        let (version, previous) = self.keys.put(key.clone(), value, revision, self.compacted);
        let change = KeyChange { key, version, previous };
        self.changes.push_back(change.clone());
        change
    }

    /// Forgets what is older than a visible revision.
    pub(super) fn compact(&mut self, revision: i64, visible: i64) -> Result<(), Status> {
        self.check(revision, visible)?;
        if revision == self.compacted {
            return Err(compacted());
        }
        self.compacted = revision;
        let old = self.changes.partition_point(|change| change.version.mod_revision <= revision);
        self.changes.drain(..old);
        Ok(())
    }

    fn check(&self, revision: i64, current: i64) -> Result<(), Status> {
        if revision > current {
            return Err(Status::out_of_range("etcdserver: mvcc: required revision is a future revision"));
        }
        if revision < self.compacted { Err(compacted()) } else { Ok(()) }
    }

    /// Answers a range request; `current` is the newest revision that it may see.
    pub(super) fn range(&self, request: &RangeRequest, current: i64) -> Result<RangeResponse, Status> {
        let RangeRequest { key, range_end, limit, .. } = request;
        check_range(request)?;
        let at = if request.revision > 0 { request.revision } else { current };
        self.check(at, current)?;
        let mut response = RangeResponse { header: Some(header(current)), ..RangeResponse::default() };
        let pair = |key: &Bytes, version: &KeyVersion| {
            let pair = version.pair(key);
            if request.keys_only { KeyValue { value: Bytes::new(), ..pair } } else { pair }
        };
        if range_end.is_empty() {
            let found = self.keys.find(key).and_then(|found| Some(pair(&found.key, found.at(at)?)));
            response.count = found.is_some().into();
            response.kvs = found.into_iter().filter(|_| !request.count_only).collect();
            return Ok(response);
        }
        let range = KeyRange::new(key.clone(), range_end.clone());
        let count = self.keys.count(&range, at);
        response.count = count as i64;
        if !request.count_only {
            let limit = if *limit > 0 { *limit as usize } else { usize::MAX };
            response.more = count > limit;
            response.kvs.reserve_exact(count.min(limit));
            response.kvs.extend(self.keys.scan(&range, at).take(limit).map(|(key, version)| pair(key, version)));
        }
        Ok(response)
    }
}

fn compacted() -> Status {
    Status::out_of_range("etcdserver: mvcc: required revision has been compacted")
}

fn check_range(request: &RangeRequest) -> Result<(), Status> {
    if request.key.is_empty() {
        return Err(Status::invalid_argument("etcdserver: key is not provided"));
    }
    let RangeRequest { min_mod_revision, max_mod_revision, min_create_revision, max_create_revision, .. } = request;
    let filters = [min_mod_revision, max_mod_revision, min_create_revision, max_create_revision];
    if request.sort_order != 0 || filters.iter().any(|filter| **filter != 0) {
        return Err(unsupported("sorted and filtered ranges"));
    }
    Ok(())
}

/// The state, and the revision up to which it is durable and visible.
#[derive(Debug)]
pub(super) struct Store {
    state: RwLock<State>,
    visible: AtomicI64,
    published: watch::Sender<i64>,
}

impl Default for Store {
    fn default() -> Self {
        let state = State { keys: Keys::default(), revision: FIRST, compacted: 0, changes: VecDeque::new() };
        Self { state: RwLock::new(state), visible: AtomicI64::new(FIRST), published: watch::Sender::new(FIRST) }
    }
}

impl Store {
    /// The newest durable revision.
    pub(super) fn visible(&self) -> i64 {
        self.visible.load(Ordering::Acquire)
    }

    /// Makes durable revisions visible.
    pub(super) fn publish(&self, revision: i64) {
        self.visible.store(revision, Ordering::Release);
        self.published.send_replace(revision);
    }

    /// Notified of new visible revisions.
    pub(super) fn published(&self) -> watch::Receiver<i64> {
        self.published.subscribe()
    }

    /// The state for a read.
    pub(super) fn read(&self) -> RwLockReadGuard<'_, State> {
        self.state.read().expect(LOCKED)
    }

    /// The state for the writer.
    pub(super) fn write(&self) -> RwLockWriteGuard<'_, State> {
        self.state.write().expect(LOCKED)
    }

    /// Returns visible events of a range from a revision on, in whole revisions, and the revision from which to continue.
    ///
    /// # Errors
    /// The revision of the compaction that has removed some of them.
    pub(super) fn events(&self, range: &KeyRange, from: i64, prev_kv: bool) -> Result<(Vec<Event>, i64), i64> {
        let (state, visible) = (self.read(), self.visible());
        if from <= state.compacted {
            return Err(state.compacted);
        }
        let first = state.changes.partition_point(|change| change.version.mod_revision < from);
        let (mut events, mut last) = (Vec::new(), from - 1);
        for change in state.changes.range(first..) {
            let revision = change.version.mod_revision;
            if revision > visible {
                break;
            }
            if events.len() >= EVENTS && revision > last {
                return Ok((events, revision));
            }
            last = revision;
            if range.contains(&change.key) {
                events.push(change.event(prev_kv));
            }
        }
        Ok((events, from.max(visible + 1)))
    }
}
