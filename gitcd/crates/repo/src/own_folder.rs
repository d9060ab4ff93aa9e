//! Files in gitcd's own folder of a repository. Every user who can read the repository can read them: they have the permissions of its
//! `HEAD`, and its owner if this process is root.

use std::fs::File;
use std::io;
use std::path::Path;

use gitcd_core::durable::{self, Access, Error};

use super::boundary::FOLDER;

fn access(git_dir: &Path) -> Result<Access, Error> {
    Access::of(&git_dir.join("HEAD"))
}

/// Creates gitcd's folder, if it does not exist, and gives it the access of the repository. An older one may be private.
///
/// # Errors
/// [`Error`].
pub fn make(git_dir: &Path) -> Result<(), Error> {
    make_below(git_dir, &git_dir.join(FOLDER))
}

/// Does the same with gitcd's folder and a folder in it.
///
/// # Errors
/// [`Error`].
pub fn make_in(git_dir: &Path, folder: &Path) -> Result<(), Error> {
    make(git_dir)?;
    make_below(git_dir, folder)
}

fn make_below(git_dir: &Path, folder: &Path) -> Result<(), Error> {
    durable::make_folder_in(git_dir, folder)?;
    // A user who cannot list it cannot change its permissions either.
    match File::open(folder) {
        Err(error) if error.kind() == io::ErrorKind::PermissionDenied => Ok(()),
        opened => access(git_dir)?.grant(&opened.map_err(Error::of("open", folder))?, folder),
    }
}

/// Opens a file to lock, and creates it if it does not exist.
///
/// # Errors
/// [`Error`].
pub fn lock_file(git_dir: &Path, path: &Path) -> Result<File, Error> {
    let file = File::options().create(true).truncate(false).write(true).open(path);
    let file = file.map_err(Error::of("open", path))?;
    access(git_dir)?.grant(&file, path)?;
    Ok(file)
}

/// Creates a file or replaces its content, as [`durable::replace_with`] does.
///
/// # Errors
/// [`Error`].
pub fn replace_with(git_dir: &Path, path: &Path, write: impl FnOnce(&mut File) -> io::Result<()>) -> Result<(), Error> {
    durable::replace_as(path, access(git_dir)?, write)
}

/// Does the same with a content in memory.
///
/// # Errors
/// [`Error`].
pub fn replace(git_dir: &Path, path: &Path, content: &[u8]) -> Result<(), Error> {
    replace_with(git_dir, path, |file| io::Write::write_all(file, content))
}
