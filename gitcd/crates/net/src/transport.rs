//! HTTP on connections: HTTP/2 for gRPC, HTTP/1.1 for the pages beside it.

mod executor;
mod output;

use std::convert::Infallible;
use std::future::poll_fn;
use std::pin::pin;
use std::sync::Arc;
use std::task::Poll;
use std::time::Duration;

use gitcd_core::fence::{Gate, Pass};
use hyper::body::{self, Body};
use hyper::service::service_fn;
use hyper_util::rt::{TokioIo, TokioTimer};
use hyper_util::server::conn::auto::Builder;
use tokio::sync::watch;
use tokio::task::JoinSet;

use self::executor::AtOnce;
use self::output::Gathering;
use crate::listener::Incoming;

/// What a stream may have under way; large enough that a local client never waits for it.
const STREAM_WINDOW_BYTES: u32 = 1 << 20;
/// What a connection may have.
const CONNECTION_WINDOW_BYTES: u32 = 4 << 20;
const FRAME_BYTES: u32 = 256 << 10;

/// How long a client has to close a connection that has ended here.
const LINGER: Duration = Duration::from_millis(500);

/// How connections are kept.
#[derive(Clone, Copy, Debug)]
pub struct Transport {
    /// Requests and streams that a connection may have open; 0 for no limit, as in etcd.
    pub max_concurrent_streams: u32,
    /// How often a client is asked for a sign of life; zero for never.
    pub keepalive_interval: Duration,
    /// How long it has to answer; zero to not ask.
    pub keepalive_timeout: Duration,
}

impl Default for Transport {
    fn default() -> Self {
        Self {
            max_concurrent_streams: u32::MAX,
            keepalive_interval: Duration::from_hours(2),
            keepalive_timeout: Duration::from_secs(20),
        }
    }
}

impl Transport {
    fn builder(self) -> Builder<AtOnce> {
        let limit = (1..u32::MAX).contains(&self.max_concurrent_streams).then_some(self.max_concurrent_streams);
        let keepalive = !self.keepalive_interval.is_zero() && !self.keepalive_timeout.is_zero();
        let mut builder = Builder::new(AtOnce);
        // With a timer, a client has half a minute for its headers.
        builder.http1().timer(TokioTimer::new());
        builder
            .http2()
            .timer(TokioTimer::new())
            .initial_stream_window_size(STREAM_WINDOW_BYTES)
            .initial_connection_window_size(CONNECTION_WINDOW_BYTES)
            .max_frame_size(FRAME_BYTES)
            .max_concurrent_streams(limit)
            .keep_alive_interval(keepalive.then_some(self.keepalive_interval))
            .keep_alive_timeout(self.keepalive_timeout)
            // No gRPC server says it.
            .auto_date_header(false);
        builder
    }
}

/// Serves connections as they come in, until `stopped`; then closes `incoming` and waits for requests under way. Dropping it
/// ends all connections. With a `gate`, those that were open before it closed are cut instead of being written to.
pub async fn serve<F, B>(
    mut incoming: Incoming,
    settings: Transport,
    gate: Option<Arc<Gate>>,
    answer: impl Fn(hyper::Request<body::Incoming>) -> F + Clone + Send + Sync + 'static,
    stopped: watch::Receiver<bool>,
) where
    F: Future<Output = Result<hyper::Response<B>, Infallible>> + Send + 'static,
    B: Body<Data: Send, Error: Into<Box<dyn std::error::Error + Send + Sync>>> + Send + 'static,
{
    let builder = settings.builder();
    let mut connections = JoinSet::new();
    let start = |connection| {
        let gathering = Gathering::new(connection, gate.clone().map(Pass::new));
        drive(gathering, builder.clone(), answer.clone(), stopped.clone())
    };
    let mut asked = stopped.clone();
    {
        let mut asked = pin!(asked.wait_for(|stopped| *stopped));
        loop {
            tokio::select! {
                _ = &mut asked => break,
                connection = incoming.next() => drop(connections.spawn(start(connection))),
                Some(_) = connections.join_next() => {}
            }
        }
    }
    for connection in incoming.close() {
        connections.spawn(start(connection));
    }
    while connections.join_next().await.is_some() {}
}

async fn drive<F, B>(
    gathering: Gathering,
    builder: Builder<AtOnce>,
    answer: impl Fn(hyper::Request<body::Incoming>) -> F + Sync,
    mut stopped: watch::Receiver<bool>,
) where
    F: Future<Output = Result<hyper::Response<B>, Infallible>> + Send + 'static,
    B: Body<Data: Send, Error: Into<Box<dyn std::error::Error + Send + Sync>>> + Send + 'static,
{
    let peer = gathering.peer();
    let service = service_fn(|mut request: hyper::Request<body::Incoming>| {
        request.extensions_mut().insert(peer.clone());
        answer(request)
    });
    let mut http = pin!(builder.serve_connection(TokioIo::new(gathering.clone()), service));
    let heard = gathering.clone();
    let mut goodbye = pin!(async {
        let _ = stopped.wait_for(|stopped| *stopped).await;
        // Whoever has said nothing could not be told: it is not known yet whether it speaks HTTP/2.
        let _ = tokio::time::timeout(LINGER, heard.heard()).await;
    });
    let mut is_stopping = false;
    poll_fn(|cx| {
        if !is_stopping && goodbye.as_mut().poll(cx).is_ready() {
            is_stopping = true;
            http.as_mut().graceful_shutdown();
        }
        if let Poll::Ready(ended) = http.as_mut().poll(cx) {
            if let Err(error) = ended {
                tracing::debug!(%error, "a connection ended");
            }
            return Poll::Ready(());
        }
        // What is written later wakes this task then.
        match gathering.poll_write_out(cx) {
            Poll::Ready(Err(_)) => Poll::Ready(()),
            Poll::Ready(Ok(())) | Poll::Pending => Poll::Pending,
        }
    })
    .await;
    // A connection that is closed with something unread is reset, and takes answers with it that the client has not read yet.
    let _ = tokio::time::timeout(LINGER, gathering.linger()).await;
}
