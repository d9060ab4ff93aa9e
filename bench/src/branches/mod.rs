//! How fast branches of different repositories replicate.
//!
//! [`topology`] starts the servers that follow each other, [`propagation`] writes to two of them and watches both, and
//! [`merge`] measures merges of many changes.

mod merge;
mod propagation;
mod topology;

use std::path::Path;
use std::process::Command;
use std::time::Duration;

use anyhow::{Context, Result, bail, ensure};
use serde::Serialize;

use crate::machine::Machine;
use crate::server::Program;

pub(crate) use merge::Merges;
pub(crate) use propagation::{Propagation, receive, watch};
pub(crate) use topology::{Topology, add_remote, bare};

/// The amount of load.
#[derive(Clone, Copy, Debug, Serialize)]
pub(crate) struct Plan {
    /// Seconds of writes for each topology.
    pub(crate) seconds: u64,
    /// Writes a second on each side.
    pub(crate) rate: u64,
    /// Keys of the merged branches.
    pub(crate) keys: u64,
    /// Keys that each side changes before a merge; half of them are changed on both.
    pub(crate) changes: u64,
    /// Number of merges.
    pub(crate) rounds: u32,
}

/// The results.
#[derive(Debug, Serialize)]
pub(crate) struct Measured {
    /// The command line, without paths of this machine.
    pub(crate) command: String,
    /// Start, UTC.
    pub(crate) date: String,
    pub(crate) machine: Machine,
    pub(crate) version: String,
    pub(crate) plan: Plan,
    pub(crate) propagations: Vec<Propagation>,
    pub(crate) merges: Merges,
}

/// Limit of each wait.
const PATIENCE: Duration = Duration::from_mins(1);

/// Measures all topologies and then the merges; returns gitcd's version with the results.
pub(crate) async fn run(
    program: &Program,
    folder: &Path,
    plan: Plan,
    topologies: &[Topology],
    connections: usize,
) -> Result<(String, Vec<Propagation>, Merges)> {
    let mut propagations = Vec::new();
    for &topology in topologies {
        eprintln!("{}", topology.what());
        propagations.push(propagation::measure(topology, program, folder, plan, connections).await?);
    }
    let (version, merges) = merge::measure(program, folder, plan, connections).await?;
    Ok((version, propagations, merges))
}

pub(crate) fn git(repository: &Path, words: &[&str]) -> Result<()> {
    let done = Command::new("git").arg("-C").arg(repository).args(words).output().context("cannot start git")?;
    let said = String::from_utf8_lossy(&done.stderr);
    ensure!(done.status.success(), "git {}: {said}", words.join(" "));
    Ok(())
}

/// Waits until a condition holds, polling it every few milliseconds.
pub(crate) async fn eventually(what: &str, holds: impl AsyncFn() -> Result<bool>) -> Result<()> {
    let waited = async {
        while !holds().await? {
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
        Ok(())
    };
    match tokio::time::timeout(PATIENCE, waited).await {
        Ok(done) => done,
        Err(_) => bail!("timed out after {PATIENCE:?} waiting for {what}"),
    }
}
