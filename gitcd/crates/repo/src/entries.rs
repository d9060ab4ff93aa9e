//! The entries of a directory, in the bytes of its Git tree object.
//!
//! A directory may have ten thousand entries and change many times a second, so the bytes are edited in place, with a record of
//! what changed since they were last packed.

use std::cmp::Ordering;

use git2::Oid;
use sha1::{Digest, Sha1};

use super::delta::Edits;
use super::pack::{self, Kind, Placed};

/// Length of an object id in a tree.
const ID_LEN: usize = 20;
const FILE: &[u8] = b"100644 ";
const DIRECTORY: &[u8] = b"40000 ";
/// A version at the end of its chain is stored as a delta against the first one of the pack, if that takes at most one part in
/// this many of the whole.
const REBASE_GAIN: usize = 2;
/// Hashes are resumed at multiples of this many bytes.
const CHECKPOINT: usize = 16 * 1024;

/// The kind of an entry.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Entry {
    /// A value.
    File,
    /// Another directory.
    Directory,
}

/// Why a tree object cannot be a directory of values.
#[derive(Debug, thiserror::Error, PartialEq, Eq)]
pub enum ParseError {
    /// Not a Git tree.
    #[error("the tree object is malformed at byte {0}")]
    Malformed(usize),
    /// An entry that is neither a file nor a directory.
    #[error("entry {name:?} is a {kind}; only files and directories can hold keys")]
    Special {
        /// The entry's name.
        name: String,
        /// Its kind.
        kind: &'static str,
    },
    /// Names out of order or duplicate.
    #[error("entry {0:?} is not in Git's order")]
    Unsorted(String),
}

/// The sorted entries of one directory. At most 4 GiB.
///
/// Find and replace take a binary search; add and remove also move the bytes behind the entry.
#[derive(Debug, Default)]
pub(super) struct Entries {
    raw: Vec<u8>,
    /// Start of each entry.
    starts: Vec<u32>,
    /// The version that [`Self::write`] wrote last.
    last: Option<Version>,
    /// The version that is whole in the pack, or a direct delta against it; see [`Self::write`].
    first: Option<Version>,
    /// Length of the bytes last hashed, and hash states at every [`CHECKPOINT`]; states beyond a change are dropped.
    hashed: (usize, Vec<Sha1>),
}

#[derive(Debug)]
struct Version {
    placed: Placed,
    len: usize,
    since: Edits,
}

impl Entries {
    /// Parses a tree object from the repository.
    ///
    /// # Errors
    /// [`ParseError`] if it is not a well-formed tree of files and directories.
    pub(super) fn parse(raw: Vec<u8>) -> Result<Self, ParseError> {
        let mut starts = Vec::with_capacity(raw.len() / 40);
        let mut at = 0;
        while at < raw.len() {
            let malformed = ParseError::Malformed(at);
            let entry = &raw[at..];
            let Some(mode_end) = entry.iter().take(8).position(|b| *b == b' ') else {
                return Err(malformed);
            };
            let Some(name_len) = entry[mode_end + 1..].iter().position(|b| *b == 0) else {
                return Err(malformed);
            };
            let name = || String::from_utf8_lossy(&entry[mode_end + 1..][..name_len]).into_owned();
            let special = match &entry[..mode_end] {
                b"100644" | b"100755" | b"100664" | b"40000" => None,
                b"120000" => Some("symbolic link"),
                b"160000" => Some("submodule"),
                _ => return Err(malformed),
            };
            if let Some(kind) = special {
                return Err(ParseError::Special { name: name(), kind });
            }
            let len = mode_end + 1 + name_len + 1 + ID_LEN;
            if entry.len() < len || name_len == 0 {
                return Err(malformed);
            }
            starts.push(u32::try_from(at).map_err(|_| malformed)?);
            at += len;
        }
        let entries = Entries { raw, starts, ..Entries::default() };
        for index in 1..entries.len() {
            let ((kind, name), (before_kind, before)) = (entries.get(index), entries.get(index - 1));
            if git_order(before, before_kind, name, kind) != Ordering::Less || before == name {
                return Err(ParseError::Unsorted(String::from_utf8_lossy(name).into_owned()));
            }
        }
        Ok(entries)
    }

    /// Returns the number of entries.
    pub(super) fn len(&self) -> usize {
        self.starts.len()
    }

    /// Returns whether there are no entries.
    pub(super) fn is_empty(&self) -> bool {
        self.starts.is_empty()
    }

    /// Returns all entries, in Git's order.
    pub(super) fn iter(&self) -> impl Iterator<Item = (Entry, &[u8], Oid)> {
        (0..self.len()).map(|index| {
            let (kind, name) = self.get(index);
            (kind, name, self.id_at(index))
        })
    }

    /// Returns the ID of the entry with this kind and name.
    pub(super) fn find(&self, kind: Entry, name: &[u8]) -> Option<Oid> {
        self.search(kind, name).ok().map(|index| self.id_at(index))
    }

    /// Adds an entry, or replaces the ID of the one with this kind and name. There must be no entry of the other kind.
    pub(super) fn set(&mut self, kind: Entry, name: &[u8], oid: Oid) {
        match self.search(kind, name) {
            Ok(index) => {
                let at = self.end(index) - ID_LEN;
                self.raw[at..at + ID_LEN].copy_from_slice(oid.as_bytes());
                self.changed(at, ID_LEN, ID_LEN);
            }
            Err(index) => {
                let at = self.starts.get(index).map_or(self.raw.len(), |at| *at as usize);
                let mode = match kind {
                    Entry::File => FILE,
                    Entry::Directory => DIRECTORY,
                };
                let len = mode.len() + name.len() + 1 + ID_LEN;
                let parts = [mode, name, b"\0", oid.as_bytes()];
                if at == self.raw.len() {
                    for part in parts {
                        self.raw.extend_from_slice(part);
                    }
                } else {
                    self.raw.splice(at..at, parts.concat());
                }
                for start in &mut self.starts[index..] {
                    *start += len as u32;
                }
                self.starts.insert(index, at as u32);
                self.changed(at, 0, len);
            }
        }
    }

