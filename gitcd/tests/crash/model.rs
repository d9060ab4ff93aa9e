//! Checks a store's full history against what its clients attempted and saw. Pure: no clock, no network.

use std::collections::{BTreeMap, BTreeSet};

use super::history::{Action, Attempt, Change, Entry, LeaseFacts, Log, Op, Outcome, Read};

/// A way in which a history violates the store's guarantees.
#[derive(Debug, thiserror::Error, PartialEq, Eq)]
pub(crate) enum Violation {
    #[error("revision {missing} is missing")]
    Gap { missing: i64 },
    #[error("stale response at revision {revision}: {start} had been seen")]
    Stale { revision: i64, start: i64 },
    #[error("acknowledged, but not found at its revision: {attempt:?}; found {found:?}")]
    Lost { attempt: Box<Attempt>, found: Vec<Change> },
    #[error("partially applied at revision {revision}: {attempt:?}; found {found:?}")]
    Half { revision: i64, attempt: Box<Attempt>, found: Vec<Change> },
    #[error("attempt {op} was applied twice, at {first} and {second}")]
    Twice { op: Op, first: i64, second: i64 },
    #[error("no attempt explains revision {revision}: {found:?}")]
    Unasked { revision: i64, found: Vec<Change> },
    #[error("applied at revision {revision}, older than what was seen before the request: {attempt:?}")]
    OutOfTime { revision: i64, attempt: Box<Attempt> },
    #[error("outcome contradicts the compares at revision {revision}: {attempt:?}; the keys: {state:?}")]
    Condition { revision: i64, attempt: Box<Attempt>, state: Vec<Option<Entry>> },
    #[error("wrong state in an event of revision {revision}: {change:?} on {before:?}")]
    Inconsistent { revision: i64, change: Box<Change>, before: Option<Entry> },
    #[error("a read at revision {} of {:?} differs: read {read:?}, stored {kept:?}", .revision, .prefix)]
    Vanished { revision: i64, prefix: String, read: Vec<(String, Entry)>, kept: Vec<(String, Entry)> },
}

/// The keys and their state at the last revision that has been checked.
#[derive(Clone, Debug, Default)]
pub(crate) struct Model {
    revision: i64,
    keys: BTreeMap<String, Entry>,
    happened: BTreeMap<Op, i64>,
}

/// What the clients attempted and saw since the last check.
pub(crate) struct Facts<'a> {
    pub(crate) attempts: &'a [Attempt],
    pub(crate) reads: &'a [Read],
    pub(crate) leases: &'a BTreeMap<i64, LeaseFacts>,
}

impl Model {
    /// An empty store: etcd's first revision is 1.
    pub(crate) fn empty() -> Self {
        Self { revision: 1, ..Self::default() }
    }

    pub(crate) fn revision(&self) -> i64 {
        self.revision
    }

    pub(crate) fn keys(&self) -> &BTreeMap<String, Entry> {
        &self.keys
    }

    /// The state of all keys that start with `prefix`.
    pub(crate) fn list(&self, prefix: &str) -> Vec<(String, Entry)> {
        let behind = self.keys.range(prefix.to_owned()..);
        let within = behind.take_while(|(key, _)| key.starts_with(prefix));
        within.map(|(key, entry)| (key.clone(), *entry)).collect()
    }

    /// Checks `log` against `facts`, from the model's revision up to `end`; `facts` hold everything since that revision.
    pub(crate) fn follow(&mut self, log: &Log, end: i64, facts: &Facts) -> Result<(), Violation> {
        let index = Index::of(facts);
        let mut explained = BTreeSet::new();
        index.nothing_before(self.revision)?;
        self.check_answers(&index)?;
        for revision in self.revision + 1..=end {
            let Some(changes) = log.get(&revision) else {
                return Err(match index.made.get(&revision) {
                    Some(attempt) => lost(attempt, &[]),
                    None => Violation::Gap { missing: revision },
                });
            };
            self.explain(revision, changes, &index, &mut explained)?;
            self.apply(revision, changes)?;
            self.check_answers(&index)?;
        }
        index.nothing_behind(end)
    }

