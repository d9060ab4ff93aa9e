//! How fast the store answers while clients try to exhaust it.
//!
//! [`attack`] makes the requests. A store with a Git host beside it is under the same steady load alone and beside each of
//! them, in turns.

mod attack;

use std::path::Path;
use std::time::Duration;

use anyhow::{Context, Result};
use serde::Serialize;

pub(crate) use self::attack::Attack;
use self::attack::Attacker;
use crate::child::free_address;
use crate::data::{CONFIG_MAPS, KeySpace};
use crate::load::histogram;
use crate::machine::Machine;
use crate::process;
use crate::server::Program;
use crate::steady::{Latency, steady};
use crate::target::Target;

/// The amount of load.
#[derive(Clone, Copy, Debug, Serialize)]
pub(crate) struct Plan {
    /// Seconds beside each kind of request, and as many alone before it.
    pub(crate) seconds: u64,
    /// Puts a second, and as many gets.
    pub(crate) rate: u64,
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
    pub(crate) plan: Plan,
    /// All times without a hostile request.
    pub(crate) alone: Latency,
    pub(crate) beside: Vec<Beside>,
}

/// What a kind of hostile request costs the others.
#[derive(Debug, Serialize)]
pub(crate) struct Beside {
    pub(crate) attack: Attack,
    /// Directly before it.
    pub(crate) before: Latency,
    pub(crate) latency: Latency,
    /// Hostile requests that were answered, or connections that were open.
    pub(crate) answered: u64,
    /// Highest memory of the server and its programs together.
    pub(crate) memory: u64,
}

/// Runs the load alone and beside each kind of request.
pub(crate) async fn run(
    program: Program,
    folder: &Path,
    plan: Plan,
    attacks: &[Attack],
    connections: usize,
) -> Result<(String, Latency, Vec<Beside>)> {
    let host = free_address()?;
    let more = [format!("--host-listen-urls=http://{host}"), "--host-anonymous=write".to_owned()];
    let server = program.with(&more).start("gitcd".to_owned(), folder).await?;
    let target = Target::connect(server, connections, i64::MAX / 4).await?;
    let space = KeySpace { keys: 2_000, ..CONFIG_MAPS };
    target.fill(space).await?;
    let work = tempfile::tempdir_in(folder)?;
    let length = Duration::from_secs(plan.seconds);
    let (mut alone, mut beside) = (histogram(), Vec::new());
    for attack in attacks.iter().copied() {
        let grpc = target.server.address();
        let prepared = work.path().to_owned();
        let attacker = tokio::task::spawn_blocking(move || Attacker::prepare(attack, host, grpc, &prepared)).await??;
        let before = steady(&target, space, plan.rate, length).await?;
        alone.add(&before).context("all histograms have the same bounds")?;
        let running = attacker.start();
        let memory = Memory::of(target.server.pid());
        let latency = steady(&target, space, plan.rate, length).await?;
        let memory = memory.most().await?;
        let answered = tokio::task::spawn_blocking(move || running.stop()).await?;
        let one = Beside { attack, before: Latency::of(&before), latency: Latency::of(&latency), answered, memory };
        eprintln!(
            "{}: p99 {:.1} ms, {:.1} ms before; {answered} answered, {} MiB",
            attack.what(),
            one.latency.p99,
            one.before.p99,
            memory >> 20
        );
        beside.push(one);
        // What it left to do, such as removing packs, is not the next one's.
        target.settle(Duration::from_mins(2)).await?;
    }
    let version = target.server.version.clone();
    target.server.stop().await?;
    Ok((version, Latency::of(&alone), beside))
}

/// Samples the memory of a process and its children.
struct Memory {
    stop: tokio::sync::oneshot::Sender<()>,
    sampler: tokio::task::JoinHandle<u64>,
}

impl Memory {
    fn of(pid: u32) -> Self {
        let (stop, mut stopped) = tokio::sync::oneshot::channel();
        let sampler = tokio::task::spawn_blocking(move || {
            let mut most = 0;
            while stopped.try_recv() == Err(tokio::sync::oneshot::error::TryRecvError::Empty) {
                let all = process::children(pid).into_iter().chain([pid]);
                let resident = |pid| process::resident(pid).map_or(0, |found| found.anonymous + found.file);
                most = most.max(all.map(resident).sum());
                std::thread::sleep(Duration::from_millis(50));
            }
            most
        });
        Self { stop, sampler }
    }

    async fn most(self) -> Result<u64> {
        let _ended = self.stop.send(());
        Ok(self.sampler.await?)
    }
}
