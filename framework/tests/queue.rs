//! Promises of the queue, for any sequence of additions, results and pauses.

use std::collections::{BTreeMap, BTreeSet};
use std::time::{Duration, Instant};

use proptest::prelude::*;
use trishanku_framework::queue::{Backoff, Cause, Job, Lane, Outcome, Queue, Settings};

const FAILED: Outcome = Outcome::Failed { not_before: Duration::ZERO };

fn settings(concurrency: usize) -> Settings {
    Settings {
        concurrency,
        backoff: Backoff { first: Duration::from_millis(100), most: Duration::from_mins(1) },
        spacing: Duration::from_secs(1),
    }
}

fn jobs(queue: &mut Queue<u32>, now: Instant) -> Vec<Job<u32>> {
    std::iter::from_fn(|| queue.next(now)).collect()
}

/// Fails an object again and again, each time when it is due. Returns the delays in between.
fn fail_when_due(queue: &mut Queue<u32>, key: u32, times: usize, now: &mut Instant) -> Vec<Duration> {
    let mut delays = Vec::new();
    for _ in 0..times {
        assert_eq!(queue.next(*now).map(|job| job.key), Some(key));
        queue.finish(&key, FAILED, *now);
        let due = queue.wake_at().expect("a retry is scheduled");
        delays.push(due - *now);
        *now = due;
    }
    delays
}

#[test]
fn delays_grow_with_failures_in_a_row_and_begin_anew_after_a_success() {
    let (mut queue, mut now) = (Queue::new(settings(1)), Instant::now());
    queue.add(&1, Cause::Changed, now);
    let delays = fail_when_due(&mut queue, 1, 12, &mut now);
    assert!(delays[0] <= Duration::from_millis(100), "{delays:?}");
    assert!(delays.windows(2).take(8).all(|pair| pair[1] > pair[0]), "{delays:?}");
    assert!(delays.iter().all(|delay| *delay <= Duration::from_mins(1)), "{delays:?}");

    assert_eq!(queue.next(now).map(|job| job.failures), Some(12));
    queue.finish(&1, Outcome::Done, now);
    assert_eq!(queue.wake_at(), None);
    queue.add(&1, Cause::Resync, now);
    assert_eq!(fail_when_due(&mut queue, 1, 1, &mut now), delays[..1]);
}

#[test]
fn changes_bring_a_retry_forward_but_do_not_make_the_delays_grow() {
    let (mut queue, mut now) = (Queue::new(settings(1)), Instant::now());
    queue.add(&1, Cause::Changed, now);
    fail_when_due(&mut queue, 1, 9, &mut now);
    let before = queue.next(now).expect("the object is due").failures;
    queue.finish(&1, FAILED, now);
    for _ in 0..50 {
        queue.add(&1, Cause::Changed, now);
        assert_eq!(queue.next(now), None, "not immediately");
        let brought_forward = queue.wake_at().expect("a retry is scheduled");
        assert_eq!(brought_forward - now, Duration::from_secs(1));
        now = brought_forward;
        let job = queue.next(now).expect("a second has passed");
        assert_eq!((job.lane, job.failures), (Lane::Changed, before + 1));
        queue.finish(&1, FAILED, now);
    }
    let full = queue.wake_at().expect("a retry is scheduled") - now;
    assert!(full > Duration::from_secs(30), "without a change, the delay is as long as before: {full:?}");
}

#[test]
fn a_due_key_without_a_free_slot_wakes_no_worker_and_keeps_its_due_time() {
    let (mut queue, now) = (Queue::new(settings(1)), Instant::now());
    let due = now + Duration::from_secs(5);
    queue.add(&1, Cause::Changed, now);
    assert_eq!(queue.next(now).map(|job| (job.key, job.waited)), Some((1, Duration::ZERO)));
    queue.finish(&1, Outcome::Again(due - now), now);
    queue.add(&2, Cause::Changed, now);
    assert_eq!(queue.next(now).map(|job| job.key), Some(2));
    let later = due + Duration::from_secs(1);
    assert_eq!(
        (queue.next(later), queue.wake_at()),
        (None, None),
        "the caller must not wake for a timer that has expired"
    );
    assert_eq!((queue.waiting_in(Lane::Due), queue.added()), (1, 3));
    queue.finish(&2, Outcome::Done, later);
    assert_eq!(queue.next(later).map(|job| (job.key, job.waited)), Some((1, Duration::from_secs(1))));
}

