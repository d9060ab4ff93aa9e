//! Why a history was not cut.

use std::path::PathBuf;

use git2::Oid;
use gitcd_core::durable;
use gitcd_mvcc::snapshot::SnapshotError;
use gitcd_repo::boundary::{BoundaryError, RecordError, SetError};
use gitcd_repo::graph::GraphError;
use gitcd_repo::refs::RefError;

use crate::maintenance::join::JoinError;

/// Why a history was not cut.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum RetainError {
    /// Maintenance is running.
    #[error("maintenance of {0:?} is running; try again when it has finished")]
    Busy(PathBuf),
    /// `git gc` is running.
    #[error("{0:?} exists: `git gc` is running; try again when it has finished")]
    Collected(PathBuf),
    /// The repository fetches objects on demand.
    #[error(
        "{0:?} is a partial clone, so gitcd cannot compute which objects are needed; cut the history of a full clone instead"
    )]
    Partial(PathBuf),
    /// The repository reads objects of others.
    #[error(
        "{0:?} has objects/info/alternates: it reads objects of another repository, which are not removed there; cut the history of that \
         one, or give this one its own objects first: `git -C {0:?} repack -a -d`, and then remove the file"
    )]
    Shared(PathBuf),
    /// A gitcd serves the repository, or receives a push.
    #[error("{0:?} is locked: stop every `gitcd serve` and `gitcd host` of the repository, and run the command again")]
    Served(PathBuf),
    /// The archive is not a repository of its own.
    #[error("the archive {0:?} is the repository itself, or shares its objects; name another folder")]
    Same(PathBuf),
    /// The archive borrows objects.
    #[error("{0:?} has objects/info/alternates: an archive must have every object itself; name another folder")]
    Borrows(PathBuf),
    /// The archive fetches objects on demand.
    #[error("{0:?} is a partial clone: an archive must have every object itself; name another folder")]
    PartialArchive(PathBuf),
    /// Another run uses the archive.
    #[error("another `gitcd retain` uses the archive {0:?}; try again when it has finished")]
    ArchiveBusy(PathBuf),
    /// The archive lacks commits that it should have.
    #[error(
        "the archive {folder:?} lacks {missing} of the commits that would be removed, such as {first}: it is a shallow clone, or it is \
         damaged; nothing was cut; name a new folder, or fetch the whole history into the archive with \
         `git -C {folder:?} fetch --unshallow REPOSITORY`"
    )]
    Incomplete {
        /// Its folder.
        folder: PathBuf,
        /// The number of missing commits.
        missing: usize,
        /// One of them.
        first: Oid,
    },
    /// The archive is about to lose commits that it should have.
    #[error(
        "no reference of the archive {folder:?} reaches commit {first}, so `git gc` deletes it there: the archive is a shallow clone; \
         nothing was cut; name a new folder, or fetch the whole history into the archive with \
         `git -C {folder:?} fetch --unshallow REPOSITORY`"
    )]
    Unreachable {
        /// Its folder.
        folder: PathBuf,
        /// One of the commits.
        first: Oid,
    },
    /// The path of the archive cannot be given to Git, or not be recorded.
    #[error(
        "the path of the archive, {0:?}, must be absolute, valid UTF-8, and without line breaks; name another folder"
    )]
    Path(PathBuf),
    /// The folder of the archive has something else in it.
    #[error("{0:?} is neither empty nor a bare repository; name another folder")]
    NoArchive(PathBuf),
    /// The archive does not accept the commits.
    #[error(
        "the archive {folder:?} does not continue the history of this repository; nothing was cut; name a new folder, which then begins \
         where the last cut was made: {source}"
    )]
    Archive {
        /// Its folder.
        folder: PathBuf,
        /// What Git reports.
        source: JoinError,
    },
    /// A reference may need more than the cut keeps.
    #[error("{0} was moved while the cut was planned; nothing was cut; run the command again")]
    Moved(String),
    /// A step failed. Nothing is lost; run it again to continue.
    #[error(transparent)]
    Maintenance(#[from] JoinError),
    /// The local state of a branch cannot be read, so it is not known which history it needs.
    #[error(transparent)]
    Snapshot(#[from] SnapshotError),
    /// The history cannot be read.
    #[error(transparent)]
    Graph(#[from] GraphError),
    /// The boundary cannot be read.
    #[error(transparent)]
    Boundary(#[from] BoundaryError),
    /// The cut cannot be recorded or made.
    #[error(transparent)]
    Record(#[from] RecordError),
    /// The references cannot be read.
    #[error(transparent)]
    References(#[from] RefError),
    /// A file cannot be read or written.
    #[error(transparent)]
    Durable(#[from] durable::Error),
}

impl RetainError {
    /// Returns whether the repository was changed since the cut was planned, so that another plan may succeed.
    pub fn is_outdated(&self) -> bool {
        matches!(self, Self::Moved(_) | Self::Record(RecordError::Set(SetError::Changed(_))))
    }
}
