//! Replay: applies the journal's records to the state in Git and the snapshot.

use std::sync::{Arc, Weak};
use std::time::Instant;

use gitcd_core::keyspace::Placement;
use gitcd_core::revision::Revision;
use gitcd_journal::Segments;
use gitcd_journal::record::{Record, Write};
use gitcd_journal::recovery::Replayed;
use gitcd_repo::branch::Config;

use gitcd_mvcc::index::Index;
use gitcd_mvcc::lease::Leases;
use gitcd_mvcc::merge::Merge;
use gitcd_mvcc::snapshot::Snapshot;
use gitcd_mvcc::version::Version;

/// The state recovered so far.
pub(super) struct Replay<'a> {
    config: &'a Config,
    pub(super) index: Index,
    pub(super) leases: Leases,
    pub(super) bases: Vec<(Revision, [u8; 20])>,
    base: Revision,
    /// Ephemeral keys older than this revision come from the snapshot.
    ephemeral_below: Revision,
    pub(super) gap: Option<(Revision, Revision)>,
    /// The last revision in Git.
    head: Revision,
    /// Merges that may not be in Git.
    pub(super) merges: Vec<Merge>,
    segments: Arc<Segments>,
    /// The segment being replayed.
    segment: u64,
    /// Versions superseded in this segment.
    superseded: Vec<Arc<Version>>,
    /// Superseded versions. Values that the journal has are evicted from memory, and read back on demand.
    pub(super) old: Vec<Weak<Version>>,
    /// Length of `old` after dead versions were last removed.
    alive: usize,
}

impl<'a> Replay<'a> {
    pub(super) fn new(config: &'a Config, snapshot: &Snapshot, head: Revision, segments: Arc<Segments>) -> Self {
        let mut index = Index::new(snapshot.revision);
        index.start_at(snapshot.revision, snapshot.compacted);
        let mut leases = Leases::default();
        let now = Instant::now();
        snapshot.leases.iter().for_each(|(id, ttl)| leases.grant(*id, *ttl, now));
        // If the journal covers the compact revision, the write at that revision comes from the journal: a watch may start there.
        for write in
            snapshot.ephemeral.iter().filter(|write| write.revision < snapshot.compacted.max(snapshot.revision.next()))
        {
            for change in &write.changes {
                let Some(put) = &change.put else { continue };
                let (key, value) = (change.key.clone(), put.value.clone());
                index.load(Version::put(key, write.revision, put.create_revision, put.version, put.lease, value));
            }
        }
        let (base, ephemeral_below) = (snapshot.revision, snapshot.compacted);
        Self {
            config,
            index,
            leases,
            bases: Vec::new(),
            base,
            ephemeral_below,
            gap: None,
            head,
            merges: Vec::new(),
            segments,
            segment: 0,
            superseded: Vec::new(),
            old: Vec::new(),
            alive: 0,
        }
    }

    /// Prunes what is compacted, and evicts the values of the segment's superseded versions. So memory holds superseded values of
    /// only one segment.
    pub(super) fn settle(&mut self) {
        // Writes below the compact revision that are not replayed yet must be pruned as well, so wait until they are.
        if self.index.revision() >= self.index.compacted() {
            while self.index.prune(self.head, 1 << 16) {}
        }
        if self.old.len() >= 2 * self.alive {
            self.old.retain(|version| version.strong_count() > 0);
            self.alive = self.old.len().max(1 << 10);
        }
        // Values from Git or the snapshot are not in the journal and stay in memory; there is at most one for each key.
        self.old.extend(self.superseded.drain(..).map(|version| {
            version.evict(&self.segments);
            Arc::downgrade(&version)
        }));
    }

    pub(super) fn record(&mut self, replayed: &Replayed) {
        if replayed.segment() != self.segment {
            self.settle();
            self.segment = replayed.segment();
        }
        match &replayed.record {
            Record::Write(write) if write.revision > self.base && self.gap.is_none() => {
                if write.revision != self.index.revision().next() {
                    self.gap = Some((self.index.revision(), write.revision));
                    return;
                }
                self.write(write, replayed);
            }
            Record::Grant { id, ttl } => self.leases.grant(*id, *ttl, Instant::now()),
            // Its keys may have to be committed with the lease.
            Record::Revoke { id } => drop(self.leases.end(*id, self.index.revision().next())),
            Record::Compact(revision) => self.index.compact(*revision),
            Record::Committed { revision, metadata } if *revision > self.base => {
                self.bases.push((*revision, *metadata));
            }
            Record::Merge(merge) => {
                // A merge without writes at the head may be in Git or not: the committer finds out.
                if merge.last() > self.head || (merge.writes == 0 && merge.before() >= self.head) {
                    self.merges.push(merge.clone());
                }
            }
            Record::Write(_) | Record::Committed { .. } => {}
        }
    }

