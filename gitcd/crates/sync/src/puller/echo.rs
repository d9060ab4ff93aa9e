//! Deferral of pushes that bring the remote nothing but its own commits.

use std::time::{Duration, Instant};

/// Longest deferral of an echo, as a multiple of [`Config::echoes_after`](super::Config::echoes_after).
const LONGEST_ECHO: u32 = 5;

/// A deferred push of commits that all came from the remote, to our branch there.
#[derive(Clone, Copy, Debug)]
pub(super) struct Echo {
    first: Instant,
    last: Instant,
}

impl Echo {
    /// Returns the echo after an exchange that deferred it; `more` is whether the exchange brought commits.
    pub(super) fn after(before: Option<Self>, more: bool, started: Instant) -> Self {
        let before = before.unwrap_or(Self { first: started, last: started });
        if more { Self { last: started, ..before } } else { before }
    }

    /// Returns how long it may still be deferred.
    pub(super) fn left(self, quiet: Duration) -> Duration {
        let of_all = (quiet * LONGEST_ECHO).saturating_sub(self.first.elapsed());
        quiet.saturating_sub(self.last.elapsed()).min(of_all)
    }
}
