//! The repository that a branch lives in.

use std::fs;
use std::io;
use std::path::Path;

use git2::{Repository, RepositoryInitOptions};

use super::{Config, CreateError, OpenError};
use crate::durable;

/// The repository at a path; `None` if nothing is there, or nothing but gitcd's own folder.
pub(crate) fn open_repository(path: &Path) -> Result<Option<Repository>, OpenError> {
    let below = path.join(".git");
    let path = if below.is_dir() { below.as_path() } else { path };
    if is_absent(path)? {
        return Ok(None);
    }
    match Repository::open_bare(path) {
        Ok(repository) => Ok(Some(repository)),
        Err(said) => Err(OpenError::not_a_repository(path, &said)),
    }
}

/// Whether nothing is at a path, or nothing but gitcd's own folder.
///
/// # Errors
/// [`OpenError::Io`] if that cannot be seen, [`OpenError::NotARepository`] for a file.
pub fn is_absent(path: &Path) -> Result<bool, OpenError> {
    is_free(path).map_err(|source| match source.kind() {
        io::ErrorKind::NotADirectory => OpenError::not_a_repository(path, &git2::Error::from_str("no folder")),
        _ => OpenError::Io { path: path.into(), source },
    })
}

fn is_free(path: &Path) -> io::Result<bool> {
    match fs::read_dir(path) {
        Ok(entries) => {
            for entry in entries {
                if entry?.file_name() != "gitcd" {
                    return Ok(false);
                }
            }
            Ok(true)
        }
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(true),
        Err(error) => Err(error),
    }
}

/// Makes a bare repository, durably.
pub(crate) fn init(config: &Config) -> Result<Repository, CreateError> {
    let path = &config.repository;
    let mut options = RepositoryInitOptions::new();
    options.bare(true).no_reinit(true).external_template(false).mkpath(true).initial_head(&config.data_reference);
    let repository =
        Repository::init_opts(path, &options).map_err(|said| CreateError::Repository { path: path.clone(), said })?;
    let git_dir = repository.path();
    // libgit2 leaves this to the system: after a power loss there would be commits in a folder that is no repository.
    for name in ["HEAD", "config", "refs/heads", "refs", "objects/pack", "objects", ".", ".."] {
        durable::sync(&git_dir.join(name))?;
    }
    Ok(repository)
}
