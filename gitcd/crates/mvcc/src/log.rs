//! The log: the writes since the compact revision, in order, for watchers and the committer.

use std::collections::VecDeque;
use std::sync::Arc;

use gitcd_core::revision::Revision;

use super::version::Version;

/// One key's change in a write.
#[derive(Clone, Debug)]
pub struct Change {
    /// The new version.
    pub version: Arc<Version>,
    /// The previous version, if the key existed.
    pub previous: Option<Arc<Version>>,
}

/// One write transaction.
#[derive(Clone, Debug)]
pub struct Entry {
    /// Its revision.
    pub revision: Revision,
    /// When it was accepted: milliseconds since 1970.
    pub time_ms: i64,
    /// Who wrote, if known.
    pub client: Option<Arc<str>>,
    changes: Changes,
}

/// Nearly all writes change one key; these need no allocation.
#[derive(Clone, Debug)]
enum Changes {
    One(Change),
    Many(Arc<[Change]>),
}

impl Entry {
    pub(super) fn new(revision: Revision, time_ms: i64, client: Option<Arc<str>>, mut changes: Vec<Change>) -> Self {
        let changes = if changes.len() == 1 {
            Changes::One(changes.pop().expect("the list has one change"))
        } else {
            Changes::Many(changes.into())
        };
        Self { revision, time_ms, client, changes }
    }

    /// Returns the changes in the order of the transaction, at most one for each key.
    pub fn changes(&self) -> &[Change] {
        match &self.changes {
            Changes::One(change) => std::slice::from_ref(change),
            Changes::Many(changes) => changes,
        }
    }
}

/// A queue of entries without gaps.
#[derive(Debug, Default)]
pub(super) struct Log {
    entries: VecDeque<Entry>,
}

impl Log {
    pub(super) fn push(&mut self, entry: Entry) {
        debug_assert!(self.entries.back().is_none_or(|last| last.revision.next() == entry.revision));
        self.entries.push_back(entry);
    }

    pub(super) fn pop(&mut self) -> Option<Entry> {
        self.entries.pop_back()
    }

    pub(super) fn last(&self) -> Option<&Entry> {
        self.entries.back()
    }

    /// Returns the entries from `first` on.
    pub(super) fn from(&self, first: Revision) -> impl Iterator<Item = &Entry> {
        let skip = self.entries.front().map_or(0, |oldest| first.since(oldest.revision));
        self.entries.range(skip.min(self.entries.len())..)
    }

    /// Drops entries up to and including `last`, at most `limit`.
    pub(super) fn drop_through(&mut self, last: Revision, limit: usize) {
        let count = self.entries.iter().take(limit).take_while(|entry| entry.revision <= last).count();
        self.entries.drain(..count);
        if self.entries.capacity() > 4 * self.entries.len() + 4096 {
            self.entries.shrink_to(2 * self.entries.len());
        }
    }

    pub(super) fn len(&self) -> usize {
        self.entries.len()
    }
}
