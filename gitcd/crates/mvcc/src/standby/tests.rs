use std::collections::BTreeMap;

use proptest::prelude::*;

use super::*;
use crate::Error;

fn key(name: u8) -> Bytes {
    Bytes::from(vec![b'k', name])
}

/// The writer's record of a key: create revision, mod revision, version.
type Record = (i64, i64, i64);

/// The reference model: a writer's state, one revision after the other.
#[derive(Clone, Debug, Default)]
struct Writer {
    revision: i64,
    keys: BTreeMap<u8, Record>,
}

impl Writer {
    fn write(&mut self, changes: &[(u8, bool)]) {
        let now = self.revision + 1;
        let mut seen = std::collections::BTreeSet::new();
        let mut has_changed = false;
        for (name, put) in changes.iter().filter(|(name, _)| seen.insert(*name)) {
            if *put {
                let (create, version) = self.keys.get(name).map_or((now, 1), |old| (old.0, old.2 + 1));
                self.keys.insert(*name, (create, now, version));
                has_changed = true;
            } else {
                has_changed |= self.keys.remove(name).is_some();
            }
        }
        self.revision += i64::from(has_changed);
    }

    fn version(&self, name: u8) -> Version {
        let (create, modified, version) = self.keys[&name];
        Version::put(key(name), Revision::new(modified), Revision::new(create), version, 0, Bytes::new())
    }

    fn since(&self, before: &Self) -> Followed {
        let put = self.keys.iter().filter(|(name, record)| before.keys.get(*name) != Some(*record));
        let gone = before.keys.keys().filter(|name| !self.keys.contains_key(*name));
        Followed {
            revision: Revision::new(self.revision),
            compacted: Revision::ZERO,
            put: put.map(|(name, _)| self.version(*name)).collect(),
            gone: gone.map(|name| key(*name)).collect(),
        }
    }
}

fn standby(writer: &Writer) -> Arc<Store> {
    let keys = writer.keys.keys().map(|name| writer.version(*name));
    Store::standby(keys, Revision::new(writer.revision), Bytes::from_static(b"health"))
}

fn all() -> Range {
    Range {
        keys: KeyRange::From(Bytes::new()),
        revision: None,
        limit: 0,
        count_only: false,
        sort: None,
        filter: crate::query::Filter::default(),
        known_count: None,
    }
}

fn found(store: &Store) -> BTreeMap<u8, Record> {
    let found = store.range(&all()).unwrap();
    assert_eq!(found.revision, store.revision());
    let record = |it: &Arc<Version>| (it.create_revision.get(), it.mod_revision.get(), it.version);
    found.pairs.iter().map(|version| (version.key[1], record(version))).collect()
}

proptest! {
    /// A client that follows the events reaches the same state as one that lists, and gets no event for the creation of an
    /// existing key.
    #[test]
    fn events_lead_from_what_was_listed_to_what_is_there_now(
        commits in proptest::collection::vec(
            proptest::collection::vec(proptest::collection::vec((0_u8..6, proptest::bool::weighted(0.6)), 1..3), 0..6), 1..8)
    ) {
        let mut writer = Writer { revision: 1, keys: BTreeMap::new() };
        writer.write(&[(0, true), (1, true)]);
        let store = standby(&writer);
        let mut replayed = found(&store);
        for commit in commits {
            let before = writer.clone();
            commit.iter().for_each(|changes| writer.write(changes));
            prop_assert_eq!(store.follow(writer.since(&before)), Ok(()));
            let mut last = before.revision;
            for entry in store.log(Revision::new(before.revision + 1), usize::MAX) {
                prop_assert_eq!(entry.revision.get(), last + 1, "no revision is skipped");
                last = entry.revision.get();
                for change in entry.changes() {
                    let (version, name) = (&change.version, change.version.key[1]);
                    prop_assert_eq!(version.mod_revision, entry.revision);
                    let known = replayed.get(&name).copied();
                    prop_assert_eq!(change.previous.as_ref().map(|before| before.mod_revision.get()), known.map(|it| it.1));
                    if version.is_tombstone() {
                        prop_assert!(replayed.remove(&name).is_some(), "the key existed");
                        continue;
                    }
                    let record = (version.create_revision.get(), version.mod_revision.get(), version.version);
                    if let Some(known) = known {
                        prop_assert_eq!(known.0, record.0, "the key was not recreated");
                    }
                    replayed.insert(name, record);
                }
            }
            prop_assert_eq!(last, writer.revision);
            prop_assert_eq!(store.revision().get(), writer.revision);
            prop_assert_eq!(&found(&store), &writer.keys);
            prop_assert_eq!(&replayed, &writer.keys);
        }
    }
}

