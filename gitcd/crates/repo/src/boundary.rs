//! The boundary of a history that was cut: commits whose parents are not read.
//!
//! Git's file `shallow` lists them (gitformat-shallow, in Git's `Documentation/technical/shallow.adoc`). A clone with a limited depth
//! has a boundary, and so has a repository whose history `gitcd retain` cut. For the second, gitcd also knows every removed commit, so
//! it can tell a merge base that was removed from one that never existed.
//!
//! Source: `docs/design/retention.md`.

use std::collections::{BTreeSet, HashSet};
use std::fs::{self, File};
use std::io;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use git2::Oid;
use gitcd_core::durable;

mod cut;
mod removed;
mod set;

pub use cut::Cut;
use removed::Removed;
pub use set::SetError;

/// The folder of a repository in which gitcd keeps records of maintenance.
pub const FOLDER: &str = "gitcd-maintenance";

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
    /// A file has something else in it.
    #[error(
        "{path:?} is damaged; restore the repository from a backup, or fetch its history again with `git fetch --unshallow`"
    )]
    Damaged {
        /// The file.
        path: PathBuf,
    },
}

/// The boundary of a repository. Cheap to clone.
#[derive(Clone, Debug, Default)]
pub struct Boundary {
    commits: Arc<HashSet<Oid>>,
    own: Option<Arc<(Cut, Removed)>>,
    seen: Seen,
}

/// Which state of the file `shallow` was read.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Seen(Option<(u64, u64, i64, i64)>);

impl Seen {
    fn of(git_dir: &Path) -> Self {
        let found = fs::metadata(git_dir.join("shallow")).ok();
        Self(found.map(|file| (file.ino(), file.len(), file.mtime(), file.mtime_nsec())))
    }
}

impl Boundary {
    /// Reads the boundary of the repository in this folder, such as `store.git`. Reads one small file in most repositories.
    ///
    /// # Errors
    /// [`BoundaryError`].
    pub fn read(git_dir: &Path) -> Result<Self, BoundaryError> {
        let seen = Seen::of(git_dir);
        let commits = shallow(git_dir)?;
        if commits.is_empty() {
            return Ok(Self { seen, ..Self::default() });
        }
        // If another program moved the boundary since the cut, the removed commits may be back.
        let cut = Cut::read(git_dir)?.filter(|cut| cut.boundary.len() == commits.len());
        let cut = cut.filter(|cut| cut.boundary.iter().all(|oid| commits.contains(oid)));
        let own = match cut {
            Some(cut) => Some(Arc::new((cut, Removed::open(git_dir)?))),
            None => None,
        };
        Ok(Self { commits: Arc::new(commits), own, seen })
    }

    /// Returns whether the file `shallow` was replaced since the boundary was read. Costs one `stat`.
    pub fn is_outdated(&self, git_dir: &Path) -> bool {
        Seen::of(git_dir) != self.seen
    }

    /// Returns whether the parents of a commit are not read.
    pub fn has(&self, commit: Oid) -> bool {
        self.commits.contains(&commit)
    }

    /// Returns the commits whose parents are not read.
    pub fn commits(&self) -> &HashSet<Oid> {
        &self.commits
    }

    /// Returns the cut that made this boundary; `None` if the history is whole, or if this is a clone with a limited depth.
    pub fn cut(&self) -> Option<&Cut> {
        self.own.as_deref().map(|(cut, _)| cut)
    }

    /// Returns whether a cut removed this commit, and it was not restored as a part of the boundary. Its object may still exist, or
    /// may have been received again.
    ///
    /// # Errors
    /// [`BoundaryError::Read`].
    pub fn removed(&self, commit: Oid) -> Result<bool, BoundaryError> {
        match self.own.as_deref() {
            Some((_, removed)) if !self.has(commit) => removed.has(commit),
            _ => Ok(false),
        }
    }

    /// Records a cut before it is made: its description, and the removed commits, which are added to those of earlier cuts.
    ///
    /// # Errors
    /// A file cannot be read or written.
    pub fn record(git_dir: &Path, cut: &Cut, removed: &[Oid]) -> Result<(), RecordError> {
        durable::make_folder(&git_dir.join(FOLDER))?;
        Removed::add(git_dir, removed)?;
        Ok(cut.write(git_dir)?)
    }

    /// Makes removed commits, which exist again, a part of the boundary: another branch continues from them, so they are needed for
    /// comparisons, without what is before them.
    ///
    /// # Errors
    /// A file cannot be read or written, or another program moves the boundary.
    pub fn restore(&self, git_dir: &Path, commits: &[Oid]) -> Result<(), RecordError> {
        let Some(mut cut) = self.cut().cloned() else { return Ok(()) };
        cut.boundary.extend(commits);
        cut.write(git_dir)?;
        Ok(self.replace(git_dir, &cut.boundary)?)
    }

    /// Makes `commits` the boundary of the repository in this folder, if this is still its boundary.
    ///
    /// # Errors
    /// [`SetError`]; the boundary is as it was.
    pub fn replace(&self, git_dir: &Path, commits: &BTreeSet<Oid>) -> Result<(), SetError> {
        set::set(git_dir, &self.commits, commits)
    }

    /// Copies the boundary to another repository that shares the objects of this one.
    ///
    /// # Errors
    /// A file cannot be read or written.
    pub fn copy(from: &Path, to: &Path) -> Result<(), RecordError> {
        let shallow = from.join("shallow");
        if !shallow.exists() {
            return Ok(());
        }
        durable::make_folder(&to.join(FOLDER))?;
        for name in [removed::path(Path::new("")), cut::path(Path::new(""))] {
            if from.join(&name).exists() {
                durable::replace(&to.join(&name), &read(&from.join(&name))?)?;
            }
        }
        let commits = self::shallow(from)?.into_iter().collect();
        set::set(to, &self::shallow(to)?, &commits).map_err(RecordError::from)
    }
}

/// Why the record of a cut was not written.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum RecordError {
    /// The former record cannot be read.
    #[error(transparent)]
    Read(#[from] BoundaryError),
    /// The record cannot be written.
    #[error(transparent)]
    Write(#[from] durable::Error),
    /// The boundary cannot be moved.
    #[error(transparent)]
    Set(#[from] SetError),
}

/// Returns whether gitcd cut the history of the repository in this folder, or began to.
pub fn is_cut(git_dir: &Path) -> bool {
    cut::path(git_dir).exists()
}

/// Returns the commits of the file `shallow`.
fn shallow(git_dir: &Path) -> Result<HashSet<Oid>, BoundaryError> {
    let path = git_dir.join("shallow");
    let text = match fs::read_to_string(&path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(HashSet::new()),
        text => text.map_err(|source| BoundaryError::Read { path: path.clone(), source })?,
    };
    let lines = text.lines().map(|line| Oid::from_str(line.trim()).ok());
    lines.collect::<Option<_>>().ok_or(BoundaryError::Damaged { path })
}

fn read(path: &Path) -> Result<Vec<u8>, BoundaryError> {
    fs::read(path).map_err(|source| BoundaryError::Read { path: path.to_owned(), source })
}

fn open(path: &Path) -> Result<Option<File>, BoundaryError> {
    match File::open(path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
        file => file.map(Some).map_err(|source| BoundaryError::Read { path: path.to_owned(), source }),
    }
}

#[cfg(test)]
mod tests;
