//! How large the objects of a pack are, before anything makes room for them.

use flate2::{Decompress, FlushDecompress, Status};

const HEADER: usize = 12;
const OFS_DELTA: u8 = 6;
const REF_DELTA: u8 = 7;

/// Whether all objects of a pack, its deltas and what these make together are at most so large. Reads the whole pack once; takes no more
/// memory than `most`.
pub(super) fn are_within(pack: &[u8], count: u32, most: usize) -> bool {
    within(pack, count, most).is_some()
}

fn within(pack: &[u8], count: u32, most: usize) -> Option<()> {
    let mut rest = pack.get(HEADER..)?;
    let mut room = most;
    let mut content = Vec::new();
    for _ in 0..count {
        let (kind, size) = head(&mut rest)?;
        room = room.checked_sub(size)?;
        match kind {
            OFS_DELTA => while take(&mut rest)? & 0x80 != 0 {},
            REF_DELTA => rest = rest.get(20..)?,
            _ => {}
        }
        content.clear();
        // One more, so that the end is found.
        content.resize(size + 1, 0);
        let mut inflater = Decompress::new(true);
        let status = inflater.decompress(rest, &mut content, FlushDecompress::Finish).ok()?;
        if status != Status::StreamEnd || inflater.total_out() != size as u64 {
            return None;
        }
        rest = rest.get(usize::try_from(inflater.total_in()).ok()?..)?;
        if kind == OFS_DELTA || kind == REF_DELTA {
            let mut delta = &content[..size];
            let _base = number(&mut delta)?;
            room = room.checked_sub(number(&mut delta)?)?;
        }
    }
    Some(())
}

fn take(rest: &mut &[u8]) -> Option<u8> {
    let (first, after) = rest.split_first()?;
    *rest = after;
    Some(*first)
}

/// Kind and size of an entry.
fn head(rest: &mut &[u8]) -> Option<(u8, usize)> {
    let first = take(rest)?;
    let mut size = usize::from(first & 0xf);
    let (mut shift, mut more) = (4, first & 0x80 != 0);
    while more {
        let byte = take(rest)?;
        size = size.checked_add(usize::from(byte & 0x7f).checked_shl(shift).filter(|_| shift < 50)?)?;
        (shift, more) = (shift + 7, byte & 0x80 != 0);
    }
    Some((first >> 4 & 7, size))
}

/// A size in a delta.
fn number(rest: &mut &[u8]) -> Option<usize> {
    let (mut size, mut shift) = (0_usize, 0);
    loop {
        let byte = take(rest)?;
        size = size.checked_add(usize::from(byte & 0x7f).checked_shl(shift).filter(|_| shift < 50)?)?;
        if byte & 0x80 == 0 {
            return Some(size);
        }
        shift += 7;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn entry(kind: u8, size: usize, before: &[u8], content: &[u8]) -> Vec<u8> {
        let mut bytes = Vec::new();
        let mut byte = kind << 4 | (size & 0xf) as u8;
        let mut rest = size >> 4;
        while rest > 0 {
            bytes.push(byte | 0x80);
            byte = (rest & 0x7f) as u8;
            rest >>= 7;
        }
        bytes.push(byte);
        bytes.extend_from_slice(before);
        let mut compressor = libdeflater::Compressor::new(libdeflater::CompressionLvl::default());
        let mut packed = vec![0; compressor.zlib_compress_bound(content.len())];
        let length = compressor.zlib_compress(content, &mut packed).unwrap();
        bytes.extend_from_slice(&packed[..length]);
        bytes
    }

    fn pack(entries: &[Vec<u8>]) -> Vec<u8> {
        [&b"PACK\0\0\0\x02\0\0\0\0"[..], &entries.concat()].concat()
    }

    #[test]
    fn what_objects_will_take_is_known_before() {
        let (blob, other) = (entry(3, 1000, &[], &[0; 1000]), entry(3, 5, &[], b"hello"));
        let two = pack(&[blob.clone(), other.clone()]);
        assert!(are_within(&two, 2, 1005) && !are_within(&two, 2, 1004) && !are_within(&two, 3, 5000));
        // A delta of nine bytes that makes a billion.
        let delta = [&[5][..], &[0x80, 0x94, 0xeb, 0xdc, 0x03], &[0x90, 5]].concat();
        for bomb in [entry(7, delta.len(), &[1; 20], &delta), entry(6, delta.len(), &[0x80, 0x01], &delta)] {
            assert!(!are_within(&pack(&[other.clone(), bomb]), 2, 100_000_000));
        }
        let modest = [&[5][..], &[100], &[0x90, 5]].concat();
        assert!(are_within(&pack(&[other, entry(6, modest.len(), &[0x80, 0x01], &modest)]), 2, 200));
        // One that lies about its size, and one that is cut.
        assert!(!are_within(&pack(&[entry(3, 10, &[], &[0; 1000])]), 1, 100_000));
        assert!(!are_within(&two[..two.len() - 3], 2, 100_000));
        assert!(!are_within(&pack(&[vec![0xff; 40]]), 1, usize::MAX));
    }
}
