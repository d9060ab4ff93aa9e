//! The IDs of all commits that cuts removed, 20 bytes each: for each recorded cut the ancestors of its data commit, then the others,
//! each part sorted. A search reads a few of them, so the size does not matter.

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
pub(super) type Id = [u8; BYTES];

/// What is known of the file with the removed commits.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct RemovedSummary {
    /// How many commits are ancestors of the data commit of each cut.
    pub(super) before: Vec<u64>,
    /// How many commits follow: metadata, and what no recorded cut has in its history.
    pub(super) others: u64,
    /// The hash of the content.
    pub(super) hash: Oid,
}

impl RemovedSummary {
    /// Returns the parts of the file: one for each cut, and the others. `None` if they are longer than a file can be.
    fn parts(&self) -> Option<Vec<Range<u64>>> {
        let mut end = 0_u64;
        let part = |count: &u64| {
            let start = end;
            end = end.checked_add(*count)?;
            Some(start..end)
        };
        self.before.iter().chain([&self.others]).map(part).collect()
    }
}

/// The IDs of each part of the file: one for each cut, and the others.
pub(super) type Parts = Vec<Vec<Id>>;

/// The removed commits.
#[derive(Debug)]
pub(super) struct RemovedCommits {
    path: PathBuf,
    file: File,
    parts: Vec<Range<u64>>,
    hash: Oid,
}

impl RemovedCommits {
    /// Opens the file, which must be complete: otherwise, a removed commit would look like one that never existed.
    pub(super) fn open(path: &Path, listed: &RemovedSummary) -> Result<Self, BoundaryError> {
        let damaged = || BoundaryError::Damaged { path: path.to_owned() };
        let file = found(path, File::open(path))?.ok_or_else(damaged)?;
        let length = file.metadata().map_err(|source| BoundaryError::Read { path: path.to_owned(), source })?.len();
        let parts = listed.parts().ok_or_else(damaged)?;
        let count = parts.last().map_or(0, |part| part.end);
        if count.checked_mul(BYTES as u64) != Some(length) {
            return Err(damaged());
        }
        Ok(Self { path: path.to_owned(), file, parts, hash: listed.hash })
    }

    fn failed(&self) -> impl Fn(io::Error) -> BoundaryError + '_ {
        |source| BoundaryError::Read { path: self.path.clone(), source }
    }

    /// Returns whether a commit was removed, by binary searches in the file.
    pub(super) fn has(&self, commit: Oid) -> Result<bool, BoundaryError> {
        for number in 0..self.parts.len() {
            if self.is_in(number, commit)? {
                return Ok(true);
            }
        }
        Ok(false)
    }

    /// Returns whether a commit was removed and is an ancestor of the data commit of the cut with this number.
    pub(super) fn is_before(&self, cut: usize, commit: Oid) -> Result<bool, BoundaryError> {
        // The last part is of no cut.
        if cut + 1 < self.parts.len() { self.is_in(cut, commit) } else { Ok(false) }
    }

    fn is_in(&self, part: usize, commit: Oid) -> Result<bool, BoundaryError> {
        self.find(object::bytes(commit), self.parts[part].clone()).map_err(self.failed())
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

    /// Returns all of them. Checks that none has changed since they were written.
    pub(super) fn all(&self) -> Result<Parts, BoundaryError> {
        let length = |count: u64| usize::try_from(count).expect("the file was written from memory");
        let mut ids = vec![[0; BYTES]; length(self.parts.last().map_or(0, |part| part.end))];
        self.file.read_exact_at(ids.as_flattened_mut(), 0).map_err(self.failed())?;
        if hash(ids.as_flattened()) != self.hash {
            return Err(BoundaryError::Damaged { path: self.path.clone() });
        }
        Ok(self.parts.iter().map(|part| ids[length(part.start)..length(part.end)].to_vec()).collect())
    }
}

/// Writes the file. A commit in the last part that another part has, too, is left out.
pub(super) fn write(git_dir: &Path, path: &Path, mut parts: Parts) -> Result<RemovedSummary, durable::Error> {
    for ids in &mut parts {
        ids.sort_unstable();
        ids.dedup();
    }
    let mut others = parts.pop().unwrap_or_default();
    others.retain(|id| parts.iter().all(|ids| ids.binary_search(id).is_err()));
    let before = parts.iter().map(|ids| ids.len() as u64).collect();
    let length = others.len() as u64;
    let all = parts.into_iter().chain([others]).flatten().collect::<Vec<Id>>();
    let bytes = all.as_flattened();
    own_folder::replace_with(git_dir, path, |file| file.write_all(bytes))?;
    Ok(RemovedSummary { before, others: length, hash: hash(bytes) })
}

fn hash(bytes: &[u8]) -> Oid {
    Oid::hash_object(ObjectType::Blob, bytes).expect("bytes in memory can be hashed")
}
