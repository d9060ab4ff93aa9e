//! Puts while many watchers wait, each for a key of its own, as kubelets do.

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use gitcd::proto::etcdserverpb::kv_client::KvClient;
use gitcd::proto::etcdserverpb::watch_request::RequestUnion;
use gitcd::proto::etcdserverpb::{WatchCreateRequest, WatchRequest, WatchResponse};
use rand::rngs::StdRng;
use rand::{Rng, SeedableRng};
use serde::Serialize;
use tokio::sync::{mpsc, watch};
use tokio::task::JoinSet;
use tokio_stream::wrappers::ReceiverStream;
use tonic::Streaming;
use tonic::transport::Channel;

use super::{Both, COMPACT_EVERY, Pair, SETTLE_LIMIT, p99, total};
use crate::args::Args;
use crate::client::{put, revision_in};
use crate::data::{KeySpace, SLICES};
use crate::growth_plan::Plan;
use crate::load::{Done, Step, Tally, closed_loop};
use crate::target::{Target, WRITERS};

const ROUNDS: usize = 4;
/// Watchers of a stream, as kube-apiserver has one for each resource.
const PER_STREAM: usize = 100;
const CATCH_UP_LIMIT: Duration = Duration::from_mins(1);

/// The results, one for each number of watchers.
#[derive(Debug, Serialize)]
pub(crate) struct WatcherCounts(pub(crate) Vec<WatcherCount>);

/// The results with one number of watchers.
#[derive(Debug, Serialize)]
pub(crate) struct WatcherCount {
    pub(crate) watchers: usize,
    /// Puts a second from 64 clients.
    pub(crate) rate: Both<f64>,
    /// p99 of a put in milliseconds.
    pub(crate) p99: Both<f64>,
    /// Events that the watchers received.
    pub(crate) events: Both<u64>,
}

pub(super) async fn measure(
    args: &Args,
    folder: &Path,
    plan: &Plan,
    versions: &mut Vec<String>,
) -> Result<WatcherCounts> {
    let pair = Pair::start(args, folder, COMPACT_EVERY).await?;
    *versions = pair.versions();
    let most = plan.watchers.iter().copied().max().unwrap_or(0);
    // Also with few watchers, so that all numbers of them have the same puts.
    let space = KeySpace { keys: (most as u64).max(1_000), ..SLICES };
    for target in [&pair.0.gitcd, &pair.0.etcd] {
        target.fill(space).await?;
        target.settle(SETTLE_LIMIT).await?;
    }
    let mut found = Vec::new();
    for watchers in plan.watchers.iter().copied() {
        let length = Duration::from_secs(plan.seconds) / ROUNDS as u32;
        let turns = pair.in_turns(ROUNDS, async |target| turn(target, space, watchers, length).await).await?;
        let side = |turns: &[(Tally, u64)]| {
            let tally = total(turns.iter().map(|(tally, _)| tally));
            (tally.rate(), p99(&tally), turns.iter().map(|(_, received)| received).sum())
        };
        let (gitcd, etcd) = (side(&turns.gitcd), side(&turns.etcd));
        eprintln!("  {watchers} watchers: {:.0} and {:.0} puts/s", gitcd.0, etcd.0);
        found.push(WatcherCount {
            watchers,
            rate: Both { gitcd: gitcd.0, etcd: etcd.0 },
            p99: Both { gitcd: gitcd.1, etcd: etcd.1 },
            events: Both { gitcd: gitcd.2, etcd: etcd.2 },
        });
    }
    pair.stop().await?;
    Ok(WatcherCounts(found))
}

/// Returns the puts, and the number of events that the watchers received: one for each put to one of their keys.
async fn turn(target: &Target, space: KeySpace, watchers: usize, length: Duration) -> Result<(Tally, u64)> {
    let from = target.client.revision().await? + 1;
    let (received, mut arrived) = watch::channel(0);
    let (mut readers, mut open) = (JoinSet::new(), Vec::new());
    for first in (0..watchers).step_by(PER_STREAM) {
        let keys = first..watchers.min(first + PER_STREAM);
        let (requests, answers) = opened(target, space, keys, from).await?;
        open.push(requests);
        readers.spawn(read(answers, received.clone()));
    }
    let expected = Arc::new(AtomicU64::new(0));
    let writers = (0..WRITERS).map(|number| Writer {
        kv: target.client.kv(number),
        space,
        watched: watchers as u64,
        expected: expected.clone(),
        random: StdRng::from_os_rng(),
    });
    let tally = closed_loop(target, writers.collect(), length).await?;
    let expected = expected.load(Ordering::Relaxed);
    let all = tokio::time::timeout(CATCH_UP_LIMIT, arrived.wait_for(|received| *received >= expected)).await;
    drop(all.with_context(|| format!("{expected} events have not reached their watchers"))??);
    while let Some(ended) = readers.try_join_next() {
        ended.context("a watcher panicked")??;
    }
    readers.shutdown().await;
    drop(open);
    target.settle(SETTLE_LIMIT).await?;
    let received = *received.borrow();
    ensure!(received == expected, "{received} events instead of {expected}");
    Ok((tally, received))
}

/// Opens a stream with a watcher for each of these keys.
async fn opened(
    target: &Target,
    space: KeySpace,
    keys: std::ops::Range<usize>,
    from: i64,
) -> Result<(mpsc::Sender<WatchRequest>, Streaming<WatchResponse>)> {
    let (requests, outgoing) = mpsc::channel(PER_STREAM);
    let count = keys.len();
    for number in keys.clone() {
        let create =
            WatchCreateRequest { key: space.key(number as u64), start_revision: from, ..WatchCreateRequest::default() };
        requests.send(WatchRequest { request_union: Some(RequestUnion::CreateRequest(create)) }).await?;
    }
    let mut client = target.client.watch(keys.start / PER_STREAM);
    let mut answers = client.watch(ReceiverStream::new(outgoing)).await?.into_inner();
    for _ in 0..count {
        let answer = answers.message().await?.context("the watch stream ended")?;
        ensure!(answer.created && !answer.canceled, "a watch was not created: {}", answer.cancel_reason);
    }
    Ok((requests, answers))
}

async fn read(mut answers: Streaming<WatchResponse>, received: watch::Sender<u64>) -> Result<()> {
    while let Some(answer) = answers.message().await? {
        ensure!(!answer.canceled, "a watcher was canceled: {}", answer.cancel_reason);
        received.send_modify(|received| *received += answer.events.len() as u64);
    }
    Ok(())
}

struct Writer {
    kv: KvClient<Channel>,
    space: KeySpace,
    /// Keys below this number are watched.
    watched: u64,
    expected: Arc<AtomicU64>,
    random: StdRng,
}

impl Step for Writer {
    async fn step(&mut self) -> Result<Done> {
        let number = self.random.random_range(0..self.space.keys);
        let value = self.space.value(number, self.random.random_range(1..10_000), self.random.random());
        let answer = self.kv.put(put(self.space.key(number), value)).await?.into_inner();
        if number < self.watched {
            self.expected.fetch_add(1, Ordering::Relaxed);
        }
        Ok(Done { revision: revision_in(answer.header.as_ref()), conflicts: 0 })
    }
}
