//! A client's watch stream: its watchers, and how each reads its events from the log.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use bytes::Bytes;
use futures::{Stream, StreamExt};
use gitcd_core::revision::Revision;
use gitcd_mvcc::Store;
use gitcd_mvcc::hub::{Mailbox, Registration};
use gitcd_mvcc::index::KeyRange;
use gitcd_mvcc::log::Change;
use gitcd_mvcc::version::{ValueLost, Version};
use prost::Message;
use tokio::sync::mpsc;
use tonic::Status;

use crate::api::status;
use crate::proto::etcdserverpb::watch_create_request::FilterType;
use crate::proto::etcdserverpb::watch_request::RequestUnion;
use crate::proto::etcdserverpb::{ResponseHeader, WatchCreateRequest, WatchRequest, WatchResponse};
use crate::proto::mvccpb::{Event, KeyValue, event::EventType};

/// The id in responses that concern no watcher or all of them.
const NO_WATCH: i64 = -1;
/// etcd's message for a watch that cannot be served from its start revision.
const COMPACTED: &str = "etcdserver: mvcc: required revision has been compacted";
/// Log entries that are read under one hold of the index lock.
const ENTRIES_PER_LOOK: usize = 2048;
/// A response is sent once its values reach this size; a revision is never split.
const RESPONSE_BYTES: usize = 1 << 20;

/// Settings of a watch stream.
#[derive(Clone, Debug)]
pub struct Settings {
    /// Cluster, member and term for headers.
    pub header: ResponseHeader,
    /// Interval of progress notifications to idle watchers that asked for them.
    pub progress_interval: Duration,
    /// Larger responses are split for watchers that asked for fragments.
    pub max_request_bytes: usize,
}

#[expect(clippy::struct_excessive_bools, reason = "they are the options of the request")]
struct Watcher {
    keys: KeyRange,
    /// The next revision to send; all earlier ones are done.
    next: Revision,
    /// The requested start revision; 0 for now. No progress is reported before it.
    start: Revision,
    no_put: bool,
    no_delete: bool,
    prev_kv: bool,
    fragment: bool,
    progress: bool,
    /// Nothing was sent to it since the last progress tick.
    idle: bool,
    _registration: Registration,
}

/// The stream has ended, so its task ends.
struct Gone;

struct Session {
    store: Arc<Store>,
    settings: Settings,
    mailbox: Arc<Mailbox>,
    watchers: HashMap<i64, Watcher>,
    next_id: i64,
    answers: mpsc::Sender<Result<WatchResponse, Status>>,
}

/// Serves one stream until the client or the server ends it.
pub async fn serve(
    store: Arc<Store>,
    settings: Settings,
    mut requests: impl Stream<Item = Result<WatchRequest, Status>> + Unpin,
    answers: mpsc::Sender<Result<WatchResponse, Status>>,
) {
    let mailbox = store.hub().open();
    let mut ticks = tokio::time::interval(settings.progress_interval);
    ticks.reset();
    let mut asks = true;
    let mut session =
        Session { store, settings, mailbox: mailbox.clone(), watchers: HashMap::new(), next_id: 0, answers };
    loop {
        let alive = tokio::select! {
            request = requests.next(), if asks => match request {
                Some(Ok(request)) => session.request(request).await,
                // As in etcd, a client that sends no more requests still receives events.
                None => {
                    asks = false;
                    Ok(())
                }
                // A client that is still connected gets the error.
                Some(Err(wrong)) => {
                    let _ = session.answers.send(Err(status::of_message(wrong))).await;
                    return;
                }
            },
            alive = mailbox.changed() => {
                if !alive {
                    let _ = session.answers.send(Err(Status::unavailable("etcdserver: server stopped"))).await;
                    return;
                }
                session.deliver().await
            }
            _ = ticks.tick() => session.tick().await,
            () = session.answers.closed() => return,
        };
        if alive.is_err() {
            return;
        }
    }
}

impl Session {
    async fn request(&mut self, request: WatchRequest) -> Result<(), Gone> {
        match request.request_union {
            Some(RequestUnion::CreateRequest(create)) => self.create(create).await,
            Some(RequestUnion::CancelRequest(cancel)) => self.cancel(cancel.watch_id).await,
            Some(RequestUnion::ProgressRequest(_)) => self.progress().await,
            None => Ok(()),
        }
    }

