//! Leases, which delete their keys on expiry.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::time::{Duration, Instant};

use bytes::Bytes;

use gitcd_core::revision::Revision;

use super::index::{Index, KeyRange};

pub use gitcd_core::lease::MAX_TTL;
/// The shortest time to live in seconds: one and a half of etcd's default election timeouts, rounded up.
pub const MIN_TTL: i64 = 2;

/// A lease.
#[derive(Debug)]
pub struct Lease {
    /// Granted time to live in seconds.
    pub ttl: i64,
    /// When it expires unless it is kept alive.
    pub deadline: Instant,
    /// The keys that are deleted with it.
    pub keys: BTreeSet<Bytes>,
}

/// The answer to a client's request about a lease.
#[derive(Clone, Debug)]
pub struct Report {
    /// Granted time to live in seconds.
    pub ttl: i64,
    /// When it expires unless it is kept alive.
    pub deadline: Instant,
    /// Its keys, if requested: a lease may have very many.
    pub keys: Vec<Bytes>,
}

/// The leases of a branch. Grants and revocations are journaled, deadlines are not: after a restart every lease has its whole
/// time to live again, as in etcd.
#[derive(Debug, Default)]
pub struct Leases {
    by_id: HashMap<i64, Lease>,
    by_deadline: BTreeSet<(Instant, i64)>,
    /// Ended leases, by the revision that deleted their keys: older revisions with these keys may still have to be committed.
    ended: Vec<(Revision, i64, i64)>,
}

impl Leases {
    /// Grants a lease from `now` on.
    pub fn grant(&mut self, id: i64, ttl: i64, now: Instant) {
        self.insert(id, Lease { ttl, deadline: now + lifetime(ttl), keys: BTreeSet::new() });
    }

    /// Restores a lease. Replaces one with the same ID: the journal may repeat the snapshot's grants.
    pub fn insert(&mut self, id: i64, lease: Lease) {
        self.remove(id);
        self.by_deadline.insert((lease.deadline, id));
        self.by_id.insert(id, lease);
    }

    /// Attaches all keys of the index to their leases.
    pub(super) fn attach_all(&mut self, index: &Index) {
        for version in index.range(&KeyRange::From(Bytes::new()), index.revision()) {
            if version.lease != 0 && self.find(version.lease).is_none() {
                // The lease ended, but the state that recovery started from still has its key: let the lease expire again to
                // delete it.
                self.grant(version.lease, MIN_TTL, Instant::now());
            }
            self.attach(&version.key, 0, version.lease);
        }
    }

    /// Removes a lease.
    pub fn remove(&mut self, id: i64) -> Option<Lease> {
        let lease = self.by_id.remove(&id)?;
        self.by_deadline.remove(&(lease.deadline, id));
        Some(lease)
    }

    /// Ends a lease at a revision.
    pub fn end(&mut self, id: i64, at: Revision) -> Option<Lease> {
        let lease = self.remove(id)?;
        self.ended.push((at, id, lease.ttl));
        Some(lease)
    }

    /// Returns a lease.
    pub fn find(&self, id: i64) -> Option<&Lease> {
        self.by_id.get(&id)
    }

    /// Returns what a client may know about a lease. Takes constant time, unless its keys are requested.
    pub fn report(&self, id: i64, with_keys: bool) -> Option<Report> {
        let lease = self.find(id)?;
        let keys = if with_keys { lease.keys.iter().cloned().collect() } else { Vec::new() };
        Some(Report { ttl: lease.ttl, deadline: lease.deadline, keys })
    }

    /// Restarts a lease's time; returns its time to live in seconds, or `None` if the lease does not exist.
    pub fn keep_alive(&mut self, id: i64, now: Instant) -> Option<i64> {
        let lease = self.by_id.get_mut(&id)?;
        self.by_deadline.remove(&(lease.deadline, id));
        lease.deadline = now + lifetime(lease.ttl);
        self.by_deadline.insert((lease.deadline, id));
        Some(lease.ttl)
    }

    /// Restarts the time of all leases.
    pub fn keep_all_alive(&mut self, now: Instant) {
        let ids: Vec<i64> = self.by_id.keys().copied().collect();
        for id in ids {
            self.keep_alive(id, now);
        }
    }

    /// Returns up to `limit` leases that have expired at `now`, the oldest deadline first.
    pub fn expired(&self, now: Instant, limit: usize) -> Vec<i64> {
        let expired = self.by_deadline.iter().take_while(|(deadline, _)| *deadline <= now);
        expired.take(limit).map(|(_, id)| *id).collect()
    }

    /// Returns the next lease to expire.
    pub fn next_deadline(&self) -> Option<(Instant, i64)> {
        self.by_deadline.first().copied()
    }

