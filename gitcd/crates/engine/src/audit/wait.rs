//! How long the committer waits for audit events.
//!
//! A revision waits until its event has arrived, but no longer than [`Waits::limit`] after the committer saw it. Some writes have
//! no event: those of kube-apiserver itself, and of resources that its audit policy leaves out. After three revisions of a
//! resource in a row without an event, the revisions of this resource no longer wait, except one now and then. If no event at all
//! arrives, no revision waits until one does.

use std::collections::{HashMap, VecDeque};
use std::time::{Duration, Instant};

/// After how many revisions without an event the wait is suspended.
const MISSES: u32 = 3;
/// Length of the first suspension for a resource; it doubles each time.
const FIRST_PAUSE: Duration = Duration::from_secs(10);
const MAX_PAUSE: Duration = Duration::from_mins(10);
/// Limit of the number of resources that are remembered; beyond it, all are forgotten.
const MAX_RESOURCES: usize = 1024;

#[derive(Debug)]
pub(crate) struct Waits {
    limit: Duration,
    /// When revisions up to each of these were first seen.
    seen: VecDeque<(i64, Instant)>,
    /// Revisions in a row whose wait ended without any event in between.
    silent: u32,
    resources: HashMap<Vec<u8>, Resource>,
}

#[derive(Debug, Default)]
struct Resource {
    /// Revisions in a row without an event.
    misses: u32,
    suspended_until: Option<Instant>,
}

impl Waits {
    pub(crate) fn new(limit: Duration) -> Self {
        Self { limit, seen: VecDeque::new(), silent: 0, resources: HashMap::new() }
    }

    /// Records that revisions up to `last` exist.
    pub(crate) fn see(&mut self, last: i64, now: Instant) {
        if self.seen.back().is_none_or(|(seen, _)| *seen < last) {
            self.seen.push_back((last, now));
        }
    }

    /// Returns the last revision that was seen.
    pub(crate) fn last_seen(&self) -> i64 {
        self.seen.back().map_or(0, |(revision, _)| *revision)
    }

    /// Returns until when a revision waits for its event; `None` if it does not wait (any more).
    pub(crate) fn deadline(&self, revision: i64, key: &[u8], now: Instant) -> Option<Instant> {
        if self.silent >= MISSES {
            return None;
        }
        let suspended = self.resources.get(resource(key)).and_then(|resource| resource.suspended_until);
        if suspended.is_some_and(|until| now < until) {
            return None;
        }
        let first = self.seen.partition_point(|(seen, _)| *seen < revision);
        let (_, since) = self.seen.get(first)?;
        Some(*since + self.limit).filter(|deadline| now < *deadline)
    }

    /// Records that an event has arrived.
    pub(crate) fn heard(&mut self) {
        self.silent = 0;
    }

    /// Records that the event of a revision arrived, in time or late.
    pub(crate) fn found(&mut self, key: &[u8]) {
        self.resources.remove(resource(key));
    }

    /// Records that a revision waited in vain. Revisions that did not wait are not recorded.
    pub(crate) fn missed(&mut self, revision: i64, key: &[u8], now: Instant) {
        let first = self.seen.partition_point(|(seen, _)| *seen < revision);
        let has_waited = self.seen.get(first).is_some_and(|(_, since)| *since + self.limit <= now);
        if !has_waited || self.silent >= MISSES {
            return;
        }
        self.silent += 1;
        if self.resources.len() >= MAX_RESOURCES {
            self.resources.clear();
        }
        let resource = self.resources.entry(resource(key).to_owned()).or_default();
        if resource.suspended_until.is_some_and(|until| now < until) {
            return;
        }
        resource.misses += 1;
        if resource.misses >= MISSES {
            let pause = FIRST_PAUSE * 2_u32.saturating_pow((resource.misses - MISSES).min(8));
            resource.suspended_until = Some(now + pause.min(MAX_PAUSE));
        }
    }

