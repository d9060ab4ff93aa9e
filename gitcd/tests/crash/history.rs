//! What the clients attempted and saw: the facts to check a store against.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicI64, AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard};

use bytes::Bytes;
use gitcd::proto::mvccpb::{Event, KeyValue, event::EventType};

/// Number of an attempt, which determines the value that it writes.
pub(crate) type Op = u64;

/// A client's write request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Action {
    /// Writes one key.
    Put { key: String, lease: i64 },
    /// In one transaction: writes the key if its mod revision is still `expected`.
    Update { key: String, expected: i64 },
    /// In one transaction: creates both keys if neither exists.
    CreatePair { keys: [String; 2] },
    /// In one transaction: deletes both keys.
    DeletePair { keys: [String; 2] },
    /// Deletes one key.
    Delete { key: String },
    /// Revokes a lease, which deletes its keys.
    Revoke { lease: i64 },
}

/// The result of a request as its client saw it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Outcome {
    /// Acknowledged; it made this revision.
    Changed(i64),
    /// Acknowledged as having changed nothing, at this revision.
    Unchanged(i64),
    /// Acknowledged at this revision, without saying whether it made that revision.
    Done(i64),
    /// Refused for good: it must never have an effect.
    Refused,
    /// The connection broke: either fully applied or not at all.
    Unknown,
}

/// One request of one client.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Attempt {
    pub(crate) op: Op,
    pub(crate) action: Action,
    /// The highest revision that any client had seen before this request.
    pub(crate) seen_before: i64,
    pub(crate) outcome: Outcome,
}

/// A range response: all keys that start with `prefix`, as of `revision`.
#[derive(Clone, Debug)]
pub(crate) struct Read {
    pub(crate) revision: i64,
    pub(crate) prefix: String,
    pub(crate) found: Vec<(String, Entry)>,
}

/// A key's state.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Entry {
    pub(crate) op: Op,
    pub(crate) created: i64,
    pub(crate) changed: i64,
    pub(crate) version: i64,
    pub(crate) lease: i64,
}

/// An event: the key's new state, or none if it was deleted.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Change {
    pub(crate) key: String,
    pub(crate) now: Option<Entry>,
}

/// Events by revision.
pub(crate) type Log = BTreeMap<i64, Vec<Change>>;

impl Entry {
    /// Reads an entry from a key-value pair.
    ///
    /// # Panics
    /// If the value is not the one that its attempt writes.
    pub(crate) fn of(pair: &KeyValue) -> Self {
        let op = op_in(&pair.value);
        assert_eq!(pair.value, value(op), "a value that no client wrote: {pair:?}");
        Self { op, created: pair.create_revision, changed: pair.mod_revision, version: pair.version, lease: pair.lease }
    }
}

/// Adds a watch response's events to a log.
///
/// # Panics
/// If a revision is repeated, split or out of order.
pub(crate) fn record(log: &mut Log, events: &[Event]) {
    let newest = log.last_key_value().map_or(0, |(revision, _)| *revision);
    let mut latest = newest;
    for event in events {
        let pair = event.kv.as_ref().expect("an event has a key");
        let revision = pair.mod_revision;
        assert!(revision > newest, "revision {revision} is repeated or split, after {newest}");
        assert!(revision >= latest, "revision {revision} is out of order, after {latest}");
        latest = revision;
        let deleted = event.r#type() == EventType::Delete;
        log.entry(revision).or_default().push(Change {
            key: String::from_utf8(pair.key.to_vec()).expect("test keys are UTF-8"),
            now: (!deleted).then(|| Entry::of(pair)),
        });
    }
}

/// The value that attempt `op` writes: raw bytes, compact JSON, or JSON as kube-apiserver writes it.
pub(crate) fn value(op: Op) -> Bytes {
    let padding = "x".repeat(op as usize % 97);
    match op % 4 {
        0 => format!("{op}\0\u{1}raw {padding}").into(),
        1 => format!(r#"{{"op":"{op}","kind":"ConfigMap","data":{{"list":[1,{{"a":null}},[]],"text":"{padding}"}}}}"#)
            .into(),
        _ => {
            format!("{{\"op\":\"{op}\",\"kind\":\"Pod\",\"metadata\":{{}},\"number\":1.0e3,\"text\":\"{padding}\"}}\n")
                .into()
        }
    }
}

fn op_in(value: &[u8]) -> Op {
    let digits = value.iter().skip_while(|byte| !byte.is_ascii_digit());
    let digits: Vec<u8> = digits.take_while(|byte| byte.is_ascii_digit()).copied().collect();
    let text = String::from_utf8(digits).expect("digits are UTF-8");
    text.parse().unwrap_or_else(|_| panic!("a value that no client wrote: {value:?}"))
}

/// What the clients know of a lease.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct LeaseFacts {
    /// The granted TTL in seconds.
    pub(crate) ttl: i64,
    /// The grant was acknowledged.
    pub(crate) granted: bool,
    /// A revocation was sent.
    pub(crate) revoke_tried: bool,
    /// A revocation was acknowledged.
    pub(crate) revoked: bool,
}

/// Everything that the clients of a run attempted and saw.
#[derive(Debug, Default)]
pub(crate) struct History {
    next_op: AtomicU64,
    seen: AtomicI64,
    attempts: Mutex<Vec<Attempt>>,
    reads: Mutex<Vec<Read>>,
    leases: Mutex<BTreeMap<i64, LeaseFacts>>,
    /// The highest revision of a requested compaction, and of an acknowledged one.
    compaction: Mutex<(i64, i64)>,
}

impl History {
    pub(crate) fn new_op(&self) -> Op {
        self.next_op.fetch_add(1, Ordering::Relaxed) + 1
    }

    /// The highest revision in any response so far. Requests sent from now on must not be answered at an older one.
    pub(crate) fn seen(&self) -> i64 {
        self.seen.load(Ordering::SeqCst)
    }

    /// Records a response's revision.
    ///
    /// # Panics
    /// If it is older than `before`, the highest revision seen before the request.
    pub(crate) fn saw(&self, revision: i64, before: i64) {
        assert!(revision >= before, "stale response at revision {revision}: a client had seen {before}");
        self.seen.fetch_max(revision, Ordering::SeqCst);
    }

    pub(crate) fn attempts(&self) -> MutexGuard<'_, Vec<Attempt>> {
        self.attempts.lock().expect("no client panics while holding the lock")
    }

    pub(crate) fn reads(&self) -> MutexGuard<'_, Vec<Read>> {
        self.reads.lock().expect("no client panics while holding the lock")
    }

    pub(crate) fn leases(&self) -> MutexGuard<'_, BTreeMap<i64, LeaseFacts>> {
        self.leases.lock().expect("no client panics while holding the lock")
    }

    /// The compaction revisions: requested and acknowledged.
    pub(crate) fn compaction(&self) -> MutexGuard<'_, (i64, i64)> {
        self.compaction.lock().expect("no client panics while holding the lock")
    }
}
