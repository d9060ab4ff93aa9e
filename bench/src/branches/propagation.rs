//! Latency from a write on one branch to its event on another, while both are written to.

use std::path::Path;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use gitcd::proto::etcdserverpb::watch_request::RequestUnion;
use gitcd::proto::etcdserverpb::{WatchCreateRequest, WatchRequest, WatchResponse};
use serde::Serialize;
use tokio::sync::mpsc;
use tokio::time::MissedTickBehavior;
use tokio_stream::wrappers::ReceiverStream;
use tonic::Streaming;

use super::topology::{Pair, Topology};
use super::{PATIENCE, Plan};
use crate::client::put;
use crate::data::{DEPLOYMENTS, KeySpace, SLICES, stamp_of};
use crate::lag;
use crate::process;
use crate::server::Program;
use crate::target::Target;

/// Results of one topology, in milliseconds from the start of a put to its event on the other side.
#[derive(Debug, Serialize)]
pub(crate) struct Propagation {
    pub(crate) topology: Topology,
    /// Number of writes; all arrived.
    pub(crate) writes: usize,
    pub(crate) p50: f64,
    pub(crate) p90: f64,
    pub(crate) p99: f64,
    pub(crate) max: f64,
    /// Number of merges on both sides.
    pub(crate) merges: f64,
    pub(crate) seconds: f64,
    /// Processor time of everything but the servers.
    pub(crate) other_cpu_seconds: f64,
}

pub(super) async fn measure(
    topology: Topology,
    program: &Program,
    folder: &Path,
    plan: Plan,
    connections: usize,
) -> Result<Propagation> {
    let pair = Pair::start(topology, program, folder, connections).await?;
    // Each key is written once: of several writes to a key, a merge brings only the last.
    let keys = plan.rate * plan.seconds;
    let spaces = [KeySpace { keys, ..DEPLOYMENTS }, KeySpace { keys, ..SLICES }];
    pair.fill(spaces).await?;
    let own = [pair.one.server.pid(), pair.other.server.pid()];
    let busy = || -> Result<Duration> {
        let servers = own.iter().map(|pid| process::cpu(*pid)).sum::<Result<Duration>>()?;
        Ok(process::machine_cpu()?.saturating_sub(servers + process::cpu(std::process::id())?))
    };
    let (start, before, merges_before) = (Instant::now(), busy()?, merges(&pair).await?);
    let sides = [(&pair.one, &pair.other, spaces[0]), (&pair.other, &pair.one, spaces[1])];
    let [first, second] = sides.map(|(from, to, space)| async move {
        let events = watch(to, space).await?;
        let (written, latencies) = tokio::join!(write(from, space, plan, start), receive(events, space, start));
        written.map(|()| latencies)?
    });
    let (first, second) = tokio::try_join!(first, second)?;
    let seconds = start.elapsed().as_secs_f64();
    let mut all: Vec<f64> = [first, second].concat();
    all.sort_by(f64::total_cmp);
    let at = |part: f64| all[((all.len() - 1) as f64 * part) as usize];
    let measured = Propagation {
        topology,
        writes: all.len(),
        p50: at(0.5),
        p90: at(0.9),
        p99: at(0.99),
        max: at(1.0),
        merges: merges(&pair).await? - merges_before,
        seconds,
        other_cpu_seconds: busy()?.saturating_sub(before).as_secs_f64(),
    };
    eprintln!("  p50 {:.0} ms, p99 {:.0} ms", measured.p50, measured.p99);
    pair.stop().await?;
    Ok(measured)
}

async fn merges(pair: &Pair) -> Result<f64> {
    let mut all = 0.0;
    for target in [&pair.one, &pair.other] {
        all += lag::value(&lag::figures(target.server.address()).await?, "gitcd_remote_merges_total")?;
    }
    Ok(all)
}

/// Puts every key of the space once, at the planned rate; late puts are caught up.
async fn write(target: &Target, space: KeySpace, plan: Plan, start: Instant) -> Result<()> {
    let mut ticks = tokio::time::interval(Duration::from_secs(1) / plan.rate as u32);
    ticks.set_missed_tick_behavior(MissedTickBehavior::Burst);
    let mut kv = target.client.kv(1);
    for number in 0..space.keys {
        ticks.tick().await;
        let stamp = start.elapsed().as_nanos() as u64;
        kv.put(put(space.key(number), space.value(number, 2, stamp))).await?;
    }
    Ok(())
}

/// Opens a watch of a whole space.
pub(crate) async fn watch(target: &Target, space: KeySpace) -> Result<Streaming<WatchResponse>> {
    let (requests, outgoing) = mpsc::channel(1);
    let create =
        WatchCreateRequest { key: space.prefix().into(), range_end: space.end(), ..WatchCreateRequest::default() };
    requests.send(WatchRequest { request_union: Some(RequestUnion::CreateRequest(create)) }).await?;
    let mut events = target.client.watch(2).watch(ReceiverStream::new(outgoing)).await?.into_inner();
    let created = events.message().await?.context("the watch stream ended")?;
    ensure!(created.created && !created.canceled, "a watch was not created: {}", created.cancel_reason);
    // Dropping the sender only ends the sending side.
    Ok(events)
}

/// Returns the latency of each write in milliseconds.
pub(crate) async fn receive(mut events: Streaming<WatchResponse>, space: KeySpace, start: Instant) -> Result<Vec<f64>> {
    let wanted = space.keys as usize;
    let mut latencies = Vec::with_capacity(wanted);
    while latencies.len() < wanted {
        let message = tokio::time::timeout(PATIENCE, events.message()).await;
        let message = message.with_context(|| format!("{} of {wanted} writes arrived", latencies.len()))??;
        let now = start.elapsed().as_nanos() as u64;
        for event in message.context("the watch stream ended")?.events {
            let stamp = event.kv.and_then(|pair| stamp_of(&pair.value)).context("an event without a stamp")?;
            latencies.push(now.saturating_sub(stamp) as f64 / 1e6);
        }
    }
    Ok(latencies)
}
