//! Compacts history by itself, as etcd does for clients that never do: by age or by count.

use std::collections::VecDeque;
use std::time::{Duration, Instant};

use gitcd_core::revision::Revision;

use gitcd_mvcc::{Error, Store};

/// A long history is looked at, and shortened, this often.
const HOUR: Duration = Duration::from_hours(1);
/// Looks at the history in the time after which it is shortened, or in a whole retention.
const LOOKS: u32 = 10;
/// Even a retention of nothing does not keep a processor busy.
const SHORTEST: Duration = Duration::from_millis(10);
/// How often the newest revisions are counted.
const COUNT_EVERY: Duration = Duration::from_mins(5);

/// What history is kept.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Retention {
    /// What is younger. Shortened once in that time, at least once an hour; the first time after a whole retention.
    Period(Duration),
    /// So many revisions. Shortened every five minutes.
    Revisions(i64),
}

/// Compacts until the store stops.
pub async fn run(store: &Store, retention: Retention) {
    let mut compactor = Compactor::new(retention, store.revision(), Instant::now());
    loop {
        tokio::time::sleep(compactor.interval()).await;
        let Some(revision) = compactor.due(store.revision(), Instant::now()) else { continue };
        match store.compact(revision).await {
            // A client was faster.
            Ok(_) | Err(Error::Compacted) => {
                tracing::info!(%revision, ?retention, "compacted automatically");
                compactor.done(revision, Instant::now());
            }
            Err(Error::Stopped) => return,
            Err(error) => tracing::warn!(%revision, %error, "not compacted automatically; trying again"),
        }
    }
}

/// Decides what to compact, and when. Has neither a clock nor a store.
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

    /// How long to wait before the next [`Self::due`].
    fn interval(&self) -> Duration {
        match self {
            Self::Age(age) => age.interval,
            Self::Count { .. } => COUNT_EVERY,
        }
    }

    /// What is to be compacted `now` that the newest revision is `revision`.
    fn due(&mut self, revision: Revision, now: Instant) -> Option<Revision> {
        match self {
            Self::Age(age) => age.due(revision, now),
            Self::Count { retention, last } => {
                let target = Revision::new(revision.get().saturating_sub(*retention));
                (target > Revision::ZERO && target != *last).then_some(target)
            }
        }
    }

    /// Tells that `revision` was compacted.
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
    /// The newest revision at every look, oldest first, as far back as the retention.
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
