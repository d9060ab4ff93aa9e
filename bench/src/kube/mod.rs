//! Both stores, each behind a kube-apiserver: how a Kubernetes client experiences the store.
//!
//! An [`apiserver`] runs in front of each store (a [`plane`]). [`http`] sends it the requests of [`work`] with [`objects`];
//! [`figures`] has the results.

mod apiserver;
mod figures;
mod http;
mod objects;
mod plane;
pub(crate) mod work;

use std::path::Path;
use std::time::Instant;

use anyhow::{Context, Result};
use serde::Serialize;
use trishanku::plane::Assets;
use trishanku::plane::components::EPHEMERAL;

use self::apiserver::ApiServer;
use self::figures::Gathered;
pub(crate) use self::figures::Side;
use self::plane::Plane;
use self::work::{Turn, Work};
use crate::machine::Machine;
use crate::server::Kind;
use crate::target::Target;

/// Turns of each kind of work per round; writes are divided into as many parts.
const TURNS: u64 = 4;
/// Objects of the unmeasured round before the first one.
const WARM_UP: u64 = 500;

/// The amount of work.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct Plan {
    pub(crate) objects: u64,
    pub(crate) rounds: u32,
    /// Concurrent writes.
    pub(crate) writers: usize,
    /// Connections to each kube-apiserver.
    pub(crate) connections: usize,
    /// The storage media type of kube-apiserver.
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
    #[serde(flatten)]
    pub(crate) outcome: Outcome,
}

/// The results.
#[derive(Debug, Serialize)]
pub(crate) struct Outcome {
    /// Version of kube-apiserver.
    pub(crate) kubernetes: String,
    /// Size of an object in kube-apiserver's response, in bytes.
    pub(crate) object_bytes: usize,
    pub(crate) stores: Vec<Store>,
    pub(crate) works: Vec<Compared>,
}

/// A store after all work.
#[derive(Debug, Serialize)]
pub(crate) struct Store {
    pub(crate) label: String,
    pub(crate) version: String,
    /// Peak memory in bytes, of the store and of its kube-apiserver.
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

/// The arguments that `trishanku up` gives a store of this kind, besides its location.
pub(crate) fn store_arguments(kind: Kind) -> Vec<String> {
    match kind {
        Kind::Gitcd => vec![format!("--ephemeral-prefixes=default={EPHEMERAL}")],
        Kind::Etcd | Kind::BareWire => Vec::new(),
    }
}

/// Runs all work on all stores, in turns.
///
/// # Errors
/// On the first unexpected response.
pub(crate) async fn run(targets: &[Target], assets: &Assets, data: &Path, plan: &Plan) -> Result<Outcome> {
    let (mut planes, mut object_bytes) = (Vec::new(), 0);
    for target in targets {
        let apiserver = ApiServer::start(assets, target, data, &plan.media_type, plan.connections).await?;
        eprintln!("kube-apiserver on {} runs as process {}", target.server.label, apiserver.pid());
        for number in 0..objects::NAMESPACES {
            apiserver.http.post(0, "/api/v1/namespaces", objects::namespace_object(number)).await?;
        }
        object_bytes = apiserver.http.post(0, &objects::folder(0), objects::object(0)).await?.len();
        apiserver.http.delete(0, &objects::path(0)).await?;
        planes.push(Plane { target, apiserver });
    }
    let kubernetes = planes.first().context("no store is measured")?.version().await?;
    let mut gathered = vec![vec![Gathered::default(); planes.len()]; Work::ALL.len()];
    let start = Instant::now();
    for round in 0..=plan.rounds {
        // The first round warms up connections, caches and allocators.
        let measured = round > 0;
        let total = if measured { plan.objects } else { WARM_UP };
        for (work, so_far) in Work::ALL.into_iter().zip(&mut gathered) {
            let turns = if measured { TURNS } else { 1 };
            for turn in 0..turns {
                let objects = total * turn / turns..total * (turn + 1) / turns;
                let turn_of = Turn { objects, total, round: round.into(), writers: plan.writers };
                // First, second, second, first: so that neither always has the warmer or noisier turn.
                let mut order: Vec<usize> = (0..planes.len()).collect();
                if (turn + u64::from(round)) % 2 == 1 {
                    order.reverse();
                }
                for number in order {
                    let done = planes[number].turn(work, &turn_of).await?;
                    if measured {
                        so_far[number].add(&done);
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
    Ok(Outcome { kubernetes, object_bytes, stores, works: compared.collect() })
}
