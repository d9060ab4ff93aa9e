//! Many branches of one repository, which one merge follows: how long a write takes from one of them to another.

use std::path::Path;
use std::process::Command;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use futures::{StreamExt as _, TryStreamExt as _};
use serde::Serialize;
use tokio::time::MissedTickBehavior;

use crate::NEVER;
use crate::args::Args;
use crate::branches::{add_remote, bare, eventually, git, receive, watch};
use crate::child::Child;
use crate::client::put;
use crate::data::{KeySpace, PODS};
use crate::growth_plan::Plan;
use crate::process;
use crate::server::{Kind, Program};
use crate::target::Target;

/// Servers that are started at the same time.
const STARTS: usize = 4;
const MERGED: &str = "refs/heads/cluster/data";
/// Changes are noticed, so nothing has to be polled.
const POLL: &str = "--pull-ticker-duration=60s";

/// The results with one number of branches.
#[derive(Debug, Serialize)]
pub(crate) struct Star {
    pub(crate) branches: usize,
    /// Writes, to all branches but the one that is watched.
    pub(crate) writes: usize,
    /// Milliseconds from the start of a put to its event on the watched branch.
    pub(crate) p50: f64,
    pub(crate) p99: f64,
    /// Merge commits a second on the merged branch.
    pub(crate) merges: f64,
    /// Seconds from the last write until all branches had all of them.
    pub(crate) settled: f64,
    /// Processor seconds of the merge, and of all servers, for each write.
    pub(crate) merge_cpu: f64,
    pub(crate) cpu: f64,
}

pub(super) async fn measure(args: &Args, folder: &Path, branches: usize, plan: &Plan) -> Result<Star> {
    ensure!(branches > 1, "a star has two branches at least");
    let program = args.program(Kind::Gitcd)?;
    let place = tempfile::Builder::new().prefix("star-").tempdir_in(folder)?;
    let upstream = place.path().join("up.git");
    bare(&upstream)?;
    let mut merge = merge(&program, place.path(), &upstream, branches)?;
    let start = async |number: usize| start_branch(&program, folder, &upstream, number).await;
    let targets = futures::stream::iter((0..branches).map(start)).buffered(STARTS);
    let targets: Vec<Target> = targets.try_collect().await?;
    // Each branch has something of its own, so that all of them have been merged before the load.
    for (number, target) in targets.iter().enumerate() {
        let number = number as u64;
        target.client.kv(0).put(put(PODS.key(number), PODS.value(number, 1, 0))).await?;
    }
    all_have(&targets, branches as u64).await?;
    let writes = plan.branch_rate * plan.seconds;
    let (first, merges) = (branches as u64, merges(&upstream)?);
    let pids: Vec<u32> = targets.iter().map(|target| target.server.pid()).collect();
    let cpu = || pids.iter().map(|pid| process::cpu(*pid)).sum::<Result<Duration>>();
    let (cpu_before, merge_before) = (cpu()?, process::cpu(merge.pid())?);
    let start = Instant::now();
    let events = watch(&targets[0], PODS).await?;
    let received = receive(events, KeySpace { keys: writes, ..PODS }, start);
    let (written, latencies) = tokio::join!(write(&targets, first, writes, plan.branch_rate, start), received);
    let ended = written?;
    let seconds = start.elapsed().as_secs_f64();
    let made = self::merges(&upstream)?.saturating_sub(merges);
    all_have(&targets, first + writes).await?;
    let settled = ended.elapsed().as_secs_f64();
    let mut latencies = latencies?;
    latencies.sort_by(f64::total_cmp);
    let at = |part: f64| latencies[((latencies.len() - 1) as f64 * part) as usize];
    let merge_cpu = process::cpu(merge.pid())?.saturating_sub(merge_before);
    let all_cpu = cpu()?.saturating_sub(cpu_before) + merge_cpu;
    let star = Star {
        branches,
        writes: latencies.len(),
        p50: at(0.5),
        p99: at(0.99),
        merges: made as f64 / seconds,
        settled,
        merge_cpu: merge_cpu.as_secs_f64() / writes as f64,
        cpu: all_cpu.as_secs_f64() / writes as f64,
    };
    eprintln!("  {branches} branches: p50 {:.0} ms, p99 {:.0} ms, {:.1} merges/s", star.p50, star.p99, star.merges);
    for target in targets {
        target.server.stop().await?;
    }
    merge.stop().await?;
    Ok(star)
}

