//! Makes objects in memory visible as commits.

use std::time::SystemTime;

use super::super::entries::Entry;
use super::super::graph::Graph;
use super::super::message;
use super::super::object;
use super::super::pack::Kind;
use super::super::refs::RefError;
use super::super::state::FORMAT;
use super::repository::open_repository;
use super::{Branch, CommittedHeads, FlushError, State, is_to_be_merged, show};

/// Bytes of objects that the process reads before a branch closes its packs.
const RELEASE_AFTER: u64 = 32 << 20;

/// The result of a flush.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Flushed {
    /// The new head.
    pub pair: CommittedHeads,
    /// Size of the pack.
    pub pack_bytes: u64,
    /// Size of its index.
    pub index_bytes: u64,
    /// Number of objects in it.
    pub objects: usize,
    /// Number of data commits among them.
    pub data_commits: usize,
}

impl Branch {
    /// Makes everything committed so far visible and durable, with one metadata commit that records `state`.
    ///
    /// Order: pack, metadata reference, data reference, record of the heads; each is fsynced before the next. After a crash in
    /// between, [`Branch::open`] finds the former heads, or completes the move to the new ones.
    ///
    /// # Errors
    /// [`FlushError`]. Nothing visible is lost, but commits since the last flush may or may not be in the repository: drop this
    /// branch, open it again, and commit everything above its revision again. Until then every call fails.
    pub fn flush(&mut self, state: &State) -> Result<Flushed, FlushError> {
        let flushed = self.publish(state)?;
        self.record()?;
        Ok(flushed)
    }

    /// Does the same without the last step, which [`Branch::record`] does, so that commits are visible sooner.
    ///
    /// # Errors
    /// As for [`Branch::flush`].
    pub fn publish(&mut self, state: &State) -> Result<Flushed, FlushError> {
        self.record()?;
        if std::mem::replace(&mut self.failed, true) {
            return Err(FlushError::Failed);
        }
        let flushed = self.try_flush(state)?;
        self.failed = false;
        Ok(flushed)
    }

    /// Records the heads that were published last, unless they are recorded.
    ///
    /// # Errors
    /// [`FlushError`]; then every call fails until the branch is opened again.
    pub fn record(&mut self) -> Result<(), FlushError> {
        if !self.is_recorded && !self.failed {
            self.head.write(&self.pair_file()).inspect_err(|_| self.failed = true)?;
            self.is_recorded = true;
            self.release_packs();
        }
        Ok(())
    }

    /// Closes all packs, with what libgit2 keeps of them, if much was read since the last time.
    fn release_packs(&mut self) {
        let read = object::bytes_read();
        if read.saturating_sub(self.released_at) < RELEASE_AFTER {
            return;
        }
        if let Ok(Some(repository)) = open_repository(&self.config.repository) {
            (self.repository, self.released_at) = (repository, read);
        }
    }

    fn try_flush(&mut self, state: &State) -> Result<Flushed, FlushError> {
        self.look_for_others()?;
        let metadata = self.write_metadata(state, Some(self.head.metadata));
        let pair = CommittedHeads { data: self.data_commit, metadata };
        let finished = self.pack.publish(&self.repository.path().join("objects/pack"), self.open_below)?;
        // Of the written pack, also if its commits cannot be made visible.
        (self.overhead, self.changes) = (0, 0);
        self.refs.update(&self.names.metadata, metadata, Some(self.head.metadata))?;
        self.move_data(pair.data)?;
        (self.head, self.is_recorded) = (pair, false);
        self.state = state.clone();
        if !self.pack.is_open() {
            self.values.clear();
        }
        Ok(Flushed {
            pair,
            pack_bytes: finished.pack_bytes,
            index_bytes: finished.index_bytes,
            objects: finished.objects,
            data_commits: std::mem::take(&mut self.commits),
        })
    }

    /// Detects external commits on the data reference. Fails if the reference could never follow the metadata.
    fn look_for_others(&mut self) -> Result<(), FlushError> {
        let found = self.refs.read(&self.names.data)?;
        if found == Some(self.head.data) {
            self.foreign = None;
            return Ok(());
        }
        self.foreign = found
            .filter(|found| self.foreign == Some(*found) || is_to_be_merged(&self.repository, *found, self.head.data));
        if self.foreign.is_none() {
            let reference = self.names.data.clone();
            return Err(FlushError::ForeignChange { reference, expected: self.head.data, found: show(found) });
        }
        Ok(())
    }

    /// Moves the data reference, unless it has an external commit that is not an ancestor of `new`: external commits are never
    /// dropped from a branch.
    fn move_data(&mut self, new: git2::Oid) -> Result<(), FlushError> {
        let expected = self.foreign.unwrap_or(self.head.data);
        if let Some(foreign) = self.foreign {
            let is_merged = Graph::default().is_ancestor(&self.repository, foreign, new).unwrap_or(false);
            if !is_merged {
                return Ok(());
            }
        } else if new == expected {
            return Ok(());
        }
        match self.refs.update(&self.names.data, new, Some(expected)) {
            Ok(()) => self.foreign = None,
            // An external commit was pushed just now.
            Err(RefError::Moved { found: Some(found), .. }) if is_to_be_merged(&self.repository, found, new) => {
                self.foreign = Some(found);
            }
            Err(error) => return Err(error.into()),
        }
        Ok(())
    }

    /// Adds the metadata commit that describes `self.data_commit` to the pack.
    pub(super) fn write_metadata(&mut self, state: &State, previous: Option<git2::Oid>) -> git2::Oid {
        self.write_file(b"format", FORMAT);
        self.write_file(b"state", &state.format_numbers());
        self.write_file(b"leases", &state.format_leases());
        let (keys, is_leaf) = self.trie.write(&mut self.pack);
        let (kind, other) = if is_leaf { (Entry::File, Entry::Directory) } else { (Entry::Directory, Entry::File) };
        self.root.remove(other, b"keys");
        self.root.set(kind, b"keys", keys);
        if std::mem::take(&mut self.local_changed) {
            for (_, (oid, value)) in self.local_values.drain() {
                self.pack.whole(Kind::Blob, oid, &value);
            }
            let local = self.local.write(&mut self.pack);
            self.overhead += self.local.take_overhead();
            if self.local.is_empty() {
                self.root.remove(Entry::Directory, b"local");
            } else {
                self.root.set(Entry::Directory, b"local", local);
            }
        }
        let (root, _) = self.root.write(&mut self.pack, &mut self.scratch);
        let time = self.time.unwrap_or_else(SystemTime::now);
        let parents: Vec<git2::Oid> = previous.into_iter().chain([self.data_commit]).collect();
        let message = message::metadata(state.revision, &std::mem::take(&mut self.joins));
        self.write_commit(root, &parents, time, &message)
    }
}
