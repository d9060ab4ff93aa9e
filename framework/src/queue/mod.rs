//! Which object is reconciled next, and when: a pure function of the queue's inputs.
//!
//! A [`Queue`] has no clock, no task and no lock; its caller passes the current time. It promises:
//!
//! - an object waits once, however often it was added, and is never in progress twice; if it is added while it is in
//!   progress, it waits again after that;
//! - at most [`Settings::concurrency`] objects are in progress, and a part of these slots is reserved for objects that
//!   changed, so that slow failures do not occupy all slots;
//! - objects that changed come before due ones, and these before resyncs; but nothing starves, because a lane that was
//!   skipped often enough is next;
//! - an object that fails is retried after a delay that doubles, and that a success resets. Events in the meantime bring the
//!   retry forward, but not closer than [`Settings::spacing`] to the failure, and do not make the delays grow.
//!
//! ```
//! use std::time::{Duration, Instant};
//! use trishanku_framework::queue::{Cause, Outcome, Queue, Settings};
//!
//! let mut queue = Queue::new(Settings::default());
//! let now = Instant::now();
//! queue.add(&"tank", Cause::Changed, now);
//! queue.add(&"tank", Cause::Changed, now);
//! let job = queue.next(now).expect("one object waits");
//! assert_eq!(job.key, "tank");
//! assert!(queue.next(now).is_none(), "it was added twice, and waited once");
//!
//! queue.finish(&"tank", Outcome::Failed { not_before: Duration::ZERO }, now);
//! assert!(queue.next(now).is_none(), "it backs off");
//! let then = queue.wake_at().expect("a retry is scheduled");
//! assert_eq!(queue.next(then).map(|job| job.failures), Some(1));
//! ```

mod backoff;
mod lanes;
mod terms;

use std::collections::{BTreeMap, HashMap};
use std::hash::Hash;
use std::time::{Duration, Instant};

pub use self::backoff::Backoff;
pub use self::lanes::Lane;
use self::lanes::Lanes;
pub use self::terms::{Cause, Job, Outcome, Settings};

/// Capacity that an empty queue keeps.
const ROOM_AT_REST: usize = 256;

/// A queue of objects; see the [module](self).
#[derive(Clone, Debug)]
pub struct Queue<K> {
    settings: Settings,
    entries: HashMap<K, Entry>,
    lanes: Lanes<K>,
    timers: BTreeMap<(Instant, u64), K>,
    sequence: u64,
    out: usize,
    background: usize,
    added: u64,
    mode: Mode,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Mode {
    Open,
    Paused,
    Draining,
}

/// State of an object. Idle objects that have not failed have no entry.
#[derive(Clone, Debug)]
struct Entry {
    failures: u32,
    /// How often in a row it was requeued immediately.
    repeats: u32,
    /// After a failure, the time before which no change triggers a retry.
    not_before: Instant,
    place: Place,
}

#[derive(Clone, Copy, Debug)]
enum Place {
    Rest,
    Delayed {
        at: Instant,
        sequence: u64,
        lane: Lane,
        /// Whether it is a retry.
        failed: bool,
        /// Whether it comes before its back-off is over.
        early: bool,
    },
    Waiting {
        lane: Lane,
        sequence: u64,
        since: Instant,
        early: bool,
    },
    Out {
        lane: Lane,
        early: bool,
        /// The lane of what was added in the meantime.
        again: Option<Lane>,
    },
}

/// Returns `now + time`. A `time` that means "never" is cut to a century, which the clock can represent.
pub(crate) fn later(now: Instant, time: Duration) -> Instant {
    const NEVER: Duration = Duration::from_hours(100 * 365 * 24);
    now.checked_add(time.min(NEVER)).unwrap_or(now)
}

impl<K: Clone + Eq + Hash> Queue<K> {
    /// Creates an empty queue.
    pub fn new(settings: Settings) -> Self {
        Self {
            settings,
            entries: HashMap::new(),
            lanes: Lanes::default(),
            timers: BTreeMap::new(),
            sequence: 0,
            out: 0,
            background: 0,
            added: 0,
            mode: Mode::Open,
        }
    }

