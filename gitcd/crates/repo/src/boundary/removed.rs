//! The IDs of all commits that cuts removed, sorted, 20 bytes each. A search reads a few of them, so the size does not matter.

use std::collections::BTreeSet;
use std::fs::File;
use std::io::{self, Write as _};
use std::os::unix::fs::FileExt as _;
use std::path::{Path, PathBuf};

use git2::Oid;
use gitcd_core::durable;

use super::{BoundaryError, FOLDER, RecordError, open, read};
use crate::object;

/// Length of an ID.
const BYTES: usize = 20;

/// The removed commits.
#[derive(Debug)]
pub(super) struct Removed {
    path: PathBuf,
    file: Option<File>,
    count: u64,
}

impl Removed {
    pub(super) fn open(git_dir: &Path) -> Result<Self, BoundaryError> {
        let path = path(git_dir);
        let file = open(&path)?;
        let length = match &file {
            Some(file) => file.metadata().map_err(|source| BoundaryError::Read { path: path.clone(), source })?.len(),
            None => 0,
        };
        if length % BYTES as u64 != 0 {
            return Err(BoundaryError::Damaged { path });
        }
        Ok(Self { path, file, count: length / BYTES as u64 })
    }

    /// Returns whether a commit was removed, by a binary search in the file.
    pub(super) fn has(&self, commit: Oid) -> Result<bool, BoundaryError> {
        let Some(file) = &self.file else { return Ok(false) };
        self.find(file, object::bytes(commit)).map_err(|source| BoundaryError::Read { path: self.path.clone(), source })
    }

    fn find(&self, file: &File, wanted: [u8; BYTES]) -> io::Result<bool> {
        let (mut low, mut high) = (0, self.count);
        while low < high {
            let middle = low.midpoint(high);
            let mut found = [0; BYTES];
            file.read_exact_at(&mut found, middle * BYTES as u64)?;
            match found.cmp(&wanted) {
                std::cmp::Ordering::Equal => return Ok(true),
                std::cmp::Ordering::Less => low = middle + 1,
                std::cmp::Ordering::Greater => high = middle,
            }
        }
        Ok(false)
    }

    /// Adds commits to those of earlier cuts.
    pub(super) fn add(git_dir: &Path, commits: &[Oid]) -> Result<(), RecordError> {
        let path = path(git_dir);
        let known = if path.exists() { read(&path)? } else { Vec::new() };
        let mut all: BTreeSet<[u8; BYTES]> = known.as_chunks().0.iter().copied().collect();
        all.extend(commits.iter().map(|commit| object::bytes(*commit)));
        durable::replace_with(&path, |file| {
            let mut file = io::BufWriter::new(file);
            all.iter().try_for_each(|id| file.write_all(id))?;
            file.flush()
        })?;
        Ok(())
    }
}

pub(super) fn path(git_dir: &Path) -> PathBuf {
    git_dir.join(FOLDER).join("removed")
}
