//! Superseded values: how many of their bytes are in memory, and which can be evicted.
//!
//! The journal has the values written since its oldest segment. Others are only in memory: those that recovery loaded from Git or
//! the snapshot, and those of trimmed segments. They count, but cannot be evicted: Git has them, but another thread would have to
//! reassemble them. There is at most one for each key: a segment is trimmed once its writes are at or below the compact revision,
//! and of those only the newest version of a key is kept. The next compaction beyond the version that superseded it drops the
//! value.

use std::collections::VecDeque;
use std::sync::{Arc, Weak};

use gitcd_journal::Segments;

use crate::version::Version;

/// Superseded versions, by where their values are.
#[derive(Debug, Default)]
pub(super) struct Old {
    /// Values in memory and, as far as is known, in the journal; oldest first.
    queue: VecDeque<(Weak<Version>, usize)>,
    queue_bytes: usize,
    /// Values evicted from memory.
    evicted: Vec<Weak<Version>>,
    /// Values in memory only.
    stuck: Vec<(Weak<Version>, usize)>,
    stuck_bytes: usize,
}

impl Old {
    /// Creates it from the superseded versions that recovery found.
    pub(super) fn new(superseded: Vec<Weak<Version>>) -> Self {
        let mut old = Self::default();
        for version in superseded {
            match version.upgrade().map_or(0, |version| version.bytes_in_memory()) {
                0 => old.evicted.push(version),
                bytes => old.hold(version, bytes),
            }
        }
        old
    }

    /// Returns the bytes of superseded values in memory.
    pub(super) fn bytes(&self) -> usize {
        self.queue_bytes + self.stuck_bytes
    }

    /// Adds a superseded version.
    pub(super) fn add(&mut self, version: &Arc<Version>) {
        let length = version.value_length as usize;
        self.queue.push_back((Arc::downgrade(version), length));
        self.queue_bytes += length;
    }

    /// Evicts the oldest values until at most `limit` bytes are left, or nothing that can be evicted.
    pub(super) fn evict(&mut self, limit: usize, segments: &Segments) {
        while let Some((version, length)) = self.queue.front() {
            let version = version.upgrade();
            if version.is_some() && self.bytes() <= limit {
                break;
            }
            self.queue_bytes -= length;
            self.queue.pop_front();
            let Some(version) = version else { continue };
            version.evict(segments);
            match version.bytes_in_memory() {
                0 => self.evicted.push(Arc::downgrade(&version)),
                bytes => self.hold(Arc::downgrade(&version), bytes),
            }
        }
        if self.evicted.len() > 1 << 16 && self.evicted.len().is_power_of_two() {
            self.evicted.retain(|version| version.strong_count() > 0);
        }
    }

    /// Forgets versions that a compaction has dropped.
    pub(super) fn forget(&mut self) {
        self.evicted.retain(|version| version.strong_count() > 0);
        self.stuck.retain(|(version, _)| version.strong_count() > 0);
        self.stuck_bytes = self.stuck.iter().map(|(_, bytes)| bytes).sum();
    }

    /// Reads back values that only segments below `first_kept` have.
    ///
    /// # Errors
    /// A value cannot be read; no value is lost.
    pub(super) fn bring_back(&mut self, segments: &Segments, first_kept: u64) -> std::io::Result<()> {
        let mut outcome = Ok(());
        for version in std::mem::take(&mut self.evicted) {
            let Some(strong) = version.upgrade() else { continue };
            if outcome.is_ok() {
                outcome = strong.pin(segments, first_kept);
            }
            match strong.bytes_in_memory() {
                0 => self.evicted.push(version),
                bytes => self.hold(version, bytes),
            }
        }
        outcome
    }

    fn hold(&mut self, version: Weak<Version>, bytes: usize) {
        self.stuck.push((version, bytes));
        self.stuck_bytes += bytes;
    }
}
