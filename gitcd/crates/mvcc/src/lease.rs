//! Leases: keys that go when nobody says any more that they should stay.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::time::{Duration, Instant};

use bytes::Bytes;

use gitcd_core::revision::Revision;

pub use gitcd_core::lease::MAX_TTL;
/// The shortest, in seconds: one and a half of etcd's default election time-out, rounded up.
pub const MIN_TTL: i64 = 2;

/// A lease.
#[derive(Debug)]
pub struct Lease {
    /// Granted time to live in seconds.
    pub ttl: i64,
    /// When it runs out unless it is kept alive.
    pub deadline: Instant,
    /// The keys that go with it.
    pub keys: BTreeSet<Bytes>,
}

/// What a client asks of a lease.
#[derive(Clone, Debug)]
pub struct Report {
    /// Granted time to live in seconds.
    pub ttl: i64,
    /// When it runs out unless it is kept alive.
    pub deadline: Instant,
    /// Its keys, if they were asked for: a lease may have very many.
    pub keys: Vec<Bytes>,
}

/// All leases of a branch. Granting and revoking are journaled; deadlines are not: after a restart every lease
/// has its whole time to live again, as in etcd.
#[derive(Debug, Default)]
pub struct Leases {
    by_id: HashMap<i64, Lease>,
    by_deadline: BTreeSet<(Instant, i64)>,
    /// Those that ended, by the revision that took their keys: keys of before that are still to be committed with them.
    ended: Vec<(Revision, i64, i64)>,
}

impl Leases {
    /// Adds a lease that runs from `now`.
    pub fn grant(&mut self, id: i64, ttl: i64, now: Instant) {
        self.insert(id, Lease { ttl, deadline: now + lifetime(ttl), keys: BTreeSet::new() });
    }

    /// Puts a lease back as it was. One with the same id is replaced: the journal may grant what the snapshot has.
    pub fn insert(&mut self, id: i64, lease: Lease) {
        self.remove(id);
        self.by_deadline.insert((lease.deadline, id));
        self.by_id.insert(id, lease);
    }

    /// Takes a lease out.
    pub fn remove(&mut self, id: i64) -> Option<Lease> {
        let lease = self.by_id.remove(&id)?;
        self.by_deadline.remove(&(lease.deadline, id));
        Some(lease)
    }

    /// Takes a lease out that ends at a revision.
    pub fn end(&mut self, id: i64, at: Revision) -> Option<Lease> {
        let lease = self.remove(id)?;
        self.ended.push((at, id, lease.ttl));
        Some(lease)
    }

    /// Looks a lease up.
    pub fn find(&self, id: i64) -> Option<&Lease> {
        self.by_id.get(&id)
    }

    /// What is known of a lease. Costs nothing that grows with its keys, unless they are asked for.
    pub fn report(&self, id: i64, with_keys: bool) -> Option<Report> {
        let lease = self.find(id)?;
        let keys = if with_keys { lease.keys.iter().cloned().collect() } else { Vec::new() };
        Some(Report { ttl: lease.ttl, deadline: lease.deadline, keys })
    }

    /// Starts a lease's time anew; returns its time to live in seconds, or `None` if there is no such lease.
    pub fn keep_alive(&mut self, id: i64, now: Instant) -> Option<i64> {
        let lease = self.by_id.get_mut(&id)?;
        self.by_deadline.remove(&(lease.deadline, id));
        lease.deadline = now + lifetime(lease.ttl);
        self.by_deadline.insert((lease.deadline, id));
        Some(lease.ttl)
    }

    /// Starts the time of all leases anew.
    pub fn keep_all_alive(&mut self, now: Instant) {
        let ids: Vec<i64> = self.by_id.keys().copied().collect();
        for id in ids {
            self.keep_alive(id, now);
        }
    }

    /// The next lease to run out.
    pub fn next_deadline(&self) -> Option<(Instant, i64)> {
        self.by_deadline.first().copied()
    }

    /// Moves a key from one lease to another; 0 is none.
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

    /// All leases: id and granted time to live in seconds, by id.
    pub fn list(&self) -> Vec<(i64, i64)> {
        let mut all: Vec<_> = self.by_id.iter().map(|(id, lease)| (*id, lease.ttl)).collect();
        all.sort_unstable();
        all
    }
}

impl Leases {
    /// All leases that keys may have as of a revision, by id; those that are younger may be among them. Nothing before it is asked for any more.
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
        assert_eq!(leases.keep_alive(2, start + Duration::from_secs(6)), Some(5));
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
        assert_eq!(leases.list_at(Revision::new(6)), [(1, 30), (2, 20)], "there is a new one of that name");
        leases.end(1, Revision::new(9)).unwrap();
        assert_eq!(leases.list_at(Revision::new(8)), [(1, 30), (2, 20)]);
        assert_eq!(leases.list_at(Revision::new(9)), [(2, 20)]);
    }
}
