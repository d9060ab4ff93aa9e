//! The Watch service.

use std::collections::BTreeMap;
use std::sync::Arc;

use bytes::Bytes;
use futures::{Stream, StreamExt as _};
use gitcd::proto::etcdserverpb::watch_request::RequestUnion;
use gitcd::proto::etcdserverpb::watch_server::Watch;
use gitcd::proto::etcdserverpb::{WatchCreateRequest, WatchRequest, WatchResponse};
use tokio::sync::{mpsc, watch};
use tokio_stream::wrappers::ReceiverStream;
use tonic::{Request, Response, Status, Streaming};

use super::keys::KeyRange;
use super::store::Store;
use super::{Backend, header, unsupported};

/// Answers that wait for the connection, as in gitcd; further events stay in the store.
const WAITING: usize = 16;

#[tonic::async_trait]
impl Watch for Backend {
    type WatchStream = ReceiverStream<Result<WatchResponse, Status>>;

    async fn watch(&self, request: Request<Streaming<WatchRequest>>) -> Result<Response<Self::WatchStream>, Status> {
        let (answers, responses) = mpsc::channel(WAITING);
        let session = Session { store: self.store.clone(), watchers: BTreeMap::new(), next_id: 0, answers };
        // A client that sends no more requests still receives events.
        let requests = request.into_inner().chain(futures::stream::pending());
        tokio::spawn(session.run(requests, self.stopped.clone()));
        Ok(Response::new(ReceiverStream::new(responses)))
    }
}

struct Watcher {
    range: KeyRange,
    /// The next revision to send.
    next: i64,
    prev_kv: bool,
}

/// The watchers of a stream.
struct Session {
    store: Arc<Store>,
    watchers: BTreeMap<i64, Watcher>,
    next_id: i64,
    answers: mpsc::Sender<Result<WatchResponse, Status>>,
}

/// The client has gone, or got an error.
struct Gone;

impl Session {
    async fn run(
        mut self,
        mut requests: impl Stream<Item = Result<WatchRequest, Status>> + Unpin,
        mut stopped: watch::Receiver<bool>,
    ) {
        let mut published = self.store.published();
        loop {
            let alive = tokio::select! {
                request = requests.next() => match request {
                    Some(Ok(request)) => self.request(request).await,
                    Some(Err(_)) | None => return,
                },
                _ = published.changed() => self.deliver().await,
                () = async { drop(stopped.wait_for(|stopped| *stopped).await) } => return,
                () = self.answers.closed() => return,
            };
            if alive.is_err() {
                return;
            }
        }
    }

    async fn request(&mut self, request: WatchRequest) -> Result<(), Gone> {
        match request.request_union {
            Some(RequestUnion::CreateRequest(create)) => self.create(create).await,
            Some(RequestUnion::CancelRequest(cancel)) => {
                self.watchers.remove(&cancel.watch_id);
                self.send(WatchResponse { watch_id: cancel.watch_id, canceled: true, ..WatchResponse::default() }).await
            }
            Some(RequestUnion::ProgressRequest(_)) => self.refuse(unsupported("progress requests")).await,
            None => Ok(()),
        }
    }

    async fn create(&mut self, create: WatchCreateRequest) -> Result<(), Gone> {
        if !create.filters.is_empty() || create.watch_id != 0 {
            return self.refuse(unsupported("watches with filters or their own ids")).await;
        }
        let WatchCreateRequest { key, range_end, start_revision, prev_kv, .. } = create;
        let key = if key.is_empty() { Bytes::from_static(b"\0") } else { key };
        let next = if start_revision > 0 { start_revision } else { self.store.visible() + 1 };
        let id = self.next_id;
        self.next_id += 1;
        self.watchers.insert(id, Watcher { range: KeyRange::new(key, range_end), next, prev_kv });
        self.send(WatchResponse { watch_id: id, created: true, ..WatchResponse::default() }).await?;
        self.deliver_to(id).await
    }

    async fn deliver(&mut self) -> Result<(), Gone> {
        let ids: Vec<i64> = self.watchers.keys().copied().collect();
        for id in ids {
            self.deliver_to(id).await?;
        }
        Ok(())
    }

    async fn deliver_to(&mut self, id: i64) -> Result<(), Gone> {
        while let Some(watcher) = self.watchers.get_mut(&id) {
            let response = match self.store.events(&watcher.range, watcher.next, watcher.prev_kv) {
                Ok((events, next)) => {
                    watcher.next = next;
                    if events.is_empty() {
                        return Ok(());
                    }
                    WatchResponse { watch_id: id, events, ..WatchResponse::default() }
                }
                Err(compact_revision) => {
                    self.watchers.remove(&id);
                    WatchResponse { watch_id: id, canceled: true, compact_revision, ..WatchResponse::default() }
                }
            };
            self.send(response).await?;
        }
        Ok(())
    }

    async fn send(&self, response: WatchResponse) -> Result<(), Gone> {
        let response = WatchResponse { header: Some(header(self.store.visible())), ..response };
        self.answers.send(Ok(response)).await.map_err(|_| Gone)
    }

    /// Ends the stream with an error.
    async fn refuse(&self, error: Status) -> Result<(), Gone> {
        // A client that has gone does not need it.
        let _ = self.answers.send(Err(error)).await;
        Err(Gone)
    }
}
