//! Many watches on one stream that are created and cancelled under load.

use std::collections::{BTreeSet, HashMap, VecDeque};
use std::time::{Duration, Instant};

use gitcd::proto::etcdserverpb::watch_client::WatchClient;
use gitcd::proto::etcdserverpb::watch_create_request::FilterType;
use gitcd::proto::etcdserverpb::watch_request::RequestUnion;
use gitcd::proto::etcdserverpb::{
    WatchCancelRequest, WatchCreateRequest, WatchProgressRequest, WatchRequest, WatchResponse,
};
use gitcd::proto::mvccpb::event::EventType;
use tokio::sync::{Semaphore, mpsc};
use tokio_stream::wrappers::ReceiverStream;
use tonic::Streaming;

use super::support::build::{all, compact, delete, put, watch, watch_prefix};
use super::support::{Client, Kind, PATIENCE, Server};

const WATCHES: i64 = 200;
const PREFIXES: usize = 5;
const ROUNDS: usize = 6;
/// Writes per round.
const WRITES: usize = 60;
/// Requests sent at once.
const BURST: usize = 40;
/// Bursts per round: half of the watches are cancelled, and as many are created.
const BURSTS: usize = (WATCHES as usize).div_ceil(BURST);

/// Revision, key, whether it was deleted, value.
type Change = (i64, String, bool, String);

/// One watch from its creation to its end; an earlier watch may have had the same ID.
struct Watched {
    create: WatchCreateRequest,
    /// The first revision that it must see; known once it is created.
    from: Option<i64>,
    /// All events up to this revision had arrived when it was cancelled.
    complete: i64,
    /// The revision at which it ended.
    ended: Option<i64>,
    seen: Vec<Change>,
}

impl Watched {
    fn new(create: WatchCreateRequest) -> Self {
        Self { create, from: None, complete: 0, ended: None, seen: Vec::new() }
    }

    fn wants(&self, (revision, key, is_deletion, _): &Change) -> bool {
        let filtered = if *is_deletion { FilterType::Nodelete } else { FilterType::Noput };
        let key = key.as_bytes();
        let is_inside = if self.create.range_end.is_empty() {
            self.create.key == key
        } else {
            self.create.key <= key && key < &self.create.range_end[..]
        };
        *revision >= self.from.expect("the watch was created")
            && is_inside
            && !self.create.filters.contains(&filtered.into())
    }

    /// Asserts that exactly its events have arrived: all of them, or those up to its end.
    fn check(&self, changes: &[Change]) {
        let wanted: Vec<_> = changes.iter().filter(|change| self.wants(change)).collect();
        let seen: Vec<_> = self.seen.iter().collect();
        let request = &self.create;
        let Some(ended) = self.ended else {
            assert_eq!(seen, wanted, "{request:?}");
            return;
        };
        // The cancellation may precede the latest events, but no event may be missing before a later one.
        assert!(wanted.starts_with(&seen), "{request:?} from {:?} to {ended}: {seen:?} of {wanted:?}", self.from);
        let due = wanted.iter().filter(|change| change.0 <= self.complete).count();
        assert!(seen.len() >= due, "{request:?}: {} of {due} events", seen.len());
        assert!(seen.last().is_none_or(|change| change.0 <= ended), "{request:?}: events after its end at {ended}");
        let next = wanted.get(seen.len());
        assert!(next.is_none_or(|next| Some(next.0) != seen.last().map(|last| last.0)), "{request:?}: half a revision");
    }
}

/// The stream, and the watches on it.
struct Stream {
    requests: mpsc::Sender<WatchRequest>,
    answers: Streaming<WatchResponse>,
    watches: Vec<Watched>,
    /// The watches of each ID whose end has not been confirmed, oldest first.
    by_id: HashMap<i64, VecDeque<usize>>,
    unanswered: usize,
}

fn request(request: RequestUnion) -> WatchRequest {
    WatchRequest { request_union: Some(request) }
}

