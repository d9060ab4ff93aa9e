//! The Watch service.

use std::convert::Infallible;
use std::task::{Context, Poll};

use futures::future::BoxFuture;
use futures::{FutureExt as _, StreamExt as _};
use http_body::Body;
use tokio::sync::mpsc;
use tokio_stream::wrappers::ReceiverStream;
use tonic::server::{Grpc, NamedService, StreamingService};
use tonic::{Status, Streaming};
use tower::Service;

use self::message::{Response, WatchCodec};
use super::Backend;
use crate::proto::etcdserverpb::{WatchRequest, watch_server};

mod look;
pub mod message;
pub mod stream;

/// The service's only method.
const PATH: &str = "/etcdserverpb.Watch/Watch";
/// Responses queued for the connection; further events stay in the log.
const WAITING_RESPONSES: usize = 4;

/// The service's server. Unlike a generated one, it does not encode an event again for each watcher.
#[derive(Clone, Debug)]
pub(super) struct WatchServer {
    backend: Backend,
    /// Largest accepted message, in bytes.
    message_limit: usize,
}

impl WatchServer {
    pub(super) fn new(backend: Backend, message_limit: usize) -> Self {
        Self { backend, message_limit }
    }
}

impl NamedService for WatchServer {
    const NAME: &'static str = watch_server::SERVICE_NAME;
}

impl<B> Service<http::Request<B>> for WatchServer
where
    B: Body + Send + 'static,
    B::Error: Into<Box<dyn std::error::Error + Send + Sync>> + Send + 'static,
{
    type Response = http::Response<tonic::body::Body>;
    type Error = Infallible;
    type Future = BoxFuture<'static, Result<Self::Response, Infallible>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: http::Request<B>) -> Self::Future {
        if request.uri().path() != PATH {
            return std::future::ready(Ok(Status::unimplemented("").into_http())).boxed();
        }
        let (streams, limit) = (Streams(self.backend.clone()), self.message_limit);
        let serve = async move {
            let grpc = Grpc::new(WatchCodec);
            Ok(grpc.apply_max_message_size_config(Some(limit), Some(usize::MAX)).streaming(streams, request).await)
        };
        serve.boxed()
    }
}

/// Opens streams.
struct Streams(Backend);

impl StreamingService<WatchRequest> for Streams {
    type Response = Response;
    type ResponseStream = ReceiverStream<Result<Response, Status>>;
    type Future = std::future::Ready<Result<tonic::Response<Self::ResponseStream>, Status>>;

    fn call(&mut self, request: tonic::Request<Streaming<WatchRequest>>) -> Self::Future {
        let (answers, responses) = mpsc::channel(WAITING_RESPONSES);
        // As in etcd, a client that sends no more requests still receives events.
        let requests = request.into_inner().chain(futures::stream::pending());
        let Self(backend) = self;
        tokio::spawn(stream::serve(backend.store.clone(), backend.watch_settings(), requests, answers));
        std::future::ready(Ok(tonic::Response::new(ReceiverStream::new(responses))))
    }
}
