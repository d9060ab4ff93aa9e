//! The IDs of all commits that cuts removed, 20 bytes each: first the ancestors of the cut's data commit, then the others, each part
//! sorted. A search reads a few of them, so the size does not matter.

use std::fs::File;
use std::io::{self, Write as _};
use std::ops::Range;
use std::os::unix::fs::FileExt as _;
use std::path::{Path, PathBuf};

use git2::{ObjectType, Oid};
use gitcd_core::durable;

use super::{BoundaryError, found};
use crate::{object, own_folder};

/// Length of an ID.
const BYTES: usize = 20;

/// The bytes of an ID.
type Id = [u8; BYTES];

/// What is known of the file with the removed commits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct RemovedSummary {
    /// How many commits it has.
    pub(super) count: u64,
    /// How many of them are ancestors of the cut's data commit: the first ones. The others are metadata, or of another branch.
    pub(super) older: u64,
    /// The hash of its content.
    pub(super) hash: Oid,
}

/// The removed commits.
#[derive(Debug)]
pub(super) struct RemovedCommits {
    path: PathBuf,
    file: File,
    listed: RemovedSummary,
}

impl RemovedCommits {
    /// Opens the file, which must be complete: otherwise, a removed commit would look like one that never existed.
    pub(super) fn open(path: &Path, listed: RemovedSummary) -> Result<Self, BoundaryError> {
        let damaged = || BoundaryError::Damaged { path: path.to_owned() };
        let file = found(path, File::open(path))?.ok_or_else(damaged)?;
        let length = file.metadata().map_err(|source| BoundaryError::Read { path: path.to_owned(), source })?.len();
        if listed.count.checked_mul(BYTES as u64) != Some(length) || listed.older > listed.count {
            return Err(damaged());
        }
        Ok(Self { path: path.to_owned(), file, listed })
    }

    fn failed(&self) -> impl Fn(io::Error) -> BoundaryError + '_ {
        |source| BoundaryError::Read { path: self.path.clone(), source }
    }

    /// Returns whether a commit was removed, by a binary search in the file.
    pub(super) fn has(&self, commit: Oid) -> Result<bool, BoundaryError> {
        let RemovedSummary { count, older, .. } = self.listed;
        let found = self.find(object::bytes(commit), older..count).map_err(self.failed())?;
        Ok(found || self.is_older(commit)?)
    }

    /// Returns whether a commit was removed and is an ancestor of the cut's data commit.
    pub(super) fn is_older(&self, commit: Oid) -> Result<bool, BoundaryError> {
        self.find(object::bytes(commit), 0..self.listed.older).map_err(self.failed())
    }

    fn find(&self, wanted: Id, among: Range<u64>) -> io::Result<bool> {
        let Range { start: mut low, end: mut high } = among;
        while low < high {
            let middle = low.midpoint(high);
            let mut found = [0; BYTES];
            self.file.read_exact_at(&mut found, middle * BYTES as u64)?;
            match found.cmp(&wanted) {
                std::cmp::Ordering::Equal => return Ok(true),
                std::cmp::Ordering::Less => low = middle + 1,
                std::cmp::Ordering::Greater => high = middle,
            }
        }
        Ok(false)
    }

    /// Returns all of them: the ancestors of the cut's data commit, and the others. Checks that none has changed since they were
    /// written.
    pub(super) fn all(&self) -> Result<(Vec<Id>, Vec<Id>), BoundaryError> {
        let length = |count: u64| usize::try_from(count).expect("the file was written from memory");
        let mut ids = vec![[0; BYTES]; length(self.listed.count)];
        self.file.read_exact_at(ids.as_flattened_mut(), 0).map_err(self.failed())?;
        if hash(ids.as_flattened()) != self.listed.hash {
            return Err(BoundaryError::Damaged { path: self.path.clone() });
        }
        let others = ids.split_off(length(self.listed.older));
        Ok((ids, others))
    }
}

/// Writes the file.
pub(super) fn write(
    git_dir: &Path,
    path: &Path,
    (mut older, mut others): (Vec<Id>, Vec<Id>),
) -> Result<RemovedSummary, durable::Error> {
    for ids in [&mut older, &mut others] {
        ids.sort_unstable();
        ids.dedup();
    }
    others.retain(|id| older.binary_search(id).is_err());
    let length = older.len() as u64;
    older.append(&mut others);
    let bytes = older.as_flattened();
    own_folder::replace_with(git_dir, path, |file| file.write_all(bytes))?;
    Ok(RemovedSummary { count: older.len() as u64, older: length, hash: hash(bytes) })
}

fn hash(bytes: &[u8]) -> Oid {
    Oid::hash_object(ObjectType::Blob, bytes).expect("bytes in memory can be hashed")
}
