//! A store that nobody writes here: it shows what the writer of the branch has pushed, with the writer's own revisions.
//!
//! Not every revision of the writer can be seen in Git: several may share a commit. What they have changed is there, each key
//! with the revision of its last write, and the revisions in between are empty. Deletions leave no trace but that the key is gone;
//! each gets a revision at which nothing else has happened, after the key's last write and before it was made anew.
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
use super::{Parts, Store};

/// So many revisions at once are seen one after the other; more are a jump, after which everybody lists again.
const MOST_REVISIONS: usize = 1 << 20;
/// Superseded versions take at most so many bytes, or as much as the keys themselves: history ends there then.
const HISTORY_BYTES: usize = 64 << 20;
/// Versions dropped under one lock.
const PRUNED: usize = 512;

/// What such a store has beside its index.
#[derive(Debug)]
pub(super) struct Standby {
    /// What kube-apiserver reads to find out whether its store is well. It is not: it takes no writes.
    health: Bytes,
}

/// What the writer has done since.
#[derive(Debug)]
pub struct Followed {
    /// Where it is now.
    pub revision: Revision,
    /// What it has compacted.
    pub compacted: Revision,
    /// Keys that it has written, as they are now.
    pub put: Vec<Version>,
    /// Keys that it has deleted.
    pub gone: Vec<Bytes>,
}

/// It is not what comes after what is here.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Another;

impl Standby {
    pub(super) fn refuses(&self, range: &Range) -> bool {
        matches!(&range.keys, KeyRange::One(key) if *key == self.health)
    }
}

impl Store {
    /// A store that shows these keys as of a revision; history begins there. A read of `health` is refused.
    pub fn standby(keys: impl Iterator<Item = Version>, revision: Revision, health: Bytes) -> Arc<Self> {
        let mut index = Index::new(revision);
        keys.for_each(|version| index.load(version));
        index.start_at(revision, revision);
        // Whoever sends anything is told that there is nobody.
        let (commands, _) = mpsc::channel(1);
        let standby = Some(Standby { health });
        let (leases, segments, alarms) = (Leases::default(), Arc::default(), Alarms::default());
        let progress = Progress::new(revision, Vec::new());
        Self::build(Parts { index, leases, segments, max_journal_bytes: u64::MAX, commands, progress, alarms, standby })
    }

    /// Whether it shows what somebody else writes.
    pub fn is_standby(&self) -> bool {
        self.standby.is_some()
    }

    /// Shows what the writer has done since, and tells watchers.
    ///
    /// # Errors
    /// [`Another`] if it does not come after what is here: another writer has begun, or very much has happened.
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
        // The writer may have compacted what it has not pushed: the next step has it.
        let keep = if is_long { to } else { compacted.min(to) };
        if keep > self.compacted() {
            self.index.write().compact(keep);
            self.hub.compacted();
        }
        while self.index.write().prune(to, PRUNED) {}
        self.measure(self.index.read().size());
        Ok(())
    }

    /// Ends it: watchers are told.
    pub fn end(&self) {
        self.finish();
    }
}

/// What is to be seen at each revision.
fn entries(index: &Index, followed: Followed) -> Result<BTreeMap<Revision, Vec<Arc<Version>>>, Another> {
    let (from, to) = (index.revision(), followed.revision);
    if to < from || to.since(from) > MOST_REVISIONS {
        return Err(Another);
    }
    let mut entries: BTreeMap<Revision, Vec<Arc<Version>>> = BTreeMap::new();
    // Keys with the revision that their deletion was before.
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
    // Those first that must be early.
    deleted.sort_by(|one, other| (one.1, &one.0).cmp(&(other.1, &other.0)));
    let mut free = from;
    for (key, before) in deleted {
        let next = (free.get() + 1..before.get()).map(Revision::new).find(|at| !entries.contains_key(at));
        if let Some(next) = next {
            free = next;
        }
        // Several went in one revision, as with a lease.
        let at = next.unwrap_or_else(|| Revision::new(before.get() - 1));
        entries.entry(at).or_default().push(Arc::new(Version::tombstone(key, at)));
    }
    Ok(entries)
}

#[cfg(test)]
mod tests;
