//! The health of a control plane: what the page asks, and how often.

use std::sync::Arc;
use std::time::{Duration, Instant};

use futures::future::BoxFuture;
use tokio::sync::Mutex;
use tokio::time::timeout;

/// How long a report is used, so that several open pages ask once.
const FRESH: Duration = Duration::from_secs(1);
/// How long a report may take.
const LIMIT: Duration = Duration::from_secs(8);

/// Reports the health of a control plane.
pub trait Health: Send + Sync {
    /// Returns the health as it is now. A part that cannot be reached is reported as such.
    fn report(&self) -> BoxFuture<'static, HealthReport>;
}

/// The health of a control plane.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct HealthReport {
    /// The state of all of it, if it is known.
    pub state: Option<HealthState>,
    /// The branches.
    pub branches: Vec<BranchHealth>,
    /// The processes.
    pub components: Vec<ComponentHealth>,
    /// Problems of no branch.
    pub problems: Vec<Finding>,
}

/// A state in a word, as `trishanku status` prints it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct HealthState {
    /// The word.
    pub word: String,
    /// Whether that is the intended state.
    pub is_good: bool,
}

/// The health of a branch. What is not known is `None`.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct BranchHealth {
    /// The name of the heaven, or of the store.
    pub name: String,
    /// The reference.
    pub reference: String,
    /// Whether its gitcd runs and responds.
    pub state: HealthState,
    /// The role of its gitcd, such as `writer`.
    pub role: Option<String>,
    /// The ID of the newest commit.
    pub head: Option<String>,
    /// The newest durable revision.
    pub revision: Option<i64>,
    /// The newest revision in Git.
    pub committed_revision: Option<i64>,
    /// Number of durable revisions that are not in Git yet.
    pub lag_revisions: Option<u64>,
    /// Age of the oldest of them, in seconds.
    pub lag_seconds: Option<f64>,
    /// Number of conflicts: keys and fields that several branches changed.
    pub conflicts: Option<u64>,
    /// Number of files of external commits that were not accepted.
    pub rejected: Option<u64>,
    /// The size of the store.
    pub size: Option<StoreSize>,
    /// How often its processes were restarted.
    pub restarts: Option<u32>,
    /// The branches from which it pulls.
    pub remotes: Vec<RemoteHealth>,
    /// What is wrong.
    pub problems: Vec<Finding>,
}

/// The size of a store.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct StoreSize {
    /// Bytes in use.
    pub bytes: u64,
    /// The quota, in bytes; `None` without one.
    pub quota: Option<u64>,
}

/// The health of a remote.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct RemoteHealth {
    /// Its name.
    pub name: String,
    /// Its reference.
    pub reference: String,
    /// Its condition, such as `Synced`; `None` if it is not known.
    pub condition: Option<HealthState>,
    /// Number of its commits that are not merged yet.
    pub lag_commits: Option<u64>,
    /// Whether there are more of them than were counted.
    pub has_more: bool,
    /// Age of the oldest of them, in seconds.
    pub lag_seconds: Option<f64>,
}

/// A process.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ComponentHealth {
    /// Its name.
    pub name: String,
    /// Its state.
    pub state: HealthState,
    /// How long it has been running, in seconds.
    pub uptime_seconds: Option<u64>,
    /// How often it was restarted.
    pub restarts: u32,
}

/// Something that is wrong.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Finding {
    /// What is wrong. Names no object: every user of the page sees it.
    pub what: String,
    /// Errors and paths, which may name objects: only users with the right to everything see them. No values of objects.
    pub details: Vec<String>,
}

impl HealthReport {
    /// Returns the report of a control plane whose health is not known.
    pub fn unknown(what: impl Into<String>, details: Vec<String>) -> Self {
        Self { problems: vec![Finding { what: what.into(), details }], ..Self::default() }
    }
}

/// A report, and when it was made.
type Known = (Instant, Arc<HealthReport>);

/// Asks for the health, once at a time.
pub(crate) struct HealthReader {
    source: Arc<dyn Health>,
    known: Arc<Mutex<Option<Known>>>,
    limit: Duration,
}

impl HealthReader {
    pub(crate) fn new(source: Arc<dyn Health>) -> Self {
        Self { source, known: Arc::default(), limit: LIMIT }
    }

    /// Returns the health: a report that is at most a second old, or that it is unknown.
    pub(crate) async fn read(&self) -> Arc<HealthReport> {
        let reading = async {
            let mut known = self.known.clone().lock_owned().await;
            if let Some((_, report)) = known.as_ref().filter(|(at, _)| at.elapsed() < FRESH) {
                return Ok(report.clone());
            }
            let report = self.source.report();
            // A report that is too late keeps the lock, so that reports never pile up.
            let task = tokio::spawn(async move {
                let report = Arc::new(report.await);
                *known = Some((Instant::now(), report.clone()));
                report
            });
            task.await
        };
        let unknown = |what: String| Arc::new(HealthReport::unknown(what, Vec::new()));
        match timeout(self.limit, reading).await {
            Ok(Ok(report)) => report,
            Ok(Err(error)) => unknown(format!("an internal error: {error}")),
            Err(_) => unknown(format!("the health was not read within {:?}; this page tries again", self.limit)),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicUsize, Ordering};

    use futures::FutureExt as _;
    use tokio::sync::Notify;

    use super::*;

    /// A source that waits for permission.
    #[derive(Clone, Default)]
    struct Slow {
        asked: Arc<AtomicUsize>,
        allowed: Arc<Notify>,
    }

    impl Health for Slow {
        fn report(&self) -> BoxFuture<'static, HealthReport> {
            let Self { asked, allowed } = self.clone();
            async move {
                asked.fetch_add(1, Ordering::Relaxed);
                allowed.notified().await;
                HealthReport { state: Some(HealthState::default()), ..HealthReport::default() }
            }
            .boxed()
        }
    }

    #[tokio::test]
    async fn a_source_that_does_not_answer_is_unknown_and_is_asked_once_at_a_time() {
        let source = Slow::default();
        let reader = HealthReader { limit: Duration::from_millis(50), ..HealthReader::new(Arc::new(source.clone())) };
        for _ in 0..3 {
            let report = reader.read().await;
            assert!(report.state.is_none(), "it is not healthy");
            assert!(report.problems[0].what.contains("not read within 50ms"), "{report:?}");
        }
        assert_eq!(source.asked.load(Ordering::Relaxed), 1);
        source.allowed.notify_one();
        let reader = HealthReader { limit: Duration::from_mins(1), ..reader };
        assert!(reader.read().await.state.is_some(), "the late answer is used");
    }
}
