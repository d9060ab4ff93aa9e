//! Versions of keys, shared by index, log, watchers and committer.

use std::sync::Arc;

use bytes::Bytes;
use gitcd_core::revision::Revision;
use parking_lot::Mutex;

use gitcd_journal::{Position, Segments};

/// Size of a version besides key and value: revisions, version, lease, and its place in the index.
pub const OVERHEAD_BYTES: usize = 128;

/// What one write transaction did to one key: a put or, as a tombstone, its deletion.
#[derive(Debug)]
pub struct Version {
    /// The key.
    pub key: Bytes,
    /// The revision of the write.
    pub mod_revision: Revision,
    /// The revision that created the key; [`Revision::ZERO`] for a tombstone.
    pub create_revision: Revision,
    /// Writes since the creation, this one included; 0 for a tombstone.
    pub version: i64,
    /// The attached lease, or 0.
    pub lease: i64,
    /// Length of the value in bytes.
    pub value_length: u32,
    value: Mutex<Value>,
}

#[derive(Debug)]
struct Value {
    /// `None` if the value was evicted and has to be read from the journal.
    memory: Option<Bytes>,
    /// Position in the journal; `None` for a value from Git or a snapshot, which stays in memory.
    journal: Option<Position>,
}

/// A value whose segment was trimmed while its version was in use. This only happens if the journal's folder is changed from
/// outside.
#[derive(Debug, thiserror::Error)]
#[error("value of {key:?} at revision {revision} cannot be read back from the journal: {said}")]
pub struct ValueLost {
    key: Bytes,
    revision: Revision,
    said: std::io::Error,
}

impl Version {
    /// Creates a put. Key and value should own their memory (not be slices of a network buffer).
    pub fn put(
        key: Bytes,
        mod_revision: Revision,
        create_revision: Revision,
        version: i64,
        lease: i64,
        value: Bytes,
    ) -> Self {
        let value_length = value.len() as u32;
        let value = Mutex::new(Value { memory: Some(value), journal: None });
        Self { key, mod_revision, create_revision, version, lease, value_length, value }
    }

    /// Creates a deletion.
    pub fn tombstone(key: Bytes, mod_revision: Revision) -> Self {
        let value = Mutex::new(Value { memory: Some(Bytes::new()), journal: None });
        Self { key, mod_revision, create_revision: Revision::ZERO, version: 0, lease: 0, value_length: 0, value }
    }

    /// Returns whether this is a deletion.
    pub fn is_tombstone(&self) -> bool {
        self.version == 0
    }

    /// Returns its part of the data size: key, value and a constant.
    pub fn weight(&self) -> usize {
        self.key.len() + self.value_length as usize + OVERHEAD_BYTES
    }

    /// Returns whether this write created the key.
    pub fn is_create(&self) -> bool {
        self.create_revision == self.mod_revision
    }

    /// Returns the value; reads an evicted one back from the journal (one small file read).
    ///
    /// # Errors
    /// [`ValueLost`] if the journal was damaged meanwhile.
    pub fn value(&self, segments: &Segments) -> Result<Bytes, ValueLost> {
        let at = {
            let value = self.value.lock();
            match (&value.memory, value.journal) {
                (Some(memory), _) => return Ok(memory.clone()),
                (None, at) => at.expect("only values with a position in the journal are evicted"),
            }
        };
        match segments.read(at) {
            Ok(value) => Ok(value),
            // Trimming reads needed values back before it deletes the segment.
            Err(said) => self.value.lock().memory.clone().ok_or_else(|| ValueLost {
                key: self.key.clone(),
                revision: self.mod_revision,
                said,
            }),
        }
    }

    /// Returns the value of a newest version, which is never evicted (empty for an evicted one).
    pub fn value_in_memory(&self) -> Bytes {
        self.value.lock().memory.clone().unwrap_or_default()
    }

    /// Returns the bytes of the value in memory.
    pub(crate) fn bytes_in_memory(&self) -> usize {
        self.value.lock().memory.as_ref().map_or(0, Bytes::len)
    }

