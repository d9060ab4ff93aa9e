//! What the clients attempted and saw: the facts that a store has to live up to.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicI64, AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard};

use bytes::Bytes;
use gitcd::proto::mvccpb::{Event, KeyValue, event::EventType};

/// Names one attempt, and so the value that it writes.
pub(crate) type Op = u64;

/// What a client asks for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Action {
    /// Writes one key.
    Put { key: String, lease: i64 },
    /// In one transaction: writes the key if its last change is still `expected`.
    Update { key: String, expected: i64 },
    /// In one transaction: creates both keys if there is neither.
    CreatePair { keys: [String; 2] },
    /// In one transaction: deletes both keys.
    DeletePair { keys: [String; 2] },
    /// Deletes one key.
    Delete { key: String },
    /// Deletes the keys of a lease.
    Revoke { lease: i64 },
}

/// What the client knows of it.
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
    /// The connection broke: it happened entirely or not at all.
    Unknown,
}

/// One request of one client.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Attempt {
    pub(crate) op: Op,
    pub(crate) action: Action,
    /// A revision that some client had seen before this was asked for.
    pub(crate) seen_before: i64,
    pub(crate) outcome: Outcome,
}

/// An answer to a reader: all keys that start with `prefix`, with the revision of their last change.
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
    /// # Panics
    /// If the value is not the one that its attempt writes.
    pub(crate) fn of(pair: &KeyValue) -> Self {
        let op = op_in(&pair.value);
        assert_eq!(pair.value, value(op), "a value that nobody wrote: {pair:?}");
        Self { op, created: pair.create_revision, changed: pair.mod_revision, version: pair.version, lease: pair.lease }
    }
}

/// Adds what a watch response says to a log.
///
/// # Panics
/// If a revision comes twice, in parts or out of order.
pub(crate) fn record(log: &mut Log, events: &[Event]) {
    let newest = log.last_key_value().map_or(0, |(revision, _)| *revision);
    let mut latest = newest;
    for event in events {
        let pair = event.kv.as_ref().expect("an event has a key");
        let revision = pair.mod_revision;
        assert!(revision > newest, "revision {revision} comes again or in parts behind {newest}");
        assert!(revision >= latest, "revision {revision} comes behind {latest}");
        latest = revision;
        let deleted = event.r#type() == EventType::Delete;
        log.entry(revision).or_default().push(Change {
            key: String::from_utf8(pair.key.to_vec()).expect("the tests write text"),
            now: (!deleted).then(|| Entry::of(pair)),
        });
    }
}

/// The value that attempt `op` writes: by turns compact JSON, JSON as kube-apiserver writes it, and raw bytes.
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
    let text = String::from_utf8(digits).expect("digits are text");
    text.parse().unwrap_or_else(|_| panic!("a value that nobody wrote: {value:?}"))
}

/// What a client knows of a lease.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct LeaseFacts {
    /// In seconds, as granted.
    pub(crate) ttl: i64,
    /// The grant was acknowledged.
    pub(crate) granted: bool,
    /// Somebody tried to revoke it.
    pub(crate) revoke_tried: bool,
    /// Somebody was told that it is gone.
    pub(crate) revoked: bool,
}

/// Shared by all clients of a run.
#[derive(Debug, Default)]
pub(crate) struct History {
    next_op: AtomicU64,
    seen: AtomicI64,
    attempts: Mutex<Vec<Attempt>>,
    reads: Mutex<Vec<Read>>,
    leases: Mutex<BTreeMap<i64, LeaseFacts>>,
    /// The highest revision for which a compaction was asked, and for which one was acknowledged.
    compaction: Mutex<(i64, i64)>,
}

impl History {
    pub(crate) fn new_op(&self) -> Op {
        self.next_op.fetch_add(1, Ordering::Relaxed) + 1
    }

    /// The highest revision in any answer so far: nothing that is asked from now on may be answered from before it.
    pub(crate) fn seen(&self) -> i64 {
        self.seen.load(Ordering::SeqCst)
    }

    /// Takes note of an answer's revision.
    ///
    /// # Panics
    /// If it is older than `before`, the one that was known when the question was asked.
    pub(crate) fn saw(&self, revision: i64, before: i64) {
        assert!(revision >= before, "revisions go back: {revision} after somebody had seen {before}");
        self.seen.fetch_max(revision, Ordering::SeqCst);
    }

    pub(crate) fn attempts(&self) -> MutexGuard<'_, Vec<Attempt>> {
        self.attempts.lock().expect("no client panics while it holds this")
    }

    pub(crate) fn reads(&self) -> MutexGuard<'_, Vec<Read>> {
        self.reads.lock().expect("no client panics while it holds this")
    }

    pub(crate) fn leases(&self) -> MutexGuard<'_, BTreeMap<i64, LeaseFacts>> {
        self.leases.lock().expect("no client panics while it holds this")
    }

    /// Asked for, acknowledged.
    pub(crate) fn compaction(&self) -> MutexGuard<'_, (i64, i64)> {
        self.compaction.lock().expect("no client panics while it holds this")
    }
}
