//! A recording watch stream; how events are spread over messages is not compared.

use std::cell::RefCell;
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::rc::Rc;
use std::time::{Duration, Instant};

use gitcd::proto::etcdserverpb::watch_client::WatchClient;
use gitcd::proto::etcdserverpb::watch_request::RequestUnion;
use gitcd::proto::etcdserverpb::{
    WatchCancelRequest, WatchCreateRequest, WatchProgressRequest, WatchRequest, WatchResponse,
};
use gitcd::proto::mvccpb::Event;
use tokio::sync::mpsc;
use tokio::task::JoinHandle;
use tokio_stream::wrappers::ReceiverStream;
use tonic::transport::Channel;
use tonic::{Status, Streaming};

use super::{PATIENCE, Transcript};

/// The watch ID of responses about the whole stream.
const WHOLE_STREAM: i64 = -1;
/// When a progress request that has no response is repeated.
const REPEATED_AFTER: Duration = Duration::from_secs(1);

/// An open stream with any number of watches.
pub(crate) struct Watching {
    requests: mpsc::Sender<WatchRequest>,
    answers: Answers,
    /// Control responses received while waiting for events; `events` is the reverse.
    controls: VecDeque<WatchResponse>,
    events: Vec<(i64, Event)>,
    /// Requested watches whose response has not been received.
    uncreated: usize,
    created: BTreeSet<i64>,
    /// The highest received revision of each watch, which must not be repeated.
    reached: BTreeMap<i64, i64>,
    transcript: Rc<RefCell<Transcript>>,
}

/// etcd sends a stream's headers with its first response, so a test must be able to send before it has them.
enum Answers {
    Opening(JoinHandle<Result<tonic::Response<Streaming<WatchResponse>>, Status>>),
    Open(Box<Streaming<WatchResponse>>),
}

impl Answers {
    /// Returns the next message; cancel-safe.
    async fn next(&mut self) -> Result<Option<WatchResponse>, Status> {
        if let Self::Opening(opening) = self {
            let answers = opening.await.expect("opening a stream does not panic")?;
            *self = Self::Open(Box::new(answers.into_inner()));
        }
        match self {
            Self::Open(answers) => answers.message().await,
            Self::Opening(_) => unreachable!("opened above"),
        }
    }
}

impl Watching {
    pub(crate) fn open(mut client: WatchClient<Channel>, transcript: Rc<RefCell<Transcript>>) -> Self {
        let (requests, queue) = mpsc::channel(16);
        let opening = async move { client.watch(ReceiverStream::new(queue)).await };
        Self {
            requests,
            answers: Answers::Opening(tokio::spawn(opening)),
            controls: VecDeque::new(),
            events: Vec::new(),
            uncreated: 0,
            created: BTreeSet::new(),
            reached: BTreeMap::new(),
            transcript,
        }
    }

    /// Requests a watch; its response is for [`Self::control`].
    pub(crate) async fn send_create(&mut self, request: WatchCreateRequest) {
        self.note("create", &request);
        self.uncreated += 1;
        self.send(RequestUnion::CreateRequest(request)).await;
    }

    /// Requests a watch and returns its response.
    pub(crate) async fn create(&mut self, request: WatchCreateRequest) -> WatchResponse {
        self.send_create(request).await;
        self.control().await
    }

    /// Requests a cancellation; its response, if any, is for [`Self::control`].
    pub(crate) async fn cancel(&mut self, watch_id: i64) {
        self.note("cancel", &watch_id);
        self.send(RequestUnion::CancelRequest(WatchCancelRequest { watch_id })).await;
    }

    /// Closes the sending side of the stream.
    pub(crate) fn finish_asking(&mut self) {
        self.note("closes its sending side", &());
        self.requests = mpsc::channel(1).0;
    }

    /// Returns the next response that is neither events nor progress.
    pub(crate) async fn control(&mut self) -> WatchResponse {
        while self.controls.is_empty() {
            self.receive().await;
        }
        let answer = self.controls.pop_front().expect("a control response was awaited");
        self.transcript.borrow_mut().answer(&"watch control", &Ok(answer.clone()));
        answer
    }

    /// Returns the next `count` events of all watches; each watch's are in order.
    ///
    /// Checks that no watch gets a revision in parts, twice, or before its creation.
    pub(crate) async fn events(&mut self, count: usize) -> Vec<(i64, Event)> {
        while self.events.len() < count {
            self.receive().await;
        }
        assert_eq!(self.events.len(), count, "more events than expected: {:?}", self.events);
        self.take_events()
    }

