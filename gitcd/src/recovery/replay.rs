//! What the journal's records make of the state that replay starts from.

use std::sync::Arc;
use std::time::Instant;

use crate::git::branch::Config;
use crate::journal::record::{Record, Write};
use crate::journal::recovery::Replayed;
use crate::keyspace::Placement;
use crate::snapshot::Snapshot;
use crate::store::index::Index;
use crate::store::lease::Leases;
use crate::store::revision::Revision;
use crate::store::version::Version;

/// What recovery has so far.
pub(super) struct Replay<'a> {
    config: &'a Config,
    pub(super) index: Index,
    pub(super) leases: Leases,
    pub(super) bases: Vec<(Revision, [u8; 20])>,
    base: Revision,
    /// Ephemeral keys below this revision are in the snapshot.
    ephemeral_below: Revision,
    pub(super) gap: Option<(Revision, Revision)>,
    /// Old versions; their values leave memory in the end, somebody who asks gets them from the journal.
    pub(super) superseded: Vec<Arc<Version>>,
}

impl<'a> Replay<'a> {
    pub(super) fn new(config: &'a Config, snapshot: &Snapshot) -> Self {
        let mut index = Index::new(snapshot.revision);
        index.start_at(snapshot.revision, snapshot.compacted);
        let mut leases = Leases::default();
        let now = Instant::now();
        snapshot.leases.iter().for_each(|(id, ttl)| leases.grant(*id, *ttl, now));
        // A write at the compact revision itself comes from the journal if that starts below: a watch may start there.
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
        Self { config, index, leases, bases: Vec::new(), base, ephemeral_below, gap: None, superseded: Vec::new() }
    }

    pub(super) fn record(&mut self, replayed: &Replayed) {
        match &replayed.record {
            Record::Write(write) if write.revision > self.base && self.gap.is_none() => {
                if write.revision != self.index.revision().next() {
                    self.gap = Some((self.index.revision(), write.revision));
                    return;
                }
                self.write(write, replayed);
            }
            Record::Grant { id, ttl } => self.leases.grant(*id, *ttl, Instant::now()),
            Record::Revoke { id } => drop(self.leases.remove(*id)),
            Record::Compact(revision) => self.index.compact(*revision),
            Record::Committed { revision, metadata } if *revision > self.base => {
                self.bases.push((*revision, *metadata));
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
