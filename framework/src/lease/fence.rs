//! What every request of the work passes.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::task::{Poll, ready};
use std::time::Duration;

use futures::FutureExt;
use futures::future::BoxFuture;
use http::Request;
use tower::{BoxError, Layer, Service};

use crate::client::{Around, Surrounded};
use crate::clock::{Clock, Moment};

/// Lets requests pass until a moment, and nothing after that.
///
/// It is a [`tower::Layer`] for a [`kube::Client`]. The moment is compared when a request begins and again whenever it goes on (after waiting
/// for a connection, a token, a place in a queue); a request under way ends with [`Closed`] when it is next looked at. So of a process that
/// was stopped in the middle of its work nothing more goes out when it goes on, except what was in the kernel's hands already.
#[derive(Clone)]
pub struct Fence(Arc<Inner>);

struct Inner {
    clock: Arc<dyn Clock>,
    /// Nanoseconds of the clock; open before.
    until: AtomicU64,
    /// Nanoseconds of the clock: when a write was last given up. 0 if none was.
    given_up: AtomicU64,
}

/// A request that has passed.
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

/// The lease that this request needs is not held (any more).
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the lease is not held, so the request was not sent")]
pub struct Closed;

impl Fence {
    /// A closed one.
    pub fn new(clock: Arc<dyn Clock>) -> Self {
        Self(Arc::new(Inner { clock, until: AtomicU64::new(0), given_up: AtomicU64::new(0) }))
    }

    /// One that is always open: for work that needs no lease.
    pub fn open() -> Self {
        let fence = Self::new(crate::clock::boottime());
        fence.0.until.store(u64::MAX, Ordering::SeqCst);
        fence
    }

    /// Lets requests pass before this moment.
    pub fn open_until(&self, moment: Moment) {
        self.0.until.store(nanos(moment), Ordering::SeqCst);
    }

    /// Lets nothing pass.
    pub fn close(&self) {
        self.0.until.store(0, Ordering::SeqCst);
    }

    /// For how long it is open; zero if it is closed.
    pub fn left(&self) -> Duration {
        let until = Duration::from_nanos(self.0.until.load(Ordering::SeqCst));
        Moment::since_start(until).since(self.0.clock.now())
    }

    /// When a write that has passed was last given up without an answer, so that it may still be carried out.
    pub(super) fn given_up(&self) -> Option<Moment> {
        let nanos = self.0.given_up.load(Ordering::SeqCst);
        (nanos > 0).then(|| Moment::since_start(Duration::from_nanos(nanos)))
    }

    /// Whether requests pass now.
    ///
    /// # Errors
    /// [`Closed`] if not.
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
        // Some services send before they are polled.
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
        assert_eq!(fence.check(), Err(Closed), "closed to begin with");
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
                connection.await.expect("it is connected later");
                sent.send(()).expect("somebody looks");
                Ok::<_, BoxError>(())
            }
        }));
        let request = tokio::spawn(service.call(Request::new(())));
        tokio::task::yield_now().await;
        // The machine slept while the connection was made.
        set(&clock, 100);
        connected.send(()).expect("it waits");
        let error = request.await.expect("it does not panic").expect_err("it is too late");
        assert!(error.is::<Closed>(), "{error}");
        assert!(was_sent.try_recv().is_err());
    }
}
