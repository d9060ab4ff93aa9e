//! A read-only store that shows a branch as of a moment of the past. Nothing in it changes: keys do not expire with their leases,
//! and watchers get no events.

use std::sync::Arc;
use std::time::Instant;

use gitcd_core::revision::Revision;
use tokio::sync::mpsc;

use super::alarms::Alarms;
use super::index::Index;
use super::lease::{Leases, Report};
use super::progress::Progress;
use super::version::Version;
use super::{Error, Parts, ReadOnly, Store};

/// The moment that a read-only store shows.
#[derive(Debug)]
pub(super) struct Past {
    /// For people, such as `revision 4711, 2026-11-22T15:04:05Z`.
    moment: String,
}

impl Store {
    /// Creates a store with these keys and leases as of a revision, where its history starts and ends. Writes are refused with an
    /// error that names the `moment`.
    pub fn past(
        keys: impl Iterator<Item = Version>,
        granted: &[(i64, i64)],
        revision: Revision,
        moment: String,
    ) -> Arc<Self> {
        let mut index = Index::new(revision);
        keys.for_each(|version| index.load(version));
        index.start_at(revision, revision);
        let mut leases = Leases::default();
        for (id, ttl) in granted {
            leases.grant(*id, *ttl, Instant::now());
        }
        leases.attach_all(&index);
        // The receiver is dropped, so that commands fail.
        let (commands, _) = mpsc::channel(1);
        Self::build(Parts {
            index,
            leases,
            segments: Arc::default(),
            max_journal_bytes: u64::MAX,
            commands,
            progress: Progress::new(revision, Vec::new()),
            alarms: Alarms::default(),
            read_only: Some(ReadOnly::Past(Past { moment })),
        })
    }

    /// Returns whether this store shows the past.
    pub fn is_past(&self) -> bool {
        matches!(self.read_only, Some(ReadOnly::Past(_)))
    }

    /// Returns the error for every write, if this store never accepts one.
    pub fn read_only(&self) -> Option<Error> {
        match self.read_only.as_ref()? {
            ReadOnly::Past(past) => Some(Error::Past(past.moment.clone())),
            ReadOnly::Standby(_) => Some(Error::Standby),
        }
    }

    /// Returns what is known about a lease of the past, which has its whole time to live.
    pub(super) fn past_lease(&self, id: i64, keys: bool) -> Option<Report> {
        let mut leases = self.leases.lock();
        leases.keep_alive(id, Instant::now());
        leases.report(id, keys)
    }
}

#[cfg(test)]
mod tests {
    use bytes::Bytes;

    use super::*;

    #[tokio::test]
    async fn a_store_of_the_past_shows_keys_and_leases_and_refuses_to_change_them() {
        let at = Revision::new(7);
        let version = |key: &'static [u8], lease| {
            Version::put(Bytes::from_static(key), Revision::new(5), Revision::new(3), 2, lease, Bytes::new())
        };
        let keys = [version(b"a", 0), version(b"b", 9)].into_iter();
        let store = Store::past(keys, &[(9, 60), (10, 30)], at, "revision 7".into());
        assert_eq!((store.revision(), store.compacted(), store.is_past()), (at, at, true));
        assert_eq!(store.unavailable(), None, "reads are healthy");
        let refused = Error::Past("revision 7".into());
        assert_eq!(store.grant(0, 60).await, Err(refused.clone()));
        assert_eq!(store.keep_alive(9).await, Err(refused.clone()));
        assert_eq!(store.compact(at).await, Err(refused.clone()));
        assert_eq!(store.revoke(9, None).await, Err(refused));
        assert_eq!(store.list_leases().await, Ok(vec![(9, 60), (10, 30)]));
        let report = store.lease(9, true).await.unwrap().unwrap();
        assert_eq!((report.ttl, report.keys), (60, vec![Bytes::from_static(b"b")]));
        assert!(store.lease(11, false).await.unwrap().is_none());
    }
}
