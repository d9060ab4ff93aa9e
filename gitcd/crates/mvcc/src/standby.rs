//! A read-only store for a hot standby: it shows what the writer of the branch has pushed, with the writer's own revisions.
//!
//! Git does not have every revision of the writer: several may share a commit. Their changes are all visible, each key with the
//! revision of its last write; revisions in between are empty. Of a deletion, only the absence of the key is visible; it gets an
//! otherwise empty revision after the key's last write and before the key was created again.
//!
//! ```text
//! writer        5 put a · 6 delete b · 7 put a · 8 put c          (one commit)
//! seen here     5 –     · 6 delete b · 7 put a · 8 put c
//! ```

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{SystemTime, UNIX_EPOCH};

use bytes::Bytes;
use gitcd_core::revision::Revision;
use tokio::sync::mpsc;

use super::alarms::Alarms;
use super::index::{Index, KeyRange};
use super::lease::Leases;
use super::progress::Progress;
use super::query::Range;
use super::version::Version;
use super::{Parts, ReadOnly, Store};

/// Limit of revisions to apply one by one; a larger step is treated as a jump, after which clients relist.
const MOST_REVISIONS: usize = 1 << 20;
/// Limit of superseded versions in bytes, unless the keys themselves take more; beyond it, history is compacted.
const HISTORY_BYTES: usize = 64 << 20;
/// Number of versions pruned under one lock.
const PRUNED: usize = 512;

/// The state of a standby besides its index.
#[derive(Debug)]
pub(super) struct Standby {
    /// The key that kube-apiserver reads as its health check. Reads of it fail, since a standby accepts no writes.
    health: Bytes,
}

/// The writer's changes since the last call.
#[derive(Debug)]
pub struct Followed {
    /// The writer's current revision.
    pub revision: Revision,
    /// The writer's compact revision.
    pub compacted: Revision,
    /// Keys written since, in their current versions.
    pub put: Vec<Version>,
    /// Keys deleted since.
    pub gone: Vec<Bytes>,
}

/// The error for changes that do not continue this store's state.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Another;

impl Standby {
    pub(super) fn refuses(&self, range: &Range) -> bool {
        matches!(&range.keys, KeyRange::One(key) if *key == self.health)
    }
}

impl Store {
    /// Creates a store with these keys as of a revision, where its history starts. Reads of `health` are refused.
    pub fn standby(keys: impl Iterator<Item = Version>, revision: Revision, health: Bytes) -> Arc<Self> {
        let mut index = Index::new(revision);
        keys.for_each(|version| index.load(version));
        index.start_at(revision, revision);
        // The receiver is dropped, so that commands fail.
        let (commands, _) = mpsc::channel(1);
        let read_only = Some(ReadOnly::Standby(Standby { health }));
        let (leases, segments, alarms) = (Leases::default(), Arc::default(), Alarms::default());
        let progress = Progress::new(revision, Vec::new());
        Self::build(Parts {
            index,
            leases,
            segments,
            max_journal_bytes: u64::MAX,
            commands,
            progress,
            alarms,
            read_only,
        })
    }

    /// Returns whether this is a standby, which follows another server's writes.
    pub fn is_standby(&self) -> bool {
        self.following().is_some()
    }

    /// Returns what a standby has besides its index.
    pub(super) fn following(&self) -> Option<&Standby> {
        match &self.read_only {
            Some(ReadOnly::Standby(standby)) => Some(standby),
            _ => None,
        }
    }

    /// Applies the writer's changes and notifies watchers.
    ///
    /// # Errors
    /// [`Another`] if the changes do not continue this store's state: there was another writer, or too many revisions.
    pub fn follow(&self, followed: Followed) -> Result<(), Another> {
        let (to, compacted) = (followed.revision, followed.compacted);
        let (first, entries) = {
            let index = self.index.read();
            (index.revision().next(), entries(&index, followed)?)
        };
        let time_ms = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_millis() as i64;
        {
            let mut index = self.index.write();
            let mut entries = entries;
            while index.revision() < to {
                let versions = entries.remove(&index.revision().next()).unwrap_or_default();
                index.apply(versions, time_ms, None);
            }
        }
        let size = {
            let index = self.index.read();
            self.hub.publish(index.log_from(first), || self.durable.store(to.get(), Ordering::Release));
            index.size()
        };
        self.progress.lock().committed = to;
        let is_long = size.total - size.live > HISTORY_BYTES.max(size.live);
        // The writer may have compacted revisions that it has not pushed; the next step compacts those.
        let keep = if is_long { to } else { compacted.min(to) };
        if keep > self.compacted() {
            self.index.write().compact(keep);
            self.hub.compacted();
        }
        while self.index.write().prune(to, PRUNED) {}
        self.measure(self.index.read().size());
        Ok(())
    }

    /// Stops the store and its watchers.
    pub fn end(&self) {
        self.finish();
    }
}

/// Returns the versions to show at each revision.
fn entries(index: &Index, followed: Followed) -> Result<BTreeMap<Revision, Vec<Arc<Version>>>, Another> {
    let (from, to) = (index.revision(), followed.revision);
    if to < from || to.since(from) > MOST_REVISIONS {
        return Err(Another);
    }
    let mut entries: BTreeMap<Revision, Vec<Arc<Version>>> = BTreeMap::new();
    // Deleted keys, each with the revision before which its deletion must be.
    let mut deleted = Vec::new();
    for version in followed.put {
        if version.mod_revision <= from || version.mod_revision > to || version.create_revision > version.mod_revision {
            return Err(Another);
        }
        if let Some(before) = index.newest(&version.key)
            && before.mod_revision < version.create_revision
        {
            deleted.push((before.key.clone(), version.create_revision));
        }
        entries.entry(version.mod_revision).or_default().push(Arc::new(version));
    }
    let is_there = |key: &Bytes| index.newest(key).is_some();
    deleted.extend(followed.gone.into_iter().filter(is_there).map(|key| (key, to.next())));
    if deleted.iter().any(|(_, before)| from.next() >= *before) {
        return Err(Another);
    }
    // Place the deletions with the lowest bound first.
    deleted.sort_by(|one, other| (one.1, &one.0).cmp(&(other.1, &other.0)));
    let mut free = from;
    for (key, before) in deleted {
        let next = (free.get() + 1..before.get()).map(Revision::new).find(|at| !entries.contains_key(at));
        if let Some(next) = next {
            free = next;
        }
        // Several keys were deleted in one revision, as with a lease.
        let at = next.unwrap_or_else(|| Revision::new(before.get() - 1));
        entries.entry(at).or_default().push(Arc::new(Version::tombstone(key, at)));
    }
    Ok(entries)
}

#[cfg(test)]
mod tests;