fn branch(number: usize) -> String {
    format!("refs/heads/b{number}/data")
}

/// Starts the merge of all branches, in a repository of its own.
fn merge(program: &Program, place: &Path, upstream: &Path, branches: usize) -> Result<Child> {
    let repository = place.join("merge.git");
    let mut repo = std::ffi::OsString::from("--repo=");
    repo.push(&repository);
    let references = [
        format!("--data-reference-names=default={MERGED}"),
        "--metadata-reference-names=default=refs/heads/cluster/metadata".to_owned(),
    ];
    let made = Command::new(program.path()).arg("init").arg(&repo).args(&references).output();
    let made = made.context("cannot start gitcd")?;
    ensure!(made.status.success(), "gitcd init failed: {}", String::from_utf8_lossy(&made.stderr));
    let url = upstream.display().to_string();
    for number in 0..branches {
        git(&repository, &["config", &format!("remote.b{number}.url"), &url])?;
    }
    let list = |name: fn(usize) -> String| (0..branches).map(name).collect::<Vec<_>>().join(":");
    let mut command = Command::new(program.path());
    command.arg("pull").arg(&repo).args(&references).args([
        "--key-prefixes=default=/registry".to_owned(),
        format!("--remote-names=default={}", list(|number| format!("b{number}"))),
        format!("--remote-data-reference-names=default={}", list(branch)),
        "--push-after-merges=default=true".to_owned(),
        "--push-on-pull-failures=default=true".to_owned(),
        POLL.to_owned(),
    ]);
    Child::start(&mut command, &place.join("merge.log"))
}

async fn start_branch(program: &Program, folder: &Path, upstream: &Path, number: usize) -> Result<Target> {
    let arguments = [
        "--remote-names=default=up".to_owned(),
        format!("--remote-data-reference-names=default={MERGED}"),
        "--push-after-merges=default=true".to_owned(),
        "--push-on-pull-failures=default=true".to_owned(),
        POLL.to_owned(),
    ];
    let metadata = format!("refs/heads/b{number}/metadata");
    let program = program.clone().with(&arguments).with_branch(&branch(number), &metadata);
    let server = program.start(format!("branch-{number}"), folder).await?;
    let target = Target::connect(server, 2, NEVER).await?;
    add_remote(&target, "up", &upstream.display().to_string())?;
    Ok(target)
}

/// Waits until every branch has this number of keys.
async fn all_have(targets: &[Target], keys: u64) -> Result<()> {
    for (number, target) in targets.iter().enumerate() {
        let has = async || Ok(target.client.count(PODS).await? >= keys);
        eventually(&format!("{keys} keys on branch {number}"), has).await?;
    }
    Ok(())
}

/// Creates keys on all branches but the first one, in turn; returns the moment after the last one.
async fn write(targets: &[Target], first: u64, writes: u64, rate: u64, start: Instant) -> Result<Instant> {
    let mut ticks = tokio::time::interval(Duration::from_secs(1) / u32::try_from(rate)?);
    ticks.set_missed_tick_behavior(MissedTickBehavior::Burst);
    for number in 0..writes {
        ticks.tick().await;
        let target = &targets[1 + number as usize % (targets.len() - 1)];
        let stamp = start.elapsed().as_nanos() as u64;
        target.client.kv(1).put(put(PODS.key(first + number), PODS.value(first + number, 1, stamp))).await?;
    }
    Ok(Instant::now())
}

/// Returns the number of merge commits on the merged branch.
fn merges(upstream: &Path) -> Result<u64> {
    let mut command = Command::new("git");
    command.arg("-C").arg(upstream).args(["rev-list", "--count", "--min-parents=2", MERGED]);
    let counted = command.output().context("cannot start git")?;
    ensure!(counted.status.success(), "git rev-list failed: {}", String::from_utf8_lossy(&counted.stderr));
    Ok(String::from_utf8_lossy(&counted.stdout).trim().parse()?)
}
