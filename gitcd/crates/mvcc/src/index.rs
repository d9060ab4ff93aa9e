//! All keys with their histories: pure MVCC, no locks, no disk.

use std::collections::BTreeMap;
use std::ops::Bound;
use std::sync::Arc;

use bytes::Bytes;
use gitcd_core::revision::Revision;

use super::log::{Change, Entry, Log};
use super::version::{History, Version};

/// Which keys: one, a half-open interval, or everything from a key on (etcd's `range_end`).
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
    /// From etcd's pair of `key` and `range_end`: empty is one key, a single NUL is everything from the key on.
    pub fn new(key: Bytes, range_end: Bytes) -> Self {
        match &range_end[..] {
            [] => Self::One(key),
            [0] => Self::From(key),
            _ => Self::Span(key, range_end),
        }
    }

    /// Whether `key` is in the range.
    #[inline]
    pub fn contains(&self, key: &[u8]) -> bool {
        match self {
            Self::One(one) => one == key,
            Self::Span(start, end) => &start[..] <= key && key < &end[..],
            Self::From(start) => &start[..] <= key,
        }
    }

    /// For a map by key; `None` if nothing can be in the range.
    pub(super) fn bounds(&self) -> Option<Bounds<'_>> {
        match self {
            Self::One(key) => Some((Bound::Included(key), Bound::Included(key))),
            Self::Span(start, end) => (start < end).then_some((Bound::Included(start), Bound::Excluded(end))),
            Self::From(start) => Some((Bound::Included(start), Bound::Unbounded)),
        }
    }
}

/// Keys in order, each with its versions, and the log of writes.
#[derive(Debug)]
pub struct Index {
    keys: BTreeMap<Bytes, History>,
    log: Log,
    revision: Revision,
    compacted: Revision,
    /// The log has every write from here on. Above `compacted` only if replay started at the compact revision itself.
    events_from: Revision,
    /// Histories are free of what is below this; it follows `compacted` in small steps.
    pruned: Revision,
    size: Size,
    dropped: u64,
}

/// How much data there is, in bytes: keys, values and a constant for each stored version.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Size {
    /// All versions that history still knows.
    pub total: usize,
    /// The newest versions of the keys that exist.
    pub live: usize,
}

impl Index {
    /// An empty index whose clock stands at `revision` and whose history starts there.
    pub fn new(revision: Revision) -> Self {
        let (compacted, events_from, pruned) = (Revision::ZERO, Revision::ZERO, Revision::ZERO);
        let (keys, log, size) = (BTreeMap::new(), Log::default(), Size::default());
        Self { keys, log, revision, compacted, events_from, pruned, size, dropped: 0 }
    }

    /// The newest applied revision (which may not be durable yet).
    pub fn revision(&self) -> Revision {
        self.revision
    }

    /// Reads at or above this revision are answered; [`Revision::ZERO`] if nothing was compacted.
    pub fn compacted(&self) -> Revision {
        self.compacted
    }

    /// A watch may start at or above this revision.
    pub fn events_from(&self) -> Revision {
        self.compacted.max(self.events_from)
    }

    /// Keys, deleted ones that history still knows included.
    pub fn len(&self) -> usize {
        self.keys.len()
    }

    /// Whether there is no key.
    pub fn is_empty(&self) -> bool {
        self.keys.is_empty()
    }

    /// Entries in the log.
    pub fn log_len(&self) -> usize {
        self.log.len()
    }

    /// How many versions compactions have dropped so far.
    pub fn dropped(&self) -> u64 {
        self.dropped
    }

    /// How much data there is. Costs nothing.
    pub fn size(&self) -> Size {
        self.size
    }

    /// Puts a pair in place without a log entry: the state that recovery starts from.
    pub fn load(&mut self, version: Version) {
        self.size.total += version.weight();
        self.size.live += version.weight();
        self.keys.insert(version.key.clone(), History::new(Arc::new(version)));
    }

    /// The newest version of a key, unless it is deleted.
    pub fn newest(&self, key: &[u8]) -> Option<&Arc<Version>> {
        self.keys.get(key).map(History::head).filter(|head| !head.is_tombstone())
    }

    /// Pairs of a range as they were at `revision`, by key. Costs a walk over the range.
    pub fn range(&self, range: &KeyRange, revision: Revision) -> impl Iterator<Item = &Arc<Version>> {
        // One key is by far the most frequent; it needs no iterator over the tree.
        let (one, span) = match range {
            KeyRange::One(key) => (self.keys.get(&key[..]), None),
            _ => (None, range.bounds().map(|bounds| self.keys.range::<[u8], _>(bounds))),
        };
        one.into_iter()
            .chain(span.into_iter().flatten().map(|(_, history)| history))
            .filter_map(move |h| h.at(revision))
    }

    /// The writes from `first` on, without a gap.
    pub fn log_from(&self, first: Revision) -> impl Iterator<Item = &Entry> {
        self.log.from(first)
    }

    /// Applies one write transaction as the next revision. `versions` must carry that revision and change a key at
    /// most once. Returns the entry, by which the caller finds what each key was before.
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

    /// Moves the clock forward without a write, when a branch resumes without its local state. Only on an index
    /// without log: what is between can never be asked for.
    pub fn jump(&mut self, revision: Revision) {
        debug_assert!(self.log.len() == 0 && revision >= self.revision);
        self.revision = revision;
        self.compacted = revision;
        self.pruned = revision;
        self.events_from = revision;
    }

    /// Sets where history starts when recovery begins. Writes between `revision` and a later `compacted` are applied
    /// like all others; [`Index::prune`] then takes them away.
    pub fn start_at(&mut self, revision: Revision, compacted: Revision) {
        self.revision = revision;
        self.compacted = compacted;
        self.pruned = compacted.min(revision);
        // Nothing was ever written at the initial revision.
        let unknown = revision == compacted && revision > Revision::INITIAL;
        self.events_from = if unknown { revision.next() } else { compacted };
    }

    /// Takes back the newest write, which could not be made durable.
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

    /// Raises the compact revision; histories are pruned by [`Index::prune`].
    pub fn compact(&mut self, keep: Revision) {
        self.compacted = self.compacted.max(keep);
    }

    /// Drops what the compact revision made invisible, at most about `limit` writes' worth, and log entries that are
    /// also committed. Returns whether there is more to do.
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
        // The write at the compact revision itself stays: a watch may start there.
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

    /// The simple truth: every state ever, whole.
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
                        // Only what is not durable is undone: never anything that was compacted or pruned.
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
                    prop_assert_eq!(found, expected, "at revision {}", revision);
                }
            }
            index.compact(index.revision());
            while index.prune(index.revision(), 3) {}
            let expected = model.states.last().unwrap().len();
            prop_assert_eq!(index.len(), expected, "no tombstone and no old key stays");
            for _ in 0..index.log_len() { index.prune(index.revision(), 3); }
            prop_assert!(index.log_len() <= 1);
        }
    }
}
