//! The index: all keys with their histories, as pure MVCC without locks or disk.

use std::collections::BTreeMap;
use std::ops::Bound;
use std::sync::Arc;

use bytes::Bytes;
use gitcd_core::revision::Revision;

use super::log::{Change, Entry, Log};
use super::version::{History, Version};

/// A range of keys: one key, a half-open interval, or all keys from one on (etcd's `range_end`).
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum KeyRange {
    /// Exactly this key.
    One(Bytes),
    /// `start <= key < end`.
    Span(Bytes, Bytes),
    /// `start <= key`.
    From(Bytes),
}

pub(super) type Bounds<'k> = (Bound<&'k [u8]>, Bound<&'k [u8]>);

impl KeyRange {
    /// Creates a range from etcd's `key` and `range_end`: empty means one key, a single NUL all keys from `key` on.
    pub fn new(key: Bytes, range_end: Bytes) -> Self {
        match &range_end[..] {
            [] => Self::One(key),
            [0] => Self::From(key),
            _ => Self::Span(key, range_end),
        }
    }

    /// Returns whether `key` is in the range.
    #[inline]
    pub fn contains(&self, key: &[u8]) -> bool {
        match self {
            Self::One(one) => one == key,
            Self::Span(start, end) => &start[..] <= key && key < &end[..],
            Self::From(start) => &start[..] <= key,
        }
    }

    /// Returns the bounds for a map of keys; `None` if the range is empty.
    pub(super) fn bounds(&self) -> Option<Bounds<'_>> {
        match self {
            Self::One(key) => Some((Bound::Included(key), Bound::Included(key))),
            Self::Span(start, end) => (start < end).then_some((Bound::Included(start), Bound::Excluded(end))),
            Self::From(start) => Some((Bound::Included(start), Bound::Unbounded)),
        }
    }
}

/// The keys in order, each with its versions, and the log of writes.
#[derive(Debug)]
pub struct Index {
    keys: BTreeMap<Bytes, History>,
    log: Log,
    revision: Revision,
    compacted: Revision,
    /// The first revision with events in the log. Above `compacted` only if replay started at the compact revision itself.
    events_from: Revision,
    /// Histories are pruned up to this revision; it follows `compacted` in small steps.
    pruned: Revision,
    size: Size,
    dropped: u64,
}

/// Size of the data in bytes: keys, values and a constant for each stored version.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Size {
    /// All stored versions.
    pub total: usize,
    /// The newest versions of existing keys.
    pub live: usize,
}

impl Index {
    /// Creates an empty index at `revision`, where its history starts.
    pub fn new(revision: Revision) -> Self {
        let (compacted, events_from, pruned) = (Revision::ZERO, Revision::ZERO, Revision::ZERO);
        let (keys, log, size) = (BTreeMap::new(), Log::default(), Size::default());
        Self { keys, log, revision, compacted, events_from, pruned, size, dropped: 0 }
    }

    /// Returns the newest applied revision (which may not be durable yet).
    pub fn revision(&self) -> Revision {
        self.revision
    }

    /// Returns the compact revision, the lowest that can be read; [`Revision::ZERO`] if nothing was compacted.
    pub fn compacted(&self) -> Revision {
        self.compacted
    }

    /// Returns the lowest revision that a watch can start at.
    pub fn events_from(&self) -> Revision {
        self.compacted.max(self.events_from)
    }

    /// Returns the number of keys, including deleted ones with history.
    pub fn len(&self) -> usize {
        self.keys.len()
    }

    /// Returns whether there are no keys.
    pub fn is_empty(&self) -> bool {
        self.keys.is_empty()
    }

    /// Returns the number of entries in the log.
    pub fn log_len(&self) -> usize {
        self.log.len()
    }

    /// Returns how many versions compactions have dropped so far.
    pub fn dropped(&self) -> u64 {
        self.dropped
    }

    /// Returns the size of the data in constant time.
    pub fn size(&self) -> Size {
        self.size
    }

    /// Adds a version without a log entry, as a part of the state that recovery starts from.
    pub fn load(&mut self, version: Version) {
        self.size.total += version.weight();
        self.size.live += version.weight();
        self.keys.insert(version.key.clone(), History::new(Arc::new(version)));
    }

    /// Returns the newest version of a key, unless it is deleted.
    pub fn newest(&self, key: &[u8]) -> Option<&Arc<Version>> {
        self.keys.get(key).map(History::head).filter(|head| !head.is_tombstone())
    }

