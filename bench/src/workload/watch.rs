//! Watchers of one prefix, and writers that they can keep up with.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};
use bytes::Bytes;
use futures::future::{BoxFuture, FutureExt, try_join_all};
use gitcd::proto::etcdserverpb::kv_client::KvClient;
use gitcd::proto::etcdserverpb::watch_request::RequestUnion;
use gitcd::proto::etcdserverpb::{WatchCreateRequest, WatchRequest, WatchResponse};
use rand::rngs::StdRng;
use rand::{Rng, SeedableRng};
use tokio::sync::{Semaphore, mpsc, watch};
use tokio::task::JoinSet;
use tokio_stream::wrappers::ReceiverStream;
use tonic::metadata::MetadataValue;
use tonic::transport::Channel;
use tonic::{Request, Streaming};

use super::{GENERATIONS, Load, Spec, Watch, Workload};
use crate::client::{self, revision_in};
use crate::data::{SLICES, stamp_of};
use crate::load::{Done, Step, Tally, closed_loop};
use crate::target::Target;

/// Streams, each on a connection of its own, and watchers on each of them.
const STREAMS: usize = 4;
const WATCHERS_PER_STREAM: usize = 25;
const WRITERS: usize = 32;
/// Without a limit, the result would depend on how far watchers fall behind.
const WINDOW: usize = 1_000;
const CATCH_UP_LIMIT: Duration = Duration::from_secs(30);

/// 100 watchers of one prefix, as those of kube-apiserver.
pub(super) const WITH_PREVIOUS: FanOut = FanOut {
    name: "watch-100",
    what: "100 watchers of one prefix with previous values, on 4 streams; an event received is counted, its time is from the \
           start of the put to its receipt",
    goal: Some(2.0),
    prev_kv: true,
};

/// The same for half of the bytes.
pub(super) const WITHOUT_PREVIOUS: FanOut = FanOut {
    name: "watch-100-no-prev-kv",
    what: "as `watch-100`, but without previous values",
    goal: None,
    prev_kv: false,
};

/// Watchers of one prefix.
pub(super) struct FanOut {
    name: &'static str,
    what: &'static str,
    goal: Option<f64>,
    prev_kv: bool,
}

impl Workload for FanOut {
    fn spec(&self) -> Spec {
        let &Self { name, what, goal, prev_kv } = self;
        let watch = Watch {
            streams: STREAMS,
            watchers_per_stream: WATCHERS_PER_STREAM,
            window: WINDOW,
            prev_kv,
            catch_up_seconds: CATCH_UP_LIMIT.as_secs(),
        };
        Spec {
            name,
            what,
            unit: "events",
            clients: WRITERS,
            weight: 1.0,
            whole: false,
            goal,
            load: Load::Watch(watch),
            keys: SLICES,
        }
    }

    fn slice<'a>(&'a self, target: &'a Target, length: Duration) -> BoxFuture<'a, Result<Tally>> {
        fan_out(target, length, self.prev_kv).boxed()
    }
}

async fn fan_out(target: &Target, length: Duration, prev_kv: bool) -> Result<Tally> {
    let from = target.client.revision().await? + 1;
    let opened = try_join_all((0..STREAMS).map(|number| open(target, number, from, prev_kv))).await?;
    let start = Instant::now();
    let flow = Arc::new(Flow::new());
    let (total, expected) = watch::channel(None);
    let mut readers = JoinSet::new();
    for (number, stream) in opened.into_iter().enumerate() {
        let reader = Reader { number, start, from, prev_kv, flow: flow.clone(), expected: expected.clone() };
        readers.spawn(reader.run(stream));
    }
    let writers = (0..WRITERS).map(|number| Writer {
        // The streams' connections come first.
        kv: target.client.kv(STREAMS + number),
        flow: flow.clone(),
        start,
        random: StdRng::from_os_rng(),
    });
    // If a reader fails, writers would wait for it forever, so both are polled.
    let load = closed_loop(target, writers.collect(), length);
    tokio::pin!(load);
    let mut tallies = Vec::new();
    let written = loop {
        tokio::select! {
            written = &mut load => break written?.operations,
            Some(early) = readers.join_next() => tallies.push(early.context("a watcher panicked")??),
        }
    };
    total.send_replace(Some(written));
    let rest = async {
        while let Some(finished) = readers.join_next().await {
            tallies.push(finished.context("a watcher panicked")??);
        }
        anyhow::Ok(())
    };
    tokio::time::timeout(CATCH_UP_LIMIT, rest)
        .await
        .with_context(|| format!("{written} events have not reached all watchers"))??;
    let mut tally = Tally::new();
    for stream in tallies {
        let elapsed = tally.elapsed.max(stream.elapsed);
        tally.add(&stream);
        tally.elapsed = elapsed;
    }
    Ok(tally)
}

/// A watch stream whose watchers have all been created.
struct Open {
    requests: mpsc::Sender<WatchRequest>,
    answers: Streaming<WatchResponse>,
}