#[test]
fn who_is_to_be_looked_at_again_at_once_does_not_run_hot_and_a_change_comes_before_that() {
    const AT_ONCE: Outcome = Outcome::Again(Duration::ZERO);
    let (mut queue, mut now) = (Queue::new(settings(1)), Instant::now());
    queue.add(&1, Cause::Changed, now);
    let mut delays = Vec::new();
    for _ in 0..12 {
        assert_eq!(queue.next(now).map(|job| job.failures), Some(0), "an immediate requeue is not a failure");
        queue.finish(&1, AT_ONCE, now);
        let due = queue.wake_at().expect("the object is scheduled");
        delays.push(due - now);
        now = due;
    }
    assert!(delays[0] >= Duration::from_millis(75) && delays[0] <= Duration::from_millis(100), "{delays:?}");
    assert!(delays.windows(2).take(8).all(|pair| pair[1] > pair[0]), "{delays:?}");
    assert!(delays.iter().all(|delay| *delay <= Duration::from_mins(1)), "{delays:?}");

    queue.next(now).expect("the object is due");
    queue.finish(&1, AT_ONCE, now);
    queue.add(&1, Cause::Changed, now);
    assert_eq!(queue.next(now).map(|job| job.lane), Some(Lane::Changed));
    // Another result resets the count.
    queue.finish(&1, Outcome::Again(Duration::from_millis(1)), now);
    now += Duration::from_millis(1);
    queue.next(now).expect("the object is due");
    queue.finish(&1, AT_ONCE, now);
    assert_eq!(queue.wake_at(), Some(now + delays[0]));
}

#[test]
fn a_change_of_what_is_wanted_begins_the_delays_anew() {
    let (mut queue, mut now) = (Queue::new(settings(1)), Instant::now());
    queue.add(&1, Cause::Changed, now);
    fail_when_due(&mut queue, 1, 9, &mut now);
    queue.add(&1, Cause::Wanted, now);
    assert_eq!(queue.next(now).map(|job| job.failures), Some(0));
    queue.finish(&1, FAILED, now);
    assert!(queue.wake_at().expect("a retry is scheduled") - now <= Duration::from_millis(100));
}

#[test]
fn nothing_brings_a_retry_closer_than_the_server_asked_for() {
    let (mut queue, now) = (Queue::new(settings(1)), Instant::now());
    queue.add(&1, Cause::Changed, now);
    queue.next(now).expect("the object waits");
    queue.add(&1, Cause::Changed, now);
    queue.finish(&1, Outcome::Failed { not_before: Duration::from_secs(20) }, now);
    queue.add(&1, Cause::Wanted, now);
    assert_eq!(queue.wake_at(), Some(now + Duration::from_secs(20)));
}

#[test]
fn what_cannot_succeed_waits_for_a_change() {
    let (mut queue, now) = (Queue::new(settings(1)), Instant::now());
    queue.add(&1, Cause::Changed, now);
    queue.next(now).expect("the object waits");
    queue.finish(&1, Outcome::Terminal, now);
    assert_eq!((queue.wake_at(), queue.next(now)), (None, None));
    queue.add(&1, Cause::Changed, now);
    assert_eq!(queue.next(now).map(|job| job.failures), Some(0));
}

#[test]
fn objects_that_fail_slowly_leave_room_for_one_that_changed() {
    for concurrency in 2..20 {
        let (mut queue, mut now) = (Queue::new(settings(concurrency)), Instant::now());
        for key in 0..100 {
            queue.add(&key, Cause::Changed, now);
        }
        for _ in 0..100 {
            let key = queue.next(now).expect("the object waits").key;
            queue.finish(&key, FAILED, now);
        }
        now += Duration::from_mins(2);
        // All of them are retried now, and hang.
        assert!(jobs(&mut queue, now).len() < concurrency);
        queue.add(&1000, Cause::Changed, now);
        assert_eq!(queue.next(now).map(|job| job.key), Some(1000), "{concurrency}");
    }
}

