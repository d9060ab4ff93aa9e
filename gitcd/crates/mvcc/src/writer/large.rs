//! Merges that are too large to share a frame.

use gitcd_core::revision::Revision;
use gitcd_journal::record::Record;

use super::round::Round;
use super::{Answer, Batch, FRAME_BYTES, Instant, Reply, Writer, now_ms};
use crate::Error;
use crate::merge::{self, Decided, Prepared};
use crate::query::View;
use crate::work::Applied;

/// Size from which a merge does not share a frame with other writes.
pub(super) const BYTES: usize = 256 << 10;
/// Writes that are applied under one lock, so that readers wait for about a millisecond.
const AT_ONCE: usize = 512;

impl Writer {
    /// Makes a merge durable in parts of about [`FRAME_BYTES`], which count together or not at all. As with other batches, readers
    /// see nothing of it before all of it is durable.
    pub(super) fn merge_in_parts(
        &mut self,
        prepared: Prepared,
        reply: Reply<merge::Done>,
        refused: Option<Error>,
        batch: &mut Batch,
    ) -> Result<(), Error> {
        let (began, store) = (Instant::now(), self.store.clone());
        let decided = refused.map_or_else(
            || {
                let index = store.index.read();
                let view = View { index: &index, at: index.revision(), segments: &store.segments };
                merge::decide(prepared, view).map(|decided| (decided, index.revision().next()))
            },
            Err,
        );
        let (decided, first) = match decided {
            Ok(decided) => decided,
            Err(error) => {
                store.counters.work.applied(Applied::Merge, false, began.elapsed());
                batch.answers.push(Answer::Merge(reply, Err(error)));
                return Ok(());
            }
        };
        let last = Revision::new(first.get() + decided.writes.len() as i64 - 1);
        let done = merge::Done { first, last, conflicts: decided.conflicts.clone() };
        batch.answers.push(Answer::Merge(reply, Ok(done)));
        let durable = self.write_parts(decided, first, batch);
        store.counters.work.applied(Applied::Merge, durable.is_ok(), began.elapsed());
        durable
    }