    async fn create(&mut self, create: WatchCreateRequest) -> Result<(), Gone> {
        let refused = |reason: &str| WatchResponse {
            watch_id: NO_WATCH,
            created: true,
            canceled: true,
            cancel_reason: reason.to_owned(),
            ..WatchResponse::default()
        };
        if create.start_revision < 0 {
            return self.send_at(self.store.revision(), refused(COMPACTED)).await;
        }
        // An empty key means the smallest one.
        let key = if create.key.is_empty() { Bytes::from_static(&[0]) } else { create.key };
        let keys = KeyRange::new(key, create.range_end);
        if matches!(&keys, KeyRange::Span(start, end) if start >= end) {
            return self.send_at(self.store.revision(), refused("mvcc: watcher range is empty")).await;
        }
        let id = if create.watch_id == 0 { self.free_id() } else { create.watch_id };
        if self.watchers.contains_key(&id) {
            return self
                .send_at(self.store.revision(), refused("mvcc: duplicate watch ID provided on the WatchStream"))
                .await;
        }
        let start = Revision::new(create.start_revision);
        let (mut current, mut next) = (Revision::ZERO, start);
        let registration = self.store.hub().register(keys.clone(), &self.mailbox, id, || {
            current = self.store.revision();
            if create.start_revision == 0 {
                next = current.next();
            }
            (next <= current).then_some(next)
        });
        let filtered = |filter: FilterType| create.filters.contains(&(filter as i32));
        let watcher = Watcher {
            keys,
            next,
            start,
            no_put: filtered(FilterType::Noput),
            no_delete: filtered(FilterType::Nodelete),
            prev_kv: create.prev_kv,
            fragment: create.fragment,
            progress: create.progress_notify,
            idle: true,
            _registration: registration,
        };
        self.watchers.insert(id, watcher);
        self.send_at(current, WatchResponse { watch_id: id, created: true, ..WatchResponse::default() }).await
    }

    fn free_id(&mut self) -> i64 {
        while self.watchers.contains_key(&self.next_id) {
            self.next_id += 1;
        }
        let id = self.next_id;
        self.next_id += 1;
        id
    }

    async fn cancel(&mut self, id: i64) -> Result<(), Gone> {
        if self.watchers.remove(&id).is_none() {
            return Ok(());
        }
        self.send_at(self.store.revision(), WatchResponse { watch_id: id, canceled: true, ..WatchResponse::default() })
            .await
    }

    /// Reports the current revision, after everything up to it has been sent.
    async fn progress(&mut self) -> Result<(), Gone> {
        // Watchers are marked before the revision rises, so the marks for `current` are in the mailbox by now.
        let current = self.store.revision();
        self.deliver().await?;
        if self.watchers.is_empty() || self.watchers.values().any(|watcher| watcher.start > current) {
            return Ok(());
        }
        self.send_at(current, WatchResponse { watch_id: NO_WATCH, ..WatchResponse::default() }).await
    }

    async fn tick(&mut self) -> Result<(), Gone> {
        let current = self.store.revision();
        self.deliver().await?;
        let ids: Vec<_> = self.watchers.keys().copied().collect();
        for id in ids {
            let Some(watcher) = self.watchers.get_mut(&id) else { continue };
            let due = watcher.progress && watcher.idle && watcher.start <= current;
            watcher.idle = true;
            if due {
                self.send_at(current, WatchResponse { watch_id: id, ..WatchResponse::default() }).await?;
            }
        }
        Ok(())
    }

    /// Sends pending events to the marked watchers.
    async fn deliver(&mut self) -> Result<(), Gone> {
        for (id, from) in self.mailbox.begin(self.store.revision()) {
            self.deliver_to(id, from).await?;
            self.mailbox.sent(id);
        }
        Ok(())
    }

    async fn deliver_to(&mut self, id: i64, from: Revision) -> Result<(), Gone> {
        loop {
            let Some(watcher) = self.watchers.get_mut(&id) else { return Ok(()) };
            watcher.next = watcher.next.max(from);
            let look = look(&self.store, watcher);
            let Look::Seen { changes, revision, next, finished } = look else {
                return self.overtaken(id).await;
            };
            watcher.next = next;
            if !changes.is_empty() {
                watcher.idle = false;
                let fragment = watcher.fragment;
                let events = match changes.iter().map(|change| self.event(change)).collect() {
                    Ok(events) => events,
                    Err(lost) => {
                        let _ = self.answers.send(Err(Status::data_loss(lost.to_string()))).await;
                        return Err(Gone);
                    }
                };
                self.send_events(id, revision, events, fragment).await?;
            }
            if finished {
                return Ok(());
            }
            self.mailbox.reached(id, next);
            // A long log without events for this watcher must not hold a worker thread.
            tokio::task::yield_now().await;
        }
    }

