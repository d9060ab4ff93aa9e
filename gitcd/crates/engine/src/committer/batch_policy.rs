//! How many revisions go into one commit.

use std::time::{Duration, Instant};

/// Share of one processor core for commits, above which revisions are batched.
const SHARE: f64 = 0.15;
/// Cost of one change within a commit, in any granularity.
const CHANGE_COST: Duration = Duration::from_micros(8);

/// How many revisions go into one commit.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub enum Granularity {
    /// One while the committer keeps up, more under load.
    #[default]
    Adaptive,
    /// Always one, however large the backlog becomes.
    Revision,
    /// The whole backlog.
    Batch,
}

/// Decides how many revisions go into one commit, by the recent cost of commits.
#[derive(Debug)]
pub(super) struct BatchPolicy {
    granularity: Granularity,
    /// Moving average of a commit's cost beyond its changes, in seconds.
    cost: f64,
    last: Instant,
}

impl BatchPolicy {
    pub(super) fn new(granularity: Granularity) -> Self {
        Self { granularity, cost: 40e-6, last: Instant::now() }
    }

    pub(super) fn observe(&mut self, elapsed: Duration, changes: usize) {
        let fixed = elapsed.saturating_sub(CHANGE_COST * changes as u32).as_secs_f64().max(5e-6);
        self.cost += (fixed - self.cost) * 0.05;
    }

    /// Returns the number of revisions for the next commits, given the backlog.
    pub(super) fn group(&mut self, backlog: usize) -> usize {
        let elapsed = self.last.elapsed().as_secs_f64().clamp(0.001, 1.0);
        self.last = Instant::now();
        match self.granularity {
            Granularity::Revision => 1,
            Granularity::Batch => usize::MAX,
            Granularity::Adaptive => {
                let affordable = (elapsed * SHARE / self.cost).max(1.0);
                (backlog as f64 / affordable).ceil().max(1.0) as usize
            }
        }
    }
}
