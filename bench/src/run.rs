//! Runs all servers through all workloads with each client, in short turns.

use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use serde::Serialize;

use crate::disk::{self, Part};
use crate::driver::{Clients, Driver, Language};
use crate::lag::{Sample, Sampler};
use crate::load::Tally;
use crate::process::{self, Usage};
use crate::target::Target;
use crate::workload::{Spec, Workload};

/// Short enough for noise to hit both servers, long enough for batches to form.
const TURN: Duration = Duration::from_millis(1_250);
const FEWEST_TURNS: u32 = 2;
/// Load before the first measured turn, to warm up connections, caches and allocators.
const WARM_UP: Duration = Duration::from_millis(300);
/// Limit until a server has finished work deferred during its turn.
const SETTLE_LIMIT: Duration = Duration::from_secs(20);

/// The amount of load.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Plan {
    /// Total load, over all servers, clients and workloads.
    pub(crate) seconds: f64,
    /// The wait before the folders are measured.
    pub(crate) quiet: Duration,
}

/// The results of one workload on all servers, with one client.
#[derive(Debug, Serialize)]
pub(crate) struct Comparison {
    /// Name, description, unit, clients and goal, as in [`Spec`].
    pub(crate) name: &'static str,
    pub(crate) what: &'static str,
    pub(crate) unit: &'static str,
    pub(crate) clients: usize,
    pub(crate) goal: Option<f64>,
    /// The client's language.
    pub(crate) client: Language,
    /// The result of each server in the order of the targets, or its error.
    pub(crate) sides: Vec<Result<Side, String>>,
}

/// The result of one server under one workload.
#[derive(Debug, Serialize)]
pub(crate) struct Side {
    /// Operations per second of load.
    pub(crate) rate: f64,
    /// The rate of each turn.
    pub(crate) turns: Vec<f64>,
    /// Finished operations.
    pub(crate) operations: u64,
    /// Updates that were retried because another client had changed the key.
    pub(crate) conflicts: u64,
    /// Latencies in milliseconds.
    pub(crate) p50_ms: f64,
    pub(crate) p99_ms: f64,
    pub(crate) max_ms: f64,
    /// Seconds of load.
    pub(crate) load_seconds: f64,
    /// Seconds that the server kept working after its turns.
    pub(crate) settle_seconds: f64,
    /// Whether the server became idle within the limit after every turn.
    pub(crate) settled: bool,
    /// Processor seconds of the server, including work after its turns.
    pub(crate) cpu_seconds: f64,
    /// Processor seconds of the client in the turns.
    pub(crate) client_cpu_seconds: f64,
    /// Processor seconds of everything else on the machine in the turns: noise.
    pub(crate) other_cpu_seconds: f64,
    /// Bytes that the server wrote to disk.
    pub(crate) written_bytes: u64,
    /// Peak memory of the server during this workload, in bytes.
    pub(crate) peak_memory: u64,
    /// Revisions created in the turns.
    pub(crate) revisions: i64,
    /// Commits of these revisions, if the server makes commits.
    pub(crate) commits: Option<u64>,
    /// Commit lag, if the server reports it.
    pub(crate) lag: Vec<Sample>,
}

/// A server after all workloads.
#[derive(Debug, Serialize)]
pub(crate) struct End {
    pub(crate) label: String,
    pub(crate) version: String,
    /// The highest of all workloads, in bytes.
    pub(crate) peak_memory: u64,
    pub(crate) cpu_seconds: f64,
    pub(crate) written_bytes: u64,
    pub(crate) revisions: i64,
    pub(crate) compactions: u64,
    pub(crate) commits: Option<u64>,
    /// The data folder once the server is idle.
    pub(crate) disk: Vec<Part>,
}

/// The whole measurement.
#[derive(Debug, Serialize)]
pub(crate) struct Measured {
    pub(crate) workloads: Vec<Comparison>,
    pub(crate) servers: Vec<End>,
}

