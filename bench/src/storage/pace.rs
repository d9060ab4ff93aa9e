//! One commit per revision, at a steady rate.

use std::path::Path;
use std::time::Duration;

use anyhow::Result;
use serde::Serialize;

use super::history::settle;
use super::{Plan, spread};
use crate::args::Args;
use crate::lag::Sampler;
use crate::server::Kind;
use crate::target::Target;
use crate::writers;

/// The results.
#[derive(Debug, Serialize)]
pub(crate) struct Pace {
    /// Writes a second.
    pub(crate) rate: f64,
    pub(crate) revisions: i64,
    pub(crate) commits: u64,
    pub(crate) lag_seconds: f64,
}

pub(super) async fn measure(args: &Args, folder: &Path, plan: Plan) -> Result<Pace> {
    let program = args.program(Kind::Gitcd)?.with(&["--commit-granularity=revision".into()]);
    let server = program.start("gitcd".into(), folder).await?;
    let target = Target::connect(server, args.connections, 50_000).await?;
    let space = spread(plan.keys);
    target.fill(space).await?;
    settle(&target).await?;
    let (revision, commits) = (target.client.revision().await?, target.server.commits()?.unwrap_or(0));
    let sampler = Sampler::start(target.server.address(), Duration::ZERO);
    let tally = writers::write(&target, space, Duration::from_secs(plan.seconds), Some(plan.rate)).await?;
    let lag = sampler.stop().await?;
    settle(&target).await?;
    let measured = Pace {
        rate: tally.rate(),
        revisions: target.client.revision().await? - revision,
        commits: target.server.commits()?.unwrap_or(0) - commits,
        lag_seconds: lag.iter().map(|sample| sample.seconds).fold(0.0, f64::max),
    };
    target.server.stop().await?;
    let Pace { rate, revisions, commits, lag_seconds } = &measured;
    eprintln!("  {rate:.0} a second, {revisions} revisions, {commits} commits, max lag {lag_seconds:.1} s");
    Ok(measured)
}
