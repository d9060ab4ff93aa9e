//! Errors of branches, by operation.

use std::io;
use std::path::{Path, PathBuf};

use git2::Oid;
use gitcd_core::durable;
use gitcd_core::path;

use super::super::changes::TreeError;
use super::super::committed_heads::CommittedHeadsError;
use super::super::pack_file::WriteError;
use super::super::refs::RefError;
use super::LoadError;

/// Why revisions could not be committed.
#[derive(Debug, thiserror::Error, PartialEq, Eq)]
#[non_exhaustive]
pub enum CommitError {
    /// Ephemeral keys are never committed.
    #[error("the key {key:?} is ephemeral and is never committed")]
    Ephemeral {
        /// The key.
        key: String,
    },
    /// Git refuses deeper trees.
    #[error("the key {key:?} has more components than a Git tree may have levels ({})", path::MAX_DEPTH)]
    TooDeep {
        /// The key.
        key: String,
    },
    /// The merged commit, or one of its ancestors, cannot be read.
    #[error("cannot read a merged object: {said}")]
    Theirs {
        /// What is wrong.
        said: String,
    },
    /// An earlier flush failed.
    #[error("an earlier flush failed; the branch must be opened again")]
    Failed,
}

/// Why a flush failed.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum FlushError {
    /// Another program moved the data reference.
    #[error(
        "{reference} is at {found}, but gitcd left it at {expected}: another program changed it; save what is to be kept of \
         the change on another branch, move it back with `git update-ref {reference} {expected}` and restart gitcd"
    )]
    ForeignChange {
        /// The data reference.
        reference: String,
        /// Its target as gitcd left it.
        expected: Oid,
        /// Its target.
        found: String,
    },
    /// The pack could not be written.
    #[error(transparent)]
    Pack(#[from] WriteError),
    /// A reference could not be read or moved.
    #[error(transparent)]
    Reference(#[from] RefError),
    /// The heads could not be recorded.
    #[error(transparent)]
    CommittedHeads(#[from] CommittedHeadsError),
    /// An earlier flush failed.
    #[error("an earlier flush failed; the branch must be opened again")]
    Failed,
}

/// Why a branch could not be opened. Nothing was changed, unless an interrupted move could not be completed.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum OpenError {
    /// The path is a file, or a folder with something other than a repository.
    #[error("{path:?} is not a Git repository: {problem}")]
    NotARepository {
        /// The folder.
        path: PathBuf,
        /// What is wrong, and what to do.
        problem: String,
    },
    /// The folder cannot be read.
    #[error("cannot read {path:?}")]
    Io {
        /// The folder.
        path: PathBuf,
        /// The system's error.
        source: io::Error,
    },
    /// The data reference is neither what the metadata describes nor what gitcd left.
    #[error(
        "{reference} is at {found}, but the metadata describes {expected}: another program changed it; move it back with \
         `git update-ref {reference} {expected}` after saving what is to be kept of the change on another branch"
    )]
    ForeignChange {
        /// The data reference.
        reference: String,
        /// The commit that the metadata describes.
        expected: Oid,
        /// Its target.
        found: String,
    },
    /// A shallow repository lacks the commit that the metadata describes.
    #[error(
        "{reference} is at {found}, but the metadata describes {expected}, and this shallow repository has too little of the \
         history to compare them; get more with `git fetch --deepen=1000 REMOTE`, or all with \
         `git fetch --unshallow REMOTE`"
    )]
    Shallow {
        /// The data reference.
        reference: String,
        /// The commit that the metadata describes.
        expected: Oid,
        /// Its target.
        found: String,
    },
    /// The data reference has history, but there is no metadata.
    #[error("{reference} has history, but {metadata_reference} does not exist; run `gitcd init` to derive it")]
    NoMetadata {
        /// The data reference.
        reference: String,
        /// The missing reference.
        metadata_reference: String,
    },
    /// The metadata was written by the Go implementation.
    #[error(
        "{reference} was written by the Go implementation of gitcd, which keeps its metadata in another way; run `gitcd init` to convert it: \
         keys, revisions and history stay"
    )]
    OfGo {
        /// The metadata reference.
        reference: String,
    },
    /// Both references were deleted.
    #[error(
        "{reference} and {metadata_reference} are gone, but gitcd recorded them at {} and {}; restore them with `git update-ref`, or \
         delete {file:?} to begin anew", pair.data, pair.metadata
    )]
    Vanished {
        /// The data reference.
        reference: String,
        /// The metadata reference.
        metadata_reference: String,
        /// Their last recorded targets.
        pair: super::CommittedHeads,
        /// The file with the record.
        file: PathBuf,
    },
    /// The commits cannot be read.
    #[error(transparent)]
    Load(#[from] LoadError),
    /// A reference cannot be read, or an interrupted move cannot be completed.
    #[error(transparent)]
    Reference(#[from] RefError),
    /// The recorded heads cannot be read or written.
    #[error(transparent)]
    CommittedHeads(#[from] CommittedHeadsError),
}

impl OpenError {
    /// Explains why libgit2 cannot open a repository at `path`.
    pub fn not_a_repository(path: &Path, said: &git2::Error) -> Self {
        let problem = if path.is_file() {
            "it is a file; --repo takes the folder of a repository".to_owned()
        } else if !path.exists() {
            "the folder does not exist; create it with `gitcd init`".to_owned()
        } else if let Err(unreadable) = std::fs::File::open(path.join("HEAD"))
            && unreadable.kind() == std::io::ErrorKind::PermissionDenied
        {
            format!("its HEAD cannot be read: {unreadable}; run gitcd as the owner of the repository")
        } else if said.code() == git2::ErrorCode::NotFound {
            "it has something else in it; name a repository with --repo, or an empty or a new folder for `gitcd init`"
                .to_owned()
        } else {
            said.message().to_owned()
        };
        Self::NotARepository { path: path.to_owned(), problem }
    }
}

/// Why a branch could not be created.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum CreateError {
    /// The branch exists already.
    #[error(
        "{reference} exists already; name another repository with --repo, or another branch with \
         --data-reference-names=NAME=refs/heads/NAME"
    )]
    Exists {
        /// The reference.
        reference: String,
    },
    /// The repository cannot be created.
    #[error("cannot create a repository in {path:?}: {}", said.message())]
    Repository {
        /// The folder.
        path: PathBuf,
        /// libgit2's error.
        said: git2::Error,
    },
    /// The file system returned an error.
    #[error(transparent)]
    Io(#[from] durable::Error),
    /// Some of the keys cannot be committed.
    #[error(transparent)]
    Commit(#[from] CommitError),
    /// The existing repository cannot be opened.
    #[error(transparent)]
    Open(#[from] OpenError),
    /// The first commits cannot be written.
    #[error(transparent)]
    Flush(#[from] FlushError),
}

fn counted(files: usize) -> String {
    if files == 1 { "a file".into() } else { format!("{files} files") }
}

fn listed(files: &[(String, String)], more: usize) -> String {
    let mut lines: Vec<String> = files.iter().map(|(path, reason)| format!("\n  {path}: {reason}")).collect();
    if more > 0 {
        lines.push(format!("\n  and {more} more"));
    }
    lines.concat()
}

/// Why the metadata could not be derived from existing data.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum AdoptError {
    /// The data reference does not exist.
    #[error("{reference} does not exist")]
    NoData {
        /// The data reference.
        reference: String,
    },
    /// The metadata exists already.
    #[error("{reference} exists already; delete it with `git update-ref -d {reference}` to derive it anew")]
    Exists {
        /// The metadata reference.
        reference: String,
    },
    /// Files that cannot be keys.
    #[error(
        "{} of {reference} (commit {commit}) cannot be {}: change, rename or remove {}, and commit that:{}",
        counted(files.len() + more), if files.len() + more == 1 { "a key" } else { "keys" },
        if files.len() + more == 1 { "it" } else { "them" }, listed(files, *more)
    )]
    Files {
        /// The data reference.
        reference: String,
        /// The data commit.
        commit: Oid,
        /// Their paths, each with what is wrong.
        files: Vec<(String, String)>,
        /// Number of further files.
        more: usize,
    },
    /// The history would leave too few revisions.
    #[error("{commits} commits from revision {revision} on leave no room for writes to come; start with a lower one")]
    Start {
        /// The requested first revision.
        revision: i64,
        /// Number of commits in the history.
        commits: usize,
    },
    /// The history cannot be read.
    #[error(transparent)]
    History(#[from] TreeError),
    /// The data cannot be read.
    #[error(transparent)]
    Load(#[from] LoadError),
    /// The repository cannot be opened.
    #[error(transparent)]
    Open(#[from] OpenError),
    /// The metadata cannot be written.
    #[error(transparent)]
    Flush(#[from] FlushError),
}