    /// Returns the versions of a range at `revision`, in key order. Takes time for the keys of the range.
    pub fn range(&self, range: &KeyRange, revision: Revision) -> impl Iterator<Item = &Arc<Version>> {
        // Most reads are of one key, which needs no iterator over the tree.
        let (one, span) = match range {
            KeyRange::One(key) => (self.keys.get(&key[..]), None),
            _ => (None, range.bounds().map(|bounds| self.keys.range::<[u8], _>(bounds))),
        };
        one.into_iter()
            .chain(span.into_iter().flatten().map(|(_, history)| history))
            .filter_map(move |h| h.at(revision))
    }

    /// Returns the writes from `first` on, without gaps.
    pub fn log_from(&self, first: Revision) -> impl Iterator<Item = &Entry> {
        self.log.from(first)
    }

    /// Applies one write transaction as the next revision. `versions` must have that revision and change a key at most once.
    /// Returns the entry, which has the previous version of each key.
    pub fn apply(&mut self, versions: Vec<Arc<Version>>, time_ms: i64, client: Option<Arc<str>>) -> &Entry {
        self.revision = self.revision.next();
        let mut changes = Vec::with_capacity(versions.len());
        for version in versions {
            debug_assert_eq!(version.mod_revision, self.revision);
            self.size.total += version.weight();
            let previous = if let Some(history) = self.keys.get_mut(&version.key) {
                let previous = Some(history.head()).filter(|head| !head.is_tombstone()).cloned();
                history.push(version.clone());
                previous
            } else {
                self.keys.insert(version.key.clone(), History::new(version.clone()));
                None
            };
            self.size.live += live_weight(Some(&version));
            self.size.live -= live_weight(previous.as_ref());
            changes.push(Change { version, previous });
        }
        self.log.push(Entry::new(self.revision, time_ms, client, changes));
        self.log.last().expect("an entry was pushed")
    }

    /// Advances the revision without a write, when a branch resumes without its local state. Requires an index without a log; the
    /// skipped revisions count as compacted.
    pub fn jump(&mut self, revision: Revision) {
        debug_assert!(self.log.len() == 0 && revision >= self.revision);
        self.revision = revision;
        self.compacted = revision;
        self.pruned = revision;
        self.events_from = revision;
    }

    /// Sets where history starts when recovery begins. Writes between `revision` and a later `compacted` are applied like all
    /// others; [`Index::prune`] then drops them.
    pub fn start_at(&mut self, revision: Revision, compacted: Revision) {
        self.revision = revision;
        self.compacted = compacted;
        self.pruned = compacted.min(revision);
        // There is no write at the initial revision.
        let unknown = revision == compacted && revision > Revision::INITIAL;
        self.events_from = if unknown { revision.next() } else { compacted };
    }

    /// Undoes the newest write, which could not be made durable.
    pub fn undo(&mut self) -> Option<Entry> {
        let entry = self.log.pop()?;
        for change in entry.changes() {
            self.size.total -= change.version.weight();
            self.size.live += live_weight(change.previous.as_ref());
            self.size.live -= live_weight(Some(&change.version));
            if let Some(history) = self.keys.get_mut(&change.version.key)
                && !history.pop()
            {
                self.keys.remove(&change.version.key);
            }
        }
        self.revision = Revision::new(entry.revision.get() - 1);
        Some(entry)
    }

    /// Raises the compact revision; [`Index::prune`] then prunes the histories.
    pub fn compact(&mut self, keep: Revision) {
        self.compacted = self.compacted.max(keep);
    }

    /// Drops versions that the compaction made invisible, of about `limit` writes at most, and log entries that are also
    /// committed. Returns whether there is more to prune.
    pub fn prune(&mut self, committed: Revision, limit: usize) -> bool {
        let first = self.pruned.next();
        let target = self.compacted;
        let mut done = self.pruned;
        let mut visited = Vec::new();
        for entry in self.log.from(first).take(limit).take_while(|entry| entry.revision <= target) {
            visited.extend(entry.changes().iter().map(|change| change.version.key.clone()));
            done = entry.revision;
        }
        let mut freed = 0;
        for key in visited {
            if let Some(history) = self.keys.get_mut(&key)
                && !history.compact(target, &mut freed, &mut self.dropped)
            {
                self.keys.remove(&key);
            }
        }
        self.size.total -= freed;
        let complete = self.log.from(done.next()).next().is_none_or(|next| next.revision > target);
        self.pruned = if complete { target } else { done };
        // Keep the write at the compact revision itself: a watch may start there.
        let seen = Revision::new(self.pruned.get() - 1).min(committed);
        self.log.drop_through(seen, 2 * limit);
        !complete
    }
}