    /// Queues an object. Ignored while [draining](Self::drain).
    pub fn add(&mut self, key: &K, cause: Cause, now: Instant) {
        if self.mode == Mode::Draining {
            return;
        }
        let entry = self.entries.entry(key.clone()).or_insert(Entry {
            failures: 0,
            repeats: 0,
            not_before: now,
            place: Place::Rest,
        });
        if cause == Cause::Wanted {
            (entry.failures, entry.repeats) = (0, 0);
        }
        let (lane, not_before) = (cause.lane(), entry.not_before);
        match entry.place {
            Place::Rest => self.wait(key, lane, false, now),
            Place::Waiting { lane: old, sequence, since, early } if lane < old => {
                self.lanes.remove(old, sequence);
                self.place(key, lane, early, since);
            }
            Place::Waiting { .. } => {}
            Place::Out { ref mut again, .. } => *again = Some(again.map_or(lane, |before| before.min(lane))),
            Place::Delayed { at, sequence, failed: false, .. } => {
                self.timers.remove(&(at, sequence));
                self.wait(key, lane, false, now);
            }
            // It is retried anyway.
            Place::Delayed { .. } if lane == Lane::Resync => {}
            Place::Delayed { at, sequence, early, .. } => {
                self.timers.remove(&(at, sequence));
                self.hasten(key, not_before.min(at), early || not_before < at, now);
            }
        }
    }

    /// Hands out the next object, if one may be processed now. Return it with [`finish`](Self::finish).
    pub fn next(&mut self, now: Instant) -> Option<Job<K>> {
        if self.mode != Mode::Open {
            return None;
        }
        // Also if no slot is free: otherwise `wake_at` would return a time in the past, and its caller would not sleep.
        self.ring(now);
        if self.out >= self.settings.concurrency.max(1) {
            return None;
        }
        let (lane, key) = self.lanes.take(self.background < self.settings.background())?;
        let entry = self.entries.get_mut(&key)?;
        let Place::Waiting { since, early, .. } = entry.place else { return None };
        entry.place = Place::Out { lane, early, again: None };
        self.out += 1;
        self.background += usize::from(lane != Lane::Changed);
        Some(Job { failures: entry.failures, key, lane, waited: now.saturating_duration_since(since) })
    }

    /// Takes an object back. Ignored if it is not in progress.
    pub fn finish(&mut self, key: &K, outcome: Outcome, now: Instant) {
        let Some(entry) = self.entries.get_mut(key) else { return };
        let Place::Out { lane, early, again } = entry.place else { return };
        self.out -= 1;
        self.background -= usize::from(lane != Lane::Changed);
        entry.place = Place::Rest;
        if let Outcome::Failed { not_before } = outcome {
            // A failure before the back-off is over does not count again. Otherwise events around a failing object would make
            // its delays explode.
            if !early || entry.failures == 0 {
                entry.failures = entry.failures.saturating_add(1);
            }
            let at = later(now, self.settings.backoff.delay(entry.failures, key).max(not_before));
            entry.not_before = later(now, self.settings.spacing.max(not_before));
            let earliest = entry.not_before;
            match again {
                _ if self.mode == Mode::Draining => {}
                Some(Lane::Changed) => self.hasten(key, earliest.min(at), earliest < at, now),
                _ => self.delay(key, at, Lane::Due, true, false),
            }
            return;
        }
        entry.failures = 0;
        let at_once = outcome == Outcome::Again(Duration::ZERO);
        entry.repeats = if at_once { entry.repeats.saturating_add(1) } else { 0 };
        match (again, outcome) {
            _ if self.mode == Mode::Draining => {}
            (Some(lane), _) => return self.wait(key, lane, false, now),
            (None, Outcome::Again(after)) => {
                let after = if at_once { self.settings.backoff.delay(entry.repeats, key) } else { after };
                return self.delay(key, later(now, after), Lane::Due, false, false);
            }
            _ => {}
        }
        self.entries.remove(key);
        if self.entries.is_empty() {
            // It held all objects at the start, which may never happen again.
            self.entries.shrink_to(ROOM_AT_REST);
        }
    }

