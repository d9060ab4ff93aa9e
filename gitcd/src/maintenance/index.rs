//! The objects that a pack has, by its index.
//!
//! Source: Git's `gitformat-pack`, *pack-\*.idx files*, version 2: a magic number, the version, 256 cumulative counts, then all ids in order.

use std::cmp::Ordering;
use std::fs::File;
use std::io::{self, BufReader, Read};
use std::path::Path;

const HEAD: [u8; 8] = [0xff, b't', b'O', b'c', 0, 0, 0, 2];
const FANOUT_BYTES: usize = 4 * 256;

/// The ids of an index, in order.
struct Ids {
    file: BufReader<File>,
    left: u32,
}

impl Ids {
    fn open(path: &Path) -> io::Result<Self> {
        let mut file = BufReader::with_capacity(256 << 10, File::open(path)?);
        let (mut head, mut fanout) = ([0; HEAD.len()], [0; FANOUT_BYTES]);
        file.read_exact(&mut head)?;
        file.read_exact(&mut fanout)?;
        let Some(count) = fanout.last_chunk().filter(|_| head == HEAD) else {
            return Err(io::Error::other(format!("{} is no index of version 2", path.display())));
        };
        Ok(Self { file, left: u32::from_be_bytes(*count) })
    }

    fn next(&mut self) -> io::Result<Option<[u8; 20]>> {
        let Some(left) = self.left.checked_sub(1) else { return Ok(None) };
        let mut id = [0; 20];
        self.file.read_exact(&mut id)?;
        self.left = left;
        Ok(Some(id))
    }
}

/// Whether every object of one pack is in another one. Reads both indexes once.
///
/// # Errors
/// One of them cannot be read.
pub(super) fn has_all(whole: &Path, part: &Path) -> io::Result<bool> {
    let (mut whole, mut part) = (Ids::open(whole)?, Ids::open(part)?);
    let mut there = whole.next()?;
    while let Some(wanted) = part.next()? {
        loop {
            match there.map(|there| there.cmp(&wanted)) {
                None | Some(Ordering::Greater) => return Ok(false),
                Some(Ordering::Equal) => break,
                Some(Ordering::Less) => there = whole.next()?,
            }
        }
    }
    Ok(true)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn index(path: &Path, ids: &std::collections::BTreeSet<[u8; 20]>) {
        let mut text = HEAD.to_vec();
        for first in 0..=255_u8 {
            let count = u32::try_from(ids.iter().filter(|id| id[0] <= first).count()).unwrap();
            text.extend(count.to_be_bytes());
        }
        ids.iter().for_each(|id| text.extend(id));
        std::fs::write(path, text).unwrap();
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(64))]
        #[test]
        fn a_pack_has_all_of_another_if_its_ids_are_more(
            one in prop::collection::btree_set(any::<u8>().prop_map(|byte| [byte; 20]), 0..40),
            other in prop::collection::btree_set(any::<u8>().prop_map(|byte| [byte; 20]), 0..5),
        ) {
            let folder = tempfile::tempdir().unwrap();
            let (whole, part) = (folder.path().join("whole"), folder.path().join("part"));
            index(&whole, &one);
            index(&part, &other);
            prop_assert_eq!(has_all(&whole, &part).unwrap(), other.is_subset(&one));
            index(&whole, &one.union(&other).copied().collect());
            prop_assert!(has_all(&whole, &part).unwrap());
        }
    }

    #[test]
    fn what_is_no_index_is_an_error() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("pack.idx");
        for content in [&b""[..], b"short", &[0; 2000]] {
            std::fs::write(&path, content).unwrap();
            assert!(has_all(&path, &path).is_err());
        }
    }
}
