//! Files of gitcd in the folder of a repository that every user can read who can read the repository: they have the permissions of its
//! `HEAD`, and its owner if this process is root.

use std::fs::{DirBuilder, File, OpenOptions};
use std::io::{self, ErrorKind};
use std::os::unix::fs::{DirBuilderExt as _, OpenOptionsExt as _};
use std::path::Path;

use gitcd_core::durable::{self, Access, Error};

fn access(git_dir: &Path) -> Result<Access, Error> {
    Access::of(&git_dir.join("HEAD"))
}

/// Creates a folder in an existing one, if it does not exist.
///
/// # Errors
/// [`Error`].
pub(crate) fn make(git_dir: &Path, folder: &Path) -> Result<(), Error> {
    let failed = |error: io::Error| Error::of("create", folder)(error);
    match DirBuilder::new().mode(0o700).create(folder) {
        Ok(()) => access(git_dir)?.grant(&File::open(folder).map_err(failed)?, folder),
        Err(error) if error.kind() == ErrorKind::AlreadyExists && folder.is_dir() => return Ok(()),
        Err(error) => return Err(failed(error)),
    }
    folder.parent().map_or(Ok(()), durable::sync)
}

/// Opens a file to lock, and creates it if it does not exist. Only users who can write the repository can open it: a user who can
/// read a file can keep it locked.
///
/// # Errors
/// [`Error`].
pub(crate) fn lock_file(git_dir: &Path, path: &Path) -> Result<File, Error> {
    let failed = |error: io::Error| Error::of("open", path)(error);
    match OpenOptions::new().write(true).create_new(true).mode(durable::PRIVATE_FILE).open(path) {
        Ok(file) => {
            access(git_dir)?.of_writers().grant(&file, path);
            Ok(file)
        }
        Err(error) if error.kind() == ErrorKind::AlreadyExists => {
            OpenOptions::new().write(true).open(path).map_err(failed)
        }
        Err(error) => Err(failed(error)),
    }
}

/// Creates a file or replaces its content, as [`durable::replace_with`] does.
///
/// # Errors
/// [`Error`].
pub(crate) fn replace_with(
    git_dir: &Path,
    path: &Path,
    write: impl FnOnce(&mut File) -> io::Result<()>,
) -> Result<(), Error> {
    durable::replace_as(path, access(git_dir)?, write)
}

/// Does the same with a content in memory.
///
/// # Errors
/// [`Error`].
pub(crate) fn replace(git_dir: &Path, path: &Path, content: &[u8]) -> Result<(), Error> {
    replace_with(git_dir, path, |file| io::Write::write_all(file, content))
}
