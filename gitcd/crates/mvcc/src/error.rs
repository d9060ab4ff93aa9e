//! Why the store does not do something.

use super::version::ValueLost;

/// Why an operation was not done. Nothing was changed, but for [`Error::InDoubt`].
#[derive(Clone, Debug, thiserror::Error, PartialEq, Eq)]
pub enum Error {
    /// The asked revision is below the compaction.
    #[error("required revision has been compacted")]
    Compacted,
    /// The asked revision has not happened yet.
    #[error("required revision is a future revision")]
    Future,
    /// `ignore_value` or `ignore_lease` on a key that does not exist.
    #[error("key not found")]
    KeyNotFound,
    /// No such lease.
    #[error("requested lease not found")]
    LeaseNotFound,
    /// A lease with this id exists.
    #[error("lease already exists")]
    LeaseExists,
    /// The disk is full, or the journal has reached twice its bound because commits fail.
    #[error("no space left for the journal")]
    NoSpace,
    /// An fsync failed, or a background part died: see the log. Reads go on at the last durable revision.
    #[error("writes are refused until gitcd is restarted: {0}")]
    Poisoned(String),
    /// This server does not have the writer lease at the moment, or not any more.
    #[error("this server does not have the writer lease")]
    NoLease,
    /// This server waits for the writer lease, and shows what another one writes.
    #[error("this server is a hot standby: another one has the writer lease")]
    Standby,
    /// The writer lease ended while the write was made: it is durable here, but nobody sees it, unless the lease is got back.
    #[error("the writer lease ended before the write could be acknowledged")]
    InDoubt,
    /// The server is stopping.
    #[error("server stopped")]
    Stopped,
    /// A value could not be read back.
    #[error("{0}")]
    ValueLost(String),
    /// A merge that was to have none has a conflict, in this key.
    #[error("{0} was changed on both sides")]
    Conflict(String),
    /// A merge brings so many bytes, more than a journal record can have.
    #[error(
        "the merge brings {0} bytes of keys and values at once, and {MOST} is the most; merge older commits of that branch first",
        MOST = super::merge::MOST
    )]
    MergeTooLarge(u64),
}

impl From<ValueLost> for Error {
    fn from(lost: ValueLost) -> Self {
        Self::ValueLost(lost.to_string())
    }
}
