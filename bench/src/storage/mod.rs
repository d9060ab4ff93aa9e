//! Git as a database: what a revision takes on disk, how fast commits are made, what a large directory costs, and how long a start takes.

mod directory;
mod history;
mod pace;
mod start;
mod upkeep;
mod writers;

use anyhow::Result;
use clap::ValueEnum;
use serde::Serialize;

pub(crate) use self::directory::Directory;
pub(crate) use self::history::History;
pub(crate) use self::pace::Pace;
pub(crate) use self::start::Starts;
use crate::args::Args;
use crate::data::{DEPLOYMENTS, KeySpace};
use crate::machine::Machine;
use std::path::Path;

/// A part of the measurement.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum, Serialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum Part {
    /// Many revisions at full speed, their size, and joining packs
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

    /// As in `--only`.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::History => "history",
            Self::Pace => "pace",
            Self::Directory => "directory",
            Self::Start => "start",
        }
    }
}

/// How much is written.
#[derive(Clone, Copy, Debug, Serialize)]
pub(crate) struct Plan {
    /// Revisions of the history, and keys that they are spread over.
    pub(crate) revisions: u64,
    pub(crate) keys: u64,
    /// Seconds of each stretch of load.
    pub(crate) seconds: u64,
    /// Revisions a second where each gets its commit.
    pub(crate) rate: u64,
    /// Keys in one directory.
    pub(crate) entries: u64,
    /// Writes into it, one a second.
    pub(crate) trickle: u64,
    /// Keys of the servers that are started again and again, and updates of them before that, a commit each.
    pub(crate) start_keys: u64,
    pub(crate) start_updates: u64,
    /// Starts of each.
    pub(crate) starts: u32,
}

/// The measurement.
#[derive(Debug, Serialize)]
pub(crate) struct Measured {
    /// The command line, without paths of this machine.
    pub(crate) command: String,
    /// Start, UTC.
    pub(crate) date: String,
    pub(crate) machine: Machine,
    pub(crate) version: String,
    #[serde(flatten)]
    pub(crate) plan: Plan,
    pub(crate) history: Option<History>,
    pub(crate) pace: Option<Pace>,
    pub(crate) directory: Option<Directory>,
    pub(crate) starts: Option<Starts>,
}

/// Runs the parts one after the other, each on servers of its own.
///
/// # Errors
/// A server or `git` fails.
pub(crate) async fn run(args: &Args, folder: &Path, plan: Plan, parts: &[Part], measured: &mut Measured) -> Result<()> {
    for part in Part::ALL.into_iter().filter(|part| parts.contains(part)) {
        eprintln!("{}:", part.name());
        match part {
            Part::History => measured.history = Some(history::measure(args, folder, plan).await?),
            Part::Pace => measured.pace = Some(pace::measure(args, folder, plan).await?),
            Part::Directory => measured.directory = Some(directory::measure(args, folder, plan).await?),
            Part::Start => measured.starts = Some(start::measure(args, folder, plan).await?),
        }
    }
    Ok(())
}

/// So many keys in 50 directories.
fn spread(keys: u64) -> KeySpace {
    KeySpace { keys, ..DEPLOYMENTS }
}
