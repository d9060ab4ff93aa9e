//! Connections of silent clients, which are closed: each one takes a file descriptor and memory.

use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::task::{Context, Poll, ready};
use std::time::Duration;

use hyper::body::{Body, Frame, SizeHint};
use parking_lot::Mutex;
use tokio::time::{Instant, Sleep};

/// Bytes of the HTTP/2 preface. hyper waits for as many before it decides which protocol the client speaks.
const PREFACE_BYTES: usize = 24;

/// How long a client may be silent.
#[derive(Clone, Copy, Debug)]
pub(super) struct Patience {
    /// Until the HTTP/2 preface, or the first bytes of an HTTP/1.1 request. hyper limits the time for the rest of its headers.
    pub(super) preface: Duration,
    /// Without a request in progress.
    pub(super) idle: Duration,
    /// After a GOAWAY.
    pub(super) goodbye: Duration,
}

/// The requests of a connection.
#[derive(Debug)]
pub(super) struct Activity {
    in_progress: AtomicUsize,
    has_begun: AtomicBool,
    idle_since: Mutex<Instant>,
}

impl Activity {
    pub(super) fn new() -> Arc<Self> {
        let (in_progress, has_begun) = (AtomicUsize::new(0), AtomicBool::new(false));
        Arc::new(Self { in_progress, has_begun, idle_since: Mutex::new(Instant::now()) })
    }

    /// Counts a request until the returned value is dropped.
    pub(super) fn begin(self: &Arc<Self>) -> InProgress {
        self.has_begun.store(true, Ordering::Relaxed);
        self.in_progress.fetch_add(1, Ordering::AcqRel);
        InProgress(self.clone())
    }

    /// Returns since when there has been no request in progress; `None` if there is one.
    fn idle_since(&self) -> Option<Instant> {
        let since = *self.idle_since.lock();
        (self.in_progress.load(Ordering::Acquire) == 0).then_some(since)
    }
}

/// A request in progress.
#[derive(Debug)]
pub(super) struct InProgress(Arc<Activity>);

impl Drop for InProgress {
    fn drop(&mut self) {
        *self.0.idle_since.lock() = Instant::now();
        self.0.in_progress.fetch_sub(1, Ordering::AcqRel);
    }
}

/// The body of a response; its request is in progress until it is sent or dropped.
#[derive(Debug)]
pub(super) struct Tracked<B> {
    body: B,
    _in_progress: InProgress,
}

impl<B> Tracked<B> {
    pub(super) fn new(body: B, in_progress: InProgress) -> Self {
        Self { body, _in_progress: in_progress }
    }
}

impl<B: Body + Unpin> Body for Tracked<B> {
    type Data = B::Data;
    type Error = B::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Self::Data>, Self::Error>>> {
        Pin::new(&mut self.body).poll_frame(cx)
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}

/// What to do with a silent client.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Verdict {
    /// Send a GOAWAY, and wait for the client to close the connection.
    SayGoodbye,
    /// Close the connection.
    Close,
}

/// Watches a connection for silence.
pub(super) struct Watchdog {
    patience: Patience,
    activity: Arc<Activity>,
    timer: Pin<Box<Sleep>>,
    said_goodbye: bool,
}

impl Watchdog {
    pub(super) fn new(patience: Patience, activity: Arc<Activity>) -> Self {
        let timer = Box::pin(tokio::time::sleep(patience.preface.min(patience.idle)));
        Self { patience, activity, timer, said_goodbye: false }
    }

    /// Waits until the client has been silent for too long. `received` is the number of bytes that it has sent so far.
    pub(super) fn poll_silence(&mut self, cx: &mut Context<'_>, received: usize) -> Poll<Verdict> {
        loop {
            ready!(self.timer.as_mut().poll(cx));
            let now = Instant::now();
            if self.said_goodbye || received < PREFACE_BYTES && !self.activity.has_begun.load(Ordering::Relaxed) {
                return Poll::Ready(Verdict::Close);
            }
            let due = self.activity.idle_since().unwrap_or(now) + self.patience.idle;
            if due <= now {
                self.said_goodbye = true;
                self.timer.as_mut().reset(now + self.patience.goodbye);
                return Poll::Ready(Verdict::SayGoodbye);
            }
            self.timer.as_mut().reset(due);
        }
    }
}
