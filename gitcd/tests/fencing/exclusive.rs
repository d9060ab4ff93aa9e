//! Two servers take turns in every possible way while clients write to both. One of them waits as a hot standby.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicI64, AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use gitcd::proto::etcdserverpb::kv_client::KvClient;
use parking_lot::Mutex;
use rand::rngs::StdRng;
use rand::seq::SliceRandom;
use rand::{Rng, SeedableRng};
use rustix::process::Signal;
use tokio::task::JoinSet;
use tonic::transport::Endpoint;

use crate::node::{LEASE, Node, Upstream, key, object, within};
use crate::support::build::{get, put};
use crate::support::eventually;

/// An acknowledged write: when, by which server, and its key.
#[derive(Clone, Debug)]
struct Acknowledged {
    at: Instant,
    by: usize,
    name: String,
}

#[derive(Debug, Default)]
struct Load {
    acknowledged: Mutex<Vec<Acknowledged>>,
    next: AtomicUsize,
    is_over: AtomicBool,
    /// The newest revision that each server has reported.
    revisions: [AtomicI64; 2],
}

impl Load {
    /// Asserts that a server's revisions never decrease, whatever its role.
    async fn look(&self, by: usize, client: &mut KvClient<tonic::transport::Channel>) {
        let before = self.revisions[by].load(Ordering::SeqCst);
        let looked = tokio::time::timeout(LEASE * 4, client.range(get(&key("k0")))).await;
        let Ok(Ok(answer)) = looked else { return };
        let revision = answer.into_inner().header.expect("a response has a header").revision;
        assert!(revision >= before, "server {by} reported revision {revision} after {before}");
        self.revisions[by].fetch_max(revision, Ordering::SeqCst);
    }
}

const CLIENTS: usize = 2;

/// Writes whenever the server accepts it.
async fn write(load: Arc<Load>, by: usize, address: SocketAddr) {
    let endpoint = Endpoint::from_shared(format!("http://{address}")).expect("an address is a valid URL");
    while !load.is_over.load(Ordering::Relaxed) {
        let Ok(channel) = endpoint.connect().await else {
            tokio::time::sleep(Duration::from_millis(10)).await;
            continue;
        };
        let mut client = KvClient::new(channel);
        load.look(by, &mut client).await;
        while !load.is_over.load(Ordering::Relaxed) {
            let name = format!("k{}", load.next.fetch_add(1, Ordering::Relaxed));
            // A client blocked by a stopped process would count no acknowledgements.
            let put = tokio::time::timeout(LEASE * 4, client.put(put(&key(&name), &object(&name, "{}"))));
            match put.await {
                Ok(Ok(answer)) => {
                    load.acknowledged.lock().push(Acknowledged { at: Instant::now(), by, name });
                    let revision = answer.into_inner().header.expect("a response has a header").revision;
                    load.revisions[by].fetch_max(revision, Ordering::SeqCst);
                }
                _ => break,
            }
            tokio::time::sleep(Duration::from_millis(15)).await;
        }
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
}

#[derive(Clone, Copy, Debug)]
enum Trouble {
    CutOff,
    Stopped,
    Killed,
    HandedOver,
}

/// Ends the turn of `nodes[now]`; returns once the other node writes.
async fn trouble(kind: Trouble, nodes: &mut [Node; 2], now: usize, load: &Load) {
    let [first, second] = nodes;
    let (old, new) = if now == 0 { (first, second) } else { (second, first) };
    new.waits().await;
    let start = Instant::now();
    match kind {
        Trouble::CutOff => old.cut_off(),
        Trouble::Stopped => old.server.signal(Signal::STOP),
        Trouble::Killed => old.server.kill(),
        Trouble::HandedOver => drop(old.server.terminate().await),
    }
    let stopped = Instant::now();
    new.serves().await;
    println!("{kind:?}: the other server is ready after {:?}", start.elapsed());
    within("a takeover", start.elapsed(), Duration::from_secs(5));
    let count = |by: usize| load.acknowledged.lock().iter().filter(|one| one.by == by && one.at > stopped).count();
    eventually("acknowledgements of the new writer", async || (count(1 - now) > 20).then_some(())).await;
    // The old writer notices that it lost the lease, and exits; the new one merges the writes that only the old one had.
    match kind {
        Trouble::CutOff => old.reconnect(),
        Trouble::Stopped => old.server.signal(Signal::CONT),
        Trouble::Killed | Trouble::HandedOver => {}
    }
    if matches!(kind, Trouble::CutOff | Trouble::Stopped) {
        let exit = old.server.exit().await;
        assert_eq!(exit.status.code(), Some(1), "{}", exit.output);
        assert!(exit.output.contains("was taken over by another writer"), "{}", exit.output);
    }
    old.server.begin_restart();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_old_writer_acknowledges_nothing_after_the_first_acknowledgement_of_the_new_one() {
    let seed = std::env::var("GITCD_FENCING_SEED").ok().and_then(|seed| seed.parse().ok());
    let seed = seed.unwrap_or_else(|| rand::rng().random_range(0..1_000_000_u64));
    println!("GITCD_FENCING_SEED={seed}");
    let mut random = StdRng::seed_from_u64(seed);
    let upstream = Upstream::new();
    let mut first = Node::first(&upstream, &["--writer-lease=3s"]);
    first.serves().await;
    let mut nodes = [first, Node::fresh(&upstream, &["--writer-lease=3s", "--hot-standby"])];
    let load = Arc::new(Load::default());
    let mut clients = JoinSet::new();
    for (by, node) in nodes.iter().enumerate() {
        for _ in 0..CLIENTS {
            clients.spawn(write(load.clone(), by, node.server.address()));
        }
    }
    let mut troubles = [Trouble::CutOff, Trouble::Stopped, Trouble::Killed, Trouble::HandedOver];
    troubles.shuffle(&mut random);
    for (turn, kind) in troubles.into_iter().enumerate() {
        tokio::time::sleep(Duration::from_millis(random.random_range(200..1200))).await;
        trouble(kind, &mut nodes, turn % 2, &load).await;
    }
    load.is_over.store(true, Ordering::Relaxed);
    while let Some(ended) = clients.join_next().await {
        ended.expect("clients find no violation");
    }

    let mut all = load.acknowledged.lock().clone();
    all.sort_by_key(|one| one.at);
    let changes = all.windows(2).filter(|pair| pair[0].by != pair[1].by).count();
    let turns: Vec<_> = all.chunk_by(|one, next| one.by == next.by).map(|turn| (turn[0].by, turn.len())).collect();
    assert_eq!(changes, troubles.len(), "servers and their acknowledgements in a row: {turns:?}");
    println!("acknowledged in turn: {turns:?}");

    // No write is lost: those not pushed in time were left on side branches.
    let writer = &nodes[troubles.len() % 2];
    let client = writer.server.client().await;
    for one in &all {
        eventually(&format!("{one:?}"), async || {
            let found = client.range(get(&key(&one.name))).await.result().ok()?;
            (!found.kvs.is_empty()).then_some(())
        })
        .await;
    }
    assert_eq!(writer.status().await.lease.expect("the branch has a lease").epoch, 5);
    upstream.repository().fsck();
}
