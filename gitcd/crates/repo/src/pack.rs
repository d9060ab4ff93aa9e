//! Builds a Git pack in memory and writes it, with its index, to a repository. If the caller sets a folder for it, a pack of more
//! than 8 MiB is written to a temporary file there while it is built.
//!
//! A flush writes a new pack, or extends the previous one and rewrites it. A later version of an object is an `OFS_DELTA` against
//! the previous one in the same pack, so the caller keeps the [`Placed`] of the last version.

use std::collections::HashMap;
use std::hash::{BuildHasherDefault, Hasher};

use git2::Oid;
use libdeflater::{CompressionLvl, Compressor};
use sha1::{Digest, Sha1};

use super::pack_spill::PackSpill;
use super::temporary::{TemporaryFile, WriteError};

/// Maximum length of a chain of deltas; readers resolve every link of it.
pub(super) const MAX_DEPTH: u8 = 50;
/// Smaller objects are stored: for a commit or a small delta, which are mostly IDs, deflate would take as long as everything else
/// together (it builds codes for every object) and save about seventy bytes.
const STORE_BELOW: usize = 384;
/// Larger objects, mostly directories of thousands of entries, are written whole in every pack that changes them: better
/// compression takes a few milliseconds and saves a sixteenth of what a quiet branch writes to disk.
const THOROUGH_FROM: usize = 64 << 10;
const HEADER_LEN: usize = 12;
pub(super) const CHECKSUM_LEN: usize = 20;
/// Number of objects for which a new pack keeps the memory of the last one.
const REMEMBERED: usize = 64 << 10;
const OFS_DELTA: u8 = 6;
const REF_DELTA: u8 = 7;

/// The type of an object.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Kind {
    /// A commit.
    Commit = 1,
    /// A directory.
    Tree = 2,
    /// A file's content.
    Blob = 3,
}

impl Kind {
    /// Starts the hash of an object of `len` bytes; its content follows.
    pub(crate) fn hasher(self, len: usize) -> Sha1 {
        let name = match self {
            Kind::Commit => "commit ",
            Kind::Tree => "tree ",
            Kind::Blob => "blob ",
        };
        let mut digits = [0u8; 21];
        let mut at = digits.len() - 1;
        let mut rest = len;
        loop {
            at -= 1;
            digits[at] = b'0' + (rest % 10) as u8;
            rest /= 10;
            if rest == 0 {
                break;
            }
        }
        let mut hash = Sha1::new();
        hash.update(name);
        hash.update(&digits[at..]);
        hash
    }
}

/// Appends the head of an entry: type and uncompressed length.
pub(super) fn entry_head(out: &mut Vec<u8>, kind: u8, len: usize) {
    let mut byte = kind << 4 | (len & 0xf) as u8;
    let mut rest = len >> 4;
    while rest > 0 {
        out.push(byte | 0x80);
        byte = (rest & 0x7f) as u8;
        rest >>= 7;
    }
    out.push(byte);
}

/// Returns the ID of an object.
pub(super) fn id(kind: Kind, content: &[u8]) -> Oid {
    let mut hash = kind.hasher(content.len());
    hash.update(content);
    finish(hash)
}

pub(crate) fn finish(hash: Sha1) -> Oid {
    Oid::from_bytes(&hash.finalize()).expect("a SHA-1 has the 20 bytes of an object ID")
}

/// Position of an object in a pack.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Placed {
    /// Offset of its header in the pack.
    offset: u64,
    /// Number of deltas on top of a whole object.
    depth: u8,
    /// Sequence number of the writer's pack.
    pack: u32,
}

impl Placed {
    /// Returns whether a delta against this object would make the chain too long.
    pub(super) fn ends_chain(self) -> bool {
        self.depth >= MAX_DEPTH
    }
}

/// A pack under construction, and the data for its index.
pub(super) struct Writer {
    /// The pack, or its end if its beginning moved to a file.
    bytes: Vec<u8>,
    pub(super) spill: PackSpill,
    entries: Vec<Entry>,
    placed: HashMap<Oid, Placed, BuildHasherDefault<IdHasher>>,
    compressor: Compressor,
    storer: Compressor,
    thorough: Compressor,
    scratch: Vec<u8>,
    pack: u32,
    /// The name of the pack in the repository, if a part of it was written.
    pub(super) written: Option<String>,
}

