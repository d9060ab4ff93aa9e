//! Keys in order, each with its versions since the last compaction.

use std::cmp::Ordering;

use bytes::Bytes;
use gitcd::proto::mvccpb::KeyValue;

/// Keys of a chunk before it is split.
const CHUNK: usize = 512;

/// A version of a key.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct KeyVersion {
    pub(super) create_revision: i64,
    pub(super) mod_revision: i64,
    /// How often the key was written.
    pub(super) number: i64,
    pub(super) value: Bytes,
}

impl KeyVersion {
    /// The pair on the wire.
    pub(super) fn pair(&self, key: &Bytes) -> KeyValue {
        let &Self { create_revision, mod_revision, number: version, .. } = self;
        KeyValue { key: key.clone(), create_revision, mod_revision, version, value: self.value.clone(), lease: 0 }
    }
}

/// A key with its versions.
#[derive(Debug)]
pub(super) struct KeyHistory {
    pub(super) key: Bytes,
    pub(super) newest: KeyVersion,
    /// In the order of their revisions.
    older: Vec<KeyVersion>,
}

impl KeyHistory {
    /// The version at a revision, which is not before the last compaction.
    pub(super) fn at(&self, revision: i64) -> Option<&KeyVersion> {
        if self.newest.mod_revision <= revision {
            return Some(&self.newest);
        }
        self.older.iter().rev().find(|version| version.mod_revision <= revision)
    }
}

/// A range of keys; without an end, it has all keys from its start on.
#[derive(Clone, Debug)]
pub(super) struct KeyRange {
    start: Bytes,
    end: Option<Bytes>,
}

impl KeyRange {
    /// The range of a request, with etcd's meaning of an empty end (one key) and of an end that is a zero byte (no end).
    pub(super) fn new(start: Bytes, end: Bytes) -> Self {
        let end = match &end[..] {
            b"" => Some([&start[..], b"\0"].concat().into()),
            b"\0" => None,
            _ => Some(end),
        };
        Self { start, end }
    }

    /// Whether a key is in the range.
    pub(super) fn contains(&self, key: &[u8]) -> bool {
        self.start <= key && self.is_before_end(key)
    }

    fn is_before_end(&self, key: &[u8]) -> bool {
        self.end.as_ref().is_none_or(|end| key < &end[..])
    }
}

/// Some keys in order.
#[derive(Debug)]
struct Chunk {
    keys: Vec<KeyHistory>,
    /// A revision at which all of them exist.
    complete_at: i64,
}

/// All keys, in chunks: the keys of a page of a list are counted by chunk, not one by one.
#[derive(Debug, Default)]
pub(super) struct Keys {
    chunks: Vec<Chunk>,
}

impl Keys {
    /// The chunk that has a key, or would have it.
    fn chunk_of(&self, key: &[u8]) -> usize {
        self.chunks.partition_point(|chunk| chunk.keys[0].key <= key).saturating_sub(1)
    }

    /// Returns a key.
    pub(super) fn find(&self, key: &[u8]) -> Option<&KeyHistory> {
        let chunk = self.chunks.get(self.chunk_of(key))?;
        let at = chunk.keys.binary_search_by(|other| compare(other, key)).ok()?;
        Some(&chunk.keys[at])
    }

    /// Adds a version of a key, and removes versions that a compaction has made unreadable. Returns the new and the previous
    /// version.
    pub(super) fn put(
        &mut self,
        key: Bytes,
        value: Bytes,
        revision: i64,
        compacted: i64,
    ) -> (KeyVersion, Option<KeyVersion>) {
        let first = KeyVersion { create_revision: revision, mod_revision: revision, number: 1, value };
        let at = self.chunk_of(&key);
        let Some(chunk) = self.chunks.get_mut(at) else {
            let key = KeyHistory { key, newest: first.clone(), older: Vec::new() };
            self.chunks.push(Chunk { keys: vec![key], complete_at: revision });
            return (first, None);
        };
        match chunk.keys.binary_search_by(|other| compare(other, &key)) {
            Ok(found) => {
                let KeyHistory { newest, older, .. } = &mut chunk.keys[found];
                let (create_revision, number) = (newest.create_revision, newest.number + 1);
                let previous = std::mem::replace(newest, KeyVersion { create_revision, number, ..first });
                older.push(previous.clone());
                // The last of those up to the compaction can still be read.
                let unreadable = older.partition_point(|version| version.mod_revision <= compacted).saturating_sub(1);
                older.drain(..unreadable);
                (newest.clone(), Some(previous))
            }
            Err(place) => {
                chunk.keys.insert(place, KeyHistory { key, newest: first.clone(), older: Vec::new() });
                chunk.complete_at = revision;
                if chunk.keys.len() > CHUNK {
                    let (keys, complete_at) = (chunk.keys.split_off(CHUNK / 2), revision);
                    self.chunks.insert(at + 1, Chunk { keys, complete_at });
                }
                (first, None)
            }
        }
    }