/// Opens a stream and its watchers as kube-apiserver does.
async fn open(target: &Target, number: usize, from: i64, prev_kv: bool) -> Result<Open> {
    let (requests, outgoing) = mpsc::channel(WATCHERS_PER_STREAM);
    for _ in 0..WATCHERS_PER_STREAM {
        let create = WatchCreateRequest {
            key: Bytes::from(SLICES.prefix()),
            range_end: SLICES.end(),
            start_revision: from,
            progress_notify: true,
            prev_kv,
            ..WatchCreateRequest::default()
        };
        let request = WatchRequest { request_union: Some(RequestUnion::CreateRequest(create)) };
        requests.send(request).await?;
    }
    let mut request = Request::new(ReceiverStream::new(outgoing));
    let metadata = request.metadata_mut();
    metadata.insert("hasleader", MetadataValue::from_static("true"));
    let mut answers = target.client.watch(number).watch(request).await?.into_inner();
    for _ in 0..WATCHERS_PER_STREAM {
        let answer = answers.message().await?.context("the watch stream ended")?;
        ensure!(answer.created && !answer.canceled, "a watch was not created: {}", answer.cancel_reason);
    }
    Ok(Open { requests, answers })
}

/// Blocks writers while watchers are behind.
struct Flow {
    room: Semaphore,
    /// Events received per stream, and the permits returned for them.
    received: [AtomicU64; STREAMS],
    given: Mutex<u64>,
}

impl Flow {
    fn new() -> Self {
        Self { room: Semaphore::new(WINDOW), received: [const { AtomicU64::new(0) }; STREAMS], given: Mutex::new(0) }
    }

    fn received(&self, stream: usize, events: u64) {
        self.received[stream].fetch_add(events, Ordering::Relaxed);
        let slowest = self.received.iter().map(|all| all.load(Ordering::Relaxed));
        let received_by_all = slowest.min().unwrap_or(0) / WATCHERS_PER_STREAM as u64;
        let mut given = self.given.lock().expect("no thread panics while holding the lock");
        if received_by_all > *given {
            self.room.add_permits((received_by_all - *given) as usize);
            *given = received_by_all;
        }
    }
}

struct Writer {
    kv: KvClient<Channel>,
    flow: Arc<Flow>,
    start: Instant,
    random: StdRng,
}

impl Step for Writer {
    async fn step(&mut self) -> Result<Done> {
        self.flow.room.acquire().await?.forget();
        let number = self.random.random_range(0..SLICES.keys);
        let generation = self.random.random_range(1..GENERATIONS);
        let stamp = self.start.elapsed().as_nanos() as u64;
        let value = SLICES.value(number, generation, stamp);
        let put = client::put(SLICES.key(number), value);
        let answer = self.kv.put(put).await?.into_inner();
        Ok(Done { revision: revision_in(answer.header.as_ref()), conflicts: 0 })
    }
}

/// Reads one stream and checks it.
struct Reader {
    number: usize,
    start: Instant,
    from: i64,
    prev_kv: bool,
    flow: Arc<Flow>,
    /// The number of puts, once it is known.
    expected: watch::Receiver<Option<u64>>,
}

impl Reader {
    /// Reads until every watcher has received one event for every put.
    ///
    /// # Errors
    /// If an event is out of order, repeated, unexpected, or of another key, or if a watcher is cancelled.
    async fn run(mut self, mut stream: Open) -> Result<Tally> {
        let mut tally = Tally::new();
        let mut watchers = [(self.from - 1, 0_u64); WATCHERS_PER_STREAM];
        loop {
            let expected = *self.expected.borrow_and_update();
            if let Some(expected) = expected {
                let most = watchers.iter().map(|watcher| watcher.1).max();
                ensure!(most <= Some(expected), "a watcher received more events than puts");
                if watchers.iter().all(|watcher| watcher.1 == expected) {
                    break;
                }
            }
            let answer = tokio::select! {
                answer = stream.answers.message() => answer?.context("the watch stream ended")?,
                changed = self.expected.changed(), if expected.is_none() => {
                    changed.context("the writers failed")?;
                    continue;
                }
            };
            self.take(&answer, &mut watchers, &mut tally)?;
        }
        // Ends the stream and all its watchers.
        drop(stream.requests);
        Ok(tally)
    }

    fn take(&self, answer: &WatchResponse, watchers: &mut [(i64, u64)], tally: &mut Tally) -> Result<()> {
        if answer.canceled {
            bail!("a watcher was canceled: {}", answer.cancel_reason);
        }
        let watcher = watchers
            .get_mut(answer.watch_id as usize)
            .with_context(|| format!("unknown watcher {}", answer.watch_id))?;
        let now = self.start.elapsed();
        for event in &answer.events {
            let kv = event.kv.as_ref().context("an event without a key-value pair")?;
            // Every put has a revision of its own, so revisions must increase.
            ensure!(
                kv.mod_revision > watcher.0,
                "watcher {} got revision {} after {}",
                answer.watch_id,
                kv.mod_revision,
                watcher.0
            );
            ensure!(
                event.prev_kv.is_some() == self.prev_kv,
                "an event of revision {} {} a previous value",
                kv.mod_revision,
                if self.prev_kv { "lacks" } else { "has" }
            );
            let stamp = stamp_of(&kv.value).context("an event with an unknown value")?;
            let delay = (now.as_nanos() as u64).saturating_sub(stamp);
            tally.latency.saturating_record(delay);
            *watcher = (kv.mod_revision, watcher.1 + 1);
        }
        let events = answer.events.len() as u64;
        if events > 0 {
            tally.operations += events;
            tally.elapsed = now;
            self.flow.received(self.number, events);
        }
        Ok(())
    }
}