/// An object's entry in the index.
#[derive(Debug, Clone, Copy)]
pub(super) struct Entry {
    pub oid: Oid,
    pub(super) offset: u64,
    pub(super) crc: u32,
}

/// A pack with final bytes, ready to be written.
pub(super) struct Sealed<'a> {
    pub(super) bytes: &'a [u8],
    pub(super) entries: &'a [Entry],
    pub(super) checksum: [u8; 20],
}

impl std::fmt::Debug for Writer {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Writer")
            .field("bytes", &self.len())
            .field("objects", &self.entries.len())
            .finish_non_exhaustive()
    }
}

impl Default for Writer {
    fn default() -> Self {
        let mut writer = Writer {
            bytes: Vec::new(),
            spill: PackSpill::default(),
            entries: Vec::new(),
            placed: HashMap::default(),
            // `CompressionLvl::fastest()` is 0.
            compressor: Compressor::new(CompressionLvl::new(1).expect("1 is a level")),
            storer: Compressor::new(CompressionLvl::new(0).expect("0 is a level")),
            thorough: Compressor::new(CompressionLvl::new(6).expect("6 is a level")),
            scratch: Vec::new(),
            pack: 0,
            written: None,
        };
        writer.restart();
        writer
    }
}

impl Writer {
    /// Starts the next, empty pack; earlier objects are not in it.
    pub(super) fn restart(&mut self) {
        self.bytes.clear();
        self.spill.restart();
        self.bytes.extend_from_slice(b"PACK\0\0\0\x02\0\0\0\0");
        if self.entries.len() > REMEMBERED {
            (self.entries, self.placed) = (Vec::new(), HashMap::default());
        }
        self.entries.clear();
        self.placed.clear();
        self.pack = self.pack.wrapping_add(1);
        self.written = None;
    }

    /// Returns the size of the pack so far.
    pub(super) fn len(&self) -> usize {
        self.spill.len() as usize + self.bytes.len()
    }

    /// Returns whether `placed` is in this pack, so that a delta may refer to it.
    pub(super) fn holds(&self, placed: Placed) -> bool {
        placed.pack == self.pack
    }

    /// Adds a whole object, unless this pack has it.
    ///
    /// `oid` must be [`id`] of the same kind and content.
    pub(super) fn whole(&mut self, kind: Kind, oid: Oid, content: &[u8]) -> Placed {
        if let Some(placed) = self.placed.get(&oid) {
            return *placed;
        }
        let offset = self.header(kind as u8, content.len());
        self.deflate(content);
        self.close(oid, offset, 0)
    }

    /// Adds an object of `len` bytes as a delta against one of the same kind in this pack, unless this pack has it. Returns
    /// `None`, with nothing written, if `base` is elsewhere or ends its chain.
    pub(super) fn delta(&mut self, oid: Oid, delta: &[u8], base: Placed) -> Option<Placed> {
        if let Some(placed) = self.placed.get(&oid) {
            return Some(*placed);
        }
        if !self.holds(base) || base.ends_chain() {
            return None;
        }
        let offset = self.header(OFS_DELTA, delta.len());
        self.distance(offset - base.offset);
        self.deflate(delta);
        Some(self.close(oid, offset, base.depth + 1))
    }

    /// Adds an object, unless this pack has it, as a delta against one that is elsewhere. This makes the pack a thin one, for a
    /// repository that has `base` and completes the pack.
    pub(super) fn thin(&mut self, oid: Oid, delta: &[u8], base: Oid) -> Placed {
        if let Some(placed) = self.placed.get(&oid) {
            return *placed;
        }
        let offset = self.header(REF_DELTA, delta.len());
        self.bytes.extend_from_slice(base.as_bytes());
        self.deflate(delta);
        self.close(oid, offset, 1)
    }