    /// Removes an entry and returns its ID.
    pub(super) fn remove(&mut self, kind: Entry, name: &[u8]) -> Option<Oid> {
        let index = self.search(kind, name).ok()?;
        let oid = self.id_at(index);
        let (at, end) = (self.starts[index] as usize, self.end(index));
        self.raw.drain(at..end);
        self.starts.remove(index);
        for start in &mut self.starts[index..] {
            *start -= (end - at) as u32;
        }
        self.changed(at, end - at, 0);
        Some(oid)
    }

    /// Adds the tree object to the pack: whole the first time, later as a delta of the recorded changes.
    ///
    /// Deltas build on each other until a chain is full; the next version is then a delta against the first one, so that a large
    /// directory is not written whole every fifty versions. Returns the ID, and the bytes it took in the pack if it was written
    /// whole.
    pub(super) fn write(&mut self, pack: &mut pack::Writer, scratch: &mut Vec<u8>) -> (Oid, usize) {
        let oid = self.hash();
        let before = pack.len();
        let mut placed = None;
        if let Some(last) = self.last.as_ref().filter(|last| !last.placed.ends_chain()) {
            placed = last.delta(oid, &self.raw, pack, scratch, usize::MAX);
        }
        let continued = placed.is_some();
        if let (None, Some(first)) = (placed, &self.first) {
            placed = first.delta(oid, &self.raw, pack, scratch, self.raw.len() / REBASE_GAIN);
        }
        let whole = placed.is_none();
        let placed = placed.unwrap_or_else(|| pack.whole(Kind::Tree, oid, &self.raw));
        let version = || Version { placed, len: self.raw.len(), since: Edits::default() };
        if whole {
            self.first = Some(version());
        }
        match &mut self.last {
            Some(last) if continued => {
                (last.placed, last.len) = (placed, self.raw.len());
                last.since.clear();
            }
            last => *last = Some(version()),
        }
        (oid, if whole { pack.len() - before } else { 0 })
    }

    /// Returns the object ID. If the length is unchanged, only the bytes from the first change on are hashed.
    fn hash(&mut self) -> Oid {
        let len = self.raw.len();
        if len < 2 * CHECKPOINT {
            return pack::id(Kind::Tree, &self.raw);
        }
        let (hashed_len, states) = &mut self.hashed;
        if *hashed_len != len {
            (*hashed_len, *states) = (len, vec![Kind::Tree.hasher(len)]);
        }
        let mut state = states.last().expect("the state at byte 0 is never dropped").clone();
        let mut at = (states.len() - 1) * CHECKPOINT;
        while len - at > CHECKPOINT {
            state.update(&self.raw[at..at + CHECKPOINT]);
            at += CHECKPOINT;
            states.push(state.clone());
        }
        state.update(&self.raw[at..]);
        pack::finish(state)
    }

    fn changed(&mut self, at: usize, removed: usize, inserted: usize) {
        for version in [&mut self.last, &mut self.first].into_iter().flatten() {
            version.since.splice(at, removed, inserted);
        }
        self.hashed.1.truncate(at / CHECKPOINT + 1);
    }

    fn get(&self, index: usize) -> (Entry, &[u8]) {
        let entry = &self.raw[self.starts[index] as usize..self.end(index) - ID_LEN - 1];
        match entry[0] {
            b'4' => (Entry::Directory, &entry[DIRECTORY.len()..]),
            _ => (Entry::File, &entry[FILE.len()..]),
        }
    }

    fn id_at(&self, index: usize) -> Oid {
        let end = self.end(index);
        Oid::from_bytes(&self.raw[end - ID_LEN..end]).expect("every entry ends with the 20 bytes of an id")
    }

    fn end(&self, index: usize) -> usize {
        self.starts.get(index + 1).map_or(self.raw.len(), |at| *at as usize)
    }

    fn search(&self, kind: Entry, name: &[u8]) -> Result<usize, usize> {
        let (mut low, mut high) = (0, self.len());
        while low < high {
            let middle = low.midpoint(high);
            let (other_kind, other) = self.get(middle);
            match git_order(other, other_kind, name, kind) {
                Ordering::Less => low = middle + 1,
                Ordering::Greater => high = middle,
                Ordering::Equal => return Ok(middle),
            }
        }
        Err(low)
    }
}

impl Version {
    fn delta(
        &self,
        oid: Oid,
        raw: &[u8],
        pack: &mut pack::Writer,
        scratch: &mut Vec<u8>,
        at_most: usize,
    ) -> Option<Placed> {
        if !pack.holds(self.placed) {
            return None;
        }
        scratch.clear();
        self.since.encode(self.len, raw, scratch);
        if scratch.len() > at_most || scratch.len() >= raw.len() {
            return None;
        }
        pack.delta(oid, scratch, self.placed)
    }
}

/// Compares names as Git does: a directory as if its name ended with a slash.
fn git_order(a: &[u8], a_kind: Entry, b: &[u8], b_kind: Entry) -> Ordering {
    let len = a.len().min(b.len());
    let next = |name: &[u8], kind| match kind {
        _ if name.len() > len => name[len],
        Entry::Directory => b'/',
        Entry::File => 0,
    };
    // Names have no NUL, so a file whose name is a prefix of the other comes first.
    a[..len].cmp(&b[..len]).then_with(|| next(a, a_kind).cmp(&next(b, b_kind))).then_with(|| a.len().cmp(&b.len()))
}
