//! The rules of the lease for its holder and for waiting servers, without clock, network or disk. `docs/design/writer-lease.md`
//! argues that they are safe; `simulation` searches for counterexamples.

use std::time::Duration;

use git2::Oid;
use gitcd_core::fence::Moment;

use super::record::Record;

/// Returns the part of the lease that its holder relies on. Waiting servers wait for all of it, so either clock may be 5 % too
/// fast or too slow.
fn trusted(duration: Duration) -> Duration {
    duration * 9 / 10
}

/// Returns the interval of renewals.
pub(super) fn renewal(duration: Duration) -> Duration {
    duration / 3
}

/// The state of a lease holder, as far as it knows.
#[derive(Debug)]
pub(super) struct Holding {
    duration: Duration,
    confirmed: Oid,
    until: Moment,
    /// Renewals in doubt and when they were sent: each may have arrived, be lost, or arrive later.
    sent: Vec<(Oid, Moment)>,
}

/// The owner of the value at which the reference was found.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Found {
    Ours,
    Others,
}

impl Holding {
    /// Returns the state after the lease was taken with a commit that was sent at `sent`.
    pub(super) fn new(duration: Duration, taken: Oid, sent: Moment) -> Self {
        Self { duration, confirmed: taken, until: sent + trusted(duration), sent: Vec::new() }
    }

    /// Returns the end of the lease; from then on, no write may be acknowledged.
    pub(super) fn until(&self) -> Moment {
        self.until
    }

    /// Returns the value that a renewal expects.
    pub(super) fn confirmed(&self) -> Oid {
        self.confirmed
    }

    /// Returns whether a renewal was sent whose outcome is unknown.
    pub(super) fn is_in_doubt(&self) -> bool {
        !self.sent.is_empty()
    }

    /// Records a renewal that is about to be sent.
    pub(super) fn sends(&mut self, renewal: Oid, now: Moment) {
        self.sent.push((renewal, now));
    }

    /// Records that a renewal has succeeded.
    pub(super) fn has(&mut self, renewal: Oid) {
        if let Some((_, sent)) = self.sent.iter().find(|(oid, _)| *oid == renewal) {
            // Counted from before it was sent: other servers may have seen the new value right after.
            self.until = self.until.max(*sent + trusted(self.duration));
            self.confirmed = renewal;
            // All others in doubt expect an older value, and fail.
            self.sent.clear();
        }
    }

    /// Records the value at which the reference was found.
    pub(super) fn finds(&mut self, found: Option<Oid>) -> Found {
        match found {
            Some(oid) if oid == self.confirmed => Found::Ours,
            Some(oid) if self.sent.iter().any(|(sent, _)| *sent == oid) => {
                self.has(oid);
                Found::Ours
            }
            _ => Found::Others,
        }
    }
}

/// The state of a server that waits for the lease.
#[derive(Debug, Default)]
pub(super) struct Waiting {
    seen: Option<(Option<Oid>, Moment)>,
}

/// The next step of a waiting server.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Step {
    /// Take the lease, by a swap that expects the value that was found.
    Take,
    /// Look again: the lease may be taken after this time unless the reference changes.
    Wait(Duration),
}

/// What a waiting server has found on the remote.
#[derive(Clone, Copy, Debug)]
pub(super) struct Look<'a> {
    /// The reference's value.
    pub(super) found: Option<Oid>,
    /// The record that it points to.
    pub(super) record: Option<&'a Record>,
    /// Whether the previous process of this state folder left the reference at this value.
    pub(super) is_own: bool,
    /// Whether the remote has the branch.
    pub(super) has_branch: bool,
    /// A moment after the reference was read, and not in the future.
    pub(super) now: Moment,
    /// How long to wait if the branch has no lease reference.
    pub(super) usual: Duration,
}

