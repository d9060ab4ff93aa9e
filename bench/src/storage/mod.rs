//! Git as a database: bytes per revision, the rate of commits, the cost of a large directory, and the duration of a start.

mod directory;
mod history;
mod pace;
mod start;
mod upkeep;

use anyhow::Result;
use serde::Serialize;

pub(crate) use self::directory::Directory;
pub(crate) use self::history::History;
pub(crate) use self::pace::Pace;
pub(crate) use self::start::Starts;
use crate::args::Args;
use crate::data::{DEPLOYMENTS, KeySpace};
use crate::machine::Machine;
use crate::storage_plan::{Part, Plan};
use std::path::Path;

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
/// If a server or `git` fails.
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

/// A key space with this many keys in 50 directories.
fn spread(keys: u64) -> KeySpace {
    KeySpace { keys, ..DEPLOYMENTS }
}
