//! Superseded values: how many bytes of them are in memory, and which may leave it.
//!
//! The journal has the values that were written since its oldest segment. Others are in memory only: what recovery took from
//! Git or from the snapshot, and what was in a segment that has been trimmed. They are counted, but cannot leave: Git has
//! them, but in a form from which they would have to be put together again, by another thread. There is at most one of them
//! for each key: a segment is trimmed once its writes are at or below the compact revision, and of those only the newest
//! version of a key is kept. The next compaction beyond the version that superseded it lets it go.

use std::collections::VecDeque;
use std::sync::{Arc, Weak};

use gitcd_journal::Segments;

use crate::version::Version;

/// Superseded versions.
#[derive(Debug, Default)]
pub(super) struct Old {
    /// Those whose value is in memory and, as far as is known, in the journal too; oldest first.
    queue: VecDeque<(Weak<Version>, usize)>,
    queue_bytes: usize,
    /// Those whose value has left memory.
    evicted: Vec<Weak<Version>>,
    /// Those whose value is in memory only.
    stuck: Vec<(Weak<Version>, usize)>,
    stuck_bytes: usize,
}

impl Old {
    /// What recovery found.
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

    /// Bytes of values that are in memory.
    pub(super) fn bytes(&self) -> usize {
        self.queue_bytes + self.stuck_bytes
    }

    /// One more was superseded.
    pub(super) fn add(&mut self, version: &Arc<Version>) {
        let length = version.value_length as usize;
        self.queue.push_back((Arc::downgrade(version), length));
        self.queue_bytes += length;
    }

    /// Lets the oldest values leave memory, until there are at most so many bytes or nothing that can leave.
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

    /// Forgets those that a compaction has let go.
    pub(super) fn forget(&mut self) {
        self.evicted.retain(|version| version.strong_count() > 0);
        self.stuck.retain(|(version, _)| version.strong_count() > 0);
        self.stuck_bytes = self.stuck.iter().map(|(_, bytes)| bytes).sum();
    }

    /// Brings values back that only segments below `first_kept` have.
    ///
    /// # Errors
    /// If one cannot be read; all values are somewhere then, still.
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
