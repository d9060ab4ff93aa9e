//! Counts and durations of the store's operations, as etcd has them. Every counter exists from the start.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use prometheus_client::metrics::histogram::Histogram;

use super::doubling_histogram::DoublingHistogram;

/// Threshold above which etcd logs and counts an operation as slow.
const SLOW: Duration = Duration::from_millis(100);

/// Returns a histogram with buckets from 1 ms to 8 s, as etcd has for its disk.
pub fn disk_seconds() -> Histogram {
    Histogram::new((0..14).map(|power| 0.001 * f64::from(1 << power)))
}

/// A kind of write, by etcd's name.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Applied {
    Put,
    DeleteRange,
    Txn,
    Compaction,
    LeaseGrant,
    LeaseRevoke,
    /// A merge of branches, which etcd does not have.
    Merge,
}

/// The names of all kinds of writes, in the order of [`Applied`].
pub const APPLIED: [&str; 7] = ["Put", "DeleteRange", "Txn", "Compaction", "LeaseGrant", "LeaseRevoke", "Merge"];

/// Durations of successful operations, and of failed ones.
pub type Outcomes = [DoublingHistogram; 2];

/// Counts and durations of one store.
#[derive(Debug)]
pub struct Work {
    /// Range requests.
    pub ranges: Outcomes,
    /// Writes, in the order of [`APPLIED`].
    pub applied: [Outcomes; APPLIED.len()],
    /// Requests and writes that took longer than etcd's limit of 100 ms.
    pub slow: AtomicU64,
    /// Writes of journal frames, without the fsync.
    pub journal_writes: DoublingHistogram,
    /// Bytes of keys and values that were put.
    pub put_bytes: AtomicU64,
    /// Leases kept alive.
    pub leases_renewed: AtomicU64,
    /// Leases expired.
    pub leases_expired: AtomicU64,
    /// Granted times to live in seconds.
    pub lease_ttl: DoublingHistogram,
    /// Pauses of writes for a part of a compaction.
    pub compaction_pauses: [DoublingHistogram; 2],
    /// Compactions, from the request until the last version is dropped.
    pub compactions: DoublingHistogram,
    /// End of the last compaction, in seconds since 1970.
    pub compacted_at: AtomicU64,
    /// Versions that compactions dropped.
    pub compacted_versions: AtomicU64,
    /// Requests for the hash of the store.
    pub hash: DoublingHistogram,
    /// Requests for the hash at a revision.
    pub hash_at_revision: DoublingHistogram,
    /// Snapshots sent.
    pub snapshots: DoublingHistogram,
    /// Defragmentation requests.
    pub defragmentations: DoublingHistogram,
}

impl Default for Work {
    fn default() -> Self {
        let tenths_of_a_milli = || [(); 2].map(|()| DoublingHistogram::of_time(Duration::from_micros(100), 20));
        let hundredths = |bounds| DoublingHistogram::of_time(Duration::from_millis(10), bounds);
        let none = AtomicU64::default;
        Self {
            ranges: tenths_of_a_milli(),
            applied: APPLIED.map(|_| tenths_of_a_milli()),
            slow: none(),
            journal_writes: DoublingHistogram::of_time(Duration::from_millis(1), 14),
            put_bytes: none(),
            leases_renewed: none(),
            leases_expired: none(),
            lease_ttl: DoublingHistogram::new(1, 24),
            compaction_pauses: [
                DoublingHistogram::of_time(Duration::from_micros(500), 14),
                DoublingHistogram::of_time(Duration::from_millis(1), 13),
            ],
            compactions: DoublingHistogram::of_time(Duration::from_millis(100), 14),
            compacted_at: none(),
            compacted_versions: none(),
            hash: hundredths(15),
            hash_at_revision: hundredths(15),
            snapshots: hundredths(17),
            defragmentations: DoublingHistogram::of_time(Duration::from_millis(100), 13),
        }
    }
}

impl Work {
    /// Records a range read.
    pub(crate) fn ranged(&self, succeeded: bool, took: Duration) {
        self.ranges[usize::from(!succeeded)].took(took);
        self.look(took);
    }

    /// Records a write that was applied, but is not durable yet.
    pub(crate) fn applied(&self, kind: Applied, succeeded: bool, took: Duration) {
        self.applied[kind as usize][usize::from(!succeeded)].took(took);
        self.look(took);
    }

    fn look(&self, took: Duration) {
        if took > SLOW {
            self.slow.fetch_add(1, Ordering::Relaxed);
        }
    }

    /// Records a part of a compaction, done under the index lock.
    pub(crate) fn compacted_a_part(&self, took: Duration) {
        self.compaction_pauses.iter().for_each(|pauses| pauses.took(took));
    }

    /// Records a complete compaction.
    pub(crate) fn compacted(&self, took: Duration, now_seconds: u64) {
        self.compactions.took(took);
        self.compacted_at.store(now_seconds, Ordering::Relaxed);
    }
}

/// A timer that records its duration when dropped.
#[derive(Debug)]
pub struct Timed {
    work: Arc<Work>,
    amounts: fn(&Work) -> &DoublingHistogram,
    started: Instant,
}

impl Timed {
    /// Starts the timer.
    pub fn begin(work: Arc<Work>, amounts: fn(&Work) -> &DoublingHistogram) -> Self {
        Self { work, amounts, started: Instant::now() }
    }
}

impl Drop for Timed {
    fn drop(&mut self) {
        (self.amounts)(&self.work).took(self.started.elapsed());
    }
}
