//! How soon a remote is looked at again.
//!
//! Of several that push to one branch, the one that has just pushed is the fastest to push again: the others have yet to fetch and
//! merge what it brought, and would lose every race. So whoever has pushed where others push, too, leaves the next turn to
//! them: until one of them has pushed, or about as long as a turn takes. Who pushes to a branch that is its own alone leaves no turn to anybody.

use std::collections::VecDeque;
use std::time::{Duration, Instant};

use git2::Oid;
use rand::Rng as _;

use gitcd_engine::committer::Head;

/// What came of an exchange.
#[derive(Debug, Default)]
pub(super) struct Exchanged {
    /// Whether it brought commits of others.
    pub(super) brought: bool,
    /// What our branch there was moved to.
    pub(super) pushed: Option<Oid>,
    /// Where the branches there were found.
    pub(super) found: Vec<Oid>,
    /// What is there of ours, or waits for the next exchange on purpose.
    pub(super) handled: Option<Head>,
    /// Whether what was brought waits to be pushed to our branch there.
    pub(super) echo: bool,
}

/// Where branches were found or moved to lately: changes to these are no news, whenever they are told.
#[derive(Debug, Default)]
pub(super) struct Known(VecDeque<Oid>);

impl Known {
    pub(super) fn add(&mut self, exchanged: &Exchanged) {
        const MOST: usize = 256;
        for oid in exchanged.found.iter().chain(&exchanged.pushed) {
            if !self.0.contains(oid) {
                self.0.push_back(*oid);
            }
        }
        self.0.drain(..self.0.len().saturating_sub(MOST));
    }

    pub(super) fn has(&self, oid: Oid) -> bool {
        self.0.contains(&oid)
    }
}

/// The pace of one remote.
#[derive(Debug)]
pub(super) struct Pace {
    /// Whether others push to the branch that is pushed to.
    is_shared: bool,
    /// How long it takes to fetch, merge and push.
    turn: Duration,
    /// When others were last seen.
    others: Option<Instant>,
}

/// What comes before the next exchange.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Breath {
    /// Just a pause, so that a burst does not become as many exchanges.
    Pause(Duration),
    /// The others' turn: it ends when one of them has pushed, or after this time.
    Turn(Duration),
}

/// Whoever was seen within this time may want to push, too.
const AROUND: Duration = Duration::from_secs(2);
/// No breath is longer.
const LONGEST: Duration = Duration::from_millis(250);

impl Pace {
    pub(super) fn new(is_shared: bool) -> Self {
        Self { is_shared, turn: Duration::from_millis(20), others: None }
    }

    /// After an exchange that took `elapsed` and ended `now`.
    pub(super) fn after(&mut self, exchanged: &Exchanged, elapsed: Duration, now: Instant) -> Breath {
        let mut chance = rand::rng();
        if exchanged.brought {
            self.others = Some(now);
            if exchanged.pushed.is_some() {
                self.turn = (self.turn * 3 + elapsed) / 4;
            }
        }
        let around = self.is_shared && self.others.is_some_and(|others| now.saturating_duration_since(others) < AROUND);
        if exchanged.pushed.is_some() && around {
            return Breath::Turn(self.turn.mul_f64(chance.random_range(1.5..3.0)).min(LONGEST));
        }
        Breath::Pause(elapsed.mul_f64(chance.random_range(0.1..0.4)).min(LONGEST))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn turns_are_left_to_others_that_are_around() {
        let (mut pace, start, took) = (Pace::new(true), Instant::now(), Duration::from_millis(40));
        let pushed = |brought| Exchanged { brought, pushed: Some(Oid::ZERO_SHA1), ..Exchanged::default() };
        assert!(matches!(pace.after(&pushed(false), took, start), Breath::Pause(_)), "nobody else was seen");
        assert!(matches!(
            pace.after(&Exchanged { brought: true, ..Exchanged::default() }, took, start),
            Breath::Pause(_)
        ));
        let Breath::Turn(first) = pace.after(&pushed(false), took, start) else { panic!("others are around") };
        assert!(first >= Duration::from_millis(20), "{first:?}");
        for _ in 0..20 {
            assert!(matches!(pace.after(&pushed(true), took, start), Breath::Turn(_)));
        }
        let Breath::Turn(learnt) = pace.after(&pushed(false), took, start) else { panic!("others are around") };
        assert!(learnt > Duration::from_millis(55) && learnt <= LONGEST, "{learnt:?}");
        let later = start + AROUND;
        assert!(matches!(pace.after(&pushed(false), took, later), Breath::Pause(_)), "they have gone");
    }

    #[test]
    fn nobody_waits_who_pushes_to_a_branch_of_its_own() {
        let (mut pace, start, took) = (Pace::new(false), Instant::now(), Duration::from_millis(40));
        let exchanged = Exchanged { brought: true, pushed: Some(Oid::ZERO_SHA1), ..Exchanged::default() };
        for _ in 0..20 {
            let breath = pace.after(&exchanged, took, start);
            assert!(matches!(breath, Breath::Pause(pause) if pause < took / 2), "{breath:?}");
        }
    }
}
