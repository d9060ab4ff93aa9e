//! Blocking work: reads of the repository.

use std::sync::Arc;
use std::time::{Duration, Instant};

use tokio::sync::Semaphore;
use tokio::time::timeout;

use crate::problem::Problem;

/// Concurrent reads.
const AT_A_TIME: usize = 4;
/// How long a read may take, including the wait for earlier ones.
const LIMIT: Duration = Duration::from_secs(20);
/// How long an optional search goes on.
const SEARCH: Duration = Duration::from_secs(2);

/// Limits the concurrent reads of the repository, and apart from them, what is rendered.
#[derive(Debug)]
pub(crate) struct Work {
    reads: Arc<Semaphore>,
    renderings: Arc<Semaphore>,
}

/// When an optional search stops.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Deadline(Instant);

impl Deadline {
    pub(crate) fn is_over(self) -> bool {
        Instant::now() > self.0
    }
}

impl Work {
    pub(crate) fn new() -> Self {
        let permits = || Arc::new(Semaphore::new(AT_A_TIME));
        Self { reads: permits(), renderings: permits() }
    }

    /// Runs a read on a blocking thread.
    ///
    /// A read that is too late cannot be aborted: it keeps its permit until it ends, so that reads never pile up.
    ///
    /// # Errors
    /// [`Problem::Late`], or that of the read.
    pub(crate) async fn run<T: Send + 'static>(
        &self,
        read: impl FnOnce(Deadline) -> Result<T, Problem> + Send + 'static,
    ) -> Result<T, Problem> {
        let late = || {
            let seconds = LIMIT.as_secs();
            Problem::Late(format!(
                "the repository was not read within {seconds} seconds; try again, or use `trishanku log` on a terminal"
            ))
        };
        let reading = async {
            let permit = self.reads.clone().acquire_owned().await.map_err(|_| late())?;
            let done = tokio::task::spawn_blocking(move || {
                let _permit = permit;
                read(Deadline(Instant::now() + SEARCH))
            });
            done.await.unwrap_or_else(|error| Err(Problem::Unreadable(format!("an internal error: {error}"))))
        };
        timeout(LIMIT, reading).await.unwrap_or_else(|_| Err(late()))
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
