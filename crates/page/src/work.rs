//! Blocking work: reads of the repository.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use tokio::sync::Semaphore;
use tokio::time::timeout;

use crate::problem::{Problem, READ_LIMIT};

/// Concurrent reads.
const AT_A_TIME: usize = 4;
/// How long an optional search goes on.
const SEARCH: Duration = Duration::from_secs(2);

/// Limits the concurrent reads of the repository, and apart from them, what is rendered.
#[derive(Debug)]
pub(crate) struct Work {
    reads: Arc<Semaphore>,
    renderings: Arc<Semaphore>,
    limit: Duration,
}

/// When a read stops.
#[derive(Clone, Debug)]
pub(crate) struct Deadline {
    search: Instant,
    limit: Instant,
    is_abandoned: Arc<AtomicBool>,
}

impl Deadline {
    /// Returns whether an optional search stops: what it has found so far is shown.
    pub(crate) fn is_over(&self) -> bool {
        Instant::now() > self.search || self.must_stop()
    }

    /// Returns whether the read stops without a result: it is too late, or the browser does not wait any more.
    pub(crate) fn must_stop(&self) -> bool {
        self.is_abandoned.load(Ordering::Relaxed) || Instant::now() > self.limit
    }

    /// Returns an error if the read must stop.
    ///
    /// # Errors
    /// [`Problem::Late`].
    pub(crate) fn check(&self) -> Result<(), Problem> {
        if self.must_stop() { Err(Problem::late_read()) } else { Ok(()) }
    }
}

/// Abandons a read when it is dropped.
struct Abandon(Arc<AtomicBool>);

impl Drop for Abandon {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

impl Work {
    pub(crate) fn new() -> Self {
        Self::within(READ_LIMIT)
    }

    fn within(limit: Duration) -> Self {
        let permits = || Arc::new(Semaphore::new(AT_A_TIME));
        Self { reads: permits(), renderings: permits(), limit }
    }

    /// Runs a read on a blocking thread.
    ///
    /// A read that is too late, or whose future is dropped, keeps its permit until it sees that it [must stop](Deadline), so that
    /// reads never pile up.
    ///
    /// # Errors
    /// [`Problem::Late`], or that of the read.
    pub(crate) async fn run<T: Send + 'static>(
        &self,
        read: impl FnOnce(Deadline) -> Result<T, Problem> + Send + 'static,
    ) -> Result<T, Problem> {
        let (limit, is_abandoned) = (Instant::now() + self.limit, Arc::new(AtomicBool::new(false)));
        let _abandon = Abandon(is_abandoned.clone());
        let reading = async {
            let permit = self.reads.clone().acquire_owned().await.map_err(|_| Problem::late_read())?;
            let done = tokio::task::spawn_blocking(move || {
                let _permit = permit;
                let deadline = Deadline { search: Instant::now() + SEARCH, limit, is_abandoned };
                deadline.check()?;
                read(deadline)
            });
            done.await.unwrap_or_else(|error| Err(Problem::Unreadable(format!("an internal error: {error}"))))
        };
        timeout(self.limit, reading).await.unwrap_or_else(|_| Err(Problem::late_read()))
    }

    /// Renders a page on a blocking thread.
    ///
    /// # Errors
    /// [`Problem::Unreadable`] if that panics.
    pub(crate) async fn render<T: Send + 'static>(
        &self,
        render: impl FnOnce() -> T + Send + 'static,
    ) -> Result<T, Problem> {
        let failed = |problem: String| Problem::Unreadable(format!("an internal error: {problem}"));
        let permit = self.renderings.clone().acquire_owned().await.map_err(|error| failed(error.to_string()))?;
        let done = tokio::task::spawn_blocking(move || {
            let _permit = permit;
            render()
        });
        done.await.map_err(|error| failed(error.to_string()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Reads until it must stop.
    fn endless(deadline: &Deadline) -> Result<(), Problem> {
        loop {
            deadline.check()?;
            std::thread::yield_now();
        }
    }

    #[tokio::test]
    async fn more_slow_reads_than_permits_do_not_block_later_ones() {
        let work = Work::within(Duration::from_millis(200));
        let slow = (0..3 * AT_A_TIME).map(|_| work.run(|deadline| endless(&deadline)));
        for result in futures::future::join_all(slow).await {
            assert!(matches!(result, Err(Problem::Late(_))), "{result:?}");
        }
        // With a limit of its own, the next read would be late if the others kept their permits.
        let next = timeout(Duration::from_mins(1), async { while work.run(|_| Ok(())).await.is_err() {} });
        next.await.expect("the permits are free");
    }

    #[tokio::test]
    async fn a_read_whose_browser_is_gone_ends_long_before_its_limit() {
        let work = Work::within(Duration::from_hours(1));
        let (sender, ended) = tokio::sync::oneshot::channel();
        let reading = work.run(move |deadline| {
            let result = endless(&deadline);
            let _gone = sender.send(result.is_err());
            result
        });
        // The future is dropped after the read has started.
        let _late = timeout(Duration::from_millis(50), reading).await;
        match timeout(Duration::from_mins(1), ended).await.expect("the read ends") {
            Ok(is_stopped) => assert!(is_stopped),
            // It was dropped before it started.
            Err(_closed) => {}
        }
        work.run(|_| Ok(())).await.expect("the permit is free");
    }
}
