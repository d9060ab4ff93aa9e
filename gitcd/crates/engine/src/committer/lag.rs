//! How far commits are behind acknowledged writes.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use gitcd_mvcc::Store;

/// Returns the age of the oldest write that is not in Git.
pub fn lag(store: &Store) -> Duration {
    let committed = store.committed_revision();
    let oldest = store.with_index(|index, durable| {
        index.log_from(committed.next()).next().filter(|entry| entry.revision <= durable).map(|entry| entry.time_ms)
    });
    let Some(time_ms) = oldest else { return Duration::ZERO };
    let written = UNIX_EPOCH + Duration::from_millis(time_ms.max(0) as u64);
    SystemTime::now().duration_since(written).unwrap_or(Duration::ZERO)
}