#[test]
fn deletions_have_revisions_of_their_own_while_there_are_any() {
    let mut writer = Writer { revision: 1, keys: BTreeMap::new() };
    (0..4).for_each(|name| writer.write(&[(name, true)]));
    let (store, before) = (standby(&writer), writer.clone());
    writer.write(&[(0, false)]);
    writer.write(&[(3, true)]);
    writer.write(&[(1, false)]);
    writer.write(&[(0, true)]);
    store.follow(writer.since(&before)).unwrap();
    let counts: Vec<_> = store.log(Revision::new(6), 10).iter().map(|entry| entry.changes().len()).collect();
    assert_eq!(counts, [1, 1, 1, 1]);
    // Two keys that were deleted with a lease.
    let before = writer.clone();
    writer.write(&[(2, false), (3, false)]);
    store.follow(writer.since(&before)).unwrap();
    assert_eq!(store.log(Revision::new(10), 10)[0].changes().len(), 2);
}

#[test]
fn a_commit_that_does_not_follow_is_reported() {
    let mut writer = Writer { revision: 1, keys: BTreeMap::new() };
    writer.write(&[(0, true)]);
    let store = standby(&writer);
    let of = |revision: i64, put: Vec<Version>| Followed {
        revision: Revision::new(revision),
        compacted: Revision::ZERO,
        put,
        gone: Vec::new(),
    };
    let version = |at: i64| Version::put(key(1), Revision::new(at), Revision::new(at), 1, 0, Bytes::new());
    assert_eq!(store.follow(of(1, Vec::new())), Err(Another), "the revision goes back");
    assert_eq!(store.follow(of(2 + (1 << 32), Vec::new())), Err(Another), "there is another writer");
    assert_eq!(store.follow(of(3, vec![version(2)])), Err(Another), "the new version is not new");
    assert_eq!(store.follow(of(3, vec![version(4)])), Err(Another), "the version is above the revision");
    assert_eq!(store.revision(), Revision::new(2));
    assert_eq!(store.follow(of(3, vec![version(3)])), Ok(()));
}

#[tokio::test]
async fn it_takes_no_writes_and_does_not_look_well() {
    let writer = Writer { revision: 1, keys: BTreeMap::new() };
    let store = standby(&writer);
    assert_eq!(store.grant(0, 5).await, Err(Error::Standby));
    assert_eq!(store.compact(Revision::new(1)).await, Err(Error::Standby));
    assert_eq!(store.unavailable(), Some(Error::Standby));
    assert_eq!(store.newest(), Ok(()), "reads are served at the pushed revision");
    let health = Range { keys: KeyRange::One(Bytes::from_static(b"health")), ..all() };
    assert_eq!(store.range(&health).map(|_| ()), Err(Error::Standby));
}

#[test]
fn history_ends_where_the_writers_does() {
    let mut writer = Writer { revision: 1, keys: BTreeMap::new() };
    writer.write(&[(0, true)]);
    let (store, before) = (standby(&writer), writer.clone());
    (0..10).for_each(|_| writer.write(&[(0, true)]));
    store.follow(Followed { compacted: Revision::new(9), ..writer.since(&before) }).unwrap();
    assert_eq!(store.compacted(), Revision::new(9));
    let at = |revision: i64| store.range(&Range { revision: Some(Revision::new(revision)), ..all() }).map(|_| ());
    assert_eq!((at(8), at(12)), (Err(Error::Compacted), Ok(())));
}