    /// Finds the attempt that made `revision` and checks that the revision is exactly its effect.
    fn explain(
        &mut self,
        revision: i64,
        changes: &[Change],
        index: &Index,
        explained: &mut BTreeSet<Op>,
    ) -> Result<(), Violation> {
        if let Some(attempt) = index.made.get(&revision) {
            if !self.is_effect(attempt, changes) {
                return Err(lost(attempt, changes));
            }
            return self.happens(revision, attempt);
        }
        if let Some(op) = changes.iter().find_map(|change| change.now.map(|now| now.op)) {
            if let Some(&first) = self.happened.get(&op) {
                return Err(Violation::Twice { op, first, second: revision });
            }
            let Some(attempt) = index.open.get(&op) else {
                return Err(unasked(revision, changes));
            };
            if !self.is_effect(attempt, changes) {
                return Err(half(revision, attempt, changes));
            }
            return self.happens(revision, attempt);
        }
        if self.is_end_of_a_lease(changes, index) {
            return Ok(());
        }
        let deletes = |attempt: &&&Attempt| {
            matches!(attempt.action, Action::Delete { .. } | Action::DeletePair { .. })
                && !explained.contains(&attempt.op)
                && attempt.seen_before < revision
        };
        let candidates: Vec<_> = index.open.values().filter(deletes).collect();
        if let Some(attempt) = candidates.iter().find(|attempt| self.is_effect(attempt, changes)) {
            explained.insert(attempt.op);
            return self.happens(revision, attempt);
        }
        let touches = |attempt: &&&&Attempt| keys(&attempt.action).contains(&changes[0].key.as_str());
        match candidates.iter().find(touches) {
            Some(attempt) => Err(half(revision, attempt, changes)),
            None => Err(unasked(revision, changes)),
        }
    }

    fn happens(&mut self, revision: i64, attempt: &Attempt) -> Result<(), Violation> {
        if revision <= attempt.seen_before {
            return Err(Violation::OutOfTime { revision, attempt: Box::new(attempt.clone()) });
        }
        if !self.allows(&attempt.action) {
            return Err(self.condition(revision, attempt));
        }
        self.happened.insert(attempt.op, revision);
        Ok(())
    }

    /// Whether `changes` are the full effect of `attempt` on the current keys.
    fn is_effect(&self, attempt: &Attempt, changes: &[Change]) -> bool {
        let puts = !matches!(attempt.action, Action::Delete { .. } | Action::DeletePair { .. });
        let lease = match attempt.action {
            Action::Put { lease, .. } => lease,
            _ => 0,
        };
        let touched = keys(&attempt.action);
        let affected: Vec<_> = touched.into_iter().filter(|key| puts || self.keys.contains_key(*key)).collect();
        affected.len() == changes.len()
            && affected.iter().zip(changes).all(|(key, change)| match &change.now {
                Some(now) => puts && change.key == *key && now.op == attempt.op && now.lease == lease,
                None => !puts && change.key == *key,
            })
    }

    /// Whether the compares of an action hold on the current keys.
    fn allows(&self, action: &Action) -> bool {
        match action {
            Action::Put { .. } | Action::Revoke { .. } => true,
            Action::Update { key, expected } => self.keys.get(key).map_or(0, |entry| entry.changed) == *expected,
            Action::CreatePair { keys } => keys.iter().all(|key| !self.keys.contains_key(key)),
            Action::Delete { .. } | Action::DeletePair { .. } => {
                keys(action).iter().any(|key| self.keys.contains_key(*key))
            }
        }
    }

    /// Whether the changes delete exactly the keys of one lease that is short or that a client tried to revoke.
    fn is_end_of_a_lease(&self, changes: &[Change], index: &Index) -> bool {
        let lease = self.keys.get(&changes[0].key).map_or(0, |entry| entry.lease);
        let may_end = index.leases.get(&lease).is_some_and(|facts| facts.revoke_tried || facts.ttl < SHORT_SECONDS);
        let attached = self.keys.iter().filter(|(_, entry)| entry.lease == lease).map(|(key, _)| key);
        let gone: BTreeSet<_> =
            changes.iter().filter(|change| change.now.is_none()).map(|change| &change.key).collect();
        lease != 0 && may_end && gone.len() == changes.len() && gone.into_iter().eq(attached)
    }

    fn apply(&mut self, revision: i64, changes: &[Change]) -> Result<(), Violation> {
        for change in changes {
            let before = self.keys.get(&change.key).copied();
            let consistent = change.now.map_or(before.is_some(), |now| {
                now.changed == revision
                    && now.created == before.map_or(revision, |before| before.created)
                    && now.version == before.map_or(1, |before| before.version + 1)
            });
            if !consistent {
                return Err(Violation::Inconsistent { revision, change: Box::new(change.clone()), before });
            }
            match change.now {
                Some(now) => self.keys.insert(change.key.clone(), now),
                None => self.keys.remove(&change.key),
            };
        }
        self.revision = revision;
        Ok(())
    }

