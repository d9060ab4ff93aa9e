//! Who made each revision, by the audit events of kube-apiserver.
//!
//! [`event`] parses events, [`claim`] turns each into a claim that an actor wrote an object, `table` joins claims to revisions, and
//! `wait` limits for how long the committer waits for them. [`follow`] reads events from a log file. Nothing of it is on the
//! path of a write: events are kept in memory only, and a revision whose event is missing is committed without an actor.
//!
//! Source: `docs/design/audit.md`.

pub mod claim;
pub mod event;
pub mod follow;
mod staged;
mod table;
mod wait;

use std::collections::VecDeque;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::{Duration, Instant};

use gitcd_core::keyspace::KeySpace;
use gitcd_core::revision::Revision;
use gitcd_mvcc::Store;
use gitcd_mvcc::log::Entry;
use gitcd_repo::actor;

use self::claim::Claim;
use self::event::Event;
use self::staged::Staged;
pub(crate) use self::table::Outcome;
use self::table::{Candidate, Table};
use self::wait::Waits;

/// Number of committed revisions without an actor that are remembered, to recognize events that come too late.
const MAX_UNNAMED: usize = 4096;

/// How events are joined to revisions.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Settings {
    /// The longest wait of a commit for its events.
    pub wait: Duration,
    /// By how much the clock of kube-apiserver may differ; zero on the same machine.
    pub clock_tolerance: Duration,
}

impl Default for Settings {
    fn default() -> Self {
        Self { wait: Duration::from_secs(1), clock_tolerance: Duration::ZERO }
    }
}

/// Counters for metrics.
#[derive(Debug, Default)]
pub struct Counters {
    /// Events received.
    pub events: AtomicU64,
    /// Requests and lines of the log file that are no events.
    pub invalid: AtomicU64,
    /// Revisions that were committed with an actor.
    pub named: AtomicU64,
    /// Revisions that were committed without an actor.
    pub unnamed: AtomicU64,
    /// Of these, those whose event came too late.
    pub late: AtomicU64,
    /// Of these, those that two users claim.
    pub ambiguous: AtomicU64,
    /// Events that were dropped because too many waited.
    pub dropped: AtomicU64,
}

/// The audit events of one branch. The receiver adds them, the committer joins them to revisions.
#[derive(Debug)]
pub struct Audit {
    state: Mutex<State>,
    counters: Counters,
    keys: KeySpace,
    /// Notified of new events.
    store: OnceLock<Arc<Store>>,
}

#[derive(Debug)]
struct State {
    table: Table,
    waits: Waits,
    staged: Staged,
    /// Committed revisions without an actor, and their keys.
    unnamed: VecDeque<(i64, Vec<u8>)>,
}

impl Audit {
    /// Returns the audit of a branch with these keys, without events.
    pub fn new(settings: Settings, keys: KeySpace) -> Self {
        let Settings { wait, clock_tolerance } = settings;
        let state = State {
            table: Table::new(clock_tolerance),
            waits: Waits::new(wait),
            staged: Staged::default(),
            unnamed: VecDeque::new(),
        };
        Self { state: Mutex::new(state), counters: Counters::default(), keys, store: OnceLock::new() }
    }

    /// Returns the counters.
    pub fn counters(&self) -> &Counters {
        &self.counters
    }