/// Runs all workloads on all targets, with one client after the other.
///
/// A workload that fails on a server is reported as failed, and the others continue.
///
/// # Errors
/// If a server cannot be measured any more, usually because it has exited.
pub(crate) async fn run(
    targets: &[Target],
    workloads: &[Box<dyn Workload>],
    clients: &Clients,
    plan: Plan,
) -> Result<Measured> {
    let start = Instant::now();
    let weights: f64 = workloads.iter().map(|one| one.spec().weight).sum();
    let unit = plan.seconds / weights / (targets.len() * clients.languages.len()) as f64;
    let mut compared = Vec::new();
    for workload in workloads {
        for &language in clients.languages {
            let share = Duration::from_secs_f64(unit * workload.spec().weight);
            let sides = compare(targets, workload.as_ref(), (clients, language), share).await;
            let comparison = Comparison::new(workload.spec(), language, sides);
            comparison.log(targets, start)?;
            compared.push(comparison);
        }
    }
    tokio::time::sleep(plan.quiet).await;
    let mut servers = Vec::new();
    for target in targets {
        servers.push(end(target).await?);
    }
    Ok(Measured { workloads: compared, servers })
}

impl Comparison {
    fn new(spec: Spec, client: Language, sides: Vec<Result<Side, String>>) -> Self {
        let Spec { name, what, unit, clients, goal, .. } = spec;
        Self { name, what, unit, clients, goal, client, sides }
    }

    /// Logs the result of each server.
    ///
    /// # Errors
    /// If a server has exited.
    fn log(&self, targets: &[Target], start: Instant) -> Result<()> {
        let Self { name, unit, client, .. } = self;
        for (target, side) in targets.iter().zip(&self.sides) {
            let passed = start.elapsed().as_secs_f64();
            let (label, client) = (&target.server.label, client.name());
            match side {
                Ok(side) => {
                    let (rate, p99) = (side.rate, side.p99_ms);
                    eprintln!("{passed:6.1} s  {name:20} {client:4} {label:9} {rate:>10.0} {unit}/s, p99 {p99:.1} ms");
                }
                Err(error) => {
                    eprintln!("{passed:6.1} s  {name:20} {client:4} {label:9} FAILED: {error}");
                    if process::ended(target.server.pid()) {
                        bail!("{label} has exited:\n{}", target.server.last_words());
                    }
                }
            }
        }
        Ok(())
    }
}

/// Runs one workload with one client on all targets in turns; after each turn the server becomes idle.
async fn compare(
    targets: &[Target],
    workload: &dyn Workload,
    (clients, language): (&Clients, Language),
    share: Duration,
) -> Vec<Result<Side, String>> {
    let spec = workload.spec();
    let turns = turns(&spec, share);
    let mut gathered = Vec::new();
    for target in targets {
        gathered.push(Gathered::prepare(target, workload, clients, language).await);
    }
    for turn in 0..turns {
        // First, second, third, third, second, first: so that none always has the warmer or noisier turn.
        let mut order: Vec<usize> = (0..targets.len()).collect();
        if turn % 2 == 1 {
            order.reverse();
        }
        for number in order {
            if let Ok(so_far) = &mut gathered[number] {
                let done = so_far.turn(&targets[number], workload, share / turns).await;
                if let Err(error) = done {
                    gathered[number] = Err(error);
                }
            }
        }
    }
    let mut sides = Vec::new();
    for (target, gathered) in targets.iter().zip(gathered) {
        let side = match gathered {
            Ok(gathered) => gathered.finish(target).await,
            Err(error) => Err(error),
        };
        sides.push(side.map_err(|error| format!("{error:#}")));
    }
    sides
}

fn turns(spec: &Spec, share: Duration) -> u32 {
    if spec.whole {
        return 1;
    }
    let fitting = (share.as_secs_f64() / TURN.as_secs_f64()).round();
    (fitting as u32).max(FEWEST_TURNS)
}

/// The sum of the turns of one server under one workload so far.
struct Gathered {
    driver: Driver,
    total: Tally,
    turns: Vec<f64>,
    used: Usage,
    client_cpu: Duration,
    other_cpu: Duration,
    settle: Duration,
    settled: bool,
    lag: Vec<Sample>,
    first_revision: i64,
    first_commits: Option<u64>,
}