    /// Checks the responses that claim to be at the current revision.
    fn check_answers(&self, index: &Index) -> Result<(), Violation> {
        for read in index.reads.get(&self.revision).into_iter().flatten() {
            let kept = self.list(&read.prefix);
            if kept != read.found {
                return Err(Violation::Vanished {
                    revision: self.revision,
                    prefix: read.prefix.clone(),
                    read: read.found.clone(),
                    kept,
                });
            }
        }
        for attempt in index.quiet.get(&self.revision).into_iter().flatten() {
            let holds = match &attempt.action {
                Action::Revoke { lease } => self.keys.values().all(|entry| entry.lease != *lease),
                Action::Put { .. } => false,
                action => !self.allows(action),
            };
            if !holds {
                return Err(self.condition(self.revision, attempt));
            }
        }
        Ok(())
    }

    fn condition(&self, revision: i64, attempt: &Attempt) -> Violation {
        let state = keys(&attempt.action).iter().map(|key| self.keys.get(*key).copied()).collect();
        Violation::Condition { revision, attempt: Box::new(attempt.clone()), state }
    }
}

/// Leases below this TTL may expire during a test.
pub(crate) const SHORT_SECONDS: i64 = 60;

/// The facts, indexed by their revision.
struct Index<'a> {
    made: BTreeMap<i64, &'a Attempt>,
    open: BTreeMap<Op, &'a Attempt>,
    quiet: BTreeMap<i64, Vec<&'a Attempt>>,
    reads: BTreeMap<i64, Vec<&'a Read>>,
    leases: &'a BTreeMap<i64, LeaseFacts>,
}

impl<'a> Index<'a> {
    fn of(facts: &Facts<'a>) -> Self {
        let mut index = Self {
            made: BTreeMap::new(),
            open: BTreeMap::new(),
            quiet: BTreeMap::new(),
            reads: BTreeMap::new(),
            leases: facts.leases,
        };
        for attempt in facts.attempts {
            match attempt.outcome {
                Outcome::Changed(revision) => {
                    let other = index.made.insert(revision, attempt);
                    assert!(other.is_none(), "two attempts got revision {revision}: {attempt:?}, {other:?}");
                }
                Outcome::Unchanged(revision) | Outcome::Done(revision) => {
                    index.quiet.entry(revision).or_default().push(attempt);
                }
                Outcome::Unknown => {
                    index.open.insert(attempt.op, attempt);
                }
                Outcome::Refused => {}
            }
        }
        for read in facts.reads {
            index.reads.entry(read.revision).or_default().push(read);
        }
        index
    }

    /// Checks that no response is older than the last check.
    fn nothing_before(&self, start: i64) -> Result<(), Violation> {
        if let Some((_, attempt)) = self.made.range(..=start).next() {
            return Err(lost(attempt, &[]));
        }
        let quiet = self.quiet.range(..start).next().map(|(revision, _)| *revision);
        let read = self.reads.range(..start).next().map(|(revision, _)| *revision);
        match quiet.or(read) {
            Some(revision) => Err(Violation::Stale { revision, start }),
            None => Ok(()),
        }
    }

    /// Checks that no response is newer than the history.
    fn nothing_behind(&self, end: i64) -> Result<(), Violation> {
        if let Some((_, attempt)) = self.made.range(end + 1..).next() {
            return Err(lost(attempt, &[]));
        }
        let quiet = self.quiet.range(end + 1..).next().map(|(revision, _)| *revision);
        let read = self.reads.range(end + 1..).next().map(|(revision, _)| *revision);
        match quiet.or(read) {
            Some(missing) => Err(Violation::Gap { missing }),
            None => Ok(()),
        }
    }
}

fn lost(attempt: &Attempt, found: &[Change]) -> Violation {
    Violation::Lost { attempt: Box::new(attempt.clone()), found: found.to_vec() }
}

fn half(revision: i64, attempt: &Attempt, found: &[Change]) -> Violation {
    Violation::Half { revision, attempt: Box::new(attempt.clone()), found: found.to_vec() }
}

fn unasked(revision: i64, found: &[Change]) -> Violation {
    Violation::Unasked { revision, found: found.to_vec() }
}

/// The keys that an action names, in the order of its events.
fn keys(action: &Action) -> Vec<&str> {
    match action {
        Action::Put { key, .. } | Action::Update { key, .. } | Action::Delete { key } => vec![key],
        Action::CreatePair { keys } | Action::DeletePair { keys } => keys.iter().map(String::as_str).collect(),
        Action::Revoke { .. } => vec![],
    }
}
