//! Which object is reconciled next, and when: a pure function of what it was told.
//!
//! A [`Queue`] has no clock, no task and no lock; whoever drives it says what time it is. It promises:
//!
//! - an object waits once, however often it was added, and is never handed out twice at the same time; what is added while it is being
//!   worked on comes after that;
//! - at most [`Settings::concurrency`] objects are out, and a part of these places is kept for objects that changed: those that fail slowly do
//!   not take all of them;
//! - objects that changed come before those whose time has come, and these before a resync; but nothing waits for ever, since who
//!   is passed over often enough is next;
//! - an object that fails is left alone for a time that doubles, and that starts from the beginning after a success. What happens to it in the
//!   meantime brings the next try forward, but not closer than [`Settings::spacing`] to the failure, and does not make the delays grow.
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
//! assert!(queue.next(now).is_none(), "it is left alone for a moment");
//! let then = queue.wake_at().expect("it is tried again");
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

/// For so many entries a queue keeps room when it is empty.
const ROOM_AT_REST: usize = 256;

/// See the [module](self).
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

/// What is known of an object. There is none for those that are at rest and have not failed.
#[derive(Clone, Debug)]
struct Entry {
    failures: u32,
    /// How often in a row it was to be looked at again at once.
    repeats: u32,
    /// Of one that failed: the time before which no change brings it back.
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
        /// Whether it failed.
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
        /// What was added in the meantime.
        again: Option<Lane>,
    },
}

/// So long after `now`. Who says "never" with a time that no clock gets to is taken at their word, as far as clocks do get.
pub(crate) fn later(now: Instant, time: Duration) -> Instant {
    const NEVER: Duration = Duration::from_hours(100 * 365 * 24);
    now.checked_add(time.min(NEVER)).unwrap_or(now)
}

impl<K: Clone + Eq + Hash> Queue<K> {
    /// An empty queue.
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

    /// Says that an object is to be worked on. While [draining](Self::drain) nothing is taken.
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
            // It is tried again anyhow.
            Place::Delayed { .. } if lane == Lane::Resync => {}
            Place::Delayed { at, sequence, early, .. } => {
                self.timers.remove(&(at, sequence));
                self.hasten(key, not_before.min(at), early || not_before < at, now);
            }
        }
    }

    /// Hands out the next object, if one may be worked on now. It has to be given back with [`finish`](Self::finish).
    pub fn next(&mut self, now: Instant) -> Option<Job<K>> {
        if self.mode != Mode::Open {
            return None;
        }
        // Also if there is no room: who sleeps until the next timer would otherwise not sleep while one is over.
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

    /// Takes an object back. One that is not out is left as it is.
    pub fn finish(&mut self, key: &K, outcome: Outcome, now: Instant) {
        let Some(entry) = self.entries.get_mut(key) else { return };
        let Place::Out { lane, early, again } = entry.place else { return };
        self.out -= 1;
        self.background -= usize::from(lane != Lane::Changed);
        entry.place = Place::Rest;
        if let Outcome::Failed { not_before } = outcome {
            // One more failure before its time says nothing new. Without this, whatever happens around an object would make its delays explode.
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
            // Everything was in it when the program began; that may never be so again.
            self.entries.shrink_to(ROOM_AT_REST);
        }
    }

    /// When [`next`](Self::next) may have something that it does not have now, if nothing is added or finished before.
    pub fn wake_at(&self) -> Option<Instant> {
        let open = self.mode == Mode::Open;
        self.timers.keys().next().filter(|_| open).map(|(at, _)| *at)
    }

    /// Hands nothing out until [`resume`](Self::resume); what is added is kept.
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

    /// Forgets what waits, and neither takes nor hands out anything from now on.
    pub fn drain(&mut self) {
        self.mode = Mode::Draining;
        self.lanes = Lanes::default();
        self.timers.clear();
        self.entries.retain(|_, entry| matches!(entry.place, Place::Out { .. }));
    }

    /// How many objects are out.
    pub fn out(&self) -> usize {
        self.out
    }

    /// How many objects could be handed out at once if there were room.
    pub fn waiting(&self) -> usize {
        self.lanes.len()
    }

    /// How many of them are in this lane.
    pub fn waiting_in(&self, lane: Lane) -> usize {
        self.lanes.len_of(lane)
    }

    /// How often an object has begun to wait for a place; one that waits already does not.
    pub fn added(&self) -> u64 {
        self.added
    }

    /// How many objects wait for their time.
    pub fn delayed(&self) -> usize {
        self.timers.len()
    }

    /// Puts one where it waits for a place, since a moment that may have passed.
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

    /// Puts one that failed where a change wants it: among those that changed, at once or when it may be tried again.
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

    /// Moves those whose time has come to where they wait for a place.
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
