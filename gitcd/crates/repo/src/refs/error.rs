//! Why a reference could not be read or moved.
use std::path::PathBuf;

use git2::Oid;
use gitcd_core::durable;

use super::MAX_SYMBOLIC;

/// Why a reference could not be read or moved.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum RefError {
    /// The reference has another value than the caller expected.
    #[error("reference {name}: expected {}, found {}", show(*.expected), show(*.found))]
    Moved {
        /// The reference, after following symbolic ones.
        name: String,
        /// What the caller expected.
        expected: Option<Oid>,
        /// Its actual value.
        found: Option<Oid>,
    },
    /// Another process holds the lock, or died holding it.
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
        /// The conflicting reference.
        existing: String,
    },
    /// The name is not a full reference name.
    #[error("{name:?} is not the name of a reference; it must look like refs/heads/main")]
    Invalid {
        /// The given name.
        name: String,
    },
    /// A chain of symbolic references is too long or cyclic.
    #[error("reference {name}: more than {MAX_SYMBOLIC} symbolic references in a row")]
    Symbolic {
        /// The start of the chain.
        name: String,
    },
    /// A file of Git has invalid content, as after a power loss.
    #[error("{path:?}: does not hold a reference; restore it or delete it")]
    Corrupt {
        /// The file.
        path: PathBuf,
    },
    /// The repository stores references in a format that gitcd cannot write.
    #[error("repository {path:?}: references are stored as {storage:?}; run `git refs migrate --ref-format=files`")]
    Storage {
        /// The repository.
        path: PathBuf,
        /// The value of `extensions.refStorage`.
        storage: String,
    },
    /// The repository cannot be opened.
    #[error("repository {path:?}: cannot open")]
    Open {
        /// Its path.
        path: PathBuf,
        /// Why it cannot be opened.
        source: git2::Error,
    },
    /// A file or folder cannot be read or written.
    #[error("{path:?}: cannot read or write this part of the references")]
    Io {
        /// The file or folder.
        path: PathBuf,
        /// The system's error.
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
