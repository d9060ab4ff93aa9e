//! Pauses between exchanges with a remote, and fairness among servers that push to the same branch.
//!
//! The server that has just pushed would win every race: the others must first fetch and merge its push. So it yields the next
//! turn: until another server has pushed, or for about the duration of a turn. A server that pushes to a branch of its own does
//! not yield.

use std::collections::VecDeque;
use std::time::{Duration, Instant};

use git2::Oid;
use rand::Rng as _;

use gitcd_engine::committer::Head;

/// The outcome of an exchange.
#[derive(Debug, Default)]
pub(super) struct Exchanged {
    /// Whether it brought commits of other servers.
    pub(super) brought: bool,
    /// The commit to which our branch on the remote was moved.
    pub(super) pushed: Option<Oid>,
    /// The commits at which the remote's branches were found.
    pub(super) found: Vec<Oid>,
    /// Our head that is on the remote, or that is deferred to a later exchange.
    pub(super) handled: Option<Head>,
    /// Whether a push was deferred as an echo: it would only move our branch on the remote to the remote's own commits.
    pub(super) echo: bool,
}

/// Commits at which branches were recently found, or to which they were moved. Notifications of these are ignored, however late.
#[derive(Debug, Default)]
pub(super) struct Known(VecDeque<Oid>);

impl Known {
    pub(super) fn add(&mut self, exchanged: &Exchanged) {
        self.add_all(exchanged.found.iter().copied().chain(exchanged.pushed));
    }

    pub(super) fn add_all(&mut self, commits: impl IntoIterator<Item = Oid>) {
        const MOST: usize = 256;
        for oid in commits {
            if !self.0.contains(&oid) {
                self.0.push_back(oid);
            }
        }
        self.0.drain(..self.0.len().saturating_sub(MOST));
    }

    pub(super) fn has(&self, oid: Oid) -> bool {
        self.0.contains(&oid)
    }
}

/// The pauses between exchanges with one remote.
#[derive(Debug)]
pub(super) struct Fairness {
    /// Whether other servers push to the branch that we push to.
    is_shared: bool,
    /// Average duration of a fetch, merge and push.
    turn: Duration,
    /// When another server's commits were last seen.
    others: Option<Instant>,
}

/// The pause before the next exchange.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Delay {
    /// A short pause, which batches a burst of changes into one exchange.
    Batch(Duration),
    /// The turn of other servers, until one of them has pushed, or for this time.
    Yield(Duration),
}

/// A server whose commits were seen within this time may want to push.
const AROUND: Duration = Duration::from_secs(2);
/// The longest pause or turn.
const LONGEST: Duration = Duration::from_millis(250);

impl Fairness {
    pub(super) fn new(is_shared: bool) -> Self {
        Self { is_shared, turn: Duration::from_millis(20), others: None }
    }

    /// Returns the pause after an exchange that took `elapsed` and ended `now`.
    pub(super) fn after(&mut self, exchanged: &Exchanged, elapsed: Duration, now: Instant) -> Delay {
        let mut chance = rand::rng();
        if exchanged.brought {
            self.others = Some(now);
            if exchanged.pushed.is_some() {
                self.turn = (self.turn * 3 + elapsed) / 4;
            }
        }
        let around = self.is_shared && self.others.is_some_and(|others| now.saturating_duration_since(others) < AROUND);
        if exchanged.pushed.is_some() && around {
            return Delay::Yield(self.turn.mul_f64(chance.random_range(1.5..3.0)).min(LONGEST));
        }
        Delay::Batch(elapsed.mul_f64(chance.random_range(0.1..0.4)).min(LONGEST))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_server_yields_turns_while_others_push() {
        let (mut fairness, start, took) = (Fairness::new(true), Instant::now(), Duration::from_millis(40));
        let pushed = |brought| Exchanged { brought, pushed: Some(Oid::ZERO_SHA1), ..Exchanged::default() };
        assert!(matches!(fairness.after(&pushed(false), took, start), Delay::Batch(_)), "no other server was seen");
        assert!(matches!(
            fairness.after(&Exchanged { brought: true, ..Exchanged::default() }, took, start),
            Delay::Batch(_)
        ));
        let Delay::Yield(first) = fairness.after(&pushed(false), took, start) else { panic!("no turn") };
        assert!(first >= Duration::from_millis(20), "{first:?}");
        for _ in 0..20 {
            assert!(matches!(fairness.after(&pushed(true), took, start), Delay::Yield(_)));
        }
        let Delay::Yield(learnt) = fairness.after(&pushed(false), took, start) else { panic!("no turn") };
        assert!(learnt > Duration::from_millis(55) && learnt <= LONGEST, "{learnt:?}");
        let later = start + AROUND;
        assert!(matches!(fairness.after(&pushed(false), took, later), Delay::Batch(_)), "the others are gone");
    }

    #[test]
    fn a_server_that_pushes_to_its_own_branch_does_not_yield() {
        let (mut fairness, start, took) = (Fairness::new(false), Instant::now(), Duration::from_millis(40));
        let exchanged = Exchanged { brought: true, pushed: Some(Oid::ZERO_SHA1), ..Exchanged::default() };
        for _ in 0..20 {
            let breath = fairness.after(&exchanged, took, start);
            assert!(matches!(breath, Delay::Batch(pause) if pause < took / 2), "{breath:?}");
        }
    }
}
