//! What a puller remembers of a remote from one exchange to the next.

use std::time::{Duration, Instant};

use git2::Oid;
use rand::Rng as _;

/// How long to wait for the other side to add a history link if the trees are equal.
const PATIENCE: Duration = Duration::from_secs(2);

/// What is remembered of a remote.
#[derive(Debug, Default)]
pub(super) struct Memory {
    pub(super) links: HistoryLinks,
    pub(super) contained: Contained,
}

/// Which side adds a history link if the trees are equal.
#[derive(Clone, Copy, Debug)]
pub(super) enum HistoryLinks {
    /// This side, without a delay.
    Add,
    /// The other side if it is the one to add the link; this side does so later. Has the commit that waits for its link, and
    /// until when.
    Defer(Option<(Oid, Instant)>),
}

/// The commits of the remote that were last found in our history, and stay in it.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Contained {
    /// Of the followed branch.
    pub(super) theirs: Option<Oid>,
    /// Of our branch on the remote.
    pub(super) own: Option<Oid>,
}

impl Default for HistoryLinks {
    fn default() -> Self {
        Self::Defer(None)
    }
}

impl HistoryLinks {
    /// Returns whether a link to this commit may be left to the other side now.
    pub(super) fn may_defer(self, commit: Oid) -> bool {
        match self {
            Self::Add => false,
            Self::Defer(deferred) => deferred.is_none_or(|(oid, until)| oid != commit || Instant::now() < until),
        }
    }

    /// Records that the link to this commit was left to the other side.
    pub(super) fn defer(&mut self, commit: Oid) {
        if let Self::Defer(deferred) = self
            && deferred.is_none_or(|(oid, _)| oid != commit)
        {
            *deferred = Some((commit, Instant::now() + PATIENCE.mul_f64(rand::rng().random_range(0.5..1.0))));
        }
    }

    /// Records that no link is due.
    pub(super) fn settle(&mut self) {
        if let Self::Defer(deferred) = self {
            *deferred = None;
        }
    }

    /// Returns how long the other side still has for the link, if one is due.
    pub(super) fn patience(self) -> Option<Duration> {
        match self {
            Self::Defer(Some((_, until))) => Some(until.saturating_duration_since(Instant::now())),
            _ => None,
        }
    }
}
