//! Segment files: header, frames, and positions of values.

use std::collections::BTreeMap;
use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use bytes::Bytes;
use gitcd_core::durable;
use gitcd_core::revision::Revision;
use parking_lot::Mutex;

/// A full segment, and the last revision in it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Sealed {
    /// The segment.
    pub sequence: u64,
    /// The segment contains nothing above this revision.
    pub last: Revision,
}

/// Length of a segment's header in bytes.
pub(super) const HEADER: usize = 64;
/// Length of a frame's header in bytes.
pub(super) const FRAME_HEADER: usize = 12;
pub(super) const MAGIC: &[u8; 8] = b"gitcdjl1";
pub(super) const FRAME_MAGIC: [u8; 4] = *b"GFRM";
/// The magic of a frame that counts only together with those that follow, up to one with [`FRAME_MAGIC`].
pub(super) const PART_MAGIC: [u8; 4] = *b"GFRP";

/// What a frame is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    /// It completes itself, and the parts before it.
    Complete,
    /// A part; more follow.
    Part,
}

impl Kind {
    pub(super) fn of(magic: &[u8]) -> Option<Self> {
        [Self::Complete, Self::Part].into_iter().find(|kind| kind.magic() == magic)
    }

    pub(super) fn magic(self) -> [u8; 4] {
        match self {
            Self::Complete => FRAME_MAGIC,
            Self::Part => PART_MAGIC,
        }
    }
}

/// The header of a segment.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Header {
    /// Position among the segments; also the file's name.
    pub sequence: u64,
    /// Random, so that frames of an earlier use of the same disk blocks, or bytes that a client put into a value, never look like
    /// frames of this segment.
    pub id: [u8; 16],
    /// The branch incarnation that wrote it.
    pub incarnation: [u8; 16],
}

impl Header {
    pub(super) fn encode(&self) -> [u8; HEADER] {
        let mut out = [0; HEADER];
        out[..8].copy_from_slice(MAGIC);
        out[8..16].copy_from_slice(&self.sequence.to_le_bytes());
        out[16..32].copy_from_slice(&self.id);
        out[32..48].copy_from_slice(&self.incarnation);
        let crc = crc32fast::hash(&out[..60]);
        out[60..].copy_from_slice(&crc.to_le_bytes());
        out
    }

    pub(super) fn decode(bytes: &[u8]) -> Option<Self> {
        let bytes: &[u8; HEADER] = bytes.get(..HEADER)?.try_into().ok()?;
        let crc = u32::from_le_bytes(bytes[60..].try_into().ok()?);
        if &bytes[..8] != MAGIC || crc != crc32fast::hash(&bytes[..60]) {
            return None;
        }
        Some(Self {
            sequence: u64::from_le_bytes(bytes[8..16].try_into().ok()?),
            id: bytes[16..32].try_into().ok()?,
            incarnation: bytes[32..48].try_into().ok()?,
        })
    }
}

/// Returns the checksum of a frame. It covers the frame's position and kind, so that the frame is valid nowhere else, and a part
/// is never taken for the end.
pub(super) fn frame_crc(segment: &[u8; 16], kind: Kind, offset: u64, payload: &[u8]) -> u32 {
    let mut hasher = crc32fast::Hasher::new();
    hasher.update(&frame_head(segment, kind, offset, payload.len()));
    hasher.update(payload);
    hasher.finalize()
}

/// Returns the bytes that the checksum covers before the payload. The highest bit of the offset is set for a part.
pub(super) fn frame_head(segment: &[u8; 16], kind: Kind, offset: u64, length: usize) -> [u8; 28] {
    let mut head = [0; 28];
    let offset = offset | if kind == Kind::Part { 1 << 63 } else { 0 };
    head[..16].copy_from_slice(segment);
    head[16..24].copy_from_slice(&offset.to_le_bytes());
    head[24..].copy_from_slice(&(length as u32).to_le_bytes());
    head
}

pub(super) fn file_name(sequence: u64) -> String {
    format!("{sequence:016}.log")
}

