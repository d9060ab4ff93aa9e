//! Memory of both servers with many keys and a long history, and with a history that is never compacted.

use std::time::{Duration, Instant};

use anyhow::Result;
use rand::rngs::StdRng;
use rand::{Rng, SeedableRng};
use serde::Serialize;
use tokio::sync::oneshot;
use tokio::task::JoinHandle;

use crate::data::{DEPLOYMENTS, KeySpace};
use crate::disk::{self, Part};
use crate::machine::Machine;
use crate::process;
use crate::target::Target;

/// Interval of memory samples between the peaks that the kernel records.
const INTERVAL: Duration = Duration::from_millis(500);
/// Limit until a server has finished work deferred during the load.
const SETTLE_LIMIT: Duration = Duration::from_mins(2);
/// Both servers get the same updates in the same order.
const SEED: u64 = 100_000;

/// The amount of load.
#[derive(Clone, Copy, Debug, Serialize)]
pub(crate) struct Plan {
    /// Initial keys.
    pub(crate) keys: u64,
    /// Updates of random keys after that.
    pub(crate) updates: u64,
    /// Revisions between compactions; `None` for no compaction.
    pub(crate) compact_every: Option<i64>,
}

/// The measurement.
#[derive(Debug, Serialize)]
pub(crate) struct Measured {
    /// The command line, without paths of this machine.
    pub(crate) command: String,
    /// Start, UTC.
    pub(crate) date: String,
    pub(crate) machine: Machine,
    /// In the order in which they were measured.
    pub(crate) cases: Vec<Case>,
}

/// The measurement of one load.
#[derive(Debug, Serialize)]
pub(crate) struct Case {
    #[serde(flatten)]
    pub(crate) plan: Plan,
    /// The servers, in the order in which they ran.
    pub(crate) sides: Vec<Side>,
}

/// The results of one server.
#[derive(Debug, Serialize)]
pub(crate) struct Side {
    pub(crate) label: String,
    pub(crate) version: String,
    /// Peak resident memory in bytes: with all keys, and at the end.
    pub(crate) peak_filled: u64,
    pub(crate) peak: u64,
    /// Highest samples of anonymous and of file-backed memory.
    pub(crate) peak_anonymous: u64,
    pub(crate) peak_file: u64,
    /// Resident memory once the server is idle, and its share of it (`Pss`).
    pub(crate) rest: u64,
    pub(crate) rest_share: u64,
    /// Seconds of the two load phases, and of the work after them.
    pub(crate) fill_seconds: f64,
    pub(crate) update_seconds: f64,
    pub(crate) settle_seconds: f64,
    /// Processor seconds of the server.
    pub(crate) cpu_seconds: f64,
    /// Processor seconds of everything but server and client during the load: noise.
    pub(crate) other_cpu_seconds: f64,
    pub(crate) revisions: i64,
    pub(crate) compactions: u64,
    pub(crate) commits: Option<u64>,
    pub(crate) disk: Vec<Part>,
    pub(crate) samples: Vec<Sample>,
}

/// Resident memory at one moment, in bytes.
#[derive(Clone, Copy, Debug, Serialize)]
pub(crate) struct Sample {
    /// Seconds since the start of the load.
    pub(crate) at: f64,
    pub(crate) anonymous: u64,
    pub(crate) file: u64,
}

/// Loads a fresh server as fast as it can, and waits until it is idle.
pub(crate) async fn measure(target: &Target, plan: Plan) -> Result<Side> {
    let (server, pid, own) = (&target.server, target.server.pid(), std::process::id());
    let label = &server.label;
    let space = KeySpace { keys: plan.keys, ..DEPLOYMENTS };
    let looking = Sampler::start(pid);
    let (machine_before, own_before) = (process::machine_cpu()?, process::cpu(own)?);
    let before = target.usage()?.cpu;

    let start = Instant::now();
    target.fill(space).await?;
    let fill_seconds = start.elapsed().as_secs_f64();
    let peak_filled = target.peak_memory()?;
    eprintln!("{label}: {} keys in {fill_seconds:.1} s, peak {} MiB", plan.keys, peak_filled >> 20);

    let mut random = StdRng::seed_from_u64(SEED);
    let updates = (0..plan.updates).map(|_| {
        let number = random.random_range(0..space.keys);
        (number, space.value(number, random.random_range(1..10_000), random.random()))
    });
    let start = Instant::now();
    target.put_all(space, updates).await?;
    let update_seconds = start.elapsed().as_secs_f64();
    let peak = target.peak_memory()?;
    eprintln!("{label}: {} updates in {update_seconds:.1} s, peak {} MiB", plan.updates, peak >> 20);

    let others = process::machine_cpu()?.saturating_sub(machine_before);
    let others = others.saturating_sub(target.usage()?.cpu.saturating_sub(before));
    let others = others.saturating_sub(process::cpu(own)?.saturating_sub(own_before));
    let settled = target.settle(SETTLE_LIMIT).await?;
    anyhow::ensure!(settled.quiet, "{label}: not idle within {SETTLE_LIMIT:?} after the load");
    let samples = looking.stop().await?;
    let most = |what: fn(&Sample) -> u64| samples.iter().map(what).max().unwrap_or(0);
    let rest = process::resident(pid)?;
    Ok(Side {
        label: label.clone(),
        version: server.version.clone(),
        peak_filled,
        peak: target.peak_memory()?,
        peak_anonymous: most(|sample| sample.anonymous),
        peak_file: most(|sample| sample.file),
        rest: rest.anonymous + rest.file,
        rest_share: process::proportional(pid)?,
        fill_seconds,
        update_seconds,
        settle_seconds: settled.after.as_secs_f64(),
        cpu_seconds: target.usage()?.cpu.as_secs_f64(),
        other_cpu_seconds: others.as_secs_f64(),
        revisions: target.client.revision().await?,
        compactions: target.compactor.issued(),
        commits: server.commits()?,
        disk: disk::parts(server.kind, &server.data())?,
        samples,
    })
}

/// Samples a process's memory in the background until it is stopped.
struct Sampler {
    stop: oneshot::Sender<()>,
    task: JoinHandle<Result<Vec<Sample>>>,
}

impl Sampler {
    fn start(pid: u32) -> Self {
        let (stop, mut stopped) = oneshot::channel();
        let start = Instant::now();
        let task = tokio::spawn(async move {
            let mut samples = Vec::new();
            let mut ticks = tokio::time::interval(INTERVAL);
            let mut last = false;
            while !last {
                tokio::select! {
                    _ = ticks.tick() => {}
                    _ = &mut stopped => last = true,
                }
                let process::Resident { anonymous, file } = process::resident(pid)?;
                samples.push(Sample { at: start.elapsed().as_secs_f64(), anonymous, file });
            }
            Ok(samples)
        });
        Self { stop, task }
    }

    async fn stop(self) -> Result<Vec<Sample>> {
        // The receiver is gone only if the task has failed, which its result reports.
        let _ = self.stop.send(());
        self.task.await?
    }
}
