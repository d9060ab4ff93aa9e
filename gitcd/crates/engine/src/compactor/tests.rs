use proptest::prelude::*;

use super::*;

/// A compactor with a simulated clock and store.
struct Simulation {
    compactor: Compactor,
    start: Instant,
    now: Instant,
    revision: i64,
    /// The newest revision at every sample.
    history: Vec<(Duration, i64)>,
}

impl Simulation {
    fn new(retention: Retention) -> Self {
        let now = Instant::now();
        let compactor = Compactor::new(retention, Revision::new(1), now);
        Self { compactor, start: now, now, revision: 1, history: vec![(Duration::ZERO, 1)] }
    }

    /// Advances the time to the next sample. Returns the revision to compact.
    fn look(&mut self, writes: i64) -> Option<i64> {
        self.now += self.compactor.interval();
        self.revision += writes;
        self.history.push((self.elapsed(), self.revision));
        self.compactor.due(Revision::new(self.revision), self.now).map(Revision::get)
    }

    fn done(&mut self, revision: i64) {
        self.compactor.done(Revision::new(revision), self.now);
    }

    fn elapsed(&self) -> Duration {
        self.now - self.start
    }

    /// Returns the newest revision at the last sample that is at least this old.
    fn revision_before(&self, age: Duration) -> i64 {
        let then = self.elapsed().saturating_sub(age);
        self.history.iter().rev().find(|(time, _)| *time <= then).map_or(1, |(_, revision)| *revision)
    }

    /// Takes this many samples, with one write before each; returns minutes and revisions of the compactions.
    fn minutes(&mut self, looks: usize) -> Vec<(u64, i64)> {
        let mut compactions = Vec::new();
        for _ in 0..looks {
            if let Some(revision) = self.look(1) {
                self.done(revision);
                compactions.push((self.elapsed().as_secs() / 60, revision));
            }
        }
        compactions
    }
}

#[test]
fn a_short_retention_is_compacted_once_in_that_time() {
    let mut simulation = Simulation::new(Retention::Period(Duration::from_mins(10)));
    // One sample a minute, the first at revision 1; compacted revisions are at least ten minutes old.
    assert_eq!(simulation.minutes(40), [(10, 1), (20, 10), (30, 20), (40, 30)]);
}

#[test]
fn a_long_retention_is_compacted_every_hour_after_it_has_passed_once() {
    let mut simulation = Simulation::new(Retention::Period(Duration::from_hours(3)));
    // One sample every six minutes.
    assert_eq!(simulation.minutes(50), [(180, 1), (240, 10), (300, 20)]);
}

#[test]
fn nothing_is_compacted_while_nothing_is_written() {
    let mut simulation = Simulation::new(Retention::Period(Duration::from_mins(10)));
    let compactions: Vec<_> =
        (0..100).filter_map(|_| simulation.look(0).inspect(|done| simulation.done(*done))).collect();
    assert_eq!(compactions, [1]);
    let mut simulation = Simulation::new(Retention::Revisions(10));
    assert_eq!(simulation.look(20), Some(11));
    simulation.done(11);
    assert_eq!(simulation.look(0), None);
}

#[test]
fn a_compaction_that_failed_is_tried_again_at_the_next_look() {
    let mut simulation = Simulation::new(Retention::Period(Duration::from_mins(10)));
    for _ in 0..9 {
        assert_eq!(simulation.look(1), None);
    }
    assert_eq!([simulation.look(1), simulation.look(1), simulation.look(1)], [Some(1), Some(1), Some(2)]);
    simulation.done(2);
    assert_eq!(simulation.look(1), None);
}

#[test]
fn a_count_of_revisions_is_kept_every_five_minutes() {
    let mut simulation = Simulation::new(Retention::Revisions(100));
    assert_eq!(simulation.compactor.interval(), Duration::from_mins(5));
    assert_eq!(simulation.look(99), None, "revision 100 of 100");
    assert_eq!(simulation.look(1), Some(1));
    simulation.done(1);
    assert_eq!(simulation.look(1000), Some(1001));
    assert_eq!(simulation.look(1), Some(1002), "the previous compaction failed");
}

#[test]
fn the_shortest_retention_does_not_keep_a_processor_busy() {
    let mut simulation = Simulation::new(Retention::Period(Duration::from_nanos(1)));
    assert_eq!(simulation.compactor.interval(), Duration::from_millis(10));
    assert_eq!((simulation.look(5), simulation.look(5)), (Some(1), Some(6)));
}

proptest! {
    #[test]
    fn nothing_young_is_compacted_and_nothing_old_is_kept(
        seconds in 1_u64..20_000,
        looks in prop::collection::vec((0_i64..50, prop::bool::weighted(0.8)), 1..200),
    ) {
        let period = Duration::from_secs(seconds);
        let mut simulation = Simulation::new(Retention::Period(period));
        let (mut compacted, mut failed) = (0, Duration::ZERO);
        for (writes, works) in looks {
            if let Some(revision) = simulation.look(writes) {
                prop_assert!(revision <= simulation.revision_before(period), "{revision} is younger than {period:?}");
                prop_assert!(revision > compacted || compacted == 0);
                if works {
                    simulation.done(revision);
                    (compacted, failed) = (revision, Duration::ZERO);
                } else {
                    failed += simulation.compactor.interval();
                }
            }
            let late = period + period.min(HOUR) + 2 * simulation.compactor.interval() + failed;
            prop_assert!(compacted >= simulation.revision_before(late) || simulation.elapsed() < late);
        }
    }

    #[test]
    fn the_newest_revisions_are_kept_and_no_others(
        retention in 0_i64..100,
        looks in prop::collection::vec(0_i64..50, 1..100),
    ) {
        let mut simulation = Simulation::new(Retention::Revisions(retention));
        let mut compacted = 0;
        for writes in looks {
            if let Some(revision) = simulation.look(writes) {
                prop_assert!(revision > compacted);
                simulation.done(revision);
                compacted = revision;
            }
            prop_assert_eq!(compacted, (simulation.revision - retention).max(0));
        }
    }
}
