//! HTTP on connections: HTTP/2 for gRPC, HTTP/1.1 for health, status and metrics.

mod executor;
mod output;
mod silence;
#[cfg(test)]
mod tests;

use std::convert::Infallible;
use std::future::poll_fn;
use std::pin::pin;
use std::sync::Arc;
use std::task::Poll;
use std::time::Duration;

use gitcd_core::fence::{Fence, FenceToken};
use hyper::body::{self, Body};
use hyper::service::service_fn;
use hyper_util::rt::{TokioIo, TokioTimer};
use hyper_util::server::conn::auto::Builder;
use tokio::sync::watch;
use tokio::task::JoinSet;

use self::executor::InlineExecutor;
use self::output::WriteCoalescer;
use self::silence::{Activity, Patience, Tracked, Verdict, Watchdog};
use crate::listener::{Incoming, Limits, Network, SharedSocket};

/// Flow-control window of a stream; large enough that a local client never waits for it.
const STREAM_WINDOW_BYTES: u32 = 1 << 20;
/// Flow-control window of a connection.
const CONNECTION_WINDOW_BYTES: u32 = 4 << 20;
const FRAME_BYTES: u32 = 256 << 10;

/// How long to wait for the client to close its side of a connection, and for its first bytes when the server stops.
const LINGER: Duration = Duration::from_millis(500);

/// How long an idle client may take to close its connection after a GOAWAY.
const GOODBYE: Duration = Duration::from_secs(10);

/// Settings of the connections of a listener.
#[derive(Clone, Copy, Debug)]
pub struct Transport {
    /// Limit on concurrent streams of a connection; 0 for no limit, as in etcd.
    pub max_concurrent_streams: u32,
    /// Interval of keepalive pings; zero disables them.
    pub keepalive_interval: Duration,
    /// How long a client has to answer a ping; zero disables pings.
    pub keepalive_timeout: Duration,
    /// How long a new client has to send the HTTP/2 preface, or the start of an HTTP/1.1 request.
    pub preface_timeout: Duration,
    /// How long a connection stays open without a request in progress. An open watch is one. HTTP/1.1 connections are closed after
    /// 30 seconds.
    pub idle_timeout: Duration,
    /// How many may be open.
    pub connections: Limits,
}

impl Default for Transport {
    fn default() -> Self {
        Self {
            max_concurrent_streams: u32::MAX,
            keepalive_interval: Duration::from_hours(2),
            keepalive_timeout: Duration::from_secs(20),
            preface_timeout: Duration::from_secs(10),
            idle_timeout: Duration::from_mins(5),
            connections: Limits::default(),
        }
    }
}

impl Transport {
    fn patience(self) -> Patience {
        Patience { preface: self.preface_timeout, idle: self.idle_timeout, goodbye: GOODBYE }
    }

    fn builder(self) -> Builder<InlineExecutor> {
        let limit = (1..u32::MAX).contains(&self.max_concurrent_streams).then_some(self.max_concurrent_streams);
        let keepalive = !self.keepalive_interval.is_zero() && !self.keepalive_timeout.is_zero();
        let mut builder = Builder::new(InlineExecutor);
        // With a timer, hyper's timeout of 30 s for request headers applies.
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
            // Other gRPC servers do not send it either.
            .auto_date_header(false);
        builder
    }
}

