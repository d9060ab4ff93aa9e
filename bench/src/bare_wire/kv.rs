//! The KV service.

use std::pin::Pin;

use futures::Stream;
use gitcd::proto::etcdserverpb::kv_server::Kv;
use gitcd::proto::etcdserverpb::{
    CompactionRequest, CompactionResponse, DeleteRangeRequest, DeleteRangeResponse, PutRequest, PutResponse,
    RangeRequest, RangeResponse, RangeStreamResponse, TxnRequest, TxnResponse,
};
use tokio::sync::oneshot;
use tonic::{Request, Response, Status};

use super::writer::{Command, Reply};
use super::{Backend, unsupported};

impl Backend {
    /// Sends a command to the writer, and waits until it is durable.
    async fn write<T>(&self, command: impl FnOnce(Reply<T>) -> Command) -> Result<Response<T>, Status> {
        let (reply, answer) = oneshot::channel();
        let ended = || Status::unavailable("etcdserver: server stopped");
        self.writer.send(command(reply)).await.map_err(|_| ended())?;
        answer.await.map_err(|_| ended())?.map(Response::new)
    }
}

#[tonic::async_trait]
impl Kv for Backend {
    async fn range(&self, request: Request<RangeRequest>) -> Result<Response<RangeResponse>, Status> {
        // Under the lock, which no compaction up to a later revision can pass.
        let state = self.store.read();
        state.range(request.get_ref(), self.store.visible()).map(Response::new)
    }

    async fn put(&self, request: Request<PutRequest>) -> Result<Response<PutResponse>, Status> {
        self.write(|reply| Command::Put(request.into_inner(), reply)).await
    }

    async fn txn(&self, request: Request<TxnRequest>) -> Result<Response<TxnResponse>, Status> {
        self.write(|reply| Command::Txn(request.into_inner(), reply)).await
    }

    async fn compact(&self, request: Request<CompactionRequest>) -> Result<Response<CompactionResponse>, Status> {
        self.write(|reply| Command::Compact(request.into_inner().revision, reply)).await
    }

    async fn delete_range(&self, _: Request<DeleteRangeRequest>) -> Result<Response<DeleteRangeResponse>, Status> {
        Err(unsupported("DeleteRange"))
    }

    type RangeStreamStream = Pin<Box<dyn Stream<Item = Result<RangeStreamResponse, Status>> + Send>>;

    async fn range_stream(&self, _: Request<RangeRequest>) -> Result<Response<Self::RangeStreamStream>, Status> {
        Err(unsupported("RangeStream"))
    }
}
