//! Checksums of many parts of the same bytes.

use std::ops::Range;

use crc32fast::Hasher;

use super::segment::{Kind, frame_head};

/// Distance between two stored checksums, in bytes.
const STEP: usize = 4096;

/// CRC-32 checksums of prefixes of some bytes. The checksum of any part is computed from those of the bytes before it and of the
/// bytes up to its end (CRC is linear), so it costs the same however long the part is.
pub(super) struct Prefixes<'a> {
    content: &'a [u8],
    /// Checksums of the first 0, [`STEP`], 2 × [`STEP`] … bytes.
    kept: Vec<u32>,
}

impl<'a> Prefixes<'a> {
    /// Computes the checksums in one pass over `content`; they take a thousandth of its memory.
    pub(super) fn of(content: &'a [u8]) -> Self {
        let mut kept = vec![0];
        let mut hasher = Hasher::new();
        for step in content.chunks(STEP) {
            hasher.update(step);
            kept.push(hasher.clone().finalize());
        }
        Self { content, kept }
    }

    /// Returns what [`super::segment::frame_crc`] returns for the payload `start..end`. Takes about two microseconds.
    pub(super) fn frame_crc(&self, segment: &[u8; 16], kind: Kind, offset: u64, payload: Range<usize>) -> u32 {
        let Range { start, end } = payload;
        let length = end - start;
        let head = crc32fast::hash(&frame_head(segment, kind, offset, length));
        if length == 0 {
            return head;
        }
        // Combine the head's checksum with the payload's: replace the checksum of everything before the payload by that of the
        // head.
        let mut whole = Hasher::new_with_initial(head ^ self.before(start));
        whole.combine(&Hasher::new_with_initial_len(self.before(end), length as u64));
        whole.finalize()
    }

    fn before(&self, end: usize) -> u32 {
        let step = end / STEP;
        let mut hasher = Hasher::new_with_initial(self.kept[step]);
        hasher.update(&self.content[step * STEP..end]);
        hasher.finalize()
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::segment::frame_crc;

    proptest! {
        #[test]
        fn the_checksum_of_any_stretch_is_that_of_its_bytes(
            content in proptest::collection::vec(any::<u8>(), 0..3 * STEP),
            offset in any::<u64>(),
            bounds in any::<[prop::sample::Index; 2]>(),
        ) {
            let mut bounds = bounds.map(|bound| bound.index(content.len() + 1));
            bounds.sort_unstable();
            let [start, end] = bounds;
            let prefixes = Prefixes::of(&content);
            for payload in [start..end, 0..end, start..content.len(), start..start] {
                for kind in [Kind::Complete, Kind::Part] {
                    let expected = frame_crc(&[3; 16], kind, offset, &content[payload.clone()]);
                    prop_assert_eq!(prefixes.frame_crc(&[3; 16], kind, offset, payload.clone()), expected);
                }
            }
        }
    }
}
