//! One directory with many keys: at full speed beside the same keys in many directories, and with one write a second.

use std::path::Path;
use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use serde::Serialize;
use tokio::time::MissedTickBehavior;

use super::history::settle;
use super::upkeep::{self, RepackRequest};
use super::{Plan, spread};
use crate::args::Args;
use crate::client::put;
use crate::data::{CONFIG_MAPS, KeySpace};
use crate::lag::Sampler;
use crate::load::Tally;
use crate::server::Kind;
use crate::target::Target;
use crate::writers;

const INTERVAL: Duration = Duration::from_secs(1);
/// Turns of each side, in alternating order.
const TURNS: u32 = 4;
/// Long enough for several flushes.
const FEWEST_SECONDS: u64 = 5;

/// The results.
#[derive(Debug, Serialize)]
pub(crate) struct Directory {
    /// Puts a second into one directory, and into fifty.
    pub(crate) one: f64,
    pub(crate) many: f64,
    /// Greatest age of an uncommitted write, in one directory at full speed.
    pub(crate) lag_seconds: f64,
    /// With one write a second: the bytes that the kernel accounts to the process, the lag, and the growth of the repacked
    /// objects.
    pub(crate) trickle_seconds: f64,
    pub(crate) trickle_written: u64,
    pub(crate) trickle_lag_seconds: f64,
    pub(crate) trickle_growth: i64,
}

pub(super) async fn measure(args: &Args, folder: &Path, plan: Plan) -> Result<Directory> {
    let one = KeySpace { keys: plan.entries, ..CONFIG_MAPS };
    let sides = [filled(args, folder, one).await?, filled(args, folder, spread(plan.entries)).await?];
    let turn = Duration::from_secs((plan.seconds / u64::from(TURNS)).max(FEWEST_SECONDS));
    let mut tallies = [Tally::new(), Tally::new()];
    let mut lag_seconds: f64 = 0.0;
    for number in 0..TURNS as usize * 2 {
        // First, second, second, first.
        let side = (number + number / 2) % 2;
        let (target, space) = &sides[side];
        let sampler = Sampler::start(target.server.address(), Duration::ZERO);
        tallies[side].add(&writers::write(target, *space, turn, None).await?);
        let lag = sampler.stop().await?;
        if side == 0 {
            lag_seconds = lag.iter().map(|sample| sample.seconds).fold(lag_seconds, f64::max);
        }
        settle(target).await?;
    }
    let rates = tallies.map(|tally| tally.rate());
    eprintln!("  {:.0} puts a second in one directory, {:.0} in fifty", rates[0], rates[1]);
    let [(target, space), (other, _)] = sides;
    other.server.stop().await?;

    RepackRequest::ask(&target).await?.wait(&target).await?;
    settle(&target).await?;
    rest(&target).await?;
    let (packs, before) = (upkeep::packs(&target)?, target.usage()?);
    let sampler = Sampler::start(target.server.address(), Duration::ZERO);
    let started = Instant::now();
    trickle(&target, space, plan.trickle).await?;
    settle(&target).await?;
    let trickle_seconds = started.elapsed().as_secs_f64();
    let trickle_written = target.usage()?.written - before.written;
    let lag = sampler.stop().await?;
    eprintln!("  one write a second: {:.1} KiB a second to disk", trickle_written as f64 / trickle_seconds / 1024.0);
    RepackRequest::ask(&target).await?.wait(&target).await?;
    let trickle_growth = upkeep::packs(&target)? as i64 - packs as i64;
    target.server.stop().await?;
    Ok(Directory {
        one: rates[0],
        many: rates[1],
        lag_seconds,
        trickle_seconds,
        trickle_written,
        trickle_lag_seconds: lag.iter().map(|sample| sample.seconds).fold(0.0, f64::max),
        trickle_growth,
    })
}

/// Waits until nothing is written any more. Writes of maintenance after a repack, such as Git's commit-graph, are accounted
/// when its program exits.
async fn rest(target: &Target) -> Result<()> {
    const QUIET: Duration = Duration::from_secs(10);
    let (mut written, mut since) = (target.usage()?.written, Instant::now());
    while since.elapsed() < QUIET {
        tokio::time::sleep(INTERVAL).await;
        let now = target.usage()?.written;
        if now != written {
            (written, since) = (now, Instant::now());
        }
    }
    Ok(())
}

async fn filled(args: &Args, folder: &Path, space: KeySpace) -> Result<(Target, KeySpace)> {
    let server = args.program(Kind::Gitcd)?.start("gitcd".into(), folder).await?;
    let target = Target::connect(server, args.connections, 50_000).await?;
    target.fill(space).await?;
    settle(&target).await?;
    Ok((target, space))
}

async fn trickle(target: &Target, space: KeySpace, writes: u64) -> Result<()> {
    let mut ticks = tokio::time::interval(INTERVAL);
    ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    let mut kv = target.client.kv(0);
    for write in 0..writes {
        ticks.tick().await;
        // A step by a prime number visits all keys, each far from the previous one.
        let key = write * 7_919 % space.keys;
        let value = space.value(key, write + 2, write);
        kv.put(put(space.key(key), value)).await.with_context(|| format!("write {write} failed"))?;
    }
    ticks.tick().await;
    Ok(())
}
