//! Automatic compaction by age or by count, as in etcd, for clients that never compact.

use std::collections::VecDeque;
use std::time::{Duration, Instant};

use gitcd_core::revision::Revision;

use gitcd_mvcc::{Error, Store};

/// Maximum time between two compactions by age.
const HOUR: Duration = Duration::from_hours(1);
/// Samples of the newest revision per compaction interval.
const LOOKS: u32 = 10;
/// Minimum sample interval, so that a retention of zero does not keep a processor busy.
const SHORTEST: Duration = Duration::from_millis(10);
/// Interval of compactions by count.
const COUNT_EVERY: Duration = Duration::from_mins(5);

/// How much history is kept.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Retention {
    /// Revisions of this period. Compacts once in that time, at least hourly, but first after a whole period.
    Period(Duration),
    /// This number of revisions. Compacts every five minutes.
    Revisions(i64),
}

/// Compacts periodically until the store stops.
pub async fn run(store: &Store, retention: Retention) {
    let mut compactor = Compactor::new(retention, store.revision(), Instant::now());
    loop {
        tokio::time::sleep(compactor.interval()).await;
        let Some(revision) = compactor.due(store.revision(), Instant::now()) else { continue };
        match store.compact(revision).await {
            // A client has compacted already.
            Ok(_) | Err(Error::Compacted) => {
                tracing::info!(%revision, ?retention, "compacted automatically");
                compactor.done(revision, Instant::now());
            }
            Err(Error::Stopped) => return,
            Err(error) => tracing::warn!(%revision, %error, "automatic compaction failed; trying again"),
        }
    }
}

/// Decides what to compact, and when, without a clock or a store of its own.
#[derive(Debug)]
enum Compactor {
    Age(Age),
    Count { retention: i64, last: Revision },
}

impl Compactor {
    fn new(retention: Retention, revision: Revision, now: Instant) -> Self {
        match retention {
            Retention::Period(period) => Self::Age(Age::new(period, revision, now)),
            Retention::Revisions(retention) => Self::Count { retention, last: Revision::ZERO },
        }
    }

    /// Returns the time until the next [`Self::due`].
    fn interval(&self) -> Duration {
        match self {
            Self::Age(age) => age.interval,
            Self::Count { .. } => COUNT_EVERY,
        }
    }

    /// Returns the revision to compact at time `now` if the newest revision is `revision`.
    fn due(&mut self, revision: Revision, now: Instant) -> Option<Revision> {
        match self {
            Self::Age(age) => age.due(revision, now),
            Self::Count { retention, last } => {
                let target = Revision::new(revision.get().saturating_sub(*retention));
                (target > Revision::ZERO && target != *last).then_some(target)
            }
        }
    }

    /// Records that `revision` was compacted.
    fn done(&mut self, revision: Revision, now: Instant) {
        match self {
            Self::Age(age) => {
                (age.last, age.last_time) = (revision, now);
                age.wait = age.period.min(HOUR);
            }
            Self::Count { last, .. } => *last = revision,
        }
    }
}

#[derive(Debug)]
struct Age {
    period: Duration,
    interval: Duration,
    /// Samples of the newest revision, oldest first, for the length of the retention.
    seen: VecDeque<Revision>,
    last: Revision,
    last_time: Instant,
    /// Time between two compactions.
    wait: Duration,
}

impl Age {
    fn new(period: Duration, revision: Revision, now: Instant) -> Self {
        let interval = (period.min(HOUR) / LOOKS).max(SHORTEST);
        Self { period, interval, seen: [revision].into(), last: Revision::ZERO, last_time: now, wait: period }
    }

    fn due(&mut self, revision: Revision, now: Instant) -> Option<Revision> {
        let oldest = self.seen.front().copied()?;
        self.seen.push_back(revision);
        if self.seen.len() as u128 > self.period.as_nanos() / self.interval.as_nanos() + 1 {
            self.seen.pop_front();
        }
        (now.duration_since(self.last_time) >= self.wait && oldest != self.last).then_some(oldest)
    }
}

#[cfg(test)]
mod tests;
