//! Execution of the requests of an HTTP/2 connection.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::task::{Context, Poll, Waker};

use hyper::rt::Executor;

/// Executor that polls each request once in the connection's own task, and spawns a task only if the request has to wait. A read
/// of one key does not: it needs no task, no other CPU, and its response is sent with those of the requests that arrived with it.
#[derive(Clone, Copy, Debug)]
pub(super) struct InlineExecutor;

impl<F: Future<Output = ()> + Send + 'static> Executor<F> for InlineExecutor {
    fn execute(&self, request: F) {
        let mut request = Box::pin(request);
        // The waker is a no-op, because the spawned task polls again. As in a task, a panic ends only this request.
        let first = catch_unwind(AssertUnwindSafe(|| request.as_mut().poll(&mut Context::from_waker(Waker::noop()))));
        if matches!(first, Ok(Poll::Pending)) {
            tokio::spawn(request);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::sync::atomic::{AtomicBool, Ordering};

    use super::*;

    #[tokio::test]
    async fn what_need_not_wait_is_done_at_once_and_all_else_later() {
        let done = Arc::new(AtomicBool::new(false));
        let set = done.clone();
        InlineExecutor.execute(async move { set.store(true, Ordering::Relaxed) });
        assert!(done.load(Ordering::Relaxed));
        let (ask, asked) = tokio::sync::oneshot::channel();
        let (answer, answered) = tokio::sync::oneshot::channel();
        InlineExecutor.execute(async move { answer.send(asked.await).unwrap_or(()) });
        ask.send(7).unwrap();
        assert_eq!(answered.await.unwrap(), Ok(7));
    }

    #[test]
    fn a_panic_ends_one_request() {
        InlineExecutor.execute(async { panic!("a request that panics, on purpose") });
    }
}
