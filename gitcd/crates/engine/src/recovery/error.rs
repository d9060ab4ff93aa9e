//! Why a branch cannot be served or created.

use std::io;
use std::path::PathBuf;

use git2::Oid;
use gitcd_core::durable;
use gitcd_core::revision::Revision;
use gitcd_journal::recovery::RecoverError;
use gitcd_repo::branch::{self, CreateError, LoadError};
use gitcd_repo::refs::RefError;

use gitcd_mvcc::snapshot::SnapshotError;

/// Why a branch cannot be served. It is unchanged.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum OpenError {
    /// The branch does not exist.
    #[error("{repository:?} has no branch {reference}; make it with `{init}`")]
    Missing {
        /// The repository.
        repository: PathBuf,
        /// The data reference.
        reference: String,
        /// The command that creates it.
        init: String,
    },
    /// The branch was written by the Go implementation.
    #[error(
        "{reference} was written by the Go implementation of gitcd, which keeps its metadata in another way; convert it with `{init}`: \
         keys, revisions and history stay"
    )]
    OfGo {
        /// The metadata reference.
        reference: String,
        /// The command that converts it.
        init: String,
    },
    /// Another process serves the branch.
    #[error(
        "branch {reference} of {repository:?} is served by another gitcd (it holds {lock:?}); a branch has one writer: stop that one \
         first, or serve a clone that follows this branch (--remote-names)"
    )]
    Locked {
        /// The repository.
        repository: PathBuf,
        /// The data reference.
        reference: String,
        /// The lock.
        lock: PathBuf,
    },
    /// The local state, or the repository around it, cannot be read or written.
    #[error("cannot {action} {path:?}; gitcd needs to read and write it")]
    Folder {
        /// The failed operation.
        action: &'static str,
        /// The folder or file.
        path: PathBuf,
        /// The system's error.
        source: io::Error,
    },
    /// A restore was interrupted.
    #[error(
        "branch {reference} of {repository:?} was not restored or imported completely; remove the repository (or the branch and its \
         folder in gitcd/ of the repository), and run the command again"
    )]
    HalfRestored {
        /// The repository.
        repository: PathBuf,
        /// The data reference.
        reference: String,
    },
    /// The branch is being imported from an etcd.
    #[error(
        "branch {reference} of {repository:?} is being imported from an etcd, which still accepts writes; end the import with \
         `gitcd migrate import --cut-over` first"
    )]
    Importing {
        /// The repository.
        repository: PathBuf,
        /// The data reference.
        reference: String,
    },
    /// The bump would leave too few revisions.
    #[error("revision {revision} cannot be raised by {bump}: too few would be left for writes; a billion is plenty")]
    Bump {
        /// The revision of the backup.
        revision: Revision,
        /// The requested bump.
        bump: i64,
    },
    /// The branch was served with other prefixes.
    #[error(
        "the branch was served with other prefixes: {path:?} says\n{recorded}but the flags say\n{given}\
         they determine where each key is stored; serve the branch with the recorded --key-prefixes and --ephemeral-prefixes"
    )]
    Keys {
        /// The file that records them.
        path: PathBuf,
        /// The recorded prefixes.
        recorded: String,
        /// The prefixes of the flags.
        given: String,
    },
    /// The branch in Git cannot be used.
    #[error(transparent)]
    Branch(#[from] Box<branch::OpenError>),
    /// The content of the branch cannot be read.
    #[error(transparent)]
    Load(#[from] Box<LoadError>),
    /// The branch cannot be created.
    #[error(transparent)]
    Create(#[from] Box<CreateError>),
    /// The existing history cannot become a branch.
    #[error(transparent)]
    Adopt(#[from] Box<branch::AdoptError>),
    /// The fork cannot be made.
    #[error(transparent)]
    Fork(#[from] Box<branch::ForkError>),
    /// A reference cannot be read.
    #[error(transparent)]
    Reference(#[from] RefError),
    /// The journal is damaged.
    #[error(transparent)]
    Journal(#[from] RecoverError),
    /// The snapshot is damaged.
    #[error(transparent)]
    Snapshot(#[from] SnapshotError),
    /// A branch that resumes from Git cannot record the new revision there.
    #[error(transparent)]
    Flush(#[from] branch::FlushError),
    /// Git lost commits that the journal relies on.
    #[error(
        "{reference} is at revision {found}, but the journal starts at {base}: the branch was moved back; move it forward \
         with `git update-ref {reference} {metadata}` and `git update-ref {data_reference} {metadata}^2`, or move {folder:?} \
         away to resume from what Git has (later writes are then lost)"
    )]
    MovedBack {
        /// The metadata reference.
        reference: String,
        /// The data reference.
        data_reference: String,
        /// The revision in Git.
        found: Revision,
        /// The revision at which the journal starts.
        base: Revision,
        /// The metadata commit of `base`.
        metadata: Oid,
        /// The local state.
        folder: PathBuf,
    },
    /// The journal does not continue at the revision in Git.
    #[error("journal in {folder:?}: revision {found} follows {expected}; restore the folder from a copy")]
    Gap {
        /// The journal.
        folder: PathBuf,
        /// The last revision in order.
        expected: Revision,
        /// The revision that follows it.
        found: Revision,
    },
}

impl From<durable::Error> for OpenError {
    fn from(error: durable::Error) -> Self {
        let durable::Error { action, path, source } = error;
        Self::Folder { action, path, source }
    }
}
