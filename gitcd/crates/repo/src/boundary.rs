//! The boundary of a history that gitcd cut: commits whose parents are not read.
//!
//! Git's file `shallow` lists them (gitformat-shallow, in Git's `Documentation/technical/shallow.adoc`). A clone with a limited depth
//! has such a file, too, but no record of gitcd: it has no boundary in the sense of this module, and is read as Git's objects are. For
//! a repository that `gitcd retain` cut, gitcd also knows every removed commit. So it distinguishes a merge base that was removed from
//! one that never existed.
//!
//! The name of a record is the hash of the boundary that it describes. So replacing `shallow` is the only step that changes what is
//! read: before, the file names the former record, and after that the new one.
//!
//! Source: `docs/design/retention.md`.

use std::collections::HashSet;
use std::fs;
use std::io;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use git2::Oid;
use gitcd_core::scope::Scope;

mod change;
mod older;
mod record;
mod removed;
mod set;

pub use change::RecordError;
pub use older::OlderCommits;
pub(crate) use older::add_scope;
pub use record::Cut;
use record::Record;
use removed::RemovedCommits;
pub use set::SetError;

/// The folder of a repository in which gitcd keeps the records of cuts.
pub const FOLDER: &str = "gitcd-boundary";

/// How often the boundary is read again because another process replaces it meanwhile.
const ATTEMPTS: usize = 100;

/// Why the boundary of a repository cannot be read.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum BoundaryError {
    /// A file cannot be read.
    #[error("cannot read {path:?}: {source}")]
    Read {
        /// The file.
        path: PathBuf,
        /// The system's error.
        source: io::Error,
    },
    /// A file has other content than gitcd writes, or is missing.
    #[error(
        "{path:?} is damaged, so it is not known which commits were removed; restore the repository from a backup, or fetch the whole \
         history from the archive with `git fetch --unshallow ARCHIVE`"
    )]
    Damaged {
        /// The file.
        path: PathBuf,
    },
    /// The file is replaced all the time.
    #[error("{path:?} was replaced while it was read; try again")]
    Replaced {
        /// The file.
        path: PathBuf,
    },
}

/// The boundary of a repository. Cheap to clone.
#[derive(Clone, Debug, Default)]
pub struct Boundary {
    own: Option<Arc<OwnCut>>,
    seen: ShallowState,
}

/// What gitcd recorded of the cuts that made the boundary.
#[derive(Debug)]
struct OwnCut {
    record: Record,
    removed: RemovedCommits,
}

/// Which state of the file `shallow` was read; nothing if it does not exist.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct ShallowState(Option<(u64, u64, i64, i64)>);

impl ShallowState {
    fn of(git_dir: &Path) -> Self {
        let found = fs::metadata(git_dir.join("shallow")).ok();
        Self(found.map(|file| (file.ino(), file.len(), file.mtime(), file.mtime_nsec())))
    }
}

impl Boundary {
    /// Reads the boundary of the repository in this folder, such as `store.git`. Costs one `stat` if the history is whole.
    ///
    /// # Errors
    /// [`BoundaryError`].
    pub fn read(git_dir: &Path) -> Result<Self, BoundaryError> {
        for _ in 0..ATTEMPTS {
            let seen = ShallowState::of(git_dir);
            if seen.0.is_none() {
                return Ok(Self::default());
            }
            let found = record::find(git_dir).and_then(|found| {
                let Some(found) = found else { return Ok(None) };
                let path = record::folder(git_dir).join(&found.removed);
                let removed = RemovedCommits::open(&path, &found.listed)?;
                Ok(Some(Arc::new(OwnCut { record: found, removed })))
            });
            // The record of a former boundary is removed soon after that boundary.
            if ShallowState::of(git_dir) == seen {
                return Ok(Self { own: found?, seen });
            }
        }
        Err(BoundaryError::Replaced { path: git_dir.join("shallow") })
    }

    /// Returns whether the file `shallow` was replaced since the boundary was read. Costs one `stat`.
    pub fn is_outdated(&self, git_dir: &Path) -> bool {
        ShallowState::of(git_dir) != self.seen
    }

    /// Returns whether the parents of a commit are not read.
    pub fn has(&self, commit: Oid) -> bool {
        self.own.as_deref().is_some_and(|own| own.record.boundary.contains(&commit))
    }