fn live_weight(version: Option<&Arc<Version>>) -> usize {
    version.filter(|version| !version.is_tombstone()).map_or(0, |version| version.weight())
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// The reference model: every state, as a whole.
    #[derive(Default)]
    struct Model {
        states: Vec<BTreeMap<u8, (i64, i64, i64)>>, // key -> create, mod, version
    }

    #[derive(Clone, Debug)]
    enum Step {
        Write(Vec<(u8, bool)>),
        Undo,
        Compact(u8),
        Prune(usize),
    }

    fn any_step() -> impl Strategy<Value = Step> {
        prop_oneof![
            6 => proptest::collection::vec((0_u8..8, proptest::bool::weighted(0.7)), 1..4).prop_map(Step::Write),
            1 => Just(Step::Undo),
            1 => any::<u8>().prop_map(Step::Compact),
            2 => (1_usize..5).prop_map(Step::Prune),
        ]
    }

    fn key(name: u8) -> Bytes {
        Bytes::from(vec![b'k', name])
    }

    proptest! {
        #[test]
        fn every_revision_above_the_compaction_reads_as_it_was(steps in proptest::collection::vec(any_step(), 1..80)) {
            let mut index = Index::new(Revision::INITIAL);
            let mut model = Model { states: vec![BTreeMap::new(), BTreeMap::new()] };
            for step in steps {
                match step {
                    Step::Write(changes) => {
                        let revision = index.revision().next();
                        let mut state = model.states.last().unwrap().clone();
                        let mut seen = std::collections::BTreeSet::new();
                        let mut versions = Vec::new();
                        for (name, put) in changes.into_iter().filter(|(name, _)| seen.insert(*name)) {
                            if put {
                                let (create, version) = state.get(&name).map_or((revision.get(), 1), |old| (old.0, old.2 + 1));
                                state.insert(name, (create, revision.get(), version));
                                versions.push(Arc::new(Version::put(key(name), revision, Revision::new(create), version, 0, Bytes::new())));
                            } else if state.remove(&name).is_some() {
                                versions.push(Arc::new(Version::tombstone(key(name), revision)));
                            }
                        }
                        if !versions.is_empty() {
                            let existed: Vec<_> = versions.iter().map(|version| index.newest(&version.key).map(|v| v.mod_revision)).collect();
                            let entry = index.apply(versions, 0, None);
                            let previous: Vec<_> = entry.changes().iter().map(|c| c.previous.as_ref().map(|v| v.mod_revision)).collect();
                            prop_assert_eq!(existed, previous);
                            model.states.push(state);
                        }
                    }
                    Step::Undo => {
                        // Undo only writes that are not durable, never any that was compacted or pruned.
                        if index.revision() > index.compacted().max(Revision::INITIAL) {
                            index.undo();
                            model.states.pop();
                        }
                    }
                    Step::Compact(share) => {
                        let keep = index.revision().get() * i64::from(share) / 255;
                        index.compact(Revision::new(keep));
                    }
                    Step::Prune(limit) => { index.prune(index.revision(), limit); }
                }
                let all = || index.keys.values().flat_map(History::versions);
                prop_assert_eq!(index.size().total, all().map(|version| version.weight()).sum::<usize>());
                let heads = index.keys.values().map(|history| live_weight(Some(history.head())));
                prop_assert_eq!(index.size().live, heads.sum::<usize>());
                for (revision, state) in model.states.iter().enumerate().skip(index.compacted().get().max(1) as usize) {
                    let range = KeyRange::Span(key(0), key(200));
                    let found: Vec<_> = index.range(&range, Revision::new(revision as i64))
                        .map(|v| (v.key[1], (v.create_revision.get(), v.mod_revision.get(), v.version))).collect();
                    let expected: Vec<_> = state.iter().map(|(k, v)| (*k, *v)).collect();
                    prop_assert_eq!(found, expected, "revision {}", revision);
                }
            }
            index.compact(index.revision());
            while index.prune(index.revision(), 3) {}
            let expected = model.states.last().unwrap().len();
            prop_assert_eq!(index.len(), expected, "all tombstones and old keys are dropped");
            for _ in 0..index.log_len() { index.prune(index.revision(), 3); }
            prop_assert!(index.log_len() <= 1);
        }
    }
}
