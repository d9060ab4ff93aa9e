//! What a queue is told, and what it answers.

use std::time::Duration;

use super::{Backoff, Lane};

/// How much is done at once, and how failures are spaced.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Settings {
    /// Most objects that are out at the same time; 0 counts as 1.
    pub concurrency: usize,
    /// How long an object is left alone that failed.
    pub backoff: Backoff,
    /// The least time between a failure of an object and a try that a change brings forward.
    pub spacing: Duration,
}

impl Default for Settings {
    /// Four at once, [`Backoff::default`], a second.
    fn default() -> Self {
        Self { concurrency: 4, backoff: Backoff::default(), spacing: Duration::from_secs(1) }
    }
}

impl Settings {
    /// Most objects at the same time that are not out because of a change: three quarters of all, at least one.
    pub fn background(&self) -> usize {
        let all = self.concurrency.max(1);
        (all - all / 4).min(all.saturating_sub(1)).max(1)
    }
}

/// Why an object is added.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Cause {
    /// What is wanted of it changed: the failures so far say nothing about that.
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

/// How work on an object ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// There is nothing to do until it is added again.
    Done,
    /// It succeeded, and is to be looked at again after this time. Zero is as soon as it may be without running hot: after the back-off, as if it had failed
    /// as often as that was said in a row.
    Again(Duration),
    /// It failed, and is tried again after the back-off, or after `not_before` if that is longer. A change does not bring it forward beyond
    /// `not_before`: somebody asked for that time.
    Failed {
        /// The time that a server asked for; zero if none did.
        not_before: Duration,
    },
    /// It cannot succeed before something changes. Failures so far are forgotten.
    Hopeless,
}

/// An object that is handed out.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Job<K> {
    /// Which.
    pub key: K,
    /// From where.
    pub lane: Lane,
    /// How often in a row it has failed.
    pub failures: u32,
    /// How long it waited for a place.
    pub waited: Duration,
}
