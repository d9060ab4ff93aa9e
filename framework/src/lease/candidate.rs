//! A replica's decisions about the lease: a pure function of the records it has seen, and for how long.

use std::time::Duration;

use crate::clock::Moment;

/// The content of a lease.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Record {
    /// Identity of the holder; empty if the lease was released.
    pub holder: String,
    /// How long others wait while the record does not change.
    pub duration: Duration,
    /// Time of acquisition, by the holder's clock. Only compared for equality.
    pub acquired: String,
    /// Time of the last renewal, by the holder's clock. Only compared for equality.
    pub renewed: String,
    /// How often the holder changed.
    pub transitions: i32,
    /// The uid of the lease: a lease that was deleted and created again may otherwise have an equal record.
    pub uid: String,
}

/// What to do next.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Step {
    /// There is no lease, and no holder of a deleted one can still be working: create it.
    Create,
    /// It is ours: renew it.
    Renew,
    /// It was released, or has expired: acquire it.
    Take,
    /// Another replica holds it for at least this time, or may still work because of one that was deleted.
    Leave(Duration),
}

/// A replica's view of the lease: the last record, and since when it is unchanged.
#[derive(Clone, Debug)]
pub struct Candidate {
    identity: String,
    seen: Option<(Record, Moment)>,
    /// Longest duration in any record.
    longest: Duration,
    /// Since when there is no lease.
    missing: Option<Moment>,
}

impl Candidate {
    /// Creates a candidate that has seen nothing.
    pub fn new(identity: impl Into<String>) -> Self {
        Self { identity: identity.into(), seen: None, longest: Duration::ZERO, missing: None }
    }

    /// Records the content of a response that arrived at `now`, and returns the next step.
    ///
    /// A record counts as seen when its response arrives, not when it was requested: it may have been written while the
    /// request was in flight. The response may already be outdated, so an acquisition must replace *that record* and no
    /// other. The holder of a deleted lease may not know of the deletion, so others wait for the longest duration seen;
    /// unless that holder is this replica, which `works` until now.
    pub fn saw(&mut self, record: Option<Record>, works: bool, now: Moment) -> Step {
        let Some(record) = record else { return self.saw_none(works, now) };
        self.missing = None;
        self.longest = self.longest.max(record.duration);
        let since = match &self.seen {
            Some((before, since)) if *before == record => *since,
            _ => now,
        };
        let left = record.duration.saturating_sub(now.since(since));
        let step = if record.holder == self.identity {
            Step::Renew
        } else if record.holder.is_empty() || left.is_zero() {
            Step::Take
        } else {
            Step::Leave(left)
        };
        self.seen = Some((record, since));
        step
    }

    fn saw_none(&mut self, works: bool, now: Moment) -> Step {
        let since = *self.missing.get_or_insert(now);
        let left = self.longest.saturating_sub(now.since(since));
        if works || left.is_zero() { Step::Create } else { Step::Leave(left) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(seconds: u64) -> Moment {
        Moment::since_start(Duration::from_secs(seconds))
    }

    fn held_by(holder: &str, renewed: &str) -> Record {
        let (holder, renewed) = (holder.to_owned(), renewed.to_owned());
        Record { holder, renewed, duration: Duration::from_secs(15), ..Record::default() }
    }

    #[test]
    fn a_lease_is_taken_when_it_was_watched_unchanged_for_as_long_as_it_says() {
        let mut candidate = Candidate::new("me");
        assert_eq!(candidate.saw(Some(held_by("other", "1")), false, at(100)), Step::Leave(Duration::from_secs(15)));
        assert_eq!(candidate.saw(Some(held_by("other", "1")), false, at(110)), Step::Leave(Duration::from_secs(5)));
        assert_eq!(candidate.saw(Some(held_by("other", "2")), false, at(114)), Step::Leave(Duration::from_secs(15)));
        assert_eq!(candidate.saw(Some(held_by("other", "2")), false, at(128)), Step::Leave(Duration::from_secs(1)));
        assert_eq!(candidate.saw(Some(held_by("other", "2")), false, at(129)), Step::Take);
    }

    #[test]
    fn times_of_day_in_a_lease_do_not_matter() {
        for renewed in ["1970-01-01T00:00:00.000000Z", "2999-01-01T00:00:00.000000Z", "nonsense"] {
            let mut candidate = Candidate::new("me");
            assert_eq!(
                candidate.saw(Some(held_by("other", renewed)), false, at(1)),
                Step::Leave(Duration::from_secs(15))
            );
        }
    }

    #[test]
    fn a_lease_that_vanished_is_made_anew_by_who_held_it_and_by_others_after_its_time() {
        let mut candidate = Candidate::new("me");
        candidate.saw(Some(held_by("other", "1")), false, at(100));
        assert_eq!(
            candidate.saw(None, false, at(102)),
            Step::Leave(Duration::from_secs(15)),
            "the holder may be working"
        );
        assert_eq!(candidate.saw(None, false, at(112)), Step::Leave(Duration::from_secs(5)));
        assert_eq!(candidate.saw(None, false, at(117)), Step::Create);

        let mut holder = Candidate::new("me");
        holder.saw(Some(held_by("me", "1")), false, at(100));
        assert_eq!(holder.saw(None, true, at(102)), Step::Create);
        // Another replica may have held it since.
        assert_eq!(holder.saw(None, false, at(112)), Step::Leave(Duration::from_secs(5)));
    }

    #[test]
    fn a_released_lease_is_taken_at_once_and_ours_is_renewed_however_old() {
        let mut candidate = Candidate::new("me");
        assert_eq!(candidate.saw(Some(held_by("", "1")), false, at(1)), Step::Take);
        assert_eq!(candidate.saw(Some(held_by("me", "2")), false, at(2)), Step::Renew);
        assert_eq!(candidate.saw(Some(held_by("me", "2")), false, at(1000)), Step::Renew);
        assert_eq!(Candidate::new("me").saw(None, false, at(1001)), Step::Create);
    }
}