    /// Waits until each requested watch has its response: etcd may answer a progress request before an earlier one for a watch.
    pub(crate) async fn all_created(&mut self) {
        while self.uncreated > 0 {
            self.receive().await;
        }
    }

    /// Returns all events up to the response to a progress request, and the revision of that response.
    ///
    /// etcd leaves a request unanswered while a watch catches up, so it is repeated.
    pub(crate) async fn progress(&mut self) -> (i64, Vec<(i64, Event)>) {
        let start = Instant::now();
        let mut answer = None;
        while answer.is_none() {
            assert!(start.elapsed() < PATIENCE, "no response to a progress request in {PATIENCE:?}");
            self.send(RequestUnion::ProgressRequest(WatchProgressRequest {})).await;
            // The late response to a repeated request would be taken for that to the next one, so it is not repeated soon.
            answer = tokio::time::timeout(REPEATED_AFTER, self.receive_progress()).await.ok();
        }
        let answer = answer.expect("the loop ends with a response");
        let revision = answer.header.map_or(0, |header| header.revision);
        self.transcript.borrow_mut().answer(&"watch progress", &Ok(answer));
        (revision, self.take_events())
    }

    /// Records the responses that are neither events nor progress and that have been received. After [`Self::progress`], these are
    /// all that were due.
    pub(crate) fn controls(&mut self) {
        let mut controls: Vec<_> = self.controls.drain(..).collect();
        controls.sort_by_key(|answer| answer.watch_id); // stable: each watch keeps its order
        for answer in controls {
            self.transcript.borrow_mut().answer(&"watch control", &Ok(answer));
        }
    }

    /// Returns the error that ends the stream, if any.
    pub(crate) async fn end(&mut self) -> Option<Status> {
        let end = tokio::time::timeout(PATIENCE, self.answers.next()).await.expect("the stream ends in time");
        match end {
            Ok(None) => None,
            Ok(Some(answer)) => panic!("the stream did not end: {answer:?}"),
            Err(status) => Some(status),
        }
    }

    fn take_events(&mut self) -> Vec<(i64, Event)> {
        let mut events = std::mem::take(&mut self.events);
        events.sort_by_key(|(watch_id, _)| *watch_id); // stable: each watch keeps its order
        for event in &events {
            self.note("event", event);
        }
        self.note("no more events", &());
        events
    }

    async fn receive(&mut self) {
        if let Some(progress) = self.next().await {
            // The late response to a repeated request; the first one has been returned.
            assert_eq!(progress.watch_id, WHOLE_STREAM, "unrequested progress: {progress:?}");
        }
    }

    async fn receive_progress(&mut self) -> WatchResponse {
        loop {
            if let Some(progress) = self.next().await {
                return progress;
            }
        }
    }

    /// Queues the next response, or returns it if it is a progress notification.
    async fn next(&mut self) -> Option<WatchResponse> {
        let answer = tokio::time::timeout(PATIENCE, self.answers.next()).await;
        let answer = answer.unwrap_or_else(|_| panic!("no message in {PATIENCE:?} after {:?}", self.events));
        let answer = answer.expect("the stream is open").expect("a message follows");
        if answer.created {
            self.uncreated -= 1;
        }
        if answer.created && !answer.canceled {
            self.created.insert(answer.watch_id);
        }
        if answer.created || answer.canceled {
            self.controls.push_back(answer);
            return None;
        }
        if answer.events.is_empty() {
            return Some(answer);
        }
        self.check(&answer);
        self.events.extend(answer.events.into_iter().map(|event| (answer.watch_id, event)));
        None
    }

    fn check(&mut self, answer: &WatchResponse) {
        assert!(self.created.contains(&answer.watch_id), "events before the watch is created: {answer:?}");
        let revision = |event: &Event| event.kv.as_ref().expect("an event has a key").mod_revision;
        let revisions: Vec<_> = answer.events.iter().map(revision).collect();
        let header = answer.header.as_ref().expect("a response has a header").revision;
        assert!(revisions.is_sorted(), "events out of order: {answer:?}");
        assert!(revisions.iter().all(|&revision| revision <= header), "events ahead of the header: {answer:?}");
        let reached = self.reached.insert(answer.watch_id, revisions[revisions.len() - 1]);
        assert!(
            reached.is_none_or(|reached| reached < revisions[0]),
            "revision {reached:?} is repeated or split: {answer:?}"
        );
    }

    async fn send(&self, request: RequestUnion) {
        let request = WatchRequest { request_union: Some(request) };
        self.requests.send(request).await.expect("the stream is open");
    }

    fn note(&self, what: &str, fact: &dyn std::fmt::Debug) {
        self.transcript.borrow_mut().note(&format_args!("watch {what}"), fact);
    }
}
