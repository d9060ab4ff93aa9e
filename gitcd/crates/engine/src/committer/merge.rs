//! Log entries as changes of a commit, and the commit of a merge.

use std::collections::{BTreeMap, HashMap};
use std::sync::atomic::Ordering;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use bytes::Bytes;
use gitcd_core::error::chain;
use gitcd_core::keyspace::Placement;
use gitcd_mvcc::log::Entry;
use gitcd_mvcc::merge::Merge;
use gitcd_repo::branch::{Action, Change, CommitError, Merging, Record, Revisions};

use super::{Committer, Failure};

impl Committer {
    /// Makes and flushes a commit with two parents at once: other branches wait for it.
    pub(super) fn merge(&mut self, merge: &Merge) -> Result<(), Failure> {
        if merge.writes > 0 && self.staged >= merge.last() {
            // Already committed by an earlier process.
            return Ok(());
        }
        let entries = self.store.log(merge.first, merge.writes as usize);
        if entries.len() as i64 != merge.writes {
            let found = entries.len();
            return Err(Failure::Lasting(format!("a merge of {} writes has {found} in the log", merge.writes)));
        }
        let (changes, _) = self.changes(&entries)?;
        let time = UNIX_EPOCH + Duration::from_millis(merge.time_ms.max(0) as u64);
        let (first, last) = (merge.first.get(), merge.last().get());
        let id = |bytes: &[u8; 20]| git2::Oid::from_bytes(bytes).expect("an object ID has 20 bytes");
        let blobs = merge.blobs.iter().filter_map(|(at, blob)| {
            let change = entries.get(usize::try_from(*at).ok()?)?.changes().first()?;
            Some((change.version.key.clone(), id(blob)))
        });
        let merging = Merging {
            theirs: id(&merge.theirs),
            blobs: blobs.collect(),
            revisions: Revisions { first, last, time, clients: Vec::new(), changes },
            fast_forward: merge.fast_forward,
            notes: merge.notes.clone(),
        };
        match self.branch.merge(&merging) {
            Ok(_) => {}
            Err(error @ CommitError::Theirs { .. }) => {
                // The merged changes are kept; the next merge links the histories.
                tracing::error!(
                    error = chain(&error),
                    "cannot make the merge commit; its changes become an ordinary commit"
                );
                self.branch.commit(&merging.revisions)?;
            }
            Err(error) => return Err(error.into()),
        }
        self.counters.revisions.fetch_add(merge.writes.max(0) as u64, Ordering::Relaxed);
        self.staged = merge.last();
        self.flush()
    }

    /// Merges the deferred commits of others before this commit: its clients have seen them, and may revert a change that all
    /// branches made. The merge commit is deterministic, so that branches that merge the same two make the same one.
    pub(super) fn join_first(&mut self, changes: &[Change], time: SystemTime) -> Result<(), Failure> {
        let is_data = |change: &Change| self.config.keys.placement(&change.key) == Placement::Data;
        let ours = self.branch.head().data;
        if self.branch.next() != ours || !changes.iter().any(is_data) {
            return Ok(());
        }
        let Some(left) = self.store.deferred_at(ours) else { return Ok(()) };
        for (theirs, trailers) in left.theirs {
            let at = self.staged.get();
            let revisions = Revisions { first: at + 1, last: at, time, clients: Vec::new(), changes: Vec::new() };
            let merging = Merging { theirs, blobs: HashMap::new(), revisions, fast_forward: false, notes: trailers };
            match self.branch.merge(&merging) {
                Ok(_) => self.flush()?,
                Err(error @ CommitError::Theirs { .. }) => {
                    tracing::debug!(error = chain(&error), "merge deferred to the next pull");
                }
                Err(error) => return Err(error.into()),
            }
        }
        // Only now, so that a failure is retried.
        self.store.forget_left(ours);
        Ok(())
    }

    /// Returns the last state of every changed key, and the clients that changed them.
    pub(super) fn changes(&self, entries: &[Entry]) -> Result<(Vec<Change>, Vec<String>), Failure> {
        let mut changes: BTreeMap<Bytes, Action> = BTreeMap::new();
        let mut clients: Vec<String> = Vec::new();
        for entry in entries {
            for change in entry.changes() {
                let version = &change.version;
                if self.config.keys.placement(&version.key) == Placement::Ephemeral {
                    continue;
                }
                let action = if version.is_tombstone() {
                    Action::Delete
                } else {
                    let value =
                        version.value(self.store.segments()).map_err(|lost| Failure::Lasting(lost.to_string()))?;
                    let record = Record {
                        create_revision: version.create_revision.get(),
                        mod_revision: version.mod_revision.get(),
                        version: version.version,
                        lease: version.lease,
                    };
                    Action::Put { value, record }
                };
                changes.insert(version.key.clone(), action);
                if let Some(client) = entry.client.as_deref()
                    && !clients.iter().any(|known| known == client)
                {
                    clients.push(client.to_owned());
                }
            }
        }
        Ok((changes.into_iter().map(|(key, action)| Change { key, action }).collect(), clients))
    }
}