    /// The chunks that may have keys of a range, and the place of its first key in the first of them.
    fn chunks_from(&self, range: &KeyRange) -> (&[Chunk], usize) {
        let chunks = &self.chunks[self.chunk_of(&range.start)..];
        let first = chunks.first().map_or(0, |chunk| chunk.keys.partition_point(|key| key.key < range.start));
        (chunks, first)
    }

    /// Returns the keys of a range at a revision, in order.
    pub(super) fn scan(&self, range: &KeyRange, revision: i64) -> impl Iterator<Item = (&Bytes, &KeyVersion)> {
        let (chunks, first) = self.chunks_from(range);
        let keys = chunks.iter().flat_map(|chunk| &chunk.keys).skip(first);
        let keys = keys.take_while(|key| range.is_before_end(&key.key));
        keys.filter_map(move |key| Some((&key.key, key.at(revision)?)))
    }

    /// Returns the number of keys of a range at a revision.
    pub(super) fn count(&self, range: &KeyRange, revision: i64) -> usize {
        let (chunks, mut first) = self.chunks_from(range);
        let mut count = 0;
        for chunk in chunks {
            let end = match chunk.keys.last() {
                Some(last) if range.is_before_end(&last.key) => chunk.keys.len(),
                _ => chunk.keys.partition_point(|key| range.is_before_end(&key.key)),
            };
            let keys = &chunk.keys[first.min(end)..end];
            // No key is ever deleted.
            count += if chunk.complete_at <= revision {
                keys.len()
            } else {
                keys.iter().filter(|key| key.newest.create_revision <= revision).count()
            };
            if end < chunk.keys.len() {
                break;
            }
            first = 0;
        }
        count
    }
}

fn compare(key: &KeyHistory, other: &[u8]) -> Ordering {
    key.key[..].cmp(other)
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use rand::rngs::StdRng;
    use rand::{Rng, SeedableRng};

    use super::*;

    #[test]
    fn ranges_and_counts_are_those_of_a_map_at_every_revision() {
        let mut random = StdRng::seed_from_u64(7);
        let (mut keys, mut states) = (Keys::default(), vec![BTreeMap::new()]);
        for revision in 1..=3_000_i64 {
            let key = Bytes::from(format!("k{:04}", random.random_range(0..2_000)));
            let value = Bytes::from(revision.to_string());
            let mut state = states.last().unwrap().clone();
            let expected = state.insert(key.clone(), value.clone());
            let (new, previous) = keys.put(key, value, revision, 0);
            assert_eq!((new.mod_revision, previous.map(|previous| previous.value)), (revision, expected));
            states.push(state);
        }
        for _ in 0..300 {
            let revision = random.random_range(0..states.len());
            let mut bounds = [0, 0].map(|_: u8| Bytes::from(format!("k{:04}", random.random_range(0..2_001))));
            bounds.sort();
            let [start, end] = bounds;
            if start == end {
                continue;
            }
            let range = KeyRange::new(start.clone(), end.clone());
            let expected: Vec<_> = states[revision].range(start..end).collect();
            let found: Vec<_> = keys.scan(&range, revision as i64).map(|(key, at)| (key, &at.value)).collect();
            assert_eq!(found, expected);
            assert_eq!(keys.count(&range, revision as i64), expected.len());
        }
    }

    #[test]
    fn only_versions_from_the_compaction_on_are_kept() {
        let (mut keys, key) = (Keys::default(), Bytes::from_static(b"a"));
        for revision in 1..=10 {
            keys.put(key.clone(), Bytes::from(revision.to_string()), revision, 5);
        }
        let found = keys.find(b"a").unwrap();
        assert_eq!(found.older.len(), 5);
        assert_eq!(found.at(5).unwrap().value, "5");
        assert_eq!(found.newest.number, 10);
    }
}