    fn write_parts(&mut self, decided: Decided, first: Revision, batch: &mut Batch) -> Result<(), Error> {
        let (store, now_ms) = (self.store.clone(), now_ms());
        let merge = decided.record(first, now_ms);
        Record::Merge(merge.clone()).encode(self.journal.frame());
        batch.merges.push(merge.into());
        let mut writes = decided.writes.into_iter().peekable();
        while writes.peek().is_some() {
            if self.journal.frame().len() >= FRAME_BYTES {
                let (began, bytes) = (Instant::now(), self.journal.frame().len());
                if let Err(error) = self.journal.commit_part() {
                    return Err(self.not_durable(&error, batch));
                }
                self.count_frame(bytes, began);
                self.journal.begin();
            }
            let (segment, base) = self.journal.value_base();
            let (mut index, mut leases) = (store.index.write(), store.leases.lock());
            let mut round = Round {
                index: &mut index,
                leases: &mut leases,
                segments: &store.segments,
                frame: self.journal.frame(),
                batch,
                segment,
                base,
                now_ms,
            };
            for _ in 0..AT_ONCE {
                if round.frame.len() >= FRAME_BYTES {
                    break;
                }
                let Some(write) = writes.next() else { break };
                round.merged(write, &decided.by);
            }
        }
        self.make_durable(batch)
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use bytes::Bytes;
    use gitcd_journal::fault::{self, Fault};
    use gitcd_merge::schema::Schemas;
    use gitcd_merge::{Outcome, Policy};

    use super::*;
    use crate::merge::{Key, Request};
    use crate::writer::tests::{Disk, Step};

    const VALUE_BYTES: usize = 64 << 10;
    /// Three parts, and the frame that completes them.
    const KEYS: usize = 3 * FRAME_BYTES / VALUE_BYTES + 10;

    fn value(key: usize) -> Bytes {
        let mut value = vec![b'.'; VALUE_BYTES];
        value[..8].copy_from_slice(&key.to_be_bytes());
        value.into()
    }

    fn key(key: usize) -> Bytes {
        format!("/merged/{key:06}").into()
    }

    /// A merge that creates keys.
    fn request(at: Revision, keys: std::ops::Range<usize>) -> Request {
        let keys = keys.map(|number| Key {
            key: key(number),
            base: None,
            in_ours: false,
            theirs: Some((value(number), [1; 20])),
            as_is: true,
            outcome: Outcome::Theirs,
            conflicts: Vec::new(),
        });
        Request {
            at,
            theirs: [2; 20],
            keys: keys.collect(),
            policy: Policy::Ours,
            schemas: Schemas::builtin(),
            fast_forward: false,
            no_conflicts: false,
            only_as_planned: false,
            trailers: String::new(),
            by: Arc::from("gitcd"),
        }
    }

    fn writes(disk: &Disk) -> (usize, usize) {
        let records = disk.records();
        let merges = records.iter().filter(|record| matches!(record, Record::Merge(_))).count();
        (merges, records.iter().filter(|record| matches!(record, Record::Write(_))).count())
    }

    #[test]
    fn a_large_merge_is_whole_after_its_last_frame_and_between_other_writes() {
        let mut disk = Disk::new();
        let at = disk.store().revision();
        let prepared = disk.store().prepare(request(at, 0..KEYS)).unwrap();
        let done = disk.merge(&[Step::Put(1, 0)], prepared, &[Step::Put(2, 0)]).unwrap();
        assert_eq!((done.first, done.last.since(at)), (at.next().next(), KEYS + 1));
        assert_eq!(disk.store().revision().since(at), KEYS + 2);
        assert_eq!(disk.store().next_merge().unwrap().writes as usize, KEYS);
        assert_eq!(writes(&disk), (1, KEYS + 2));
        // The positions of values are right in every part.
        let (index, segments) = (disk.store().index.read(), disk.store().segments());
        for number in [0, KEYS / 2, KEYS - 1] {
            let version = index.newest(&key(number)).unwrap();
            version.evict(segments);
            assert_eq!(version.bytes_in_memory(), 0);
            assert_eq!(version.value(segments).unwrap(), value(number));
        }
    }

    #[test]
    fn without_room_for_any_of_its_frames_a_large_merge_is_as_if_it_had_not_been() {
        for appends in 0..4 {
            let mut disk = Disk::new();
            disk.batch(&[Step::Put(1, 0)]);
            let (before, revision) = (disk.see(), disk.store().revision());
            let prepared = disk.store().prepare(request(revision, 0..KEYS)).unwrap();
            fault::fail_after(Fault::Full, appends);
            assert_eq!(disk.merge(&[], prepared.clone(), &[]), Err(Error::NoSpace));
            assert_eq!(disk.see(), before);
            assert!(!disk.store().has_merges());
            assert_eq!(writes(&disk), (0, 1));
            // Once there is space again, it succeeds.
            let done = disk.merge(&[], prepared, &[Step::Put(2, 0)]);
            assert!(done.is_ok(), "{done:?}");
            assert_eq!(writes(&disk), (1, KEYS + 2));
        }
    }

    #[test]
    fn after_a_failed_fsync_of_a_part_nothing_of_the_merge_counts() {
        let mut disk = Disk::new();
        disk.batch(&[Step::Put(1, 0)]);
        let (before, revision) = (disk.see(), disk.store().revision());
        let prepared = disk.store().prepare(request(revision, 0..KEYS)).unwrap();
        fault::fail_after(Fault::Fsync, 2);
        assert!(matches!(disk.merge(&[], prepared, &[]), Err(Error::Poisoned(_))));
        assert_eq!(disk.see(), before);
        assert_eq!(writes(&disk), (0, 1));
    }

    /// Whatever is written while a merge is prepared, or after, is merged with it.
    #[test]
    fn keys_written_since_a_merge_was_prepared_are_merged_again() {
        let mut disk = Disk::new();
        let at = disk.store().revision();
        let mut request = request(at, 0..2);
        // What `Step::Put(7)` writes, and another value in the merge.
        request.keys[0].key = Bytes::from_static(b"k\x07");
        let prepared = disk.store().prepare(request).unwrap();
        let done = disk.merge(&[Step::Put(7, 0)], prepared, &[]).unwrap();
        assert_eq!(done.conflicts.count, 1);
        let (index, segments) = (disk.store().index.read(), disk.store().segments());
        assert_eq!(index.newest(b"k\x07").unwrap().value(segments).unwrap(), Bytes::from_static(&[7]), "ours wins");
        assert_eq!(index.newest(&key(1)).unwrap().value(segments).unwrap(), value(1));
    }
}
