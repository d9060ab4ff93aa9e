//! Who may do what when: the holder of a lease, and those who wait for it. No clock, no network, no disk; the argument why
//! this is safe is in `docs/design/writer-lease.md`, and a simulation below looks for what it overlooks.

use std::time::Duration;

use git2::Oid;
use gitcd_core::fence::Moment;

use super::record::Record;

/// The holder counts on so much of its lease, and those who wait wait for all of it: the clocks of two machines may go by a
/// twentieth too fast or too slow each.
fn trusted(duration: Duration) -> Duration {
    duration * 9 / 10
}

/// How often a holder renews.
pub(super) fn renewal(duration: Duration) -> Duration {
    duration / 3
}

/// One that has the lease, as far as it knows.
#[derive(Debug)]
pub(super) struct Holding {
    duration: Duration,
    confirmed: Oid,
    until: Moment,
    /// What was sent since, and when: it may have arrived or not, or may arrive yet.
    sent: Vec<(Oid, Moment)>,
}

/// Whose the reference was found to be.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Found {
    Ours,
    Others,
}

impl Holding {
    /// It was taken with this commit, which was sent then.
    pub(super) fn new(duration: Duration, taken: Oid, sent: Moment) -> Self {
        Self { duration, confirmed: taken, until: sent + trusted(duration), sent: Vec::new() }
    }

    /// Nothing may be acknowledged from then on.
    pub(super) fn until(&self) -> Moment {
        self.until
    }

    /// What the reference must be for a renewal.
    pub(super) fn confirmed(&self) -> Oid {
        self.confirmed
    }

    /// Whether something was sent of which nothing was heard.
    pub(super) fn is_in_doubt(&self) -> bool {
        !self.sent.is_empty()
    }

    /// Before a renewal is sent.
    pub(super) fn sends(&mut self, renewal: Oid, now: Moment) {
        self.sent.push((renewal, now));
    }

    /// A renewal is the reference's value now, or was.
    pub(super) fn has(&mut self, renewal: Oid) {
        if let Some((_, sent)) = self.sent.iter().find(|(oid, _)| *oid == renewal) {
            // From before it was sent: others may have seen it a moment later.
            self.until = self.until.max(*sent + trusted(self.duration));
            self.confirmed = renewal;
            // All that was sent expects what was there before this one.
            self.sent.clear();
        }
    }

    /// What the reference was found to be.
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

/// One that waits for the lease.
#[derive(Debug, Default)]
pub(super) struct Waiting {
    seen: Option<(Option<Oid>, Moment)>,
}

/// What it may do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Step {
    /// Take the lease, if the reference is still what it was.
    Take,
    /// Look again; after so long it may be taken unless it changes.
    Wait(Duration),
}

/// What was found.
#[derive(Clone, Copy, Debug)]
pub(super) struct Look<'a> {
    /// The reference.
    pub(super) found: Option<Oid>,
    /// What it says.
    pub(super) record: Option<&'a Record>,
    /// It is a lease of this very state, whose process has ended.
    pub(super) is_own: bool,
    /// The branch is on the remote.
    pub(super) has_branch: bool,
    /// This moment, or an earlier one after the reference was read.
    pub(super) now: Moment,
    /// How long a lease is that nobody can be asked about.
    pub(super) usual: Duration,
}

impl Waiting {
    /// Looks at the reference.
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
            // A branch without a lease: its writer has none, or somebody has deleted the reference a moment ago.
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
        assert_eq!(holding.until(), at(4700), "it was never sent");
    }

    #[test]
    fn a_renewal_without_an_answer_counts_once_it_is_found() {
        let mut holding = Holding::new(D, id(1), at(0));
        holding.sends(id(2), at(1000));
        holding.sends(id(3), at(2000));
        assert_eq!(holding.finds(Some(id(1))), Found::Ours);
        assert!(holding.is_in_doubt(), "both may arrive yet");
        assert_eq!(holding.finds(Some(id(2))), Found::Ours);
        assert_eq!((holding.until(), holding.is_in_doubt()), (at(3700), false));
        assert_eq!(holding.finds(Some(id(3))), Found::Others, "it expected what was there before");
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
        assert_eq!(waiting.look(first), Step::Take, "nobody has ever served the branch");
        let own = Look { found: Some(id(1)), is_own: true, has_branch: true, ..first };
        assert_eq!(waiting.look(own), Step::Take);
    }
}
