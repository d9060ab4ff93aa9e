//! Trims the journal: what is in Git and compacted need not be replayed.

use std::sync::Arc;

use bytes::Bytes;
use gitcd_core::error::chain;
use gitcd_core::keyspace::{KeySpace, Placement};
use gitcd_core::revision::Revision;
use gitcd_mvcc::Store;
use gitcd_mvcc::index::KeyRange;
use gitcd_mvcc::snapshot::{Snapshot, write_of};
use gitcd_mvcc::version::{ValueLost, Version};

use super::Committer;

/// Number of ephemeral key-value pairs per chunk; writes wait while one is collected.
const CHUNK: usize = 1024;

impl Committer {
    /// Deletes the journal's oldest segments once the compaction has passed a commit that replay can start from.
    pub(super) fn trim(&mut self) {
        let compacted = self.store.compacted();
        let segments = self.store.segments();
        // A watch may start at the compact revision, so replay must start below it. There may be no commit below it while writes
        // are refused for want of room; then such a watch gets the compaction error after a restart, and its client relists.
        let stuck = self.store.refused().is_some();
        let admits = |base: Revision| base < compacted || (stuck && base == compacted);
        let usable = self.bases.iter().take_while(|(revision, _)| admits(*revision)).count();
        if usable > 1 {
            self.bases.drain(..usable - 1);
        }
        let Some(&(base, metadata)) = self.bases.front() else { return };
        let dropped = segments.sealed().into_iter().take_while(|(_, last)| *last <= base).last();
        if let Some((sequence, _)) = dropped {
            // If the store is compacted meanwhile, the next commit trims.
            let Some(ephemeral) = ephemeral(&self.store, &self.config.keys, compacted, CHUNK) else { return };
            let write = |version: &Arc<Version>| Ok(write_of(version, version.value(segments)?));
            let snapshot = |ephemeral| Snapshot {
                incarnation: self.incarnation,
                revision: base,
                metadata,
                compacted,
                leases: self.store.leases(),
                ephemeral,
            };
            let written = ephemeral.iter().map(write).collect::<Result<_, ValueLost>>().map_err(|lost| chain(&lost));
            match written.and_then(|writes| snapshot(writes).write(&self.folder).map_err(|error| chain(&error))) {
                Ok(()) => self.store.trim_journal(sequence + 1),
                Err(error) => tracing::warn!(error, "journal not trimmed"),
            }
        } else if self.over_bound() {
            // Compact half of what could be compacted, so that clients that resume soon still find their events; all of it if
            // writes are refused.
            let half = if stuck { self.bases.len() - 1 } else { self.bases.len() / 2 };
            let (target, _) = self.bases[half];
            if target > compacted {
                tracing::warn!(
                    bytes = segments.bytes(), revision = %target,
                    "the journal has reached its size limit: compacting; clients should compact regularly"
                );
                self.store.raise_compaction(target);
            }
        }
    }
}

/// Returns the ephemeral key-value pairs as of the compact revision `at`, or `None` if the store was compacted further. Visits
/// ephemeral keys only, and blocks writes for one `chunk` of them at a time.
fn ephemeral(store: &Store, keys: &KeySpace, at: Revision, chunk: usize) -> Option<Vec<Arc<Version>>> {
    let mut found = Vec::new();
    for (mut start, end) in keys.ephemeral_ranges() {
        loop {
            let range = match &end {
                Some(end) => KeyRange::Span(start.clone().into(), end.clone().into()),
                None => KeyRange::From(Bytes::from(start.clone())),
            };
            let pairs = store.with_index(|index, _| {
                let pairs = || index.range(&range, at).take(chunk).cloned().collect::<Vec<_>>();
                (index.compacted() == at).then(pairs)
            })?;
            if let Some(last) = pairs.last() {
                start = [&last.key[..], b"\0"].concat();
            }
            let complete = pairs.len() < chunk;
            found.extend(pairs.into_iter().filter(|version| keys.placement(&version.key) == Placement::Ephemeral));
            if complete {
                break;
            }
        }
    }
    Some(found)
}

#[cfg(test)]
mod tests {
    use super::*;
    use gitcd_journal as journal;
    use gitcd_mvcc::index::Index;
    use gitcd_mvcc::lease::Leases;
    use gitcd_mvcc::{self as store, Start};

    #[tokio::test]
    async fn ephemeral_pairs_are_collected_in_chunks_as_they_were_at_the_compact_revision() {
        let folder = tempfile::tempdir().unwrap();
        let segments = Arc::default();
        let journal = journal::Writer::create(folder.path(), [7; 16], 0, 1 << 16, Arc::clone(&segments)).unwrap();
        let mut index = Index::new(Revision::INITIAL);
        let names = |number: i64| [format!("/e/{number:02}"), format!("/data/{number}"), format!("/f/{number}/x")];
        let revision = |index: &Index| index.revision().next();
        for number in 0..20 {
            let now = revision(&index);
            let put = |key: String| Arc::new(Version::put(key.into(), now, now, 1, 0, Bytes::new()));
            index.apply(names(number).map(put).to_vec(), 0, None);
        }
        let compacted = index.revision();
        index.compact(compacted);
        // After the compaction, so these must not be seen.
        for number in 0..10 {
            let now = revision(&index);
            let gone = Arc::new(Version::tombstone(names(number)[0].clone().into(), now));
            let new = Arc::new(Version::put(format!("/e/new{number}").into(), now, now, 1, 0, Bytes::new()));
            index.apply(vec![gone, new], 0, None);
        }
        let (committed, leases, superseded) = (index.revision(), Leases::default(), Vec::new());
        let start = Start {
            index,
            leases,
            committed,
            journal,
            segments,
            superseded,
            alarms: gitcd_mvcc::alarms::Alarms::default(),
            merges: Vec::new(),
        };
        let (store, writer) = Store::start(start, store::Limits::default()).unwrap();

        let keys = KeySpace::new("/", ["/e", "/e/1*", "/f"]);
        let mut expected: Vec<_> = (0..20).flat_map(|number| [0, 2].map(|part| names(number)[part].clone())).collect();
        expected.sort();
        for chunk in [1, 3, 20, 1000] {
            let found = ephemeral(&store, &keys, compacted, chunk).expect("nothing was compacted meanwhile");
            let found: Vec<_> =
                found.iter().map(|version| String::from_utf8_lossy(&version.key).into_owned()).collect();
            assert_eq!(found, expected, "{chunk} at a time");
        }
        assert!(ephemeral(&store, &KeySpace::new("/", [""; 0]), compacted, 3).unwrap().is_empty());
        store.compact(committed).await.unwrap();
        assert!(ephemeral(&store, &keys, compacted, 3).is_none());
        store.stop().await;
        writer.join();
    }
}