    /// Appends the object's type and uncompressed length; returns its offset.
    fn header(&mut self, kind: u8, len: usize) -> u64 {
        let offset = self.spill.len() + self.bytes.len() as u64;
        entry_head(&mut self.bytes, kind, len);
        offset
    }

    /// Appends the distance to the base in Git's variable-length encoding (each continued group counts from one).
    fn distance(&mut self, mut back: u64) {
        let mut groups = [0u8; 10];
        let mut at = groups.len() - 1;
        groups[at] = (back & 0x7f) as u8;
        back >>= 7;
        while back > 0 {
            back -= 1;
            at -= 1;
            groups[at] = (back & 0x7f) as u8 | 0x80;
            back >>= 7;
        }
        self.bytes.extend_from_slice(&groups[at..]);
    }

    fn deflate(&mut self, content: &[u8]) {
        let compressor = match content.len() {
            ..STORE_BELOW => &mut self.storer,
            STORE_BELOW..THOROUGH_FROM => &mut self.compressor,
            THOROUGH_FROM.. => &mut self.thorough,
        };
        let bound = compressor.zlib_compress_bound(content.len());
        if self.scratch.len() < bound {
            self.scratch.resize(bound, 0);
        }
        let len = compressor
            .zlib_compress(content, &mut self.scratch)
            .expect("the buffer has the size that the compressor requires");
        self.bytes.extend_from_slice(&self.scratch[..len]);
    }

    fn close(&mut self, oid: Oid, offset: u64, depth: u8) -> Placed {
        let crc = crc32fast::hash(&self.bytes[(offset - self.spill.len()) as usize..]);
        self.entries.push(Entry { oid, offset, crc });
        self.spill.spill_if_large(&mut self.bytes);
        let placed = Placed { offset, depth, pack: self.pack };
        self.placed.insert(oid, placed);
        placed
    }

    /// Completes a pack in memory with object count and checksum, and sorts the entries for the index. [`Self::restart`] or
    /// [`Self::unseal`] must follow.
    ///
    /// # Panics
    /// If a part of the pack is in a file.
    pub(super) fn seal(&mut self) -> Sealed<'_> {
        assert!(self.spill.is_empty(), "a pack that moved to a file is completed there");
        let count = self.count();
        self.bytes[8..HEADER_LEN].copy_from_slice(&count.to_be_bytes());
        let checksum: [u8; 20] = Sha1::digest(&self.bytes).into();
        self.bytes.extend_from_slice(&checksum);
        self.entries.sort_unstable_by_key(|entry| entry.oid);
        Sealed { bytes: &self.bytes, entries: &self.entries, checksum }
    }

    /// Completes a pack that moved to a file, with everything still in memory, and sorts the entries for the index. The file stays
    /// a temporary one. [`Self::restart`] must follow.
    ///
    /// # Errors
    /// [`WriteError`], also of an earlier write.
    pub(super) fn seal_file(&mut self) -> Result<(Sealed<'_>, TemporaryFile), WriteError> {
        let count = self.count();
        self.spill.append(&mut self.bytes);
        let (file, checksum) = self.spill.seal(count)?;
        self.entries.sort_unstable_by_key(|entry| entry.oid);
        Ok((Sealed { bytes: &[], entries: &self.entries, checksum }, file))
    }

    fn count(&self) -> u32 {
        u32::try_from(self.entries.len()).expect("memory ends before a pack has 2^32 objects")
    }

    /// Removes the checksum, so that more can be added.
    pub(super) fn unseal(&mut self) {
        self.bytes.truncate(self.bytes.len() - CHECKSUM_LEN);
    }
}

/// Object IDs are hashes already: use their first eight bytes.
#[derive(Default)]
struct IdHasher(u64);

impl Hasher for IdHasher {
    fn write(&mut self, bytes: &[u8]) {
        if let Some(first) = bytes.first_chunk() {
            self.0 ^= u64::from_le_bytes(*first);
        }
    }

    fn write_usize(&mut self, _length: usize) {}

    fn finish(&self) -> u64 {
        self.0
    }
}
