//! One version of one key, shared by index, log, watchers and committer.

use std::sync::Arc;

use bytes::Bytes;
use gitcd_core::revision::Revision;
use parking_lot::Mutex;

use gitcd_journal::{Position, Segments};

/// Revisions, version and lease of a stored pair, and what keeps it findable.
pub const OVERHEAD_BYTES: usize = 128;

/// What one write transaction made of one key: a pair or, as a tombstone, its deletion.
#[derive(Debug)]
pub struct Version {
    /// The key.
    pub key: Bytes,
    /// The revision of the write.
    pub mod_revision: Revision,
    /// The revision of the key's creation; [`Revision::ZERO`] for a tombstone.
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
    /// `None`: it left memory and is read from the journal.
    memory: Option<Bytes>,
    /// Where the journal has it; `None` if it came from Git or a snapshot, then it stays in memory.
    journal: Option<Position>,
}

/// A value that was trimmed away while somebody still held its version. It cannot happen unless the journal's
/// folder was changed from outside.
#[derive(Debug, thiserror::Error)]
#[error("value of {key:?} at revision {revision} cannot be read back from the journal: {said}")]
pub struct ValueLost {
    key: Bytes,
    revision: Revision,
    said: std::io::Error,
}

impl Version {
    /// A pair. Key and value should own their memory (not be slices of a network buffer).
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

    /// A deletion.
    pub fn tombstone(key: Bytes, mod_revision: Revision) -> Self {
        let value = Mutex::new(Value { memory: Some(Bytes::new()), journal: None });
        Self { key, mod_revision, create_revision: Revision::ZERO, version: 0, lease: 0, value_length: 0, value }
    }

    /// Whether this is a deletion.
    pub fn is_tombstone(&self) -> bool {
        self.version == 0
    }

    /// What it counts for in the size of the data: key, value and a constant for the rest.
    pub fn weight(&self) -> usize {
        self.key.len() + self.value_length as usize + OVERHEAD_BYTES
    }

    /// Whether this write created the key.
    pub fn is_create(&self) -> bool {
        self.create_revision == self.mod_revision
    }

    /// The value; read back from the journal (one small file read) if it is an old one that left memory.
    ///
    /// # Errors
    /// [`ValueLost`] if the journal was damaged meanwhile.
    pub fn value(&self, segments: &Segments) -> Result<Bytes, ValueLost> {
        let at = {
            let value = self.value.lock();
            match (&value.memory, value.journal) {
                (Some(memory), _) => return Ok(memory.clone()),
                (None, at) => at.expect("only values with a place in the journal leave memory"),
            }
        };
        match segments.read(at) {
            Ok(value) => Ok(value),
            // Trimming brings needed values back before it deletes the segment.
            Err(said) => self.value.lock().memory.clone().ok_or_else(|| ValueLost {
                key: self.key.clone(),
                revision: self.mod_revision,
                said,
            }),
        }
    }

    /// The value of a newest version, which never leaves memory (empty for an evicted old one).
    pub fn value_in_memory(&self) -> Bytes {
        self.value.lock().memory.clone().unwrap_or_default()
    }

    /// Bytes of the value, if it is in memory.
    pub(crate) fn bytes_in_memory(&self) -> usize {
        self.value.lock().memory.as_ref().map_or(0, Bytes::len)
    }

    /// Remembers where the journal has the value.
    pub fn set_position(&self, at: Position) {
        self.value.lock().journal = Some(at);
    }

    /// Lets the value leave memory if the journal has it.
    pub fn evict(&self, segments: &Segments) {
        let mut value = self.value.lock();
        // A segment may have been trimmed since: then memory is the only place left.
        value.journal = value.journal.filter(|at| segments.has(at.segment));
        if value.journal.is_some() {
            value.memory = None;
        }
    }

    /// Brings an evicted value back before the segments below `first_kept` go.
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

/// The versions of one key, back to the compact revision.
#[derive(Debug)]
pub(super) struct History {
    head: Arc<Version>,
    /// The head's, so that counting the keys of a range needs not look behind the pointer.
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

    /// Takes back the newest version; false if it was the only one.
    pub(super) fn pop(&mut self) -> bool {
        match self.older.pop() {
            Some(previous) => {
                self.set_head(previous);
                true
            }
            None => false,
        }
    }

    /// The pair as it was at `revision`.
    #[inline]
    pub(super) fn at(&self, revision: Revision) -> Option<&Arc<Version>> {
        if self.mod_revision <= revision {
            return (!self.is_tombstone).then_some(&self.head);
        }
        let found = self.older.iter().rev().find(|version| version.mod_revision <= revision)?;
        (!found.is_tombstone()).then_some(found)
    }

    /// Drops what no revision from `keep` on can see. Returns false if nothing is left.
    ///
    /// With versions 3, 5, 9 (deletion) and `keep` 6: 3 goes, 5 is what revision 6 sees. With `keep` 9 all go.
    /// The weight of what goes is added to `freed`, and its number to `dropped`.
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
