//! One watch stream, and whether it reported all events.

use std::collections::{HashMap, VecDeque};
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use futures::channel::mpsc::{UnboundedSender, unbounded};
use gitcd::proto::etcdserverpb as pb;
use gitcd::proto::etcdserverpb::watch_create_request::FilterType;
use gitcd::proto::etcdserverpb::watch_request::RequestUnion;
use gitcd::proto::mvccpb::event::EventType;
use gitcd::store::Store;
use gitcd::store::index::KeyRange;
use gitcd::store::log::Change;
use gitcd::watch::stream::{Settings, serve};
use prost::Message;
use tokio::sync::mpsc;
use tokio::task::JoinHandle;
use tonic::{Code, Status};

pub(super) struct Watch {
    requests: UnboundedSender<Result<pb::WatchRequest, Status>>,
    creates: VecDeque<pb::WatchCreateRequest>,
    responses: JoinHandle<Vec<pb::WatchResponse>>,
}

/// A watcher that was created and not canceled, and the events that it received.
struct Watcher {
    keys: KeyRange,
    /// The first revision that must be reported to it.
    from: i64,
    filters: Vec<i32>,
    events: Vec<(i64, EventType, Bytes)>,
}

impl Watch {
    /// With `small`, nearly every response is split for watchers that requested fragments.
    pub(super) fn start(store: &Arc<Store>, small: bool) -> Self {
        let (requests, asked) = unbounded();
        let (answers, mut answered) = mpsc::channel(16);
        let header = pb::ResponseHeader { cluster_id: 1, member_id: 2, revision: 0, raft_term: 2 };
        let max_request_bytes = if small { 64 } else { 1 << 20 };
        let settings = Settings { header, progress_interval: Duration::from_hours(1), max_request_bytes };
        tokio::spawn(serve(store.clone(), settings, asked, answers));
        let responses = tokio::spawn(async move {
            let mut responses = Vec::new();
            while let Some(response) = answered.recv().await {
                match response {
                    Ok(response) => {
                        let mut bytes = Vec::new();
                        response.encode(&mut bytes);
                        responses.push(pb::WatchResponse::decode(&*bytes).expect("a response is a message"));
                    }
                    // The client ends the stream; all values are in the journal.
                    Err(status) => assert_eq!(status.code(), Code::Cancelled, "{status:?}"),
                }
            }
            responses
        });
        Self { requests, creates: VecDeque::new(), responses }
    }

    pub(super) fn request(&mut self, message: &[u8]) {
        let Ok(request) = pb::WatchRequest::decode(message) else { return };
        if let Some(RequestUnion::CreateRequest(create)) = &request.request_union {
            self.creates.push_back(create.clone());
        }
        self.send(request);
    }

    fn send(&self, request: pb::WatchRequest) {
        self.requests.unbounded_send(Ok(request)).expect("the stream is open until the client ends it");
    }

    /// Ends the stream, and compares the reported events with the log.
    pub(super) async fn finish(self, store: &Store) {
        // All marked events are delivered before the progress response.
        self.send(pb::WatchRequest { request_union: Some(RequestUnion::ProgressRequest(pb::WatchProgressRequest {})) });
        // A client that merely stops sending requests would still receive events.
        self.requests
            .unbounded_send(Err(Status::cancelled("the client is gone")))
            .expect("the stream is open until then");
        let Self { creates, responses, .. } = self;
        let responses = responses.await.expect("the stream ends");
        let current = store.revision().get();
        let first = store.with_index(|index, _| index.events_from().get());
        for watcher in watchers_of(responses, creates) {
            let expected: Vec<_> = super::log(store)
                .iter()
                .filter(|entry| entry.revision.get() >= watcher.from.max(first))
                .flat_map(|entry| entry.changes().iter().map(|change| event(entry.revision.get(), change)))
                .filter(|(_, kind, key)| watcher.keys.contains(key) && !watcher.leaves_out(*kind))
                .collect();
            assert!(watcher.events.is_sorted_by_key(|(revision, ..)| *revision));
            assert!(watcher.events.iter().all(|(revision, ..)| (watcher.from..=current).contains(revision)));
            // Events that were compacted meanwhile may have been reported before.
            let received: Vec<_> = watcher.events.into_iter().filter(|(revision, ..)| *revision >= first).collect();
            assert_eq!(received, expected, "from {} on", watcher.from);
        }
    }
}

impl Watcher {
    fn leaves_out(&self, kind: EventType) -> bool {
        let filter = if kind == EventType::Put { FilterType::Noput } else { FilterType::Nodelete };
        self.filters.contains(&(filter as i32))
    }
}

fn event(revision: i64, change: &Change) -> (i64, EventType, Bytes) {
    let kind = if change.version.is_tombstone() { EventType::Delete } else { EventType::Put };
    (revision, kind, change.version.key.clone())
}

/// Processes the responses like a client. Every create request must have exactly one answer, in order.
fn watchers_of(responses: Vec<pb::WatchResponse>, mut creates: VecDeque<pb::WatchCreateRequest>) -> Vec<Watcher> {
    let mut watchers = HashMap::new();
    for response in responses {
        let id = response.watch_id;
        if response.created {
            let create = creates.pop_front().expect("the client requested the watcher");
            if !response.canceled {
                let current = response.header.expect("the response has a header").revision;
                let from = if create.start_revision == 0 { current + 1 } else { create.start_revision };
                let key = if create.key.is_empty() { Bytes::from_static(&[0]) } else { create.key };
                let keys = KeyRange::new(key, create.range_end);
                let new = Watcher { keys, from, filters: create.filters, events: Vec::new() };
                assert!(watchers.insert(id, new).is_none(), "two watchers with id {id}");
            }
        } else if response.canceled {
            assert!(watchers.remove(&id).is_some(), "canceled twice");
        }
        for event in response.events {
            let watcher: &mut Watcher = watchers.get_mut(&id).expect("events are for a watcher");
            let (kind, pair) = (event.r#type(), event.kv.expect("an event has a key-value pair"));
            assert!(event.prev_kv.is_none_or(|previous| previous.mod_revision < pair.mod_revision));
            watcher.events.push((pair.mod_revision, kind, pair.key));
        }
    }
    assert!(creates.is_empty(), "{} requests were not answered", creates.len());
    watchers.into_values().collect()
}
