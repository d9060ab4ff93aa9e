//! What a transaction has changed so far.

use std::collections::BTreeMap;
use std::sync::Arc;

use bytes::Bytes;
use gitcd_core::revision::Revision;

use super::KeyRange;
use crate::version::Version;

/// The changes so far, at most one for a key. Nested transactions let tens of thousands of operations into one request, and
/// each operation may change many keys, so there must be no walk over the changes for any of them.
#[derive(Default)]
pub(super) struct Written {
    /// Each with its place in the order of the transaction.
    changes: BTreeMap<Bytes, (usize, Arc<Version>)>,
    next: usize,
    /// Changes looked at, to show what that grows with.
    #[cfg(test)]
    pub(super) looked_at: std::cell::Cell<usize>,
}

impl Written {
    pub(super) fn is_empty(&self) -> bool {
        self.changes.is_empty()
    }

    pub(super) fn find(&self, key: &[u8]) -> Option<&Arc<Version>> {
        self.look();
        self.changes.get(key).map(|(_, version)| version)
    }

    /// The changes of a range, deletions included.
    pub(super) fn within(&self, keys: &KeyRange) -> impl Iterator<Item = &Arc<Version>> {
        let bounds = keys.bounds();
        let changes = bounds.into_iter().flat_map(|bounds| self.changes.range::<[u8], _>(bounds));
        changes.map(|(_, (_, version))| version).inspect(|_| self.look())
    }

    /// A put and a delete of one key in one transaction are refused, but a key that an earlier operation wrote may be
    /// written by a nested transaction again: the last change counts.
    pub(super) fn put(&mut self, version: Version) {
        self.look();
        self.changes.insert(version.key.clone(), (self.next, Arc::new(version)));
        self.next += 1;
    }

    /// Deletes `pairs`, which are all that a range has at this point: own puts among them, own deletions not.
    pub(super) fn delete(&mut self, pairs: &[Arc<Version>], now: Revision) {
        for pair in pairs {
            self.put(Version::tombstone(pair.key.clone(), now));
        }
    }

    /// The changes in the order in which they were made.
    pub(super) fn into_order(self) -> Vec<Arc<Version>> {
        let mut changes: Vec<_> = self.changes.into_values().collect();
        changes.sort_unstable_by_key(|(place, _)| *place);
        changes.into_iter().map(|(_, version)| version).collect()
    }

    #[cfg_attr(not(test), expect(clippy::unused_self, reason = "it counts in tests only"))]
    fn look(&self) {
        #[cfg(test)]
        self.looked_at.update(|count| count + 1);
    }
}
