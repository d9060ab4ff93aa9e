//! What the store counts.

use std::sync::Arc;
use std::sync::atomic::AtomicU64;

use prometheus_client::metrics::histogram::Histogram;

use crate::work::{Work, disk_seconds};

/// Figures for metrics, without locks.
#[derive(Debug)]
pub struct Counters {
    /// Frames made durable.
    pub fsyncs: AtomicU64,
    /// Time for each of them.
    pub fsync_seconds: Histogram,
    /// Batches that could not be made durable.
    pub failed_batches: AtomicU64,
    /// Range requests.
    pub ranges: AtomicU64,
    /// Pairs written.
    pub puts: AtomicU64,
    /// Pairs deleted.
    pub deletes: AtomicU64,
    /// Transactions that wrote.
    pub txns: AtomicU64,
    /// Events sent to watchers.
    pub events: AtomicU64,
    /// Leases granted.
    pub leases_granted: AtomicU64,
    /// Leases revoked, by a client or because they ran out.
    pub leases_revoked: AtomicU64,
    /// Bytes appended to the journal.
    pub journal_bytes: AtomicU64,
    /// Bytes of superseded values in memory.
    pub old_value_bytes: AtomicU64,
    /// Compactions done.
    pub compactions: AtomicU64,
    /// Keys and values with all their history, as of the last write.
    pub data_bytes: AtomicU64,
    /// Those of them that are the newest of a key.
    pub live_bytes: AtomicU64,
    /// What takes time, and how much.
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