    /// Moves a key from one lease to another; 0 is no lease.
    pub fn attach(&mut self, key: &Bytes, from: i64, to: i64) {
        if from == to {
            return;
        }
        if let Some(lease) = self.by_id.get_mut(&from) {
            lease.keys.remove(key);
        }
        if let Some(lease) = self.by_id.get_mut(&to) {
            lease.keys.insert(key.clone());
        }
    }

    /// Returns the IDs and granted times to live (in seconds) of all leases, by ID.
    pub fn list(&self) -> Vec<(i64, i64)> {
        let mut all: Vec<_> = self.by_id.iter().map(|(id, lease)| (*id, lease.ttl)).collect();
        all.sort_unstable();
        all
    }
}

impl Leases {
    /// Returns all leases that keys may have as of a revision, by ID, possibly with younger ones. Forgets leases that ended
    /// before.
    pub fn list_at(&mut self, revision: Revision) -> Vec<(i64, i64)> {
        self.ended.retain(|(at, ..)| *at > revision);
        let mut all: BTreeMap<i64, i64> = self.ended.iter().map(|(_, id, ttl)| (*id, *ttl)).collect();
        all.extend(self.by_id.iter().map(|(id, lease)| (*id, lease.ttl)));
        all.into_iter().collect()
    }
}

fn lifetime(ttl: i64) -> Duration {
    Duration::from_secs(ttl.clamp(0, MAX_TTL) as u64)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_lease_that_runs_out_first_comes_first_and_keeping_alive_defers_it() {
        let (start, mut leases) = (Instant::now(), Leases::default());
        leases.grant(1, 10, start);
        leases.grant(2, 5, start);
        assert_eq!(leases.next_deadline().unwrap().1, 2);
        let at = |second| start + Duration::from_secs(second);
        let expired = [4, 5, 10].map(|second| leases.expired(at(second), 9));
        assert_eq!(expired, [vec![], vec![2], vec![2, 1]]);
        assert_eq!(leases.expired(at(10), 1), [2]);
        assert_eq!(leases.keep_alive(2, at(6)), Some(5));
        assert_eq!(leases.next_deadline().unwrap().1, 1);
        assert_eq!(leases.keep_alive(3, start), None);
    }

    #[test]
    fn keys_are_reported_only_if_they_are_asked_for() {
        let mut leases = Leases::default();
        leases.grant(1, 10, Instant::now());
        let keys: Vec<_> = (0..1000).map(|number| Bytes::from(format!("{number:04}"))).collect();
        keys.iter().for_each(|key| leases.attach(key, 0, 1));
        let report = leases.report(1, false).unwrap();
        assert_eq!((report.ttl, report.keys.capacity()), (10, 0));
        assert_eq!(leases.report(1, true).unwrap().keys, keys);
        assert!(leases.report(2, true).is_none());
    }

    #[test]
    fn a_lease_that_is_granted_again_runs_out_once() {
        let (start, mut leases) = (Instant::now(), Leases::default());
        leases.grant(1, 5, start);
        leases.grant(1, 5, start + Duration::from_millis(1));
        leases.remove(1).unwrap();
        assert_eq!(leases.next_deadline(), None);
    }

    #[test]
    fn a_key_belongs_to_the_last_lease_it_was_put_with() {
        let mut leases = Leases::default();
        leases.grant(1, 10, Instant::now());
        leases.grant(2, 10, Instant::now());
        let key = Bytes::from_static(b"k");
        leases.attach(&key, 0, 1);
        leases.attach(&key, 1, 2);
        assert!(leases.find(1).unwrap().keys.is_empty());
        assert!(leases.remove(2).unwrap().keys.contains(&key));
        assert!(leases.remove(2).is_none());
    }

    #[test]
    fn a_lease_that_has_ended_is_listed_for_keys_of_before() {
        let mut leases = Leases::default();
        leases.grant(1, 10, Instant::now());
        leases.grant(2, 20, Instant::now());
        leases.end(1, Revision::new(7)).unwrap();
        assert_eq!(leases.list(), [(2, 20)]);
        assert_eq!(leases.list_at(Revision::new(6)), [(1, 10), (2, 20)]);
        leases.grant(1, 30, Instant::now());
        assert_eq!(leases.list_at(Revision::new(6)), [(1, 30), (2, 20)], "there is a new lease with this ID");
        leases.end(1, Revision::new(9)).unwrap();
        assert_eq!(leases.list_at(Revision::new(8)), [(1, 30), (2, 20)]);
        assert_eq!(leases.list_at(Revision::new(9)), [(2, 20)]);
    }
}
