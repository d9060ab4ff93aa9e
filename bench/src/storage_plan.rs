//! What the storage measurement consists of, and its amount of load.

use clap::ValueEnum;
use serde::Serialize;

/// A part of the measurement.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum, Serialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum Part {
    /// Many revisions at full speed, their size, and repacks
    History,
    /// A commit for each revision
    Pace,
    /// One directory with many keys
    Directory,
    /// Starts beside etcd
    Start,
}

impl Part {
    /// All, in the order in which they run.
    pub(crate) const ALL: [Self; 4] = [Self::History, Self::Pace, Self::Directory, Self::Start];

    /// The name for `--only`.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::History => "history",
            Self::Pace => "pace",
            Self::Directory => "directory",
            Self::Start => "start",
        }
    }
}

/// The amount of load.
#[derive(Clone, Copy, Debug, Serialize)]
pub(crate) struct Plan {
    /// Revisions of the history, and the keys that hold them.
    pub(crate) revisions: u64,
    pub(crate) keys: u64,
    /// Seconds of each load.
    pub(crate) seconds: u64,
    /// Revisions a second, each with its own commit.
    pub(crate) rate: u64,
    /// Keys in one directory.
    pub(crate) entries: u64,
    /// Writes into it, one a second.
    pub(crate) trickle: u64,
    /// Keys of the restarted servers, and updates of them before that, one commit each.
    pub(crate) start_keys: u64,
    pub(crate) start_updates: u64,
    /// Starts of each server.
    pub(crate) starts: u32,
}