    /// Forgets the revisions up to `last`, which wait no longer.
    pub(crate) fn staged(&mut self, last: i64) {
        // The last one stays, for `last_seen`.
        while self.seen.len() > 1 && self.seen[0].0 <= last {
            self.seen.pop_front();
        }
    }
}

/// Returns the resource of a key that is relative to the branch's prefix: for custom resources, their group.
fn resource(key: &[u8]) -> &[u8] {
    let key = key.strip_prefix(b"/").unwrap_or(key);
    key.split(|byte| *byte == b'/').next().unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    const LIMIT: Duration = Duration::from_secs(1);
    const MAP: &[u8] = b"configmaps/shop/prices";
    const RANGE: &[u8] = b"ranges/serviceips";

    /// Lets a revision wait in vain. Returns for how long it waited.
    fn miss(waits: &mut Waits, revision: i64, key: &[u8], now: &mut Instant) -> Duration {
        waits.see(revision, *now);
        let waited = waits.deadline(revision, key, *now).map_or(Duration::ZERO, |until| until - *now);
        *now += waited;
        waits.missed(revision, key, *now);
        waits.staged(revision);
        waited
    }

    #[test]
    fn a_revision_waits_from_the_moment_at_which_it_was_seen() {
        let (mut waits, now) = (Waits::new(LIMIT), Instant::now());
        let half = LIMIT / 2;
        waits.see(5, now);
        waits.see(9, now + half);
        assert_eq!(waits.deadline(3, MAP, now), Some(now + LIMIT));
        assert_eq!(waits.deadline(5, MAP, now), Some(now + LIMIT));
        assert_eq!(waits.deadline(6, MAP, now + half), Some(now + half + LIMIT));
        assert_eq!(waits.deadline(5, MAP, now + LIMIT), None, "the wait is over");
        waits.staged(5);
        assert_eq!(waits.deadline(9, MAP, now + LIMIT), Some(now + half + LIMIT));
        assert_eq!(waits.last_seen(), 9);
    }

    #[test]
    fn without_any_event_only_three_revisions_wait() {
        let (mut waits, mut now) = (Waits::new(LIMIT), Instant::now());
        let keys = [MAP, RANGE, b"pods/n/a", b"pods/n/b", b"leases/n/c", b"secrets/n/d"];
        let waited: Vec<_> = (1..).zip(keys).map(|(at, key)| miss(&mut waits, at, key, &mut now)).collect();
        assert_eq!(waited, [LIMIT, LIMIT, LIMIT, Duration::ZERO, Duration::ZERO, Duration::ZERO]);
        waits.heard();
        assert_eq!(miss(&mut waits, 7, MAP, &mut now), LIMIT, "an event arrived");
    }

    #[test]
    fn a_resource_without_events_is_waited_for_less_and_less() {
        let (mut waits, mut now) = (Waits::new(LIMIT), Instant::now());
        let start = now;
        let mut waited = Vec::new();
        for revision in 1..2000 {
            waits.heard();
            if !miss(&mut waits, revision, RANGE, &mut now).is_zero() {
                waited.push((now - start).as_secs());
            }
            now += Duration::from_secs(1);
        }
        assert!(waited.len() < 14, "{waited:?}");
        // Others still wait.
        assert_eq!(miss(&mut waits, 2001, MAP, &mut now), LIMIT);
        waits.found(RANGE);
        assert_eq!(miss(&mut waits, 2002, RANGE, &mut now), LIMIT, "an event of it arrived");
    }

    #[test]
    fn a_commit_that_did_not_wait_is_no_miss() {
        let (mut waits, now) = (Waits::new(LIMIT), Instant::now());
        for revision in 1..20 {
            waits.see(revision, now);
            waits.missed(revision, MAP, now);
        }
        assert_eq!(waits.deadline(19, MAP, now), Some(now + LIMIT));
    }
}