/// Builds a watch; its kind depends on the ID.
fn create(id: i64, start_revision: i64) -> WatchCreateRequest {
    let prefix = format!("/registry/p{}/", id as usize % PREFIXES);
    let create = match id % 4 {
        0 => watch(&format!("{prefix}k3")),
        1 => watch_prefix("/registry/"),
        2 => WatchCreateRequest { filters: vec![FilterType::Noput.into()], ..watch_prefix(&prefix) },
        _ => watch_prefix(&prefix),
    };
    WatchCreateRequest { watch_id: id, start_revision, ..create }
}

impl Stream {
    async fn open(server: &Server) -> Self {
        let (requests, queue) = mpsc::channel(WATCHES as usize * 4);
        let mut watches = Vec::new();
        let mut by_id = HashMap::new();
        for id in 1..=WATCHES {
            let create = create(id, 0);
            by_id.insert(id, VecDeque::from([watches.len()]));
            watches.push(Watched::new(create.clone()));
            requests.send(request(RequestUnion::CreateRequest(create))).await.expect("the channel has capacity");
        }
        let mut client = WatchClient::new(server.channel().await);
        let answers =
            client.watch(ReceiverStream::new(queue)).await.expect("the server accepts the stream").into_inner();
        Self { requests, answers, watches, by_id, unanswered: WATCHES as usize }
    }

    /// Builds requests that cancel every other watch and create one for each, with the same ID or a new one. All events up to
    /// `complete` have arrived.
    fn storm(&mut self, round: usize, complete: i64) -> Vec<WatchRequest> {
        let mut living: Vec<_> =
            self.by_id.iter().filter(|(_, watches)| !watches.is_empty()).map(|(id, _)| *id).collect();
        living.sort_unstable();
        let mut requests = Vec::new();
        for (place, id) in living.into_iter().enumerate().filter(|(place, _)| place % 2 == round % 2) {
            let watches = self.by_id.get_mut(&id).expect("the watch exists");
            self.watches[watches[0]].complete = complete;
            requests.push(request(RequestUnion::CancelRequest(WatchCancelRequest { watch_id: id })));
            let id = if place % 3 == 0 { id + 1000 } else { id };
            // From the current revision, or right after the coming compaction.
            let create = create(id, if place % 5 < 2 { complete + 1 } else { 0 });
            self.by_id.entry(id).or_default().push_back(self.watches.len());
            self.watches.push(Watched::new(create.clone()));
            requests.push(request(RequestUnion::CreateRequest(create)));
        }
        self.unanswered += requests.len();
        requests
    }

    /// Reads one response; returns its revision if it reports progress.
    async fn read(&mut self) -> Option<i64> {
        let answer = tokio::time::timeout(PATIENCE, self.answers.message()).await.expect("a message arrives in time");
        let answer = answer.expect("the stream is open").expect("a message follows");
        let revision = answer.header.as_ref().expect("a response has a header").revision;
        if answer.watch_id < 0 {
            return Some(revision);
        }
        let same_id = self.by_id.get_mut(&answer.watch_id).expect("responses are only for requested watches");
        let watched =
            &mut self.watches[*same_id.front().unwrap_or_else(|| panic!("a response for an ended watch: {answer:?}"))];
        if answer.created {
            assert!(!answer.canceled && watched.from.is_none(), "{answer:?}");
            let start = watched.create.start_revision;
            watched.from = Some(if start == 0 { revision + 1 } else { start });
            self.unanswered -= 1;
        } else if answer.canceled {
            assert_eq!((answer.compact_revision, answer.cancel_reason.as_str()), (0, ""), "the end was not requested");
            watched.ended = Some(revision);
            same_id.pop_front();
            self.unanswered -= 1;
        } else {
            assert!(watched.from.is_some(), "events before the watch is created: {answer:?}");
            for event in answer.events {
                let is_deletion = event.r#type() == EventType::Delete;
                let pair = event.kv.expect("an event has a key");
                assert!(pair.mod_revision <= revision);
                let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
                watched.seen.push((pair.mod_revision, text(&pair.key), is_deletion, text(&pair.value)));
            }
        }
        None
    }