    /// Cancels a watcher that a compaction has overtaken.
    async fn overtaken(&mut self, id: i64) -> Result<(), Gone> {
        self.watchers.remove(&id);
        let compact_revision = self.store.compacted().get();
        let canceled = WatchResponse { watch_id: id, canceled: true, compact_revision, ..WatchResponse::default() };
        // As in etcd, without a revision: the compact revision is what counts.
        self.send_at(Revision::ZERO, canceled).await
    }

    async fn send_events(&self, id: i64, revision: Revision, events: Vec<Event>, fragment: bool) -> Result<(), Gone> {
        self.store.counters.events.fetch_add(events.len() as u64, Ordering::Relaxed);
        let mut response = WatchResponse { watch_id: id, events, ..WatchResponse::default() };
        if !fragment || response.encoded_len() < self.settings.max_request_bytes {
            return self.send_at(revision, response).await;
        }
        let mut rest = std::mem::take(&mut response.events).into_iter().peekable();
        while rest.peek().is_some() {
            let mut part = WatchResponse { fragment: true, ..response.clone() };
            let mut bytes = 0;
            while let Some(event) =
                rest.next_if(|event| bytes == 0 || bytes + event.encoded_len() < self.settings.max_request_bytes)
            {
                bytes += event.encoded_len();
                part.events.push(event);
            }
            part.fragment = rest.peek().is_some();
            self.send_at(revision, part).await?;
        }
        Ok(())
    }

    async fn send_at(&self, revision: Revision, mut response: WatchResponse) -> Result<(), Gone> {
        response.header = Some(ResponseHeader { revision: revision.get(), ..self.settings.header });
        self.answers.send(Ok(response)).await.map_err(|_| Gone)
    }

    fn event(&self, change: &Change) -> Result<Event, ValueLost> {
        let pair = |version: &Version| -> Result<KeyValue, ValueLost> {
            Ok(crate::api::key_value(version, version.value(self.store.segments())?))
        };
        let (kind, kv) = if change.version.is_tombstone() {
            let mod_revision = change.version.mod_revision.get();
            let kv = KeyValue { key: change.version.key.clone(), mod_revision, ..KeyValue::default() };
            (EventType::Delete, kv)
        } else {
            (EventType::Put, pair(&change.version)?)
        };
        let prev_kv = change.previous.as_ref().map(|previous| pair(previous)).transpose()?;
        Ok(Event { r#type: kind as i32, kv: Some(kv), prev_kv })
    }
}

enum Look {
    /// The log no longer has what the watcher needs.
    Compacted,
    Seen {
        changes: Vec<Change>,
        /// For the header.
        revision: Revision,
        /// All earlier revisions have been read.
        next: Revision,
        finished: bool,
    },
}

/// Reads a watcher's next events from the log, in whole revisions.
fn look(store: &Store, watcher: &Watcher) -> Look {
    store.with_index(|index, current| {
        if watcher.next < index.events_from() {
            return Look::Compacted;
        }
        let (mut changes, mut bytes, mut next) = (Vec::new(), 0, watcher.next);
        for (looked, entry) in index.log_from(watcher.next).take_while(|entry| entry.revision <= current).enumerate() {
            if bytes >= RESPONSE_BYTES || looked >= ENTRIES_PER_LOOK {
                let revision = Revision::new(next.get() - 1);
                return Look::Seen { changes, revision, next, finished: false };
            }
            // etcd looks up the previous pair when it sends the change; at the compact revision that pair is gone.
            let with_previous = watcher.prev_kv && entry.revision > index.compacted();
            for change in entry.changes().iter().filter(|change| watcher.wants(change)) {
                let previous = change.previous.as_ref().filter(|_| with_previous).cloned();
                let lengths = change.version.value_length + previous.as_ref().map_or(0, |version| version.value_length);
                bytes += lengths as usize;
                changes.push(Change { version: change.version.clone(), previous });
            }
            next = entry.revision.next();
        }
        Look::Seen { changes, revision: current, next: next.max(watcher.next), finished: true }
    })
}

impl Watcher {
    fn wants(&self, change: &Change) -> bool {
        let filtered = if change.version.is_tombstone() { self.no_delete } else { self.no_put };
        !filtered && self.keys.contains(&change.version.key)
    }
}
