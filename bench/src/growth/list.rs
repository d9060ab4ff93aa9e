//! A long list in one response, beside a steady load.

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use gitcd::proto::etcdserverpb::RangeRequest;
use serde::Serialize;

use super::{Both, Pair, SETTLE_LIMIT};
use crate::NEVER;
use crate::args::Args;
use crate::data::{DEPLOYMENTS, KeySpace, SECRETS};
use crate::growth_plan::Plan;
use crate::load::histogram;
use crate::steady::{Latency, steady};
use crate::target::Target;

/// Puts a second beside the lists, and as many gets.
const RATE: u64 = 100;
const ROUNDS: usize = 2;

/// The results.
#[derive(Debug, Serialize)]
pub(crate) struct Lists {
    pub(crate) keys: u64,
    pub(crate) rate: u64,
    pub(crate) sides: Both<Listed>,
}

/// The results of one server.
#[derive(Clone, Copy, Debug, Serialize)]
pub(crate) struct Listed {
    /// Latency of the puts and gets alone, and beside the lists.
    pub(crate) alone: Latency,
    pub(crate) beside: Latency,
    /// Median duration of a list, in seconds.
    pub(crate) seconds: f64,
    pub(crate) lists: usize,
    /// Bytes of a list.
    pub(crate) bytes: u64,
    /// Resident memory before the lists, and the highest beside them.
    pub(crate) before: u64,
    pub(crate) peak: u64,
}

pub(super) async fn measure(args: &Args, folder: &Path, plan: &Plan, versions: &mut Vec<String>) -> Result<Lists> {
    let pair = Pair::start(args, folder, NEVER).await?;
    *versions = pair.versions();
    let listed = KeySpace { keys: plan.listed, ..SECRETS };
    let length = Duration::from_secs(plan.seconds) / ROUNDS as u32;
    for target in [&pair.0.gitcd, &pair.0.etcd] {
        target.fill(listed).await?;
        target.fill(DEPLOYMENTS).await?;
        target.settle(SETTLE_LIMIT).await?;
    }
    let turns = pair.in_turns(ROUNDS, async |target| turn(target, listed, length).await).await?;
    let sides = Both { gitcd: summary(&turns.gitcd)?, etcd: summary(&turns.etcd)? };
    for (name, side) in [("gitcd", &sides.gitcd), ("etcd", &sides.etcd)] {
        eprintln!("  {name}: p99 {:.1} ms, {:.1} ms beside {} lists", side.alone.p99, side.beside.p99, side.lists);
    }
    pair.stop().await?;
    Ok(Lists { keys: plan.listed, rate: RATE, sides })
}

/// A turn of one server.
struct Turn {
    alone: hdrhistogram::Histogram<u64>,
    beside: hdrhistogram::Histogram<u64>,
    seconds: Vec<f64>,
    bytes: u64,
    before: u64,
    peak: u64,
}

async fn turn(target: &Target, listed: KeySpace, length: Duration) -> Result<Turn> {
    let alone = steady(target, DEPLOYMENTS, RATE, length).await?;
    target.settle(SETTLE_LIMIT).await?;
    target.reset_peak_memory()?;
    let before = target.peak_memory()?;
    let is_over = Arc::new(AtomicBool::new(false));
    let lists = tokio::spawn(list(target.client.kv(0), listed, is_over.clone()));
    let beside = steady(target, DEPLOYMENTS, RATE, length).await;
    is_over.store(true, Ordering::Relaxed);
    let (seconds, bytes) = lists.await.context("the lister panicked")??;
    let peak = target.peak_memory()?;
    target.settle(SETTLE_LIMIT).await?;
    Ok(Turn { alone, beside: beside?, seconds, bytes, before, peak })
}

/// Lists all keys again and again; returns the duration of each list, and the bytes of the last one.
async fn list(
    mut kv: gitcd::proto::etcdserverpb::kv_client::KvClient<tonic::transport::Channel>,
    listed: KeySpace,
    is_over: Arc<AtomicBool>,
) -> Result<(Vec<f64>, u64)> {
    let (mut seconds, mut bytes) = (Vec::new(), 0);
    while seconds.is_empty() || !is_over.load(Ordering::Relaxed) {
        let all = RangeRequest { key: listed.prefix().into(), range_end: listed.end(), ..RangeRequest::default() };
        let started = Instant::now();
        let answer = kv.range(all).await?.into_inner();
        seconds.push(started.elapsed().as_secs_f64());
        ensure!(answer.kvs.len() as u64 == listed.keys, "a list has {} keys", answer.kvs.len());
        bytes = answer.kvs.iter().map(|pair| (pair.key.len() + pair.value.len()) as u64).sum();
    }
    Ok((seconds, bytes))
}

fn summary(turns: &[Turn]) -> Result<Listed> {
    let (mut alone, mut beside, mut seconds) = (histogram(), histogram(), Vec::new());
    for turn in turns {
        alone.add(&turn.alone).context("all histograms have the same bounds")?;
        beside.add(&turn.beside).context("all histograms have the same bounds")?;
        seconds.extend(&turn.seconds);
    }
    seconds.sort_by(f64::total_cmp);
    Ok(Listed {
        alone: Latency::of(&alone),
        beside: Latency::of(&beside),
        seconds: seconds[seconds.len() / 2],
        lists: seconds.len(),
        bytes: turns.iter().map(|turn| turn.bytes).max().unwrap_or(0),
        before: turns.iter().map(|turn| turn.before).max().unwrap_or(0),
        peak: turns.iter().map(|turn| turn.peak).max().unwrap_or(0),
    })
}
