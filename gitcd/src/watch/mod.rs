//! Watching: who wants to know of which keys, and how each stream gets its events.
//!
//! No event is queued for anybody. The writer only marks which watchers have something to see, and from which
//! revision on ([`Hub`]); a stream then takes the events from the store's log at its own pace ([`stream`]). So a slow watcher costs
//! no memory, loses nothing, and finds out by `ErrCompacted` if it was slower than the compaction.

pub mod stream;

pub use gitcd_mvcc::hub::{Hub, Mailbox, Registration};
