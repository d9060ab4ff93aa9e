//! Duration of a start of both servers, from the process to the first response, with the same data.

use std::path::Path;
use std::time::Duration;

use anyhow::{Result, ensure};
use rand::rngs::StdRng;
use rand::{Rng, SeedableRng};
use serde::Serialize;

use super::history::settle;
use super::{Plan, spread};
use crate::args::Args;
use crate::server::{Kind, Rest};
use crate::target::Target;

const SEED: u64 = 100_000;
/// With a commit per revision, commits are slower than concurrent writes, so the backlog is bounded.
const CHUNK: u64 = 100_000;

/// The results.
#[derive(Debug, Serialize)]
pub(crate) struct Starts {
    pub(crate) gitcd: Side,
    pub(crate) etcd: Side,
}

/// The results of one server.
#[derive(Debug, Serialize)]
pub(crate) struct Side {
    pub(crate) version: String,
    pub(crate) revisions: i64,
    pub(crate) commits: Option<u64>,
    /// Seconds of each start.
    pub(crate) seconds: Vec<f64>,
}

impl Side {
    /// The median duration.
    pub(crate) fn median(&self) -> f64 {
        let mut sorted = self.seconds.clone();
        sorted.sort_by(f64::total_cmp);
        sorted.get(sorted.len() / 2).copied().unwrap_or(f64::NAN)
    }
}

pub(super) async fn measure(args: &Args, folder: &Path, plan: Plan) -> Result<Starts> {
    let (mut gitcd, mut own) = filled(args, folder, Kind::Gitcd, plan).await?;
    let (mut etcd, mut others) = filled(args, folder, Kind::Etcd, plan).await?;
    for number in 0..plan.starts {
        if number % 2 == 0 {
            own = again(args, own, &mut gitcd, plan).await?;
            others = again(args, others, &mut etcd, plan).await?;
        } else {
            others = again(args, others, &mut etcd, plan).await?;
            own = again(args, own, &mut gitcd, plan).await?;
        }
    }
    Ok(Starts { gitcd, etcd })
}

/// Fills a server and stops it.
async fn filled(args: &Args, folder: &Path, kind: Kind, plan: Plan) -> Result<(Side, Rest)> {
    let mut program = args.program(kind)?;
    if kind == Kind::Gitcd {
        program = program.with(&["--commit-granularity=revision".into()]);
    }
    let server = program.start(kind.name().into(), folder).await?;
    let target = Target::connect(server, args.connections, 50_000).await?;
    let space = spread(plan.start_keys);
    target.fill(space).await?;
    let mut random = StdRng::seed_from_u64(SEED);
    let mut left = plan.start_updates;
    while left > 0 {
        let updates: Vec<_> =
            (0..left.min(CHUNK)).map(|_| (random.random_range(0..space.keys), random.random())).collect();
        left -= updates.len() as u64;
        let values = updates.into_iter().map(|(number, stamp)| (number, space.value(number, stamp % 10_000, stamp)));
        target.put_all(space, values).await?;
        settle(&target).await?;
    }
    let version = target.server.version.clone();
    let revisions = target.client.revision().await? - 1;
    let commits = target.server.commits()?;
    eprintln!("  {}: {} keys, {revisions} revisions", kind.name(), plan.start_keys);
    let rest = target.server.rest().await?;
    Ok((Side { version, revisions, commits, seconds: Vec::new() }, rest))
}

async fn again(args: &Args, rest: Rest, side: &mut Side, plan: Plan) -> Result<Rest> {
    let program = args.program(rest.kind)?;
    let (server, took) = program.resume(rest).await?;
    let target = Target::connect(server, 1, i64::MAX / 4).await?;
    let revision = target.client.revision().await? - 1;
    ensure!(revision == side.revisions, "revision {revision} after a restart instead of {}", side.revisions);
    let keys = target.client.count(spread(plan.start_keys)).await?;
    ensure!(keys == plan.start_keys, "{keys} keys after a restart");
    side.seconds.push(took.as_secs_f64());
    eprintln!("  {} answers after {:.2} s", target.server.label, took.as_secs_f64());
    // Work after its start must not disturb the next one.
    target.settle(Duration::from_mins(1)).await?;
    target.server.rest().await
}
