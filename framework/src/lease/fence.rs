//! The fence, which every request of the work must pass.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::task::{Poll, ready};
use std::time::Duration;

use futures::FutureExt;
use futures::future::BoxFuture;
use http::Request;
use tower::{BoxError, Layer, Service};

use crate::around::{Around, Surrounded};
use crate::clock::{Clock, Moment};
use crate::error::Closed;

/// A deadline for requests: they pass before it, and fail after it.
///
/// It is a [`tower::Layer`] for a [`kube::Client`]. The deadline is checked when a request starts and whenever it continues
/// (after waiting for a connection, a token, a slot in a queue); a request in flight ends with [`Closed`] when it is next
/// polled. So a process that was suspended in the middle of its work sends nothing when it resumes, except what the kernel
/// already had.
#[derive(Clone)]
pub struct Fence(Arc<Inner>);

struct Inner {
    clock: Arc<dyn Clock>,
    /// Deadline, in nanoseconds of the clock.
    until: AtomicU64,
    /// When a write was last dropped without a response, in nanoseconds of the clock; 0 if none was.
    given_up: AtomicU64,
}

/// A request that has passed the fence.
struct UnderWay {
    fence: Fence,
    is_over: bool,
}

impl Drop for UnderWay {
    fn drop(&mut self) {
        if !self.is_over {
            self.fence.0.given_up.store(nanos(self.fence.0.clock.now()), Ordering::SeqCst);
        }
    }
}

fn nanos(moment: Moment) -> u64 {
    u64::try_from(moment.elapsed().as_nanos()).unwrap_or(u64::MAX)
}

impl Fence {
    /// Creates a closed fence.
    pub fn new(clock: Arc<dyn Clock>) -> Self {
        Self(Arc::new(Inner { clock, until: AtomicU64::new(0), given_up: AtomicU64::new(0) }))
    }

    /// Creates a fence that is always open, for work that needs no lease.
    pub fn open() -> Self {
        let fence = Self::new(crate::clock::boottime());
        fence.open_for_ever();
        fence
    }

    /// Lets requests pass from now on.
    pub(crate) fn open_for_ever(&self) {
        self.0.until.store(u64::MAX, Ordering::SeqCst);
    }

    /// Lets requests pass until `moment`.
    pub fn open_until(&self, moment: Moment) {
        self.0.until.store(nanos(moment), Ordering::SeqCst);
    }

    /// Blocks all requests.
    pub fn close(&self) {
        self.0.until.store(0, Ordering::SeqCst);
    }

    /// Returns how long the fence stays open; zero if it is closed.
    pub fn left(&self) -> Duration {
        let until = Duration::from_nanos(self.0.until.load(Ordering::SeqCst));
        Moment::since_start(until).since(self.0.clock.now())
    }

    /// Returns when a write was last dropped without a response: it may still be carried out.
    pub(super) fn given_up(&self) -> Option<Moment> {
        let nanos = self.0.given_up.load(Ordering::SeqCst);
        (nanos > 0).then(|| Moment::since_start(Duration::from_nanos(nanos)))
    }

    /// Checks whether requests pass now.
    ///
    /// # Errors
    /// [`Closed`] if they do not.
    pub fn check(&self) -> Result<(), Closed> {
        if self.left().is_zero() { Err(Closed) } else { Ok(()) }
    }
}

impl std::fmt::Debug for Fence {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Fence").field("left", &self.left()).finish()
    }
}

impl<S> Layer<S> for Fence {
    type Service = Surrounded<S, Self>;

    fn layer(&self, inner: S) -> Self::Service {
        Surrounded::new(inner, self)
    }
}

impl<S, B> Around<S, B> for Fence
where
    S: Service<Request<B>>,
    S::Future: Send + 'static,
    S::Error: Into<BoxError>,
{
    fn around(&self, inner: &mut S, request: Request<B>) -> BoxFuture<'static, Result<S::Response, BoxError>> {
        // Some services send before they are polled, so check before the call.
        if let Err(closed) = self.check() {
            return async move { Err(closed.into()) }.boxed();
        }
        let mut under_way = UnderWay { fence: self.clone(), is_over: request.method().is_safe() };
        let mut answer = Box::pin(inner.call(request));
        std::future::poll_fn(move |context| {
            under_way.fence.check()?;
            let answer = ready!(answer.as_mut().poll(context)).map_err(Into::into);
            under_way.is_over |= answer.is_ok();
            Poll::Ready(answer)
        })
        .boxed()
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Mutex;

    use tokio::sync::oneshot;

    use super::*;

    #[derive(Default)]
    struct Hand(Mutex<Duration>);

    impl Clock for Hand {
        fn now(&self) -> Moment {
            Moment::since_start(*self.0.lock().unwrap())
        }
    }

    fn set(clock: &Hand, seconds: u64) {
        *clock.0.lock().unwrap() = Duration::from_secs(seconds);
    }

    fn ten_seconds() -> (Arc<Hand>, Fence) {
        let clock = Arc::new(Hand::default());
        let fence = Fence::new(clock.clone());
        assert_eq!(fence.check(), Err(Closed), "a new fence is closed");
        fence.open_until(clock.now() + Duration::from_secs(10));
        (clock, fence)
    }

    #[test]
    fn it_closes_by_itself_when_its_time_is_over() {
        let (clock, fence) = ten_seconds();
        set(&clock, 9);
        assert_eq!((fence.check(), fence.left()), (Ok(()), Duration::from_secs(1)));
        set(&clock, 10);
        assert_eq!((fence.check(), fence.left()), (Err(Closed), Duration::ZERO));
        assert_eq!(Fence::open().check(), Ok(()));
    }

    #[tokio::test]
    async fn a_request_that_waited_beyond_the_end_is_not_sent() {
        let (clock, fence) = ten_seconds();
        let (connected, connection) = oneshot::channel::<()>();
        let (sent, mut was_sent) = oneshot::channel();
        let connection = Mutex::new(Some((connection, sent)));
        let mut service = fence.layer(tower::service_fn(move |_: Request<()>| {
            let (connection, sent) = connection.lock().unwrap().take().expect("one request");
            async move {
                connection.await.expect("the connection is established later");
                sent.send(()).expect("the receiver exists");
                Ok::<_, BoxError>(())
            }
        }));
        let request = tokio::spawn(service.call(Request::new(())));
        tokio::task::yield_now().await;
        // The machine slept while the connection was established.
        set(&clock, 100);
        connected.send(()).expect("the request waits for the connection");
        let error = request.await.expect("the request does not panic").expect_err("the fence is closed");
        assert!(error.is::<Closed>(), "{error}");
        assert!(was_sent.try_recv().is_err());
    }
}
