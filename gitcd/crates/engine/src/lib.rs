//! Branches: the store, the journal and Git combined.
//!
//! [`recovery`] opens a branch: Git, the snapshot and the journal become a store. [`committer`] commits the store's log to Git,
//! with the actors that [`audit`] knows.
//! [`compactor`] decides when history is compacted, [`maintenance`] keeps the repository small, [`backup`] writes and reads
//! snapshots for etcd's Maintenance service, [`uncommitted`] reads what another process has not committed yet.

pub mod audit;
pub mod backup;
pub mod committer;
pub mod compactor;
pub mod maintenance;
pub mod recovery;
pub mod uncommitted;
