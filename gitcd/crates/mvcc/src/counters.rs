//! The store's counters.

use std::sync::Arc;
use std::sync::atomic::AtomicU64;

use prometheus_client::metrics::histogram::Histogram;

use crate::work::{Work, disk_seconds};

/// Counters for metrics, without locks.
#[derive(Debug)]
pub struct Counters {
    /// Frames made durable.
    pub fsyncs: AtomicU64,
    /// Duration of each journal write and its fsync.
    pub fsync_seconds: Histogram,
    /// Batches that could not be made durable.
    pub failed_batches: AtomicU64,
    /// Range requests.
    pub ranges: AtomicU64,
    /// Keys put.
    pub puts: AtomicU64,
    /// Keys deleted.
    pub deletes: AtomicU64,
    /// Transactions that changed several keys.
    pub txns: AtomicU64,
    /// Events sent to watchers.
    pub events: AtomicU64,
    /// Leases granted.
    pub leases_granted: AtomicU64,
    /// Leases revoked by clients or expired.
    pub leases_revoked: AtomicU64,
    /// Bytes appended to the journal.
    pub journal_bytes: AtomicU64,
    /// Bytes of superseded values in memory.
    pub old_value_bytes: AtomicU64,
    /// Compactions done.
    pub compactions: AtomicU64,
    /// Bytes of all keys and values with their history, as of the last write.
    pub data_bytes: AtomicU64,
    /// The part of `data_bytes` in the newest versions of the keys.
    pub live_bytes: AtomicU64,
    /// Counts and durations of operations.
    pub work: Arc<Work>,
}

impl Default for Counters {
    fn default() -> Self {
        let none = AtomicU64::default;
        Self {
            fsyncs: none(),
            fsync_seconds: disk_seconds(),
            failed_batches: none(),
            ranges: none(),
            puts: none(),
            deletes: none(),
            txns: none(),
            events: none(),
            leases_granted: none(),
            leases_revoked: none(),
            journal_bytes: none(),
            old_value_bytes: none(),
            compactions: none(),
            data_bytes: none(),
            live_bytes: none(),
            work: Arc::default(),
        }
    }
}
