//! Files of a pack before they are visible.

use std::fs::{self, File, OpenOptions};
use std::io::{self, Write as _};
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::{Path, PathBuf};

use gitcd_core::durable;

/// Why a pack could not be written. Nothing of it is visible to readers of the repository.
#[derive(Debug, thiserror::Error)]
#[error("cannot {action} {path:?}; the repository is unchanged")]
pub struct WriteError {
    action: &'static str,
    path: PathBuf,
    source: io::Error,
}

impl From<durable::Error> for WriteError {
    fn from(error: durable::Error) -> Self {
        let durable::Error { action, path, source } = error;
        Self { action, path, source }
    }
}

/// Returns the path of a new file. `git prune` removes files that start with `tmp_` if a crash leaves them.
pub(super) fn temporary_path(folder: &Path, what: &str) -> PathBuf {
    folder.join(format!("tmp_{what}_{:016x}", rand::random::<u64>()))
}

/// A file to be renamed; removed on drop otherwise.
#[derive(Debug)]
pub(super) struct TemporaryFile {
    path: Option<PathBuf>,
    /// Open until the end: so an fsync, by whatever descriptor, reports that an earlier write-back failed.
    file: File,
}

impl TemporaryFile {
    /// Takes over a file.
    pub(super) fn of(path: PathBuf, file: File) -> Self {
        Self { path: Some(path), file }
    }

    /// Creates a file that others can only read.
    pub(super) fn write(path: PathBuf, bytes: &[u8]) -> Result<Self, WriteError> {
        let mut options = OpenOptions::new();
        let file = options.write(true).create_new(true).mode(0o444).open(&path);
        let file = file.map_err(durable::Error::of("create", &path))?;
        let mut temporary = Self::of(path, file);
        temporary.file.write_all(bytes).map_err(durable::Error::of("write", temporary.path()))?;
        Ok(temporary)
    }

    pub(super) fn content(&mut self) -> &mut File {
        &mut self.file
    }

    pub(super) fn path(&self) -> &Path {
        self.path.as_deref().expect("a temporary file has its path until it is renamed")
    }

    pub(super) fn rename(mut self, to: &Path) -> Result<(), WriteError> {
        let from = self.path.take().expect("a temporary file has its path until it is renamed");
        durable::rename(&from, to).map_err(|error| {
            self.path = Some(from);
            error.into()
        })
    }
}

impl Drop for TemporaryFile {
    fn drop(&mut self) {
        if let Some(path) = &self.path {
            // Nothing refers to the file; `git prune` would remove it too.
            drop(fs::remove_file(path));
        }
    }
}
