//! Locates the frames of a journal segment by `docs/design/journal.md`, without gitcd's code.

use std::ops::Range;
use std::path::Path;

const SEGMENT_HEADER_BYTES: usize = 64;
const MAGIC: &[u8] = b"GFRM";
const FRAME_HEADER_BYTES: usize = 12;

/// Returns the byte ranges of all frames, in order.
pub(crate) fn frames(segment: &Path) -> Vec<Range<usize>> {
    let content = std::fs::read(segment).unwrap_or_else(|error| panic!("{}: {error}", segment.display()));
    let mut frames = Vec::new();
    let mut start = SEGMENT_HEADER_BYTES;
    while let Some(header) = content.get(start..start + FRAME_HEADER_BYTES)
        && header.starts_with(MAGIC)
    {
        let length = u32::from_le_bytes(header[4..8].try_into().expect("four bytes")) as usize;
        let end = start + FRAME_HEADER_BYTES + length;
        frames.push(start..end);
        start = end;
    }
    frames
}