impl Gathered {
    async fn prepare(target: &Target, workload: &dyn Workload, clients: &Clients, language: Language) -> Result<Self> {
        let spec = workload.spec();
        target.fill(spec.keys).await?;
        let mut driver = clients.start(language, target, &spec)?;
        // So the first turn starts from an idle server, as all others do.
        driver.slice(target, workload, WARM_UP).await.context("warming up")?;
        let settled = target.settle(SETTLE_LIMIT).await?;
        target.reset_peak_memory()?;
        Ok(Self {
            driver,
            total: Tally::new(),
            turns: Vec::new(),
            used: Usage::default(),
            client_cpu: Duration::ZERO,
            other_cpu: Duration::ZERO,
            settle: Duration::ZERO,
            settled: settled.quiet,
            lag: Vec::new(),
            first_revision: target.client.revision().await?,
            first_commits: target.server.commits()?,
        })
    }

    async fn turn(&mut self, target: &Target, workload: &dyn Workload, length: Duration) -> Result<()> {
        let (before, client_before) = (target.usage()?, self.driver.cpu()?);
        let machine_before = process::machine_cpu()?;
        let sampler =
            target.server.kind.commits_later().then(|| Sampler::start(target.server.address(), self.total.elapsed));
        let done = self.driver.slice(target, workload, length).await;
        let at_end = target.usage()?;
        let machine_cpu = process::machine_cpu()?.saturating_sub(machine_before);
        if let Some(sampler) = sampler {
            self.lag.extend(sampler.stop().await?);
        }
        let done = done?;
        // After the result: a client that failed may have exited.
        let client_cpu = self.driver.cpu()?.saturating_sub(client_before);
        let settled = target.settle(SETTLE_LIMIT).await?;
        let after = target.usage()?;
        self.turns.push(done.rate());
        self.total.add(&done);
        self.used.cpu += after.cpu.saturating_sub(before.cpu);
        self.used.written += after.written.saturating_sub(before.written);
        self.client_cpu += client_cpu;
        let server_cpu = at_end.cpu.saturating_sub(before.cpu);
        self.other_cpu += machine_cpu.saturating_sub(server_cpu).saturating_sub(client_cpu);
        self.settle += settled.after;
        self.settled &= settled.quiet;
        Ok(())
    }

    async fn finish(self, target: &Target) -> Result<Side> {
        let milliseconds = |quantile: f64| self.total.latency.value_at_quantile(quantile) as f64 / 1_000_000.0;
        let commits = match (target.server.commits()?, self.first_commits) {
            (Some(last), Some(first)) => Some(last - first),
            _ => None,
        };
        Ok(Side {
            rate: self.total.rate(),
            operations: self.total.operations,
            conflicts: self.total.conflicts,
            p50_ms: milliseconds(0.5),
            p99_ms: milliseconds(0.99),
            max_ms: milliseconds(1.0),
            load_seconds: self.total.elapsed.as_secs_f64(),
            settle_seconds: self.settle.as_secs_f64(),
            settled: self.settled,
            cpu_seconds: self.used.cpu.as_secs_f64(),
            client_cpu_seconds: self.client_cpu.as_secs_f64(),
            other_cpu_seconds: self.other_cpu.as_secs_f64(),
            written_bytes: self.used.written,
            peak_memory: target.peak_memory()?,
            revisions: target.client.revision().await? - self.first_revision,
            commits,
            turns: self.turns,
            lag: self.lag,
        })
    }
}

async fn end(target: &Target) -> Result<End> {
    let server = &target.server;
    let used = target.usage()?;
    Ok(End {
        label: server.label.clone(),
        version: server.version.clone(),
        peak_memory: target.highest_memory()?,
        cpu_seconds: used.cpu.as_secs_f64(),
        written_bytes: used.written,
        revisions: target.client.revision().await?,
        compactions: target.compactor.issued(),
        commits: server.commits()?,
        disk: disk::parts(server.kind, &server.data())?,
    })
}
