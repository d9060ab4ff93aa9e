//! The Watch service.

use futures::StreamExt as _;
use tokio::sync::mpsc;
use tokio_stream::wrappers::ReceiverStream;
use tonic::{Request, Response, Status, Streaming};

use super::Backend;
use crate::proto::etcdserverpb as pb;
use crate::proto::etcdserverpb::watch_server::Watch;
pub mod stream;

/// Responses queued for the connection; further events stay in the log.
const WAITING_RESPONSES: usize = 16;

#[tonic::async_trait]
impl Watch for Backend {
    type WatchStream = ReceiverStream<Result<pb::WatchResponse, Status>>;

    async fn watch(
        &self,
        request: Request<Streaming<pb::WatchRequest>>,
    ) -> Result<Response<Self::WatchStream>, Status> {
        let (answers, responses) = mpsc::channel(WAITING_RESPONSES);
        // As in etcd, a client that sends no more requests still receives events.
        let requests = request.into_inner().chain(futures::stream::pending());
        tokio::spawn(stream::serve(self.store.clone(), self.watch_settings(), requests, answers));
        Ok(Response::new(ReceiverStream::new(responses)))
    }
}