#[test]
fn a_change_comes_before_ten_thousand_resyncs_and_these_end_even_if_changes_never_do() {
    let (mut queue, now) = (Queue::new(settings(1)), Instant::now());
    for key in 0..10_000 {
        queue.add(&key, Cause::Resync, now);
    }
    queue.add(&9_999, Cause::Changed, now);
    let job = queue.next(now).expect("many wait");
    assert_eq!((job.key, job.lane), (9_999, Lane::Changed));
    queue.finish(&job.key, Outcome::Done, now);
    let mut resynced = BTreeSet::new();
    for change in 0..100_000_u32 {
        queue.add(&(20_000 + change), Cause::Changed, now);
        let job = queue.next(now).expect("many wait");
        if job.lane == Lane::Resync {
            resynced.insert(job.key);
        }
        queue.finish(&job.key, Outcome::Done, now);
    }
    assert_eq!(resynced.len(), 9_999);
}

#[test]
fn a_paused_queue_keeps_what_is_added_and_a_draining_one_ends() {
    let (mut queue, now) = (Queue::new(settings(3)), Instant::now());
    queue.pause();
    queue.add(&1, Cause::Changed, now);
    assert_eq!((queue.next(now), queue.wake_at(), queue.waiting()), (None, None, 1));
    queue.resume();
    assert_eq!(jobs(&mut queue, now).len(), 1);
    queue.add(&2, Cause::Changed, now);
    queue.drain();
    queue.resume();
    queue.add(&3, Cause::Changed, now);
    assert_eq!((queue.next(now), queue.out(), queue.waiting(), queue.delayed()), (None, 1, 0, 0));
    queue.finish(&1, Outcome::Again(Duration::ZERO), now);
    assert_eq!((queue.next(now), queue.out(), queue.wake_at()), (None, 0, None));
}

#[derive(Clone, Debug)]
enum Step {
    Add(u32, Cause),
    Start,
    /// Finishes one of the objects in progress, by index.
    Finish(usize, Outcome),
    /// Milliseconds.
    Wait(u64),
    Pause,
    Resume,
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let cause = prop_oneof![Just(Cause::Wanted), Just(Cause::Changed), Just(Cause::Resync)];
    let outcome = prop_oneof![
        Just(Outcome::Done),
        Just(FAILED),
        Just(Outcome::Terminal),
        (0..5000_u64).prop_map(|after| Outcome::Again(Duration::from_millis(after))),
        (0..5000_u64).prop_map(|after| Outcome::Failed { not_before: Duration::from_millis(after) }),
    ];
    let step = prop_oneof![
        4 => (0..6_u32, cause).prop_map(|(key, cause)| Step::Add(key, cause)),
        4 => Just(Step::Start),
        4 => (any::<prop::sample::Index>(), outcome).prop_map(|(which, outcome)| Step::Finish(which.index(64), outcome)),
        2 => (0..2000_u64).prop_map(Step::Wait),
        1 => Just(Step::Pause),
        2 => Just(Step::Resume),
    ];
    prop::collection::vec(step, 0..300)
}

/// What a caller knows without access to the queue's state.
#[derive(Default)]
struct Model {
    out: BTreeMap<u32, Lane>,
    /// Added since their last start.
    owed: BTreeSet<u32>,
    /// Objects whose last run failed: when, and the delay that the server asked for.
    failed: BTreeMap<u32, (Instant, Duration)>,
    paused: bool,
}

