//! Inputs and outputs of a queue.

use std::time::Duration;

use super::{Backoff, Lane};

/// Concurrency, and delays after failures.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Settings {
    /// Maximum number of objects in progress; 0 counts as 1.
    pub concurrency: usize,
    /// Delays after failures.
    pub backoff: Backoff,
    /// Minimum time between a failure and a retry that a change brings forward.
    pub spacing: Duration,
}

impl Default for Settings {
    /// Four objects, [`Backoff::default`], one second.
    fn default() -> Self {
        Self { concurrency: 4, backoff: Backoff::default(), spacing: Duration::from_secs(1) }
    }
}

impl Settings {
    /// Returns the maximum number of objects in progress that did not change: three quarters of all, at least one.
    pub fn background(&self) -> usize {
        let all = self.concurrency.max(1);
        (all - all / 4).min(all.saturating_sub(1)).max(1)
    }
}

/// Why an object is added.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Cause {
    /// Its desired state changed: earlier failures no longer count.
    Wanted,
    /// Something else about it changed, or something that it depends on.
    Changed,
    /// Nothing is known to have changed.
    Resync,
}

impl Cause {
    pub(super) fn lane(self) -> Lane {
        match self {
            Self::Wanted | Self::Changed => Lane::Changed,
            Self::Resync => Lane::Resync,
        }
    }
}

/// How processing an object ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// Nothing to do until it is added again.
    Done,
    /// It succeeded, and is processed again after this time. Zero means after the back-off, which grows with each consecutive
    /// zero as with failures.
    Again(Duration),
    /// It failed, and is retried after the back-off, or after `not_before` if that is longer. A change does not bring the
    /// retry forward beyond `not_before`, because a server asked for that time.
    Failed {
        /// The delay that a server asked for; zero if none did.
        not_before: Duration,
    },
    /// It cannot succeed before something changes. Resets the failures.
    Terminal,
}

/// An object that was handed out.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Job<K> {
    /// Its key.
    pub key: K,
    /// The lane that it was in.
    pub lane: Lane,
    /// Number of consecutive failures.
    pub failures: u32,
    /// Time in the queue until a slot was free.
    pub waited: Duration,
}