    /// Records the value's position in the journal.
    pub fn set_position(&self, at: Position) {
        self.value.lock().journal = Some(at);
    }

    /// Evicts the value from memory if the journal has it.
    pub fn evict(&self, segments: &Segments) {
        let mut value = self.value.lock();
        // The segment may have been trimmed: then only memory has the value.
        value.journal = value.journal.filter(|at| segments.has(at.segment));
        if value.journal.is_some() {
            value.memory = None;
        }
    }

    /// Reads an evicted value back before the segments below `first_kept` are deleted.
    pub(super) fn pin(&self, segments: &Segments, first_kept: u64) -> std::io::Result<()> {
        let mut value = self.value.lock();
        let Some(at) = value.journal.filter(|at| at.segment < first_kept) else { return Ok(()) };
        if value.memory.is_none() {
            value.memory = Some(segments.read(at)?);
        }
        value.journal = None;
        Ok(())
    }
}

/// The versions of a key, back to the compact revision.
#[derive(Debug)]
pub(super) struct History {
    head: Arc<Version>,
    /// A copy of the head's field, so that counting keys follows no pointer.
    mod_revision: Revision,
    is_tombstone: bool,
    /// Oldest first.
    older: Vec<Arc<Version>>,
}

impl History {
    pub(super) fn new(head: Arc<Version>) -> Self {
        Self { mod_revision: head.mod_revision, is_tombstone: head.is_tombstone(), head, older: Vec::new() }
    }

    pub(super) fn head(&self) -> &Arc<Version> {
        &self.head
    }

    #[cfg(test)]
    pub(super) fn versions(&self) -> impl Iterator<Item = &Arc<Version>> {
        self.older.iter().chain([&self.head])
    }

    pub(super) fn push(&mut self, version: Arc<Version>) {
        let former = self.set_head(version);
        self.older.push(former);
    }

    fn set_head(&mut self, version: Arc<Version>) -> Arc<Version> {
        (self.mod_revision, self.is_tombstone) = (version.mod_revision, version.is_tombstone());
        std::mem::replace(&mut self.head, version)
    }

    /// Removes the newest version; returns false if it was the only one.
    pub(super) fn pop(&mut self) -> bool {
        match self.older.pop() {
            Some(previous) => {
                self.set_head(previous);
                true
            }
            None => false,
        }
    }

    /// Returns the version at `revision`.
    #[inline]
    pub(super) fn at(&self, revision: Revision) -> Option<&Arc<Version>> {
        if self.mod_revision <= revision {
            return (!self.is_tombstone).then_some(&self.head);
        }
        let found = self.older.iter().rev().find(|version| version.mod_revision <= revision)?;
        (!found.is_tombstone()).then_some(found)
    }

    /// Drops versions that are invisible from `keep` on. Returns false if none is left.
    ///
    /// With versions 3, 5, 9 (deletion) and `keep` 6: 3 is dropped, 5 is visible at revision 6. With `keep` 9 all are dropped.
    /// Adds the weight of dropped versions to `freed`, and their number to `dropped`.
    pub(super) fn compact(&mut self, keep: Revision, freed: &mut usize, dropped: &mut u64) -> bool {
        let weight = |versions: &[Arc<Version>]| versions.iter().map(|version| version.weight()).sum::<usize>();
        if self.head.mod_revision <= keep {
            *freed += weight(&self.older);
            *dropped += self.older.len() as u64 + u64::from(self.head.is_tombstone());
            self.older = Vec::new();
            if self.head.is_tombstone() {
                *freed += self.head.weight();
            }
            return !self.head.is_tombstone();
        }
        let visible = self.older.iter().rposition(|version| version.mod_revision <= keep);
        if let Some(visible) = visible {
            let first = if self.older[visible].is_tombstone() { visible + 1 } else { visible };
            *freed += weight(&self.older[..first]);
            *dropped += first as u64;
            self.older.drain(..first);
            self.older.shrink_to_fit();
        }
        true
    }
}