pub(super) fn sequence_of(path: &Path) -> Option<u64> {
    let stem = path.file_name()?.to_str()?.strip_suffix(".log")?;
    (stem.len() == 16).then(|| stem.parse().ok())?
}

/// Position of a value in the journal.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Position {
    /// The segment.
    pub segment: u64,
    /// Offset in the file in bytes.
    pub offset: u64,
    /// Length in bytes.
    pub length: u32,
}

/// The open segments, for reading values back. Shared by the writer, readers and trimming.
#[derive(Debug, Default)]
pub struct Segments {
    open: Mutex<BTreeMap<u64, Arc<Segment>>>,
    sealed: Mutex<BTreeMap<u64, Revision>>,
}

#[derive(Debug)]
pub(super) struct Segment {
    pub path: PathBuf,
    pub file: File,
    /// The size, including preallocated space.
    pub bytes: AtomicU64,
}

impl Segments {
    pub(super) fn add(&self, sequence: u64, path: PathBuf, file: File) {
        let bytes = file.metadata().map_or(0, |meta| meta.len());
        self.open.lock().insert(sequence, Arc::new(Segment { path, file, bytes: bytes.into() }));
    }

    /// Records that a segment has at least this size.
    pub(super) fn grown(&self, sequence: u64, bytes: u64) {
        if let Some(segment) = self.open.lock().get(&sequence) {
            segment.bytes.fetch_max(bytes, Ordering::Relaxed);
        }
    }

    /// Records that a segment was cut to this size.
    pub(super) fn cut(&self, sequence: u64, bytes: u64) {
        if let Some(segment) = self.open.lock().get(&sequence) {
            segment.bytes.store(bytes, Ordering::Relaxed);
        }
    }

    /// Reads a value that was evicted from memory.
    ///
    /// # Errors
    /// `NotFound` if its segment was trimmed; other errors of the file system.
    pub fn read(&self, at: Position) -> io::Result<Bytes> {
        let segment = self.open.lock().get(&at.segment).cloned();
        let segment = segment.ok_or_else(|| {
            io::Error::new(io::ErrorKind::NotFound, format!("journal segment {} was trimmed", at.segment))
        })?;
        let mut value = vec![0; at.length as usize];
        segment.file.read_exact_at(&mut value, at.offset)?;
        Ok(value.into())
    }

    pub(super) fn seal(&self, sealed: Sealed) {
        self.sealed.lock().insert(sealed.sequence, sealed.last);
    }

    /// Returns the full segments, each with its last revision, oldest first.
    pub fn sealed(&self) -> Vec<(u64, Revision)> {
        self.sealed.lock().iter().map(|(sequence, last)| (*sequence, *last)).collect()
    }

    /// Returns whether a segment exists.
    pub fn has(&self, sequence: u64) -> bool {
        self.open.lock().contains_key(&sequence)
    }

    /// Returns the bytes on disk of all segments.
    pub fn bytes(&self) -> u64 {
        self.open.lock().values().map(|segment| segment.bytes.load(Ordering::Relaxed)).sum()
    }

    /// Deletes the segments before `first_kept` and returns how many. The caller ensures that they are no longer needed.
    ///
    /// # Errors
    /// Errors of the file system; segments deleted before the error stay deleted.
    pub fn trim(&self, first_kept: u64) -> Result<usize, durable::Error> {
        let mut open = self.open.lock();
        let kept = open.split_off(&first_kept);
        let dropped = std::mem::replace(&mut *open, kept);
        drop(open);
        self.sealed.lock().retain(|sequence, _| *sequence >= first_kept);
        for segment in dropped.values() {
            std::fs::remove_file(&segment.path).map_err(durable::Error::of("delete", &segment.path))?;
            // Sync after each: if the power failed, a newer segment could be gone and an older one still exist, which looks like
            // a loss.
            if let Some(folder) = segment.path.parent() {
                durable::sync(folder)?;
            }
        }
        Ok(dropped.len())
    }
}
