//! What a replica does about the lease: a pure function of what it has seen, and for how long.

use std::time::Duration;

use crate::clock::Moment;

/// What a lease says.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Record {
    /// Who holds it; empty if it was released.
    pub holder: String,
    /// For how long it is to be left alone.
    pub duration: Duration,
    /// When it was taken, by the holder's clock. Only compared for equality.
    pub acquired: String,
    /// When it was renewed, by the holder's clock. Only compared for equality.
    pub renewed: String,
    /// How often it changed hands.
    pub transitions: i32,
    /// The uid of the lease: one that was deleted and made anew may otherwise say the same as before.
    pub uid: String,
}

/// What to do now.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Step {
    /// There is no lease, and nobody works by one that there was: make one.
    Create,
    /// It is ours: renew it.
    Renew,
    /// It was released, or nobody has renewed it for as long as it says: take it.
    Take,
    /// It is somebody else's for at least that long, or was and vanished.
    Leave(Duration),
}

/// The record that was seen last, and since when it has been the same.
#[derive(Clone, Debug)]
pub struct Candidate {
    identity: String,
    seen: Option<(Record, Moment)>,
    /// The longest time that any record said.
    longest: Duration,
    /// Since when there is none.
    missing: Option<Moment>,
}

impl Candidate {
    /// Nothing seen yet.
    pub fn new(identity: impl Into<String>) -> Self {
        Self { identity: identity.into(), seen: None, longest: Duration::ZERO, missing: None }
    }

    /// Takes note of the lease as an answer has it that came at `now`, and says what to do.
    ///
    /// A record counts as seen when its answer came, not when it was asked for: it may have been written while the request was under way. The
    /// answer may be old by then; a record that it shows may be another one already, so who takes the lease has to write *over that record*
    /// and no other. A lease that vanished may have a holder who does not know, so it is left alone for as long as any said; unless that holder is
    /// this one, which `works` by it until now.
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
        assert_eq!(candidate.saw(None, false, at(102)), Step::Leave(Duration::from_secs(15)), "it may be at work");
        assert_eq!(candidate.saw(None, false, at(112)), Step::Leave(Duration::from_secs(5)));
        assert_eq!(candidate.saw(None, false, at(117)), Step::Create);

        let mut holder = Candidate::new("me");
        holder.saw(Some(held_by("me", "1")), false, at(100));
        assert_eq!(holder.saw(None, true, at(102)), Step::Create);
        // Another may have had it since.
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
