//! Both stores behind a kube-apiserver each: what a client of Kubernetes notices of the store.
//!
//! An [`apiserver`] runs in front of each store, [`http`] asks it, [`work`] is what it is asked for, with [`objects`].

mod apiserver;
mod http;
mod objects;
pub(crate) mod work;

use std::path::Path;
use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use serde::Serialize;
use trishanku::plane::Assets;
use trishanku::plane::components::EPHEMERAL;

use self::apiserver::ApiServer;
use self::work::{Turn, Work};
use crate::load::Tally;
use crate::machine::Machine;
use crate::process;
use crate::server::Kind;
use crate::target::Target;

/// Turns that a kind of work has in a round; writes are divided into as many parts.
const TURNS: u64 = 4;
/// Objects of the unmeasured round before the first one.
const WARM_UP: u64 = 500;
const SETTLE_LIMIT: Duration = Duration::from_secs(30);
/// A kube-apiserver is quiet when it used less than this part of one core …
const QUIET_CORE: f64 = 0.3;
/// … over this time.
const QUIET_WINDOW: Duration = Duration::from_millis(300);

/// How much there is to do.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct Plan {
    pub(crate) objects: u64,
    pub(crate) rounds: u32,
    /// Writes under way at once.
    pub(crate) writers: usize,
    /// Connections to each kube-apiserver.
    pub(crate) connections: usize,
    /// How kube-apiserver encodes what it stores.
    pub(crate) media_type: String,
}

/// The measurement.
#[derive(Debug, Serialize)]
pub(crate) struct Measured {
    /// The command line, without paths of this machine.
    pub(crate) command: String,
    /// Start, UTC.
    pub(crate) date: String,
    pub(crate) machine: Machine,
    pub(crate) client_threads: usize,
    #[serde(flatten)]
    pub(crate) plan: Plan,
    /// Version of kube-apiserver.
    pub(crate) kubernetes: String,
    pub(crate) stores: Vec<Store>,
    pub(crate) works: Vec<Compared>,
}

/// A store at the end.
#[derive(Debug, Serialize)]
pub(crate) struct Store {
    pub(crate) label: String,
    pub(crate) version: String,
    /// Peak memory, in bytes: of the store and of its kube-apiserver.
    pub(crate) peak_memory: u64,
    pub(crate) apiserver_peak_memory: u64,
    pub(crate) revisions: i64,
}

/// One kind of work on both stores.
#[derive(Debug, Serialize)]
pub(crate) struct Compared {
    pub(crate) name: &'static str,
    pub(crate) what: &'static str,
    pub(crate) unit: &'static str,
    pub(crate) clients: usize,
    pub(crate) sides: Vec<Side>,
}

/// One kind of work on one store.
#[derive(Debug, Serialize)]
pub(crate) struct Side {
    /// Operations per second of load.
    pub(crate) rate: f64,
    /// The same for every turn.
    pub(crate) turns: Vec<f64>,
    pub(crate) operations: u64,
    pub(crate) load_seconds: f64,
    /// Latencies in milliseconds.
    pub(crate) p50_ms: f64,
    pub(crate) p99_ms: f64,
    pub(crate) max_ms: f64,
    /// Processor seconds of the store and of its kube-apiserver, with what they did after the turns.
    pub(crate) store_cpu_seconds: f64,
    pub(crate) apiserver_cpu_seconds: f64,
    /// Processor seconds of this program in the turns, and of everything else on the machine: noise.
    pub(crate) client_cpu_seconds: f64,
    pub(crate) other_cpu_seconds: f64,
    /// Bytes that the store wrote to disk.
    pub(crate) written_bytes: u64,
}

/// What `trishanku up` tells a store of this kind besides where it is.
pub(crate) fn store_arguments(kind: Kind) -> Vec<String> {
    match kind {
        Kind::Gitcd => vec![format!("--ephemeral-prefixes=default={EPHEMERAL}")],
        Kind::Etcd => Vec::new(),
    }
}

/// Does all the work on all stores, in turns.
///
/// # Errors
/// Any answer that is not as it should be ends the measurement.
pub(crate) async fn run(
    targets: &[Target],
    assets: &Assets,
    data: &Path,
    plan: &Plan,
) -> Result<(Vec<Compared>, Vec<Store>, String)> {
    let mut planes = Vec::new();
    for target in targets {
        let apiserver = ApiServer::start(assets, target, data, &plan.media_type, plan.connections).await?;
        eprintln!("kube-apiserver on {} runs as process {}", target.server.label, apiserver.pid());
        for number in 0..objects::NAMESPACES {
            apiserver.http.post(0, "/api/v1/namespaces", objects::namespace_object(number)).await?;
        }
        planes.push(Plane { target, apiserver });
    }
    let kubernetes = planes.first().context("there is a store")?.version().await?;
    let mut gathered = vec![vec![Gathered::default(); planes.len()]; Work::ALL.len()];
    let start = Instant::now();
    for round in 0..=plan.rounds {
        // The first one warms up connections, caches and allocators.
        let measured = round > 0;
        let total = if measured { plan.objects } else { WARM_UP };
        for (work, so_far) in Work::ALL.into_iter().zip(&mut gathered) {
            let turns = if measured { TURNS } else { 1 };
            for turn in 0..turns {
                let objects = total * turn / turns..total * (turn + 1) / turns;
                let turn_of = Turn { objects, total, round: round.into(), writers: plan.writers };
                // First, second, second, first: neither always has the warmer or the noisier turn.
                let mut order: Vec<usize> = (0..planes.len()).collect();
                if (turn + u64::from(round)) % 2 == 1 {
                    order.reverse();
                }
                for number in order {
                    let done = planes[number].turn(work, &turn_of).await?;
                    if measured {
                        so_far[number].add(done);
                    }
                }
            }
            let rates = so_far.iter().map(|side| format!("{:>8.0}", side.total.rate()));
            let (passed, rates) = (start.elapsed().as_secs_f64(), rates.collect::<String>());
            eprintln!("{passed:6.1} s  round {round}  {:9}{rates} {}/s", work.name(), work.unit());
        }
    }
    let mut stores = Vec::new();
    for plane in planes {
        stores.push(plane.end().await?);
    }
    let compared = Work::ALL.into_iter().zip(gathered).map(|(work, sides)| Compared {
        name: work.name(),
        what: work.what(),
        unit: work.unit(),
        clients: work.clients(plan.writers),
        sides: sides.into_iter().map(Gathered::finish).collect(),
    });
    Ok((compared.collect(), stores, kubernetes))
}

