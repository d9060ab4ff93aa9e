//! A watch stream, made comparable: how events are spread over messages is each server's own affair.

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

/// The watch id of answers that speak for the whole stream.
const WHOLE_STREAM: i64 = -1;

/// An open stream with any number of watches.
pub(crate) struct Watching {
    requests: mpsc::Sender<WatchRequest>,
    answers: Answers,
    /// Control answers that came while the test waited for events, and the other way round.
    controls: VecDeque<WatchResponse>,
    events: Vec<(i64, Event)>,
    created: BTreeSet<i64>,
    /// The highest revision whose events have come, by watch: it must not come again.
    reached: BTreeMap<i64, i64>,
    transcript: Rc<RefCell<Transcript>>,
}

/// etcd sends the headers of a stream with its first answer, so a test must be able to ask before it has them.
enum Answers {
    Opening(JoinHandle<Result<tonic::Response<Streaming<WatchResponse>>, Status>>),
    Open(Box<Streaming<WatchResponse>>),
}

impl Answers {
    /// The next message; may be cancelled without loss.
    async fn next(&mut self) -> Result<Option<WatchResponse>, Status> {
        if let Self::Opening(opening) = self {
            let answers = opening.await.expect("opening a stream does not panic")?;
            *self = Self::Open(Box::new(answers.into_inner()));
        }
        match self {
            Self::Open(answers) => answers.message().await,
            Self::Opening(_) => unreachable!("it was opened above"),
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
            created: BTreeSet::new(),
            reached: BTreeMap::new(),
            transcript,
        }
    }

    /// Asks for a watch; the answer is for [`Self::control`].
    pub(crate) async fn send_create(&mut self, request: WatchCreateRequest) {
        self.note("create", &request);
        self.send(RequestUnion::CreateRequest(request)).await;
    }

    /// Asks for a watch and takes the answer.
    pub(crate) async fn create(&mut self, request: WatchCreateRequest) -> WatchResponse {
        self.send_create(request).await;
        self.control().await
    }

    /// Asks for the end of a watch; the answer, if there is one, is for [`Self::control`].
    pub(crate) async fn cancel(&mut self, watch_id: i64) {
        self.note("cancel", &watch_id);
        self.send(RequestUnion::CancelRequest(WatchCancelRequest { watch_id })).await;
    }

    /// Closes the stream's sending side: nothing can be asked any more.
    pub(crate) fn finish_asking(&mut self) {
        self.note("asks nothing more", &());
        self.requests = mpsc::channel(1).0;
    }

    /// The next answer that is neither events nor progress.
    pub(crate) async fn control(&mut self) -> WatchResponse {
        while self.controls.is_empty() {
            self.receive().await;
        }
        let answer = self.controls.pop_front().expect("one was just awaited");
        self.transcript.borrow_mut().answer(&"watch control", &Ok(answer.clone()));
        answer
    }

    /// The next `count` events of all watches, each watch's in their order.
    ///
    /// Checks on the way that nobody gets a revision in parts, twice, or before the watch is announced.
    pub(crate) async fn events(&mut self, count: usize) -> Vec<(i64, Event)> {
        while self.events.len() < count {
            self.receive().await;
        }
        assert_eq!(self.events.len(), count, "more events than expected: {:?}", self.events);
        self.take_events()
    }

    /// All events up to the answer to a progress request, and the revision of that answer.
    ///
    /// etcd leaves a request unanswered while a watch catches up, so it is repeated.
    pub(crate) async fn progress(&mut self) -> (i64, Vec<(i64, Event)>) {
        let start = Instant::now();
        let mut answer = None;
        while answer.is_none() {
            assert!(start.elapsed() < PATIENCE, "no answer to a progress request in {PATIENCE:?}");
            self.send(RequestUnion::ProgressRequest(WatchProgressRequest {})).await;
            answer = tokio::time::timeout(Duration::from_millis(200), self.receive_progress()).await.ok();
        }
        let answer = answer.expect("the loop ends with one");
        let revision = answer.header.map_or(0, |header| header.revision);
        self.transcript.borrow_mut().answer(&"watch progress", &Ok(answer));
        (revision, self.take_events())
    }

    /// The error or end that closes the stream.
    pub(crate) async fn end(&mut self) -> Option<Status> {
        let end = tokio::time::timeout(PATIENCE, self.answers.next()).await.expect("the stream ends");
        match end {
            Ok(None) => None,
            Ok(Some(answer)) => panic!("the stream goes on: {answer:?}"),
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
            // The late answer to a repeated request; the first has been taken.
            assert_eq!(progress.watch_id, WHOLE_STREAM, "unasked progress: {progress:?}");
        }
    }

    async fn receive_progress(&mut self) -> WatchResponse {
        loop {
            if let Some(progress) = self.next().await {
                return progress;
            }
        }
    }

    /// Files the next answer, or returns it if it is a progress notification.
    async fn next(&mut self) -> Option<WatchResponse> {
        let answer = tokio::time::timeout(PATIENCE, self.answers.next()).await;
        let answer = answer.unwrap_or_else(|_| panic!("nothing in {PATIENCE:?}, but {:?}", self.events));
        let answer = answer.expect("the stream is healthy").expect("the stream goes on");
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
        assert!(self.created.contains(&answer.watch_id), "events before the watch is announced: {answer:?}");
        let revision = |event: &Event| event.kv.as_ref().expect("an event has a key").mod_revision;
        let revisions: Vec<_> = answer.events.iter().map(revision).collect();
        let header = answer.header.as_ref().expect("an answer has a header").revision;
        assert!(revisions.is_sorted(), "not in order: {answer:?}");
        assert!(revisions.iter().all(|&revision| revision <= header), "ahead of the header: {answer:?}");
        let reached = self.reached.insert(answer.watch_id, revisions[revisions.len() - 1]);
        assert!(
            reached.is_none_or(|reached| reached < revisions[0]),
            "revision {reached:?} comes again or in parts: {answer:?}"
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
