//! The forks that share the objects of a repository.
//!
//! A fork is registered in its origin: a file with its path, and references that keep what the fork starts from. So no prune and no
//! cut of the origin's history removes what the fork needs.

use std::ffi::OsStr;
use std::fs;
use std::io;
use std::os::unix::ffi::OsStrExt as _;
use std::path::{Path, PathBuf};

use git2::{ObjectType, Oid};
use gitcd_core::durable;

use super::boundary::FOLDER;
use super::refs::{RefError, Refs};

/// A registered fork.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Fork {
    /// The Git directory of its repository.
    pub path: PathBuf,
    /// The references in the origin that keep what it starts from.
    pub references: [String; 2],
    /// The file that registers it.
    pub file: PathBuf,
}

/// Why forks cannot be listed or registered.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ForksError {
    /// A file cannot be read or written.
    #[error(transparent)]
    File(#[from] durable::Error),
    /// A reference cannot be written.
    #[error(transparent)]
    Reference(#[from] RefError),
}

impl Fork {
    fn new(origin: &Path, path: &Path) -> Result<Self, ForksError> {
        let bytes = path.as_os_str().as_bytes();
        let failed = |error: git2::Error| {
            durable::Error::of("hash the name of", path)(io::Error::other(error.message().to_owned()))
        };
        let name = Oid::hash_object(ObjectType::Blob, bytes).map_err(failed)?.to_string();
        let references = ["data", "metadata"].map(|kind| format!("refs/gitcd/forks/{name}/{kind}"));
        Ok(Self { path: path.to_owned(), references, file: origin.join(FOLDER).join("forks").join(name) })
    }

    /// Returns whether the fork still exists, and shares the objects of the repository in this folder.
    pub fn exists(&self, origin: &Path) -> bool {
        let objects = origin.join("objects").canonicalize().ok();
        let alternates = fs::read(self.path.join("objects/info/alternates")).unwrap_or_default();
        let mut shared = alternates.split(|byte| *byte == b'\n').map(|line| Path::new(OsStr::from_bytes(line)));
        objects.is_some_and(|objects| shared.any(|path| path == objects))
    }
}

/// Registers a fork that starts from these commits: of the data, and of the metadata.
///
/// # Errors
/// [`ForksError`]; the fork may be registered in part.
pub fn register(origin: &Path, path: &Path, commits: [Oid; 2]) -> Result<(), ForksError> {
    let fork = Fork::new(origin, path)?;
    durable::make_folder(&origin.join(FOLDER).join("forks"))?;
    durable::replace(&fork.file, path.as_os_str().as_bytes())?;
    let refs = Refs::open(origin)?;
    for (reference, oid) in fork.references.iter().zip(commits) {
        refs.set(reference, oid)?;
    }
    Ok(())
}

/// Returns the registered forks of the repository in this folder, also those that no longer exist.
///
/// # Errors
/// [`ForksError::File`].
pub fn registered(origin: &Path) -> Result<Vec<Fork>, ForksError> {
    let folder = origin.join(FOLDER).join("forks");
    let entries = match fs::read_dir(&folder) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
        entries => entries.map_err(durable::Error::of("read", &folder))?,
    };
    let mut found = Vec::new();
    for entry in entries {
        let file = entry.map_err(durable::Error::of("read", &folder))?.path();
        // Left by a crash.
        if file.extension().is_some_and(|extension| extension == "new") {
            continue;
        }
        let path = fs::read(&file).map_err(durable::Error::of("read", &file))?;
        found.push(Fork::new(origin, Path::new(OsStr::from_bytes(&path)))?);
    }
    found.sort_by(|one, other| one.path.cmp(&other.path));
    Ok(found)
}
