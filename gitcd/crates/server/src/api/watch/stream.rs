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
use prost::Message;
use tokio::sync::mpsc;
use tonic::Status;

use super::look::{LogSlice, LookCache, LookError, Selection};
use super::message::{Events, Response};
use crate::api::status;
use crate::proto::etcdserverpb::watch_create_request::FilterType;
use crate::proto::etcdserverpb::watch_request::RequestUnion;
use crate::proto::etcdserverpb::{ResponseHeader, WatchCreateRequest, WatchRequest, WatchResponse};

/// The id in responses that concern no watcher or all of them.
const NO_WATCH: i64 = -1;
/// etcd's message for a watch that cannot be served from its start revision.
const COMPACTED: &str = "etcdserver: mvcc: required revision has been compacted";

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

struct Watcher {
    selection: Arc<Selection>,
    /// The next revision to send; all earlier ones are done.
    next: Revision,
    /// The requested start revision; 0 for now. No progress is reported before it.
    start: Revision,
    fragment: bool,
    progress: bool,
    /// Nothing was sent to it since the last progress tick.
    idle: bool,
    _registration: Registration,
}

/// The stream has ended, so its task ends.
struct StreamEnded;

struct Session {
    store: Arc<Store>,
    settings: Settings,
    mailbox: Arc<Mailbox>,
    watchers: HashMap<i64, Watcher>,
    /// How many watchers have a selection.
    selections: HashMap<Arc<Selection>, usize>,
    next_id: i64,
    looks: LookCache,
    answers: mpsc::Sender<Result<Response, Status>>,
}

/// Serves one stream until the client or the server ends it.
pub async fn serve(
    store: Arc<Store>,
    settings: Settings,
    mut requests: impl Stream<Item = Result<WatchRequest, Status>> + Unpin,
    answers: mpsc::Sender<Result<Response, Status>>,
) {
    let mailbox = store.hub().open();
    let mut ticks = tokio::time::interval(settings.progress_interval);
    ticks.reset();
    let mut asks = true;
    let mut session = Session {
        store,
        settings,
        mailbox: mailbox.clone(),
        watchers: HashMap::new(),
        selections: HashMap::new(),
        next_id: 0,
        looks: LookCache::default(),
        answers,
    };
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
    async fn request(&mut self, request: WatchRequest) -> Result<(), StreamEnded> {
        match request.request_union {
            Some(RequestUnion::CreateRequest(create)) => self.create(create).await,
            Some(RequestUnion::CancelRequest(cancel)) => self.cancel(cancel.watch_id).await,
            Some(RequestUnion::ProgressRequest(_)) => self.progress().await,
            None => Ok(()),
        }
    }

    async fn create(&mut self, create: WatchCreateRequest) -> Result<(), StreamEnded> {
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
        let (no_put, no_delete) = (filtered(FilterType::Noput), filtered(FilterType::Nodelete));
        let selection = Arc::new(Selection { keys, no_put, no_delete, prev_kv: create.prev_kv });
        *self.selections.entry(selection.clone()).or_default() += 1;
        let watcher = Watcher {
            selection,
            next,
            start,
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

    async fn cancel(&mut self, id: i64) -> Result<(), StreamEnded> {
        if !self.remove(id) {
            return Ok(());
        }
        self.send_at(self.store.revision(), WatchResponse { watch_id: id, canceled: true, ..WatchResponse::default() })
            .await
    }

    /// Removes a watcher; returns whether there was one.
    fn remove(&mut self, id: i64) -> bool {
        let Some(watcher) = self.watchers.remove(&id) else { return false };
        if let Some(count) = self.selections.get_mut(&watcher.selection) {
            *count -= 1;
            if *count == 0 {
                self.selections.remove(&watcher.selection);
            }
        }
        true
    }

    /// Reports the current revision, after everything up to it has been sent.
    async fn progress(&mut self) -> Result<(), StreamEnded> {
        // Watchers are marked before the revision rises, so the marks for `current` are in the mailbox by now.
        let current = self.store.revision();
        self.deliver().await?;
        if self.watchers.is_empty() || self.watchers.values().any(|watcher| watcher.start > current) {
            return Ok(());
        }
        self.send_at(current, WatchResponse { watch_id: NO_WATCH, ..WatchResponse::default() }).await
    }

    async fn tick(&mut self) -> Result<(), StreamEnded> {
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
    async fn deliver(&mut self) -> Result<(), StreamEnded> {
        // What was read before these marks may end before them.
        let marked = self.mailbox.begin(self.store.revision());
        self.looks.forget();
        for (id, from) in marked {
            self.deliver_to(id, from).await?;
            self.mailbox.sent(id);
        }
        self.looks.forget();
        Ok(())
    }

    async fn deliver_to(&mut self, id: i64, from: Revision) -> Result<(), StreamEnded> {
        loop {
            // Read only what can be sent: if the client is slow, its backlog becomes large responses.
            drop(self.answers.reserve().await.map_err(|_| StreamEnded)?);
            let Some(watcher) = self.watchers.get_mut(&id) else { return Ok(()) };
            let is_shared = self.selections.get(&watcher.selection).is_some_and(|count| *count > 1);
            watcher.next = watcher.next.max(from);
            let seen = match self.looks.look(&self.store, &watcher.selection, watcher.next, is_shared) {
                Ok(seen) => seen,
                Err(LookError::Compacted) => return self.overtaken(id).await,
                Err(LookError::Lost(lost)) => {
                    let _ = self.answers.send(Err(Status::data_loss(lost.to_string()))).await;
                    return Err(StreamEnded);
                }
            };
            let LogSlice { events, revision, next, finished } = seen;
            watcher.next = next;
            if !events.is_empty() {
                watcher.idle = false;
                let fragment = watcher.fragment;
                self.send_events(id, revision, &events, fragment).await?;
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
    async fn overtaken(&mut self, id: i64) -> Result<(), StreamEnded> {
        self.remove(id);
        let compact_revision = self.store.compacted().get();
        let canceled = WatchResponse { watch_id: id, canceled: true, compact_revision, ..WatchResponse::default() };
        // As in etcd, without a revision: the compact revision is what counts.
        self.send_at(Revision::ZERO, canceled).await
    }

    async fn send_events(
        &self,
        id: i64,
        revision: Revision,
        events: &Events,
        fragment: bool,
    ) -> Result<(), StreamEnded> {
        self.store.counters.events.fetch_add(events.len() as u64, Ordering::Relaxed);
        let header = Some(ResponseHeader { revision: revision.get(), ..self.settings.header });
        let mut head = WatchResponse { header, watch_id: id, ..WatchResponse::default() };
        let limit = self.settings.max_request_bytes;
        if !fragment || head.encoded_len() + events.bytes() < limit {
            return self.send(Response::new(head, events.whole())).await;
        }
        head.fragment = true;
        let mut parts = events.parts(head.encoded_len(), limit).peekable();
        while let Some(part) = parts.next() {
            let fragment = parts.peek().is_some();
            self.send(Response::new(WatchResponse { fragment, ..head.clone() }, part)).await?;
        }
        Ok(())
    }

    async fn send_at(&self, revision: Revision, mut head: WatchResponse) -> Result<(), StreamEnded> {
        head.header = Some(ResponseHeader { revision: revision.get(), ..self.settings.header });
        self.send(Response::new(head, Bytes::new())).await
    }

    async fn send(&self, response: Response) -> Result<(), StreamEnded> {
        self.answers.send(Ok(response)).await.map_err(|_| StreamEnded)
    }
}
