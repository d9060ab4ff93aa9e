//! How many revisions a commit takes.

use std::time::{Duration, Instant};

/// Commits may take this share of one processor core before revisions are put together.
const SHARE: f64 = 0.15;
/// The part of a commit's time that one change costs in any granularity.
const CHANGE_COST: Duration = Duration::from_micros(8);

/// How many revisions a commit takes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub enum Granularity {
    /// One while the committer keeps up, more under load.
    #[default]
    Adaptive,
    /// Always one, however far behind that leaves it.
    Revision,
    /// All that wait.
    Batch,
}

/// Decides how many revisions a commit takes, by what commits cost lately.
#[derive(Debug)]
pub(super) struct Pace {
    granularity: Granularity,
    /// What a commit costs beyond its changes, in seconds; a moving average.
    cost: f64,
    last: Instant,
}

impl Pace {
    pub(super) fn new(granularity: Granularity) -> Self {
        Self { granularity, cost: 40e-6, last: Instant::now() }
    }

    pub(super) fn observe(&mut self, elapsed: Duration, changes: usize) {
        let fixed = elapsed.saturating_sub(CHANGE_COST * changes as u32).as_secs_f64().max(5e-6);
        self.cost += (fixed - self.cost) * 0.05;
    }

    /// The size of the next commits, given how many revisions wait.
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
