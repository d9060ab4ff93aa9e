//! Which revisions wait for their audit events, and the actors of a commit.

use std::collections::HashMap;
use std::time::{Duration, Instant};

use gitcd_core::revision::Revision;
use gitcd_mvcc::log::Entry;
use gitcd_repo::actor::{self, Actor, Attribution};
use gitcd_repo::branch::Change;

use super::{Committer, TAKE};
use crate::audit::Outcome;

/// Interval in which the actors before a merge are asked for.
const POLL: Duration = Duration::from_millis(5);

impl Committer {
    /// Returns the last revision that need not wake the committer: it waits for an audit event, or is staged.
    pub(super) fn seen(&self) -> Revision {
        match (&self.audit, self.waits_until) {
            (Some(audit), Some(_)) => audit.last_seen().max(self.staged),
            _ => self.staged,
        }
    }

    /// Returns the last durable revision that can be staged: those after it wait for their audit events. Nothing waits at a stop,
    /// when the journal is too large, or behind a long backlog.
    pub(super) fn ready(&mut self, durable: Revision, stopped: bool) -> Revision {
        self.waits_until = None;
        let is_late = stopped || self.over_bound() || durable.since(self.staged) > TAKE;
        let Some(audit) = self.audit.as_ref().filter(|_| !is_late) else { return durable };
        let entries = self.store.log(self.staged.next(), TAKE);
        let (count, waits_until) = audit.ready(&entries, durable, Instant::now());
        self.waits_until = waits_until;
        match entries.get(count) {
            // Ephemeral changes before it are missing from the log, and are not staged without it.
            Some(_) if count == 0 => self.staged,
            Some(_) => entries[count - 1].revision,
            None => durable,
        }
    }

    /// Waits for the actors of all revisions up to that before a merge, which cannot be staged one by one any more.
    pub(super) fn wait_for_actors(&mut self, before: Revision, mut stopped: bool) {
        while self.audit.is_some() && self.ready(before, stopped) < before {
            self.wait(POLL);
            stopped |= self.store.wait_for_writes(before, Some(Instant::now())).1;
        }
        self.waits_until = None;
    }

    /// Returns the next entries to stage, up to a revision, and who made them; no outcomes without an audit.
    pub(super) fn next_entries(&self, last: Revision) -> (Vec<Entry>, Vec<Outcome>) {
        let limit = TAKE.min(last.since(self.staged));
        let Some(audit) = &self.audit else { return (self.store.log(self.staged.next(), limit), Vec::new()) };
        // A claim without a revision must see the later writes of its object, too.
        let mut entries = self.store.log(self.staged.next(), TAKE);
        let mut outcomes = audit.resolve(&entries);
        let count = entries.partition_point(|entry| entry.revision <= last).min(limit);
        entries.truncate(count);
        outcomes.truncate(count);
        (entries, outcomes)
    }

    /// Returns how many of these entries become the next commit, at most `group`: two actors do not change a key in one commit, since
    /// the fields that each of them changed cannot be distinguished in one commit.
    pub(super) fn chunk(entries: &[Entry], outcomes: &[Outcome], group: usize) -> usize {
        let most = group.clamp(1, entries.len());
        if outcomes.is_empty() || most == 1 {
            return most;
        }
        let mut actors = HashMap::new();
        for (count, (entry, outcome)) in entries.iter().zip(outcomes).take(most).enumerate() {
            for change in entry.changes() {
                let before = actors.insert(&change.version.key, outcome.actor());
                if before.is_some_and(|before| before != outcome.actor()) {
                    return count.max(1);
                }
            }
        }
        most
    }

    /// Returns the actors of a commit, and the keys that each of them changed.
    pub(super) fn attributions(&self, entries: &[Entry], outcomes: &[Outcome], changes: &[Change]) -> Vec<Attribution> {
        if outcomes.iter().all(|outcome| outcome.actor().is_none()) {
            return Vec::new();
        }
        let mut actors: HashMap<&[u8], Option<&Actor>> = HashMap::new();
        for (entry, outcome) in entries.iter().zip(outcomes) {
            for change in entry.changes() {
                actors.insert(&change.version.key, outcome.actor().map(|actor| &**actor));
            }
        }
        let keys = &self.config.keys;
        Attribution::of(changes.iter().map(|change| {
            let by = actors.get(&change.key[..]).copied().flatten();
            (actor::key_name(keys, &change.key), by)
        }))
    }
}
