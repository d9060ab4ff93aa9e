//! A client that watches a branch, loses its connection at random, and resumes at its last revision.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use gitcd::proto::etcdserverpb::watch_client::WatchClient;
use gitcd::proto::etcdserverpb::watch_request::RequestUnion;
use gitcd::proto::etcdserverpb::{WatchCreateRequest, WatchRequest, WatchResponse};
use gitcd::proto::mvccpb::event::EventType;
use parking_lot::Mutex;
use rand::Rng as _;
use tokio::sync::mpsc::{Sender, channel};
use tokio::task::JoinHandle;
use tokio_stream::wrappers::ReceiverStream;
use tonic::Streaming;

/// The state that a watcher has seen.
#[derive(Debug, Default)]
pub(crate) struct Seen {
    /// The last revision whose events are complete.
    pub(crate) revision: i64,
    /// The keys as the events leave them.
    pub(crate) content: BTreeMap<String, String>,
    /// Violations of etcd's guarantees.
    pub(crate) wrong: Vec<String>,
}

impl Seen {
    fn take(&mut self, answer: WatchResponse) {
        if answer.compact_revision != 0 {
            self.wrong.push(format!("compacted at {}", answer.compact_revision));
        }
        let mut last = self.revision;
        for event in answer.events {
            let pair = event.kv.clone().expect("an event has a key-value pair");
            // All keys are watched and every revision changes one, so no revision may be missing or repeated.
            if pair.mod_revision != last && pair.mod_revision != last + 1 || pair.mod_revision <= self.revision {
                self.wrong.push(format!("revision {} after {last}", pair.mod_revision));
            }
            last = pair.mod_revision;
            let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
            match event.r#type() {
                EventType::Put => drop(self.content.insert(text(&pair.key), text(&pair.value))),
                EventType::Delete => drop(self.content.remove(&text(&pair.key))),
            }
        }
        self.revision = last;
    }
}

/// Watches the server at an address until it is dropped.
#[derive(Debug)]
pub(crate) struct Watcher {
    seen: Arc<Mutex<Seen>>,
    task: JoinHandle<()>,
}

impl Drop for Watcher {
    fn drop(&mut self) {
        self.task.abort();
    }
}

impl Watcher {
    /// Watches from the first revision.
    pub(crate) fn new(address: SocketAddr) -> Self {
        let seen = Arc::new(Mutex::new(Seen { revision: 1, ..Seen::default() }));
        let task = tokio::spawn(follow(address, seen.clone()));
        Self { seen, task }
    }

    /// Waits until all events up to a revision have arrived.
    pub(crate) async fn reached(&self, revision: i64) -> BTreeMap<String, String> {
        for _ in 0..600 {
            {
                let seen = self.seen.lock();
                assert!(seen.wrong.is_empty(), "{:?}", seen.wrong);
                if seen.revision >= revision {
                    return seen.content.clone();
                }
            }
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
        panic!("no event of revision {revision}; the last one is {}", self.seen.lock().revision);
    }
}

async fn follow(address: SocketAddr, seen: Arc<Mutex<Seen>>) {
    loop {
        let from = seen.lock().revision + 1;
        // A server in this process that is stopping may accept a connection and never answer.
        let opened = tokio::time::timeout(Duration::from_secs(2), open(address, from)).await;
        let Some((mut answers, _open)) = opened.ok().flatten() else {
            // The server is restarting.
            tokio::time::sleep(Duration::from_millis(10)).await;
            continue;
        };
        // Cuts the connection after some messages, or while it is idle.
        let messages = rand::rng().random_range(1..6);
        for _ in 0..messages {
            let silence = Duration::from_millis(rand::rng().random_range(20..400));
            match tokio::time::timeout(silence, answers.message()).await {
                Ok(Ok(Some(answer))) => seen.lock().take(answer),
                _ => break,
            }
        }
    }
}

async fn open(address: SocketAddr, from: i64) -> Option<(Streaming<WatchResponse>, Sender<WatchRequest>)> {
    let mut client = WatchClient::connect(format!("http://{address}")).await.ok()?;
    let create =
        WatchCreateRequest { key: "\0".into(), range_end: "\0".into(), start_revision: from, ..Default::default() };
    let (requests, queue) = channel(1);
    requests.send(WatchRequest { request_union: Some(RequestUnion::CreateRequest(create)) }).await.ok()?;
    let answers = client.watch(ReceiverStream::new(queue)).await.ok()?.into_inner();
    // The sender is returned too: dropping it would end the stream.
    Some((answers, requests))
}