    /// Returns the commits whose parents are not read.
    pub fn commits(&self) -> impl Iterator<Item = Oid> {
        self.own.as_deref().into_iter().flat_map(|own| own.record.boundary.iter().copied())
    }

    /// Returns the last cut; `None` if the history is whole, or if this is a clone with a limited depth.
    pub fn cut(&self) -> Option<&Cut> {
        self.cuts().last()
    }

    /// Returns the last cuts of all branches, oldest first, and earlier ones that have another archive.
    pub fn cuts(&self) -> &[Cut] {
        self.own.as_deref().map(|own| own.record.cuts.as_slice()).unwrap_or_default()
    }

    /// Returns the cut that removed what is before a commit, as far as that is known; otherwise the last one.
    ///
    /// # Errors
    /// [`BoundaryError::Read`].
    pub fn cut_at(&self, commit: Oid) -> Result<Option<&Cut>, BoundaryError> {
        for (number, cut) in self.cuts().iter().enumerate().rev() {
            if cut.data == commit || self.is_before_cut(number, commit)? {
                return Ok(Some(cut));
            }
        }
        Ok(self.cut())
    }

    /// Returns whether a cut removed this commit, and it was not restored as a part of the boundary. Its object may still exist, or
    /// may have been received again. Costs a binary search in a file if the history was cut.
    ///
    /// # Errors
    /// [`BoundaryError::Read`].
    pub fn removed(&self, commit: Oid) -> Result<bool, BoundaryError> {
        match self.own.as_deref() {
            Some(own) if !self.has(commit) => own.removed.has(commit),
            _ => Ok(false),
        }
    }

    /// Returns whether a commit was removed, and maybe restored, and is an ancestor of the data commit of the cut with this number in
    /// [`Self::cuts`]. Costs as much as [`Self::removed`].
    ///
    /// # Errors
    /// [`BoundaryError::Read`].
    pub fn is_before_cut(&self, number: usize, commit: Oid) -> Result<bool, BoundaryError> {
        self.own.as_deref().map_or(Ok(false), |own| own.removed.is_before(number, commit))
    }

    /// Returns the scopes of the merges beyond the boundary that left keys out.
    pub(crate) fn scopes(&self) -> &[Scope] {
        self.own.as_deref().map(|own| own.record.scopes.as_slice()).unwrap_or_default()
    }

    /// Returns all commits that cuts removed, 20 bytes each.
    ///
    /// # Errors
    /// [`BoundaryError`].
    pub fn all_removed(&self) -> Result<Vec<Oid>, BoundaryError> {
        let Some(own) = self.own.as_deref() else { return Ok(Vec::new()) };
        let mut all = own.removed.all()?.concat();
        all.sort_unstable();
        all.dedup();
        let all = all.into_iter().map(|id| Oid::from_bytes(&id).expect("an object ID has 20 bytes"));
        Ok(all.filter(|oid| !self.has(*oid)).collect())
    }
}

/// Returns whether the repository in this folder has a record of a cut. The cut itself may not be made yet, or another program may have
/// fetched the removed commits again; [`Boundary::cut`] knows. Costs one `stat` if there is none.
///
/// # Errors
/// [`BoundaryError::Read`].
pub fn is_cut(git_dir: &Path) -> Result<bool, BoundaryError> {
    Ok(!record::names(&record::folder(git_dir))?.is_empty())
}

/// Returns the commits of the file `shallow`.
fn shallow(git_dir: &Path) -> Result<HashSet<Oid>, BoundaryError> {
    let path = git_dir.join("shallow");
    let Some(text) = read(&path)? else { return Ok(HashSet::new()) };
    let lines = String::from_utf8(text).ok();
    let commits = lines.and_then(|text| text.lines().map(|line| Oid::from_str(line.trim()).ok()).collect());
    commits.ok_or(BoundaryError::Damaged { path })
}

/// Returns the content of a file; `None` if it does not exist.
fn read(path: &Path) -> Result<Option<Vec<u8>>, BoundaryError> {
    found(path, fs::read(path))
}

fn found<T>(path: &Path, result: io::Result<T>) -> Result<Option<T>, BoundaryError> {
    match result {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
        result => result.map(Some).map_err(|source| BoundaryError::Read { path: path.to_owned(), source }),
    }
}

#[cfg(test)]
mod tests;
