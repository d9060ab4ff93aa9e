//! Errors of the store.

use gitcd_core::blocking::Panicked;

use super::version::ValueLost;

/// Why an operation failed. Nothing was changed, except for [`Error::InDoubt`].
#[derive(Clone, Debug, thiserror::Error, PartialEq, Eq)]
pub enum Error {
    /// The requested revision is below the compact revision.
    #[error("required revision has been compacted")]
    Compacted,
    /// The requested revision is above the current one.
    #[error("required revision is a future revision")]
    Future,
    /// `ignore_value` or `ignore_lease` on a key that does not exist.
    #[error("key not found")]
    KeyNotFound,
    /// The lease does not exist.
    #[error("requested lease not found")]
    LeaseNotFound,
    /// A lease with this ID exists.
    #[error("lease already exists")]
    LeaseExists,
    /// The disk is full, or the journal has reached twice its size limit because commits fail.
    #[error("no space left for the journal")]
    NoSpace,
    /// An fsync failed, or a background task terminated: see the log. Reads continue at the last durable revision.
    #[error("writes are refused until gitcd is restarted: {0}")]
    Poisoned(String),
    /// This server does not hold the writer lease (any more).
    #[error("this server does not have the writer lease")]
    NoLease,
    /// This server is a hot standby: it waits for the writer lease, and serves what the writer has pushed.
    #[error("this server is a hot standby: another one has the writer lease")]
    Standby,
    /// This server shows a moment of the past.
    #[error("this server shows the past ({0}), and is read only")]
    Past(String),
    /// The writer lease ended during the write: it is durable here, but only becomes visible if this server regains the lease.
    #[error("the writer lease ended before the write could be acknowledged")]
    InDoubt,
    /// The server is stopping.
    #[error("server stopped")]
    Stopped,
    /// A superseded value could not be read back from the journal.
    #[error("{0}")]
    ValueLost(String),
    /// A merge without conflicts was requested, but this key has one.
    #[error("{0} was changed on both sides")]
    Conflict(String),
    /// The work panicked.
    #[error(transparent)]
    Internal(#[from] Panicked),
}

impl From<ValueLost> for Error {
    fn from(lost: ValueLost) -> Self {
        Self::ValueLost(lost.to_string())
    }
}