    fn write(&mut self, write: &Write, replayed: &Replayed) {
        let mut versions = Vec::with_capacity(write.changes.len());
        for change in &write.changes {
            let in_snapshot = write.revision < self.ephemeral_below
                && self.config.keys.placement(&change.key) == Placement::Ephemeral;
            if in_snapshot {
                continue;
            }
            let key = self.index.newest(&change.key).map_or_else(|| change.key.clone(), |version| version.key.clone());
            let version = match &change.put {
                None => Version::tombstone(key, write.revision),
                Some(put) => {
                    let value = put.value.clone();
                    let version = Version::put(key, write.revision, put.create_revision, put.version, put.lease, value);
                    version.set_position(replayed.position(put.value_offset, put.value.len()));
                    version
                }
            };
            versions.push(Arc::new(version));
        }
        let client = (!write.client.is_empty()).then(|| write.client.as_str().into());
        let entry = self.index.apply(versions, write.time_ms, client);
        self.superseded.extend(entry.changes().iter().filter_map(|change| change.previous.clone()));
    }
}

#[cfg(test)]
mod tests {
    use bytes::Bytes;

    use super::*;
    use gitcd_journal::record::{Change, Put};
    use gitcd_journal::recovery::recover;
    use gitcd_journal::{self as journal, record};
    use gitcd_mvcc::index::KeyRange;
    use gitcd_mvcc::log::Entry;
    use gitcd_repo::branch::DEFAULT_NAME;

    const SEGMENT_BYTES: u64 = 8 << 10;
    const VALUE_BYTES: usize = 1 << 10;
    const WRITES: i64 = 100;

    fn value(revision: i64) -> Bytes {
        format!("{revision:0VALUE_BYTES$}").into()
    }

    fn write(revision: i64) -> Record {
        let put = Put {
            create_revision: Revision::new(2 + revision % 2),
            version: revision / 2,
            lease: 0,
            value: value(revision),
            value_offset: 0,
        };
        let key = Bytes::from(format!("/k{}", revision % 2));
        let changes = vec![Change { key, put: Some(put) }];
        Record::Write(record::Write { revision: Revision::new(revision), time_ms: 0, client: String::new(), changes })
    }

    #[test]
    fn replay_holds_the_old_values_of_one_segment_and_all_can_be_read_afterwards() {
        let folder = tempfile::tempdir().unwrap();
        let mut journal = journal::Writer::create(folder.path(), [7; 16], 0, SEGMENT_BYTES, Arc::default()).unwrap();
        let compacted = 40;
        for revision in 2..=WRITES {
            write(revision).encode(journal.begin());
            if revision == WRITES / 2 {
                Record::Compact(Revision::new(compacted)).encode(journal.frame());
            }
            journal.commit(Revision::new(revision)).unwrap();
        }
        drop(journal);

        let config = Config::named(std::path::PathBuf::new(), DEFAULT_NAME);
        let snapshot = Snapshot {
            incarnation: [7; 16],
            revision: Revision::new(1),
            metadata: [0; 20],
            compacted: Revision::ZERO,
            leases: Vec::new(),
            ephemeral: Vec::new(),
        };
        let segments = Arc::default();
        let mut replay = Replay::new(&config, &snapshot, Revision::new(WRITES), Arc::clone(&segments));
        let mut most = 0;
        recover(folder.path(), &segments, |record| {
            replay.record(&record);
            let old = replay.index.log_from(Revision::ZERO).flat_map(Entry::changes);
            let old = old.filter_map(|change| change.previous.as_ref()).map(|version| version.value_in_memory().len());
            most = most.max(old.sum());
        })
        .unwrap();
        assert!(segments.sealed().len() > 5, "there are several segments");
        assert!(most > 0 && most <= SEGMENT_BYTES as usize + VALUE_BYTES, "{most} bytes");

        replay.settle();
        let all = KeyRange::From(Bytes::new());
        for revision in compacted..=WRITES {
            let pairs = replay.index.range(&all, Revision::new(revision));
            let mut values: Vec<_> = pairs.map(|version| version.value(&segments).unwrap()).collect();
            values.sort();
            assert!(values == [value(revision - 1), value(revision)], "revision {revision}");
        }
        assert_eq!(replay.index.log_from(Revision::ZERO).next().unwrap().revision.get(), compacted);
        // The write at the compact revision stays, with the version before it; the two newest are in memory.
        let evicted = replay.old.iter().filter(|version| version.strong_count() > 0).count();
        assert_eq!(evicted as i64, WRITES - compacted + 1, "compacted versions are pruned");
    }
}