/// A store with its kube-apiserver.
struct Plane<'t> {
    target: &'t Target,
    apiserver: ApiServer,
}

/// What one turn did and took.
struct Done {
    tally: Tally,
    store: process::Usage,
    apiserver_cpu: Duration,
    client_cpu: Duration,
    other_cpu: Duration,
}

impl Plane<'_> {
    async fn version(&self) -> Result<String> {
        let answer = self.apiserver.http.get(0, "/version").await?;
        let version: serde_json::Value = serde_json::from_slice(&answer)?;
        Ok(version["gitVersion"].as_str().unwrap_or("unknown").trim_start_matches('v').to_owned())
    }

    async fn turn(&self, work: Work, turn: &Turn) -> Result<Done> {
        let (own, apiserver) = (std::process::id(), self.apiserver.pid());
        let (store_before, apiserver_before) = (self.target.usage()?, process::cpu(apiserver)?);
        let (own_before, machine_before) = (process::cpu(own)?, process::machine_cpu()?);
        let label = &self.target.server.label;
        let tally = work.turn(&self.apiserver.http, turn).await.with_context(|| format!("on {label}"))?;
        let machine = process::machine_cpu()?.saturating_sub(machine_before);
        let client_cpu = process::cpu(own)?.saturating_sub(own_before);
        let servers =
            (self.target.usage()?.cpu + process::cpu(apiserver)?).saturating_sub(store_before.cpu + apiserver_before);
        self.settle().await?;
        let after = self.target.usage()?;
        Ok(Done {
            tally,
            store: process::Usage {
                cpu: after.cpu.saturating_sub(store_before.cpu),
                written: after.written.saturating_sub(store_before.written),
            },
            apiserver_cpu: process::cpu(apiserver)?.saturating_sub(apiserver_before),
            client_cpu,
            other_cpu: machine.saturating_sub(servers).saturating_sub(client_cpu),
        })
    }

    /// Waits until neither works on in the other's turn.
    async fn settle(&self) -> Result<()> {
        let settled = self.target.settle(SETTLE_LIMIT).await?;
        let label = &self.target.server.label;
        anyhow::ensure!(settled.quiet, "{label}: no rest within {SETTLE_LIMIT:?}");
        let start = Instant::now();
        while start.elapsed() < SETTLE_LIMIT {
            let (window, before) = (Instant::now(), process::cpu(self.apiserver.pid())?);
            tokio::time::sleep(QUIET_WINDOW).await;
            let used = process::cpu(self.apiserver.pid())?.saturating_sub(before);
            if used.as_secs_f64() < QUIET_CORE * window.elapsed().as_secs_f64() {
                return Ok(());
            }
        }
        anyhow::bail!("kube-apiserver on {label}: no rest within {SETTLE_LIMIT:?}")
    }

    async fn end(self) -> Result<Store> {
        let Self { target, apiserver } = self;
        let store = Store {
            label: target.server.label.clone(),
            version: target.server.version.clone(),
            peak_memory: target.highest_memory()?,
            apiserver_peak_memory: process::peak_memory(apiserver.pid())?,
            revisions: target.client.revision().await?,
        };
        apiserver.stop().await?;
        Ok(store)
    }
}

/// What has been measured so far of one kind of work on one store.
#[derive(Clone)]
struct Gathered {
    total: Tally,
    turns: Vec<f64>,
    store: process::Usage,
    apiserver_cpu: Duration,
    client_cpu: Duration,
    other_cpu: Duration,
}

impl Default for Gathered {
    fn default() -> Self {
        let none = Duration::ZERO;
        Self {
            total: Tally::new(),
            turns: Vec::new(),
            store: process::Usage::default(),
            apiserver_cpu: none,
            client_cpu: none,
            other_cpu: none,
        }
    }
}

impl Gathered {
    fn add(&mut self, done: Done) {
        self.turns.push(done.tally.rate());
        self.total.add(&done.tally);
        self.store.cpu += done.store.cpu;
        self.store.written += done.store.written;
        self.apiserver_cpu += done.apiserver_cpu;
        self.client_cpu += done.client_cpu;
        self.other_cpu += done.other_cpu;
    }

    fn finish(self) -> Side {
        let milliseconds = |quantile: f64| self.total.latency.value_at_quantile(quantile) as f64 / 1_000_000.0;
        Side {
            rate: self.total.rate(),
            operations: self.total.operations,
            load_seconds: self.total.elapsed.as_secs_f64(),
            p50_ms: milliseconds(0.5),
            p99_ms: milliseconds(0.99),
            max_ms: milliseconds(1.0),
            store_cpu_seconds: self.store.cpu.as_secs_f64(),
            apiserver_cpu_seconds: self.apiserver_cpu.as_secs_f64(),
            client_cpu_seconds: self.client_cpu.as_secs_f64(),
            other_cpu_seconds: self.other_cpu.as_secs_f64(),
            written_bytes: self.store.written,
            turns: self.turns,
        }
    }
}
