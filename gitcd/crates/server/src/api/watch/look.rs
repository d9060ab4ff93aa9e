//! What watchers read from the log.

use std::collections::HashMap;
use std::sync::Arc;

use gitcd_core::revision::Revision;
use gitcd_mvcc::Store;
use gitcd_mvcc::index::KeyRange;
use gitcd_mvcc::log::Change;
use gitcd_mvcc::version::{ValueLost, Version};

use super::message::Events;
use crate::proto::mvccpb::{Event, KeyValue, event::EventType};

/// Log entries that are read under one hold of the index lock.
const ENTRIES_PER_LOOK: usize = 2048;
/// A response is sent once its values reach this size; a revision is never split.
const RESPONSE_BYTES: usize = 1 << 20;
/// Bytes of events that are kept for other watchers of a stream.
const KEPT_BYTES: usize = 4 << 20;
/// Memory for what is kept of one look, besides the events.
const LOOK_BYTES: usize = 256;

/// Which changes a watcher receives, and with what. Watchers with the same selection receive the same events.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) struct Selection {
    pub(super) keys: KeyRange,
    pub(super) no_put: bool,
    pub(super) no_delete: bool,
    pub(super) prev_kv: bool,
}

/// The events of a part of the log.
#[derive(Clone, Debug)]
pub(super) struct LogSlice {
    pub(super) events: Events,
    /// For the header.
    pub(super) revision: Revision,
    /// All earlier revisions have been read.
    pub(super) next: Revision,
    /// Everything that was visible has been read.
    pub(super) finished: bool,
}

/// Why a watcher cannot go on.
pub(super) enum LookError {
    /// The log no longer has what the watcher needs.
    Compacted,
    Lost(ValueLost),
}

/// What a stream's watchers have read since it was woken: mostly, several of them read the same.
#[derive(Debug, Default)]
pub(super) struct LookCache {
    seen: HashMap<(Arc<Selection>, Revision), LogSlice>,
    bytes: usize,
}

impl LookCache {
    /// Forgets everything. What is visible later is only seen after this.
    pub(super) fn forget(&mut self) {
        self.seen.clear();
        self.bytes = 0;
    }

    /// Returns a watcher's next events, in whole revisions. They are kept if other watchers share the selection.
    pub(super) fn look(
        &mut self,
        store: &Store,
        selection: &Arc<Selection>,
        from: Revision,
        is_shared: bool,
    ) -> Result<LogSlice, LookError> {
        if !is_shared {
            return look(store, selection, from);
        }
        let key = (selection.clone(), from);
        if let Some(seen) = self.seen.get(&key) {
            return Ok(seen.clone());
        }
        let seen = look(store, selection, from)?;
        let bytes = LOOK_BYTES + seen.events.bytes();
        if bytes <= KEPT_BYTES {
            if self.bytes + bytes > KEPT_BYTES {
                self.forget();
            }
            self.bytes += bytes;
            self.seen.insert(key, seen.clone());
        }
        Ok(seen)
    }
}

fn look(store: &Store, selection: &Selection, from: Revision) -> Result<LogSlice, LookError> {
    let (changes, seen) = store.with_index(|index, current| {
        if from < index.events_from() {
            return Err(LookError::Compacted);
        }
        let (mut changes, mut bytes, mut next) = (Vec::new(), 0, from);
        for (looked, entry) in index.log_from(from).take_while(|entry| entry.revision <= current).enumerate() {
            if bytes >= RESPONSE_BYTES || looked >= ENTRIES_PER_LOOK {
                let revision = Revision::new(next.get() - 1);
                return Ok((changes, LogSlice { events: Events::default(), revision, next, finished: false }));
            }
            // etcd looks up the previous pair when it sends the change; at the compact revision that pair is gone.
            let with_previous = selection.prev_kv && entry.revision > index.compacted();
            for change in entry.changes().iter().filter(|change| selection.wants(change)) {
                let previous = change.previous.as_ref().filter(|_| with_previous).cloned();
                let lengths = change.version.value_length + previous.as_ref().map_or(0, |version| version.value_length);
                bytes += lengths as usize;
                changes.push(Change { version: change.version.clone(), previous });
            }
            next = entry.revision.next();
        }
        Ok((changes, LogSlice { events: Events::default(), revision: current, next: next.max(from), finished: true }))
    })?;
    // Values may have to be read from the journal, so the lock is not held.
    let events = Events::encode(changes.iter().map(|change| event(store, change))).map_err(LookError::Lost)?;
    Ok(LogSlice { events, ..seen })
}

fn event(store: &Store, change: &Change) -> Result<Event, ValueLost> {
    let pair = |version: &Version| -> Result<KeyValue, ValueLost> {
        Ok(crate::api::key_value(version, version.value(store.segments())?))
    };
    let (kind, kv) = if change.version.is_tombstone() {
        let mod_revision = change.version.mod_revision.get();
        let kv = KeyValue { key: change.version.key.clone(), mod_revision, ..KeyValue::default() };
        (EventType::Delete, kv)
    } else {
        (EventType::Put, pair(&change.version)?)
    };
    let prev_kv = change.previous.as_ref().map(|previous| pair(previous)).transpose()?;
    Ok(Event { r#type: kind as i32, kv: Some(kv), prev_kv })
}

impl Selection {
    fn wants(&self, change: &Change) -> bool {
        let filtered = if change.version.is_tombstone() { self.no_delete } else { self.no_put };
        !filtered && self.keys.contains(&change.version.key)
    }
}