    /// Adds events. Takes a few microseconds for each; does not block on the disk or on writes.
    pub fn add<'e>(&self, events: impl IntoIterator<Item = &'e Event>) {
        let (mut count, now) = (0, Instant::now());
        {
            let mut state = self.state();
            for event in events {
                count += 1;
                if let Some(claim) = Claim::of(event) {
                    self.counters.late.fetch_add(state.late(&claim), Ordering::Relaxed);
                    self.counters.dropped.fetch_add(state.table.add(claim, now), Ordering::Relaxed);
                }
            }
            state.waits.heard();
        }
        self.counters.events.fetch_add(count, Ordering::Relaxed);
        if let Some(store) = self.store.get() {
            store.nudge();
        }
    }

    /// Counts input that is no event.
    pub fn refuse(&self) {
        self.counters.invalid.fetch_add(1, Ordering::Relaxed);
    }

    /// Wakes the committer of this store when events arrive.
    pub(crate) fn wake(&self, store: &Arc<Store>) {
        let _is_first = self.store.set(store.clone());
    }

    /// Returns the last revision that [`Audit::ready`] has seen.
    pub(crate) fn last_seen(&self) -> Revision {
        Revision::new(self.state().waits.last_seen())
    }

    /// Returns how many of these revisions, which follow the last committed one, can be committed: their actors are known, or do
    /// not delay them; and when to call again at the latest, if an actor delays them. `durable` is the last revision of the store.
    pub(crate) fn ready(&self, entries: &[Entry], durable: Revision, now: Instant) -> (usize, Option<Instant>) {
        let candidates = self.candidates(entries);
        let mut state = self.state();
        state.waits.see(durable.get(), now);
        let outcomes = state.resolve(&candidates);
        for (count, (candidate, outcome)) in candidates.iter().zip(outcomes).enumerate() {
            let is_staged = state.staged.has(candidate.revision);
            if outcome == Outcome::Unknown
                && !is_staged
                && let Some(deadline) = state.waits.deadline(candidate.revision, candidate.resource_key(), now)
            {
                return (count, Some(deadline));
            }
        }
        (entries.len(), None)
    }

    /// Returns who made each of these revisions.
    pub(crate) fn resolve(&self, entries: &[Entry]) -> Vec<Outcome> {
        self.state().resolve(&self.candidates(entries))
    }

    /// Records that these revisions are in the next pack, with these actors. Revisions that were in a pack that could not be written
    /// are recorded a second time.
    pub(crate) fn staged(&self, entries: &[Entry], outcomes: &[Outcome], now: Instant) {
        let candidates = self.candidates(entries);
        let mut state = self.state();
        // Those that are staged again are counted already.
        let again = candidates.partition_point(|candidate| state.staged.has(candidate.revision));
        for (candidate, outcome) in candidates[..again].iter().zip(outcomes) {
            state.staged.complete(candidate.revision, outcome);
        }
        let (candidates, outcomes) = (&candidates[again..], outcomes.get(again..).unwrap_or_default());
        for (candidate, outcome) in candidates.iter().zip(outcomes) {
            let (revision, key) = (candidate.revision, candidate.resource_key());
            let counter = match outcome {
                Outcome::Known(_) => {
                    state.waits.found(key);
                    &self.counters.named
                }
                Outcome::Unknown => {
                    state.waits.missed(revision, key, now);
                    state.unnamed.push_back((revision, key.to_owned()));
                    &self.counters.unnamed
                }
                Outcome::Ambiguous => {
                    self.counters.ambiguous.fetch_add(1, Ordering::Relaxed);
                    &self.counters.unnamed
                }
            };
            counter.fetch_add(1, Ordering::Relaxed);
            state.staged.add(revision, outcome);
        }
        while state.unnamed.len() > MAX_UNNAMED {
            state.unnamed.pop_front();
        }
        if let Some(last) = candidates.last() {
            state.table.staged(candidates, outcomes);
            state.waits.staged(last.revision);
        }
    }

    /// Records that all revisions up to this one are in the repository.
    pub(crate) fn flushed(&self, last: Revision) {
        self.state().staged.flushed(last.get());
    }

    fn candidates<'e>(&self, entries: &'e [Entry]) -> Vec<Candidate<'e>> {
        let candidate = |entry: &'e Entry| Candidate {
            revision: entry.revision.get(),
            time_ms: entry.time_ms,
            changes: entry
                .changes()
                .iter()
                .map(|change| (actor::key_name(&self.keys, &change.version.key), change.version.is_tombstone()))
                .collect(),
        };
        entries.iter().map(candidate).collect()
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl State {
    /// Returns who made each of these revisions; of those that were staged before, who was known then.
    fn resolve(&self, candidates: &[Candidate<'_>]) -> Vec<Outcome> {
        self.table.resolve(candidates, &self.staged)
    }

    /// Returns 1 if a claim is of a revision that was committed without it.
    fn late(&mut self, claim: &Claim) -> u64 {
        let Some(revision) = claim.revision() else { return 0 };
        let Ok(at) = self.unnamed.binary_search_by_key(&revision, |(unnamed, _)| *unnamed) else { return 0 };
        let Some((_, key)) = self.unnamed.remove(at) else { return 0 };
        // The next revisions of the resource wait again.
        self.waits.found(&key);
        1
    }
}
