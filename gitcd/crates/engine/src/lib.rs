//! What ties the store, the journal and Git into a branch.
//!
//! [`recovery`] opens a branch: Git, the snapshot and the journal become a store. [`committer`] brings the store's log to Git.
//! [`compactor`] decides when history is compacted, [`maintenance`] keeps the repository small, [`backup`] writes and reads snapshots
//! in etcd's format.

pub mod backup;
pub mod committer;
pub mod compactor;
pub mod maintenance;
pub mod recovery;