    /// Reads until all events up to a revision have arrived.
    ///
    /// A progress request may stay unanswered while a watch catches up, so it is repeated.
    async fn read_up_to(&mut self, revision: i64) {
        let start = Instant::now();
        let mut reached = 0;
        while reached < revision {
            assert!(start.elapsed() < PATIENCE, "no response to a progress request in {PATIENCE:?}");
            let ask = request(RequestUnion::ProgressRequest(WatchProgressRequest {}));
            self.requests.send(ask).await.expect("the stream is open");
            let answer = async {
                loop {
                    if let Some(reached) = self.read().await {
                        return reached;
                    }
                }
            };
            reached = tokio::time::timeout(Duration::from_millis(200), answer).await.unwrap_or(reached);
        }
    }
}

/// Writes a round, paces the bursts by it, and compacts to `compacted` in its middle.
async fn write(
    client: &Client,
    round: usize,
    compacted: i64,
    changes: &mut Vec<Change>,
    there: &mut BTreeSet<String>,
    pace: &Semaphore,
) {
    for number in 0..WRITES {
        if number % (WRITES / BURSTS) == 0 {
            pace.add_permits(1);
        }
        let key = |number: usize| format!("/registry/p{}/k{}", number % PREFIXES, number % 7);
        let value = format!("{round}.{number}");
        let (first, second) = (key(number), key(number + 1));
        if number % 6 == 5 && there.remove(&first) {
            let done = client.delete_range(delete(&first)).await.ok();
            changes.push((done.header.expect("a response has a header").revision, first, true, String::new()));
        } else if number % 10 == 0 {
            let done = client.txn(all([put(&second, &value), put(&first, &value)])).await.ok();
            let revision = done.header.expect("a response has a header").revision;
            for key in [second, first] {
                there.insert(key.clone());
                changes.push((revision, key, false, value.clone()));
            }
        } else {
            let done = client.put(put(&first, &value)).await.ok();
            there.insert(first.clone());
            changes.push((done.header.expect("a response has a header").revision, first, false, value));
        }
        if number == WRITES / 2 && compacted > 0 {
            client.compact(compact(compacted)).await.ok();
        }
    }
}

/// Only for gitcd: under concurrent writes, etcd may report a start revision that is one too high.
#[tokio::test]
async fn every_watch_of_a_stream_sees_exactly_its_events_while_others_come_and_go() {
    let server = Server::start(Kind::Gitcd).await;
    let client = server.client().await;
    let mut stream = Stream::open(&server).await;
    let (mut changes, mut there, mut complete) = (Vec::new(), BTreeSet::new(), 0);
    while stream.unanswered > 0 {
        stream.read().await;
    }
    for round in 0..ROUNDS {
        let requests = if round == 0 { Vec::new() } else { stream.storm(round, complete) };
        let sender = stream.requests.clone();
        let pace = Semaphore::new(0);
        let storm = async {
            for burst in requests.chunks(BURST) {
                pace.acquire().await.expect("the semaphore stays open").forget();
                for request in burst {
                    sender.send(request.clone()).await.expect("the stream is open");
                }
            }
        };
        let answers = async {
            while stream.unanswered > 0 {
                stream.read().await;
            }
        };
        let writes = write(&client, round, complete, &mut changes, &mut there, &pace);
        tokio::join!(storm, answers, writes);
        complete = changes.last().expect("each round writes").0;
        stream.read_up_to(complete).await;
    }
    let living = stream.watches.iter().filter(|watched| watched.ended.is_none()).count();
    assert_eq!(living, WATCHES as usize);
    assert_eq!(stream.watches.len(), WATCHES as usize * (ROUNDS + 1) / 2);
    assert!(stream.watches.iter().filter(|watched| !watched.seen.is_empty()).count() > WATCHES as usize);
    for watched in &stream.watches {
        watched.check(&changes);
    }
}
