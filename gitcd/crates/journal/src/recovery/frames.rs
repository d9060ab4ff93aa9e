//! The frames of a segment, read one at a time.

use std::fs::File;
use std::io::{self, Write as _};
use std::os::unix::fs::FileExt as _;
use std::path::Path;

use crate::prefixes::Prefixes;
use crate::segment::{FRAME_HEADER, FRAME_MAGIC, HEADER, Header, Kind, frame_crc};

/// Bytes read or copied at a time.
const CHUNK: usize = 1 << 20;

/// The frames of a segment, one in memory at a time.
pub(crate) struct Frames {
    file: File,
    pub(crate) header: Header,
    bytes: u64,
    /// The payload of the last frame that was read.
    pub(crate) payload: Vec<u8>,
}

impl Frames {
    /// Opens a segment; `None` if it has no header of its own.
    pub(crate) fn open(path: &Path, sequence: u64) -> io::Result<Option<Self>> {
        let file = File::open(path)?;
        let bytes = file.metadata()?.len();
        let mut head = vec![0; HEADER.min(bytes as usize)];
        file.read_exact_at(&mut head, 0)?;
        let header = Header::decode(&head).filter(|header| header.sequence == sequence);
        Ok(header.map(|header| Self { file, header, bytes, payload: Vec::new() }))
    }

    /// Reads the frame that starts at `at`, if it is whole.
    pub(crate) fn read(&mut self, at: u64) -> io::Result<Option<Kind>> {
        let mut head = [0; FRAME_HEADER];
        if at + FRAME_HEADER as u64 > self.bytes {
            return Ok(None);
        }
        self.file.read_exact_at(&mut head, at)?;
        let start = at + FRAME_HEADER as u64;
        let Some(Head { kind, length, crc }) = Head::decode(&head) else { return Ok(None) };
        if length as u64 > self.bytes - start {
            return Ok(None);
        }
        // Once a large frame is read, its memory is not kept for small ones.
        if self.payload.capacity() > 4 * length.max(CHUNK) {
            self.payload = Vec::new();
        }
        self.payload.resize(length, 0);
        self.file.read_exact_at(&mut self.payload, start)?;
        Ok((frame_crc(&self.header.id, kind, at, &self.payload) == crc).then_some(kind))
    }

    /// Returns the position behind the last byte, from `at`, that is not zero.
    pub(super) fn last_byte(&self, at: u64) -> io::Result<Option<u64>> {
        last_byte(&self.file, at)
    }

    /// Returns whether a whole frame starts after `at`. Costs one pass over the rest of the segment, however many candidates it
    /// contains, and its memory: it has what one frame had, or the space that was set aside for others.
    pub(super) fn has_frame_behind(&self, at: u64) -> io::Result<bool> {
        let mut content = vec![0; (self.bytes - at) as usize];
        self.file.read_exact_at(&mut content, at)?;
        let prefixes = Prefixes::of(&content);
        // The last one has no payload.
        let starts = (1..=content.len().saturating_sub(FRAME_HEADER)).filter(|start| content[*start] == FRAME_MAGIC[0]);
        Ok({ starts }.any(|start| {
            let payload = start + FRAME_HEADER;
            let Some(Head { kind, length, crc }) = Head::decode(&content[start..payload]) else { return false };
            let end = payload.checked_add(length).filter(|end| *end <= content.len());
            end.is_some_and(|end| prefixes.frame_crc(&self.header.id, kind, at + start as u64, payload..end) == crc)
        }))
    }

    /// Copies the segment up to `end`.
    pub(super) fn copy(&self, end: u64, to: &mut File) -> io::Result<()> {
        let mut chunk = vec![0; CHUNK];
        let mut at = 0;
        while at < end {
            let length = CHUNK.min((end - at) as usize);
            self.file.read_exact_at(&mut chunk[..length], at)?;
            to.write_all(&chunk[..length])?;
            at += length as u64;
        }
        Ok(())
    }
}

/// The header of a frame.
struct Head {
    kind: Kind,
    length: usize,
    crc: u32,
}

impl Head {
    fn decode(bytes: &[u8]) -> Option<Self> {
        let kind = Kind::of(&bytes[..4])?;
        let number = |at: usize| Some(u32::from_le_bytes(bytes.get(at..at + 4)?.try_into().ok()?));
        Some(Self { kind, length: number(4)? as usize, crc: number(8)? })
    }
}

/// Returns the position behind the last byte of a file, from `at`, that is not zero.
pub(super) fn last_byte(file: &File, mut at: u64) -> io::Result<Option<u64>> {
    let (mut found, mut chunk) = (None, vec![0; CHUNK]);
    loop {
        let length = file.read_at(&mut chunk, at)?;
        if length == 0 {
            return Ok(found);
        }
        if let Some(last) = chunk[..length].iter().rposition(|byte| *byte != 0) {
            found = Some(at + last as u64 + 1);
        }
        at += length as u64;
    }
}
