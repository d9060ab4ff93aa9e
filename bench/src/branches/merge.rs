//! A merge of many changes into a large branch, and the cost of a pull without changes.

use std::path::Path;

use anyhow::Result;
use bytes::Bytes;
use futures::stream::{self, StreamExt as _, TryStreamExt as _};
use serde::Serialize;

use super::topology::{add_remote, follower, repository};
use super::{Plan, eventually};
use crate::client::put;
use crate::data::{DEPLOYMENTS, KeySpace, NAMESPACES};
use crate::lag;
use crate::process;
use crate::server::Program;
use crate::target::{Target, WRITERS};

/// Durations of the merges, in milliseconds.
#[derive(Debug, Serialize)]
pub(crate) struct Merges {
    /// From the fetched commit to the merge commit: reading, merging, writing to the journal and to Git.
    pub(crate) joins: Vec<f64>,
    /// The whole pull, including the fetch.
    pub(crate) pulls: Vec<f64>,
    /// A pull of an unchanged remote.
    pub(crate) unchanged: Vec<f64>,
    pub(crate) seconds: f64,
    /// Processor time of everything but the servers.
    pub(crate) other_cpu_seconds: f64,
}

/// A remote URL that does not exist.
const AWAY: &str = "/nonexistent";

pub(super) async fn measure(
    program: &Program,
    folder: &Path,
    plan: Plan,
    connections: usize,
) -> Result<(String, Merges)> {
    let one = follower(program, "one", folder, "other", false, connections).await?;
    let other = follower(program, "other", folder, "one", false, connections).await?;
    let space = KeySpace { keys: plan.keys, namespaces: NAMESPACES, ..DEPLOYMENTS };
    eprintln!("{} keys on both sides", plan.keys);
    one.put_all(space, (0..plan.keys).map(|number| (number, object(space, number, 0, 0)))).await?;
    add_remote(&other, "one", &repository(&one).display().to_string())?;
    eventually("the first merge", async || Ok(figure(&other, "gitcd_remote_merges_total").await? >= 1.0)).await?;
    let mut measured = Merges { joins: vec![], pulls: vec![], unchanged: vec![], seconds: 0.0, other_cpu_seconds: 0.0 };
    let own = [one.server.pid(), other.server.pid(), std::process::id()];
    for round in 1..=plan.rounds {
        let round = u64::from(round);
        // Neither branch pulls from the other meanwhile.
        add_remote(&one, "other", AWAY)?;
        add_remote(&other, "one", AWAY)?;
        for target in [&one, &other] {
            eventually("a failed pull", async || Ok(figure(target, "gitcd_remote_failures").await? > 0.0)).await?;
        }
        let step = (plan.keys / plan.changes.max(1)).max(2);
        // Half of the keys are changed on both sides, in different fields.
        let (ours, theirs) = ((0..plan.changes).map(|at| at * step), (0..plan.changes).map(|at| at * step + at % 2));
        write(&one, ours.map(|number| (space, number, round, round - 1))).await?;
        write(
            &other,
            theirs.map(|number| {
                let both = number % step == 0;
                (space, number, if both { round - 1 } else { 0 }, round)
            }),
        )
        .await?;
        for target in [&one, &other] {
            eventually("a commit", async || Ok(figure(target, "gitcd_commit_lag_revisions").await? < 1.0)).await?;
        }
        let before =
            (figure(&one, "gitcd_remote_merges_total").await?, figure(&one, "gitcd_remote_merge_seconds_total").await?);
        let (start, cpu) = (std::time::Instant::now(), others(&own)?);
        add_remote(&one, "other", &repository(&other).display().to_string())?;
        let merged = async || {
            let page = lag::figures(one.server.address()).await?;
            Ok(lag::value(&page, "gitcd_remote_merges_total")? > before.0
                && lag::value(&page, "gitcd_remote_failures")? < 1.0)
        };
        eventually("the merge", merged).await?;
        let page = lag::figures(one.server.address()).await?;
        let took = lag::value(&page, "gitcd_remote_merge_seconds_total")? - before.1;
        measured.joins.push(took * 1e3);
        measured.pulls.push(lag::value(&page, "gitcd_remote_pull_seconds")? * 1e3);
        measured.seconds += start.elapsed().as_secs_f64();
        measured.other_cpu_seconds += others(&own)? - cpu;
        let pulled = lag::value(&page, "gitcd_remote_pulls_total")?;
        eventually("the next pull", async || Ok(figure(&one, "gitcd_remote_pulls_total").await? > pulled)).await?;
        measured.unchanged.push(figure(&one, "gitcd_remote_pull_seconds").await? * 1e3);
        eprintln!("  merge {:.0} ms, with the fetch {:.0} ms", took * 1e3, measured.pulls.last().unwrap_or(&0.0));
        // The next round starts with equal branches.
        add_remote(&other, "one", &repository(&one).display().to_string())?;
        eventually("the other branch", async || Ok(figure(&other, "gitcd_remote_failures").await? < 1.0)).await?;
    }
    let version = one.server.version.clone();
    one.server.stop().await?;
    other.server.stop().await?;
    Ok((version, measured))
}

fn others(own: &[u32]) -> Result<f64> {
    let servers = own.iter().map(|pid| process::cpu(*pid)).sum::<Result<std::time::Duration>>()?;
    Ok(process::machine_cpu()?.saturating_sub(servers).as_secs_f64())
}

async fn figure(target: &Target, name: &str) -> Result<f64> {
    lag::value(&lag::figures(target.server.address()).await?, name)
}

/// An object of about 700 bytes with one field for each side.
fn object(space: KeySpace, number: u64, ours: u64, theirs: u64) -> Bytes {
    let value = space.value(number, 1, 0);
    let mut object: serde_json::Value = serde_json::from_slice(&value).expect("the value is JSON");
    object["metadata"]["labels"]["ours"] = ours.to_string().into();
    object["metadata"]["labels"]["theirs"] = theirs.to_string().into();
    (object.to_string() + "\n").into()
}

async fn write(target: &Target, changes: impl Iterator<Item = (KeySpace, u64, u64, u64)>) -> Result<()> {
    stream::iter(changes.enumerate())
        .map(|(client, (space, number, ours, theirs))| {
            let mut kv = target.client.kv(client);
            async move {
                kv.put(put(space.key(number), object(space, number, ours, theirs))).await?;
                anyhow::Ok(())
            }
        })
        .buffer_unordered(WRITERS)
        .try_collect()
        .await
}