    /// Returns when [`next`](Self::next) may have another object, unless one is added or finished before.
    pub fn wake_at(&self) -> Option<Instant> {
        let open = self.mode == Mode::Open;
        self.timers.keys().next().filter(|_| open).map(|(at, _)| *at)
    }

    /// Stops handing out objects until [`resume`](Self::resume); objects can still be added.
    pub fn pause(&mut self) {
        if self.mode == Mode::Open {
            self.mode = Mode::Paused;
        }
    }

    /// Ends a [`pause`](Self::pause).
    pub fn resume(&mut self) {
        if self.mode == Mode::Paused {
            self.mode = Mode::Open;
        }
    }

    /// Drops all waiting objects, and ignores further additions. Nothing more is handed out.
    pub fn drain(&mut self) {
        self.mode = Mode::Draining;
        self.lanes = Lanes::default();
        self.timers.clear();
        self.entries.retain(|_, entry| matches!(entry.place, Place::Out { .. }));
    }

    /// Returns the number of objects in progress.
    pub fn out(&self) -> usize {
        self.out
    }

    /// Returns the number of objects that wait for a slot.
    pub fn waiting(&self) -> usize {
        self.lanes.len()
    }

    /// Returns how many of these are in this lane.
    pub fn waiting_in(&self, lane: Lane) -> usize {
        self.lanes.len_of(lane)
    }

    /// Returns how often objects were queued, without those that were already waiting.
    pub fn added(&self) -> u64 {
        self.added
    }

    /// Returns the number of objects that are scheduled for later.
    pub fn delayed(&self) -> usize {
        self.timers.len()
    }

    /// Queues an object that has been waiting since `since`.
    fn wait(&mut self, key: &K, lane: Lane, early: bool, since: Instant) {
        self.added += 1;
        self.place(key, lane, early, since);
    }

    fn place(&mut self, key: &K, lane: Lane, early: bool, since: Instant) {
        let sequence = self.count();
        self.lanes.push(lane, sequence, key.clone());
        self.put(key, Place::Waiting { lane, sequence, since, early });
    }

    fn delay(&mut self, key: &K, at: Instant, lane: Lane, failed: bool, early: bool) {
        let sequence = self.count();
        self.timers.insert((at, sequence), key.clone());
        self.put(key, Place::Delayed { at, sequence, lane, failed, early });
    }

    /// Brings a retry forward because of a change: to now, or to the earliest time allowed.
    fn hasten(&mut self, key: &K, at: Instant, early: bool, now: Instant) {
        if at <= now {
            self.wait(key, Lane::Changed, early, now);
        } else {
            self.delay(key, at, Lane::Changed, true, early);
        }
    }

    fn put(&mut self, key: &K, place: Place) {
        if let Some(entry) = self.entries.get_mut(key) {
            entry.place = place;
        }
    }

    /// Queues the objects whose timers have expired.
    fn ring(&mut self, now: Instant) {
        while let Some(first) = self.timers.first_entry().filter(|first| first.key().0 <= now) {
            let at = first.key().0;
            let key = first.remove();
            if let Some(Entry { place: Place::Delayed { lane, early, .. }, .. }) = self.entries.get(&key) {
                let (lane, early) = (*lane, *early);
                self.wait(&key, lane, early, at);
            }
        }
    }

    fn count(&mut self) -> u64 {
        self.sequence += 1;
        self.sequence
    }
}
