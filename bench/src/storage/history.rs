//! Many revisions at full speed: their size on disk, the cost of repacks to writers, and the result seen by stock Git.

use std::path::Path;
use std::time::{Duration, Instant};

use anyhow::{Result, ensure};
use hdrhistogram::Histogram;
use rand::rngs::StdRng;
use rand::{Rng, SeedableRng};
use serde::Serialize;

use super::upkeep::{self, RepackRequest, git};
use super::{Plan, spread};
use crate::args::Args;
use crate::lag::Sampler;
use crate::load::Tally;
use crate::server::Kind;
use crate::target::Target;
use crate::writers;

const SETTLE_LIMIT: Duration = Duration::from_mins(5);
/// Revisions between compactions.
const COMPACT_EVERY: i64 = 50_000;
const SEED: u64 = 1_000_000;
/// The repack is checked for its end after this much load.
const SLICE: Duration = Duration::from_secs(1);

/// The results.
#[derive(Debug, Serialize)]
pub(crate) struct History {
    pub(crate) revisions: i64,
    pub(crate) commits: u64,
    pub(crate) value_bytes: u64,
    /// Duration of the load.
    pub(crate) seconds: f64,
    /// Greatest age of an uncommitted write.
    pub(crate) lag_seconds: f64,
    /// Size of the repository's `objects`, including all indices.
    pub(crate) packs_before: u64,
    pub(crate) packs_after: u64,
    pub(crate) join_seconds: f64,
    /// Load without, and during a repack.
    pub(crate) undisturbed: Latency,
    pub(crate) joining: Latency,
    /// Duration of Git commands after the repack.
    pub(crate) fsck_seconds: f64,
    pub(crate) log_seconds: f64,
    pub(crate) clone_seconds: f64,
}

/// Latencies and rate of puts.
#[derive(Clone, Copy, Debug, Serialize)]
pub(crate) struct Latency {
    pub(crate) seconds: f64,
    pub(crate) rate: f64,
    pub(crate) p50_ms: f64,
    pub(crate) p99_ms: f64,
    pub(crate) max_ms: f64,
}

impl Latency {
    pub(super) fn of(tally: &Tally) -> Self {
        let at = |histogram: &Histogram<u64>, quantile| histogram.value_at_quantile(quantile) as f64 / 1e6;
        Self {
            seconds: tally.elapsed.as_secs_f64(),
            rate: tally.rate(),
            p50_ms: at(&tally.latency, 0.5),
            p99_ms: at(&tally.latency, 0.99),
            max_ms: at(&tally.latency, 1.0),
        }
    }
}

pub(super) async fn measure(args: &Args, folder: &Path, plan: Plan) -> Result<History> {
    let server = args.program(Kind::Gitcd)?.start("gitcd".into(), folder).await?;
    let target = Target::connect(server, args.connections, COMPACT_EVERY).await?;
    let space = spread(plan.keys);
    let sampler = Sampler::start(target.server.address(), Duration::ZERO);
    let started = Instant::now();
    target.fill(space).await?;
    let mut random = StdRng::seed_from_u64(SEED);
    let values = (0..plan.revisions.saturating_sub(plan.keys)).map(|_| {
        let number = random.random_range(0..space.keys);
        (number, space.value(number, random.random_range(1..10_000), random.random()))
    });
    target.put_all(space, values).await?;
    let seconds = started.elapsed().as_secs_f64();
    settle(&target).await?;
    let most_lag = sampler.stop().await?.iter().map(|sample| sample.seconds).fold(0.0, f64::max);
    let revisions = target.client.revision().await? - 1;
    let commits = target.server.commits()?.unwrap_or(0);
    let packs_before = upkeep::packs(&target)?;
    let each = packs_before as f64 / revisions as f64;
    eprintln!("  {revisions} revisions, {commits} commits in {seconds:.1} s, {each:.0} bytes each");

    let join_seconds = RepackRequest::ask(&target).await?.wait(&target).await?;
    let packs_after = upkeep::packs(&target)?;
    eprintln!("  repacked in {join_seconds:.1} s, {:.0} bytes each", packs_after as f64 / revisions as f64);

    let repository = target.server.repository();
    let (_, fsck_seconds) = git(&repository, &["fsck", "--full", "--no-progress"]).await?;
    let (shown, log_seconds) = git(&repository, &["log", "--format=%H", "main"]).await?;
    ensure!(shown.lines().count() as u64 == commits, "git log does not list every commit");
    let clone = folder.join("clone.git");
    let (_, clone_seconds) = clone_to(&repository, &clone).await?;
    let (theirs, _) = git(&clone, &["rev-parse", "main"]).await?;
    let (ours, _) = git(&repository, &["rev-parse", "main"]).await?;
    std::fs::remove_dir_all(&clone)?;
    ensure!(theirs == ours, "the clone has a different main");
    eprintln!("  git fsck {fsck_seconds:.1} s, git log {log_seconds:.1} s, git clone {clone_seconds:.1} s");

    // Warms up connections and caches.
    writers::write(&target, space, Duration::from_secs(2), None).await?;
    let undisturbed = writers::write(&target, space, Duration::from_secs(plan.seconds), None).await?;
    settle(&target).await?;
    let join = RepackRequest::ask(&target).await?;
    let mut joining = Tally::new();
    while !join.done(&target).await? {
        joining.add(&writers::write(&target, space, SLICE, None).await?);
    }
    let (undisturbed, joining) = (Latency::of(&undisturbed), Latency::of(&joining));
    eprintln!("  p99 of puts {:.1} ms, {:.1} ms during a repack", undisturbed.p99_ms, joining.p99_ms);
    target.server.stop().await?;
    let value_bytes = space.value(0, 1, 0).len() as u64;
    Ok(History {
        revisions,
        commits,
        value_bytes,
        seconds,
        lag_seconds: most_lag,
        packs_before,
        packs_after,
        join_seconds,
        undisturbed,
        joining,
        fsck_seconds,
        log_seconds,
        clone_seconds,
    })
}

async fn clone_to(repository: &Path, to: &Path) -> Result<(String, f64)> {
    let (from, to) = (repository.display().to_string(), to.display().to_string());
    // As over a network: everything is packed and read again.
    git(repository, &["clone", "--quiet", "--bare", "--no-local", &from, &to]).await
}

pub(super) async fn settle(target: &Target) -> Result<()> {
    let settled = target.settle(SETTLE_LIMIT).await?;
    ensure!(settled.quiet, "not idle within {SETTLE_LIMIT:?}");
    Ok(())
}