impl Waiting {
    /// Decides on the next step, given what was found.
    pub(super) fn look(&mut self, look: Look<'_>) -> Step {
        let since = match self.seen {
            Some((seen, since)) if seen == look.found => since,
            _ => look.now,
        };
        self.seen = Some((look.found, since));
        let duration = match look.record {
            _ if look.is_own => return Step::Take,
            Some(record) if !record.is_held => return Step::Take,
            Some(record) => record.duration,
            None if !look.has_branch => return Step::Take,
            // A branch without a lease: it has no writer with a lease, or the reference was deleted just now.
            None => look.usual,
        };
        match duration.checked_sub(look.now.since(since)) {
            None | Some(Duration::ZERO) => Step::Take,
            Some(rest) => Step::Wait(rest),
        }
    }
}

#[cfg(test)]
mod simulation;
#[cfg(test)]
mod tests {
    use super::*;

    const D: Duration = Duration::from_secs(3);

    fn at(ms: u64) -> Moment {
        Moment::of(Duration::from_millis(ms))
    }

    fn id(number: u8) -> Oid {
        Oid::from_bytes(&[number; 20]).unwrap()
    }

    #[test]
    fn a_lease_counts_from_before_its_renewal_was_sent() {
        let mut holding = Holding::new(D, id(1), at(1000));
        assert_eq!(holding.until(), at(3700));
        holding.sends(id(2), at(2000));
        assert_eq!((holding.until(), holding.confirmed()), (at(3700), id(1)));
        holding.has(id(2));
        assert_eq!((holding.until(), holding.confirmed(), holding.is_in_doubt()), (at(4700), id(2), false));
        holding.has(id(9));
        assert_eq!(holding.until(), at(4700), "this renewal was never sent");
    }

    #[test]
    fn a_renewal_without_an_answer_counts_once_it_is_found() {
        let mut holding = Holding::new(D, id(1), at(0));
        holding.sends(id(2), at(1000));
        holding.sends(id(3), at(2000));
        assert_eq!(holding.finds(Some(id(1))), Found::Ours);
        assert!(holding.is_in_doubt(), "both may still arrive");
        assert_eq!(holding.finds(Some(id(2))), Found::Ours);
        assert_eq!((holding.until(), holding.is_in_doubt()), (at(3700), false));
        assert_eq!(holding.finds(Some(id(3))), Found::Others, "it expected the older value");
        assert_eq!(holding.finds(None), Found::Others);
    }

    #[test]
    fn a_lease_is_taken_when_it_was_seen_unchanged_for_its_whole_time() {
        let record = Record { is_held: true, epoch: 1, holder: "a".into(), host: "h".into(), duration: D };
        let mut waiting = Waiting::default();
        let mut look = |found, record, ms| {
            let (is_own, has_branch, usual) = (false, true, Duration::from_secs(7));
            waiting.look(Look { found, record, is_own, has_branch, now: at(ms), usual })
        };
        assert_eq!(look(Some(id(1)), Some(&record), 5000), Step::Wait(D));
        assert_eq!(look(Some(id(1)), Some(&record), 7999), Step::Wait(Duration::from_millis(1)));
        assert_eq!(look(Some(id(2)), Some(&record), 8000), Step::Wait(D), "it was renewed");
        assert_eq!(look(Some(id(2)), Some(&record), 11_000), Step::Take);
        let released = Record { is_held: false, ..record.clone() };
        assert_eq!(look(Some(id(3)), Some(&released), 11_001), Step::Take);
        assert_eq!(look(None, None, 20_000), Step::Wait(Duration::from_secs(7)));
        assert_eq!(look(None, None, 27_000), Step::Take);
        let mut waiting = Waiting::default();
        let first = Look { found: None, record: None, is_own: false, has_branch: false, now: at(0), usual: D };
        assert_eq!(waiting.look(first), Step::Take, "the branch does not exist");
        let own = Look { found: Some(id(1)), is_own: true, has_branch: true, ..first };
        assert_eq!(waiting.look(own), Step::Take);
    }
}
