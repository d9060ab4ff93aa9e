//! Why a reference could not be read or moved.
use std::path::PathBuf;

use git2::Oid;
use gitcd_core::durable;

use super::MAX_SYMBOLIC;

/// Why a reference could not be read or moved.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum RefError {
    /// The reference has another value than the caller believed.
    #[error("reference {name}: expected {}, found {}", show(*.expected), show(*.found))]
    Moved {
        /// The reference, after following symbolic ones.
        name: String,
        /// What the caller expected.
        expected: Option<Oid>,
        /// What it really refers to.
        found: Option<Oid>,
    },
    /// Somebody else holds the lock, or died holding it.
    #[error("{path:?} exists: another process is changing this reference; if none is, delete the file")]
    Locked {
        /// The lock file.
        path: PathBuf,
    },
    /// The new name is a folder of an existing one, or the other way round.
    #[error("reference {name}: cannot be created while {existing} exists; delete or rename one of them")]
    Conflict {
        /// The reference to be created.
        name: String,
        /// The one that is in its way.
        existing: String,
    },
    /// Not the full name of a reference.
    #[error("{name:?} is not the name of a reference; it must look like refs/heads/main")]
    Invalid {
        /// What was given.
        name: String,
    },
    /// A chain of symbolic references that is too long or goes in a circle.
    #[error("reference {name}: more than {MAX_SYMBOLIC} symbolic references in a row")]
    Symbolic {
        /// Where the chain begins.
        name: String,
    },
    /// A file of Git's that holds something else than it should, as after a power loss.
    #[error("{path:?}: does not hold a reference; restore it or delete it")]
    Corrupt {
        /// The file.
        path: PathBuf,
    },
    /// The repository keeps its references in a way that gitcd cannot write.
    #[error("repository {path:?}: references are stored as {storage:?}; run `git refs migrate --ref-format=files`")]
    Storage {
        /// The repository.
        path: PathBuf,
        /// The value of `extensions.refStorage`.
        storage: String,
    },
    /// There is no usable repository.
    #[error("repository {path:?}: cannot open")]
    Open {
        /// Where it was looked for.
        path: PathBuf,
        /// Why it cannot be opened.
        source: git2::Error,
    },
    /// The file system refused something.
    #[error("{path:?}: cannot read or write this part of the references")]
    Io {
        /// The file or folder.
        path: PathBuf,
        /// What it answered.
        source: std::io::Error,
    },
}

fn show(id: Option<Oid>) -> String {
    id.map_or_else(|| "no such reference".to_owned(), |id| id.to_string())
}

impl From<durable::Error> for RefError {
    fn from(error: durable::Error) -> Self {
        let durable::Error { path, source, .. } = error;
        Self::Io { path, source }
    }
}
