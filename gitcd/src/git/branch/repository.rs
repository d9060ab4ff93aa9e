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
        Err(_) if is_half_made(path) => Ok(None),
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

/// What [`init`] makes in its folder.
const PARTS: [&str; 9] = ["HEAD", "branches", "config", "description", "gitcd", "hooks", "info", "objects", "refs"];

/// libgit2 tries what the file system can with a link of this name, and goes on.
const PROBE: &str = "_git2_";

/// Whether a folder is what a crash has left of [`init`]: some of its parts, and nothing of anybody in them. It may be made again.
fn is_half_made(path: &Path) -> bool {
    let is_ours = |entry: fs::DirEntry| {
        let name = entry.file_name();
        // A file is written beside its place first.
        let name = name.to_str().map(|name| name.strip_suffix(".lock").unwrap_or(name));
        name.is_some_and(|name| PARTS.contains(&name) || name.starts_with(PROBE))
    };
    let Ok(mut entries) = fs::read_dir(path) else { return false };
    entries.all(|entry| entry.is_ok_and(is_ours))
        && ["objects", "refs"].iter().all(|part| is_without_files(&path.join(part)))
}

/// Removes what would keep libgit2 from making the rest, and what it would leave.
fn clear(path: &Path) {
    for entry in fs::read_dir(path).into_iter().flatten().flatten() {
        let name = entry.file_name();
        if name == "HEAD.lock" || name == "config.lock" || name.as_encoded_bytes().starts_with(PROBE.as_bytes()) {
            // If it cannot be removed, whoever needs it says so.
            let _ = fs::remove_file(entry.path());
        }
    }
}

fn is_without_files(folder: &Path) -> bool {
    match fs::read_dir(folder) {
        Ok(mut entries) => entries.all(|entry| {
            entry
                .is_ok_and(|entry| entry.file_type().is_ok_and(|kind| kind.is_dir()) && is_without_files(&entry.path()))
        }),
        Err(error) => error.kind() == io::ErrorKind::NotFound,
    }
}

/// Makes a bare repository, durably.
pub(crate) fn init(config: &Config) -> Result<Repository, CreateError> {
    let path = &config.repository;
    clear(path);
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_crash_left_of_a_new_repository_is_made_again_and_what_others_made_is_not() {
        let parts: [&[&str]; 6] = [
            &["objects/pack/", "objects/info/"],
            &["objects/", "refs/heads/", "HEAD.lock"],
            &["objects/", "refs/tags/", "description", "config.lock"],
            &["info/", "hooks/", "gitcd/"],
            &["objects/", "refs/heads/", "config", "_git2_488837e3de73a8b4"],
            &["config"],
        ];
        let folder = tempfile::tempdir().unwrap();
        let made = |number: usize, parts: &[&str]| {
            let path = folder.path().join(number.to_string());
            for part in parts {
                let at = path.join(part);
                if part.ends_with('/') {
                    fs::create_dir_all(at).unwrap();
                } else {
                    fs::create_dir_all(at.parent().unwrap()).unwrap();
                    fs::write(at, "").unwrap();
                }
            }
            path
        };
        for (number, parts) in parts.into_iter().enumerate() {
            let path = made(number, parts);
            assert!(matches!(open_repository(&path), Ok(None)), "{parts:?}");
            clear(&path);
            assert!(!path.join("_git2_488837e3de73a8b4").exists());
            let mut options = RepositoryInitOptions::new();
            options.bare(true).no_reinit(true).external_template(false);
            Repository::init_opts(&path, &options).unwrap();
            assert!(matches!(open_repository(&path), Ok(Some(_))), "{parts:?}");
        }
        for (number, parts) in
            [&["config", "thesis.tex"][..], &["objects/ab/cdef"], &["refs/heads/main"]].into_iter().enumerate()
        {
            let path = made(10 + number, parts);
            assert!(open_repository(&path).is_err(), "{parts:?}");
        }
    }
}
