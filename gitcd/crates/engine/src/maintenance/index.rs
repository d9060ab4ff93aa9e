//! The objects of a pack, by its index.
//!
//! Source: Git's `gitformat-pack`, *pack-\*.idx files*, version 2: a magic number, the version, 256 cumulative counts, then all
//! IDs in order.

use std::cmp::Ordering;
use std::collections::BTreeSet;
use std::fs::File;
use std::io::{self, BufReader, Read};
use std::path::Path;

const HEAD: [u8; 8] = [0xff, b't', b'O', b'c', 0, 0, 0, 2];
const FANOUT_BYTES: usize = 4 * 256;

/// The ID of an object.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Id([u8; 20]);

impl Id {
    pub(super) fn parse(hex: &str) -> Option<Self> {
        let oid = git2::Oid::from_str(hex).ok().filter(|_| hex.len() == 40)?;
        oid.as_bytes().try_into().ok().map(Self)
    }

    pub(super) fn hex(&self) -> String {
        self.0.iter().fold(String::with_capacity(40), |text, byte| text + &format!("{byte:02x}"))
    }

    pub(super) fn first(&self) -> u8 {
        self.0[0]
    }
}

/// Iterates over the IDs of an index, in order.
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
            return Err(io::Error::other(format!("{} is not a pack index of version 2", path.display())));
        };
        Ok(Self { file, left: u32::from_be_bytes(*count) })
    }

    fn next(&mut self) -> io::Result<Option<Id>> {
        let Some(left) = self.left.checked_sub(1) else { return Ok(None) };
        let mut id = [0; 20];
        self.file.read_exact(&mut id)?;
        self.left = left;
        Ok(Some(Id(id)))
    }
}

/// Returns the IDs of an index, in order.
///
/// # Errors
/// The index cannot be read.
pub(super) fn ids(path: &Path) -> io::Result<impl Iterator<Item = io::Result<Id>>> {
    let mut ids = Ids::open(path)?;
    Ok(std::iter::from_fn(move || ids.next().transpose()))
}

/// Returns whether the pack `whole` has all objects of the pack `part` except those in `but`. Reads both indexes once. `None` is
/// a pack without objects.
///
/// # Errors
/// One of the indexes cannot be read.
pub(super) fn has_all(whole: Option<&Path>, part: &Path, but: &BTreeSet<Id>) -> io::Result<bool> {
    let (mut whole, mut part) = (whole.map(Ids::open).transpose()?, Ids::open(part)?);
    let mut next = || whole.as_mut().map_or(Ok(None), Ids::next);
    let mut there = next()?;
    while let Some(wanted) = part.next()? {
        if but.contains(&wanted) {
            continue;
        }
        loop {
            match there.map(|there| there.cmp(&wanted)) {
                None | Some(Ordering::Greater) => return Ok(false),
                Some(Ordering::Equal) => break,
                Some(Ordering::Less) => there = next()?,
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
            let none = BTreeSet::new();
            index(&whole, &one);
            index(&part, &other);
            prop_assert_eq!(has_all(Some(&whole), &part, &none).unwrap(), other.is_subset(&one));
            let lacking: BTreeSet<Id> = other.difference(&one).map(|id| Id(*id)).collect();
            prop_assert!(has_all(Some(&whole), &part, &lacking).unwrap());
            prop_assert_eq!(has_all(None, &part, &lacking).unwrap(), other.is_disjoint(&one));
            let found: Vec<_> = ids(&part).unwrap().map(Result::unwrap).collect();
            prop_assert_eq!(found, other.iter().map(|id| Id(*id)).collect::<Vec<_>>());
            index(&whole, &one.union(&other).copied().collect());
            prop_assert!(has_all(Some(&whole), &part, &none).unwrap());
        }
    }

    #[test]
    fn what_is_no_index_is_an_error() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("pack.idx");
        for content in [&b""[..], b"short", &[0; 2000]] {
            std::fs::write(&path, content).unwrap();
            assert!(has_all(Some(&path), &path, &BTreeSet::new()).is_err());
        }
    }
}