impl Model {
    fn started(&mut self, job: &Job<u32>, now: Instant, settings: &Settings) {
        assert!(!self.paused, "nothing starts during a pause");
        assert_eq!(self.out.insert(job.key, job.lane), None, "never two at once for {}", job.key);
        assert!(self.out.len() <= settings.concurrency);
        let background = self.out.values().filter(|lane| **lane != Lane::Changed).count();
        assert!(background <= settings.background());
        self.owed.remove(&job.key);
        if let Some((at, asked)) = self.failed.get(&job.key) {
            let least = (settings.backoff.first * 3 / 4).min(settings.spacing).max(*asked);
            assert!(now - *at >= least, "{} ran again {:?} after a failure", job.key, now - *at);
        }
    }

    fn finished(&mut self, key: u32, outcome: Outcome, now: Instant) {
        self.out.remove(&key);
        match outcome {
            Outcome::Failed { not_before } => self.failed.insert(key, (now, not_before)),
            _ => self.failed.remove(&key),
        };
    }
}

proptest! {
    #[test]
    fn no_order_of_events_breaks_a_promise(concurrency in 1..5_usize, steps in steps()) {
        let settings = settings(concurrency);
        let (mut queue, mut now, mut model) = (Queue::new(settings), Instant::now(), Model::default());
        for step in steps {
            match step {
                Step::Add(key, cause) => {
                    queue.add(&key, cause, now);
                    model.owed.insert(key);
                }
                Step::Start => {
                    if let Some(job) = queue.next(now) {
                        model.started(&job, now, &settings);
                    }
                }
                Step::Finish(which, outcome) => {
                    let key = model.out.keys().nth(which % model.out.len().max(1)).copied();
                    if let Some(key) = key {
                        queue.finish(&key, outcome, now);
                        model.finished(key, outcome, now);
                    }
                }
                Step::Wait(time) => now += Duration::from_millis(time),
                Step::Pause => { queue.pause(); model.paused = true; }
                Step::Resume => { queue.resume(); model.paused = false; }
            }
            prop_assert_eq!(queue.out(), model.out.len());
        }
        // From here on everything succeeds: added objects run, and then the queue is idle.
        queue.resume();
        model.paused = false;
        for _ in 0..100 {
            for key in model.out.keys().copied().collect::<Vec<_>>() {
                queue.finish(&key, Outcome::Done, now);
                model.finished(key, Outcome::Done, now);
            }
            while let Some(job) = queue.next(now) {
                model.started(&job, now, &settings);
            }
            now = queue.wake_at().map_or(now, |at| at.max(now));
        }
        prop_assert_eq!(&model.owed, &BTreeSet::new());
        prop_assert_eq!((queue.out(), queue.waiting(), queue.delayed(), queue.wake_at()), (0, 0, 0, None));
    }

    #[test]
    fn the_same_events_give_the_same_order(steps in steps()) {
        let now = Instant::now();
        let run = || {
            let (mut queue, mut now, mut out, mut trace) = (Queue::new(settings(3)), now, BTreeSet::new(), Vec::new());
            for step in &steps {
                match step {
                    Step::Add(key, cause) => queue.add(key, *cause, now),
                    Step::Start => trace.extend(queue.next(now).inspect(|job| { out.insert(job.key); })),
                    Step::Finish(which, outcome) => {
                        if let Some(key) = out.iter().nth(which % out.len().max(1)).copied() {
                            out.remove(&key);
                            queue.finish(&key, *outcome, now);
                        }
                    }
                    Step::Wait(time) => now += Duration::from_millis(*time),
                    Step::Pause => queue.pause(),
                    Step::Resume => queue.resume(),
                }
            }
            trace
        };
        prop_assert_eq!(run(), run());
    }
}

#[test]
fn a_time_that_never_comes_is_one() {
    let mut queue = Queue::new(Settings::default());
    let now = Instant::now();
    for outcome in [Outcome::Again(Duration::MAX), Outcome::Failed { not_before: Duration::MAX }] {
        queue.add(&0, Cause::Changed, now);
        queue.next(now).expect("the object waits");
        queue.finish(&0, outcome, now);
        let in_a_year = now + Duration::from_hours(24 * 365);
        assert_eq!(queue.next(in_a_year), None, "{outcome:?}");
        queue = Queue::new(Settings::default());
    }
}
