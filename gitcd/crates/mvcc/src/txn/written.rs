//! The changes that a transaction has made so far.

use std::collections::BTreeMap;
use std::sync::Arc;

use bytes::Bytes;
use gitcd_core::revision::Revision;

use super::KeyRange;
use crate::version::Version;

/// The changes so far, at most one for each key. One request may have tens of thousands of nested operations, each changing many
/// keys, so no operation may walk all changes.
#[derive(Default)]
pub(super) struct Written {
    /// Each change with its position in the transaction.
    changes: BTreeMap<Bytes, (usize, Arc<Version>)>,
    next: usize,
    /// Number of changes looked at, to test the cost.
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

    /// Returns the changes in a range, including deletions.
    pub(super) fn within(&self, keys: &KeyRange) -> impl Iterator<Item = &Arc<Version>> {
        let bounds = keys.bounds();
        let changes = bounds.into_iter().flat_map(|bounds| self.changes.range::<[u8], _>(bounds));
        changes.map(|(_, (_, version))| version).inspect(|_| self.look())
    }

    /// Adds a change. A put and a delete of the same key are refused in one transaction, but nested ones may write a key again:
    /// the last change wins.
    pub(super) fn put(&mut self, version: Version) {
        self.look();
        self.changes.insert(version.key.clone(), (self.next, Arc::new(version)));
        self.next += 1;
    }

    /// Deletes `pairs`, which must be all current versions of a range, including own puts but no own deletions.
    pub(super) fn delete(&mut self, pairs: &[Arc<Version>], now: Revision) {
        for pair in pairs {
            self.put(Version::tombstone(pair.key.clone(), now));
        }
    }

    /// Returns the changes in the order in which they were made.
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
