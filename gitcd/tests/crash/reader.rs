//! Clients that list and watch until the connection breaks, and record what they saw.

use std::sync::Arc;
use std::time::Duration;

use gitcd::proto::etcdserverpb::kv_client::KvClient;
use gitcd::proto::etcdserverpb::watch_client::WatchClient;
use gitcd::proto::etcdserverpb::watch_request::RequestUnion;
use gitcd::proto::etcdserverpb::{RangeRequest, WatchCreateRequest, WatchRequest, WatchResponse};
use rand::rngs::StdRng;
use rand::{Rng, SeedableRng};
use tonic::transport::Channel;
use tonic::{Status, Streaming};

use super::history::{Entry, History, Log, Read, record};
use super::writer::revision;
use crate::support::build::{list, watch_prefix};

/// Lists random prefixes until the server is gone.
pub(crate) async fn read_on(history: Arc<History>, channel: Channel, seed: u64) {
    let mut random = StdRng::seed_from_u64(seed);
    let prefixes = ["/registry/", "/registry/pairs/", "/registry/configmaps/ns1/", "/elsewhere/"];
    loop {
        let prefix = prefixes[random.random_range(0..prefixes.len())];
        let before = history.seen();
        let Ok(read) = read(&channel, prefix, 0).await else {
            return;
        };
        history.saw(read.revision, before);
        history.reads().push(read);
        tokio::time::sleep(Duration::from_millis(random.random_range(0..20))).await;
    }
}

/// Lists the keys that start with `prefix` at revision `at`, or at the current one if 0.
pub(crate) async fn read(channel: &Channel, prefix: &str, at: i64) -> Result<Read, Status> {
    let request = RangeRequest { revision: at, ..list(prefix) };
    let answer = KvClient::new(channel.clone()).range(request).await?.into_inner();
    let key = |key: &[u8]| String::from_utf8(key.to_vec()).expect("test keys are UTF-8");
    Ok(Read {
        revision: if at == 0 { revision(answer.header) } else { at },
        prefix: prefix.to_owned(),
        found: answer.kvs.iter().map(|pair| (key(&pair.key), Entry::of(pair))).collect(),
    })
}

/// A client that watches a prefix across restarts, each time from its next revision.
pub(crate) struct Follower {
    pub(crate) prefix: &'static str,
    prev_kv: bool,
    /// All events that it received.
    pub(crate) log: Log,
    /// The revision to resume from.
    pub(crate) next: i64,
}

impl Follower {
    pub(crate) fn new(prefix: &'static str, prev_kv: bool) -> Self {
        Self { prefix, prev_kv, log: Log::new(), next: 2 }
    }

    /// Watches until the server is gone.
    pub(crate) async fn run(mut self, history: Arc<History>, channel: Channel) -> Self {
        let Ok(mut answers) = self.open(&channel).await else {
            return self;
        };
        while let Ok(Some(answer)) = answers.message().await {
            // No client may read a revision older than one that a watcher has seen.
            history.saw(self.take(&answer), 0);
        }
        self
    }

    /// Watches until it has the events of `end`, a revision that must change a key of its prefix.
    pub(crate) async fn catch_up(&mut self, channel: &Channel, end: i64) {
        if self.next > end {
            return;
        }
        let mut answers = self.open(channel).await.expect("the server is up");
        while self.next <= end {
            let answer = tokio::time::timeout(crate::support::PATIENCE, answers.message()).await;
            let answer = answer.unwrap_or_else(|_| panic!("{} has no events from {} to {end}", self.prefix, self.next));
            self.take(&answer.expect("the server is up").expect("the stream is open"));
        }
    }

    async fn open(&self, channel: &Channel) -> Result<Streaming<WatchResponse>, Status> {
        let create =
            WatchCreateRequest { start_revision: self.next, prev_kv: self.prev_kv, ..watch_prefix(self.prefix) };
        let create = WatchRequest { request_union: Some(RequestUnion::CreateRequest(create)) };
        // The request stream stays open: closing it would end the watch.
        let requests = futures::StreamExt::chain(futures::stream::iter([create]), futures::stream::pending());
        Ok(WatchClient::new(channel.clone()).watch(requests).await?.into_inner())
    }

    /// Records a response's events and returns the revision of the last one, or 0.
    fn take(&mut self, answer: &WatchResponse) -> i64 {
        assert!(!answer.canceled, "the watch from {} was cancelled: {answer:?}", self.next);
        if self.prev_kv {
            check_previous(&self.log, answer);
        }
        record(&mut self.log, &answer.events);
        if let Some((newest, _)) = self.log.last_key_value()
            && !answer.events.is_empty()
        {
            self.next = newest + 1;
        }
        answer.events.last().and_then(|event| event.kv.as_ref()).map_or(0, |pair| pair.mod_revision)
    }
}

/// Checks that an event's previous pair is the last one that the follower received, if it has seen the key.
fn check_previous(log: &Log, answer: &WatchResponse) {
    for event in &answer.events {
        let pair = event.kv.as_ref().expect("an event has a key");
        let in_this = answer.events.iter().filter_map(|event| event.kv.as_ref());
        let earlier = in_this.take_while(|other| other.mod_revision < pair.mod_revision);
        let earlier = earlier.filter(|other| other.key == pair.key).last().map(|other| other.mod_revision);
        let known = earlier.or_else(|| {
            let mut newest_first = log.iter().rev();
            let found =
                newest_first.find(|(_, changes)| changes.iter().any(|change| change.key.as_bytes() == pair.key));
            found.map(|(revision, _)| *revision)
        });
        let previous = event.prev_kv.as_ref().map(|previous| Entry::of(previous).changed);
        let fresh = pair.version == 1;
        assert_eq!(previous.is_none(), fresh, "a previous pair is sent unless the key is new: {event:?}");
        if let (Some(previous), Some(known)) = (previous, known) {
            assert_eq!(previous, known, "wrong previous pair: {event:?}");
        }
    }
}