/// Accepts and serves connections until `stopped`; then closes `incoming` and waits for requests in progress. Dropping the future
/// ends all connections. While the `fence` is closed, connections from before that are closed instead of being written to.
pub async fn serve<F, B>(
    mut incoming: Incoming,
    settings: Transport,
    fence: Option<Arc<Fence>>,
    answer: impl Fn(hyper::Request<body::Incoming>) -> F + Clone + Send + Sync + 'static,
    stopped: watch::Receiver<bool>,
) where
    F: Future<Output = Result<hyper::Response<B>, Infallible>> + Send + 'static,
    B: Body<Data: Send, Error: Into<Box<dyn std::error::Error + Send + Sync>>> + Send + Unpin + 'static,
{
    let builder = settings.builder();
    let mut connections = JoinSet::new();
    let start = |connection| {
        let coalescer = WriteCoalescer::new(connection, fence.clone().map(FenceToken::new));
        drive(coalescer, (builder.clone(), settings.patience()), answer.clone(), stopped.clone())
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

/// Does the same on a socket that keeps listening if this panics, so that it can be called again. A stop closes the socket.
pub async fn serve_on<F, B>(
    (socket, network): (SharedSocket, Arc<Network>),
    settings: Transport,
    answer: impl Fn(hyper::Request<body::Incoming>) -> F + Clone + Send + Sync + 'static,
    mut stopped: watch::Receiver<bool>,
) where
    F: Future<Output = Result<hyper::Response<B>, Infallible>> + Send + 'static,
    B: Body<Data: Send, Error: Into<Box<dyn std::error::Error + Send + Sync>>> + Send + Unpin + 'static,
{
    let (listener, certificates) = match socket.bound() {
        Some(Ok(bound)) => bound,
        Some(Err(error)) => return tracing::error!(%error, "cannot listen any more"),
        None => return,
    };
    let incoming = Incoming::limited(listener, certificates, network, settings.connections);
    let mut serving = pin!(serve(incoming, settings, None, answer, stopped.clone()));
    tokio::select! {
        () = &mut serving => return,
        _ = stopped.wait_for(|stopped| *stopped) => {}
    }
    // New connections are refused from now on.
    socket.close();
    serving.await;
}

async fn drive<F, B>(
    coalescer: WriteCoalescer,
    (builder, patience): (Builder<InlineExecutor>, Patience),
    answer: impl Fn(hyper::Request<body::Incoming>) -> F + Sync,
    mut stopped: watch::Receiver<bool>,
) where
    F: Future<Output = Result<hyper::Response<B>, Infallible>> + Send + 'static,
    B: Body<Data: Send, Error: Into<Box<dyn std::error::Error + Send + Sync>>> + Send + Unpin + 'static,
{
    let peer = coalescer.peer();
    let activity = Activity::new();
    let service = service_fn(|mut request: hyper::Request<body::Incoming>| {
        request.extensions_mut().insert(peer.clone());
        let in_progress = activity.begin();
        let response = answer(request);
        async move { Ok::<_, Infallible>(response.await?.map(|body| Tracked::new(body, in_progress))) }
    });
    let mut watchdog = Watchdog::new(patience, activity.clone());
    let mut http = pin!(builder.serve_connection(TokioIo::new(coalescer.clone()), service));
    let client = coalescer.clone();
    let mut goodbye = pin!(async {
        let _ = stopped.wait_for(|stopped| *stopped).await;
        // Before the client's first bytes it is unknown whether it speaks HTTP/2, so it cannot be sent a GOAWAY.
        let _ = tokio::time::timeout(LINGER, client.wait_for_input()).await;
    });
    let (mut is_stopping, mut is_silent) = (false, false);
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
        if let Poll::Ready(verdict) = watchdog.poll_silence(cx, coalescer.received()) {
            if !std::mem::replace(&mut is_silent, true) {
                coalescer.timed_out();
            }
            match verdict {
                Verdict::Close => return Poll::Ready(()),
                Verdict::SayGoodbye => {
                    http.as_mut().graceful_shutdown();
                    // Polls it again, so that it sends the GOAWAY.
                    cx.waker().wake_by_ref();
                }
            }
        }
        // Responses that are ready later wake this task.
        match coalescer.poll_write_out(cx) {
            Poll::Ready(Err(_)) => Poll::Ready(()),
            Poll::Ready(Ok(())) | Poll::Pending => Poll::Pending,
        }
    })
    .await;
    // Closing a socket with unread input resets the connection, and the client loses responses that it has not read yet.
    let _ = tokio::time::timeout(LINGER, coalescer.linger()).await;
}
