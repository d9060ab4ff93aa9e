//! Puts to one of many keys, and the memory that these take.

use std::path::Path;
use std::time::Duration;

use anyhow::Result;
use serde::Serialize;

use super::{Both, COMPACT_EVERY, Pair, SETTLE_LIMIT, p99, total};
use crate::args::Args;
use crate::data::{DEPLOYMENTS, KeySpace};
use crate::growth_plan::Plan;
use crate::load::Tally;
use crate::process;
use crate::target::Target;
use crate::writers;

/// Turns of each server with each number of keys.
const ROUNDS: usize = 4;

/// The results, one for each number of keys.
#[derive(Debug, Serialize)]
pub(crate) struct KeyCounts(pub(crate) Vec<KeyCount>);

/// The results with one number of keys.
#[derive(Debug, Serialize)]
pub(crate) struct KeyCount {
    pub(crate) keys: u64,
    /// Puts a second from 64 clients.
    pub(crate) rate: Both<f64>,
    /// The lowest and the highest rate of a turn.
    pub(crate) range: Both<[f64; 2]>,
    /// p99 of a put in milliseconds.
    pub(crate) p99: Both<f64>,
    /// Resident memory after the load, in bytes.
    pub(crate) memory: Both<u64>,
}

pub(super) async fn measure(args: &Args, folder: &Path, plan: &Plan, versions: &mut Vec<String>) -> Result<KeyCounts> {
    let pair = Pair::start(args, folder, COMPACT_EVERY).await?;
    *versions = pair.versions();
    let (mut found, mut filled) = (Vec::new(), 0);
    for keys in plan.keys.iter().copied() {
        let space = KeySpace { keys, ..DEPLOYMENTS };
        for target in [&pair.0.gitcd, &pair.0.etcd] {
            target.put_all(space, (filled..keys).map(|number| (number, space.value(number, 1, number)))).await?;
            settle(target).await?;
        }
        filled = keys;
        let turn = Duration::from_secs(plan.seconds) / ROUNDS as u32;
        let turns = pair.in_turns(ROUNDS, async |target| {
            let tally = writers::write(target, space, turn, None).await?;
            settle(target).await?;
            Ok(tally)
        });
        let turns = turns.await?;
        let rates = |turns: &[Tally]| {
            let rates = || turns.iter().map(Tally::rate);
            [rates().fold(f64::INFINITY, f64::min), rates().fold(0.0, f64::max)]
        };
        let (gitcd, etcd) = (total(&turns.gitcd), total(&turns.etcd));
        let memory = |target: &Target| process::resident(target.server.pid()).map(|found| found.anonymous + found.file);
        let count = KeyCount {
            keys,
            rate: Both { gitcd: gitcd.rate(), etcd: etcd.rate() },
            range: Both { gitcd: rates(&turns.gitcd), etcd: rates(&turns.etcd) },
            p99: Both { gitcd: p99(&gitcd), etcd: p99(&etcd) },
            memory: Both { gitcd: memory(&pair.0.gitcd)?, etcd: memory(&pair.0.etcd)? },
        };
        eprintln!("  {keys} keys: {:.0} and {:.0} puts/s", count.rate.gitcd, count.rate.etcd);
        found.push(count);
    }
    pair.stop().await?;
    Ok(KeyCounts(found))
}

async fn settle(target: &Target) -> Result<()> {
    // With large directories, gitcd delays the last commits for longer.
    target.settle(SETTLE_LIMIT).await.map(drop)
}
