//! The repository of a branch.

use std::fs;
use std::io;
use std::path::Path;

use git2::{Repository, RepositoryInitOptions};
use gitcd_core::durable;

use super::{Config, CreateError, OpenError};

/// Opens the repository at a path; `None` if there is nothing, or only gitcd's own folder.
pub fn open_repository(path: &Path) -> Result<Option<Repository>, OpenError> {
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

/// Returns whether there is nothing at a path, or only gitcd's own folder.
///
/// # Errors
/// [`OpenError::Io`] if the path cannot be read, [`OpenError::NotARepository`] for a file.
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

/// What [`init`] creates in its folder.
const PARTS: [&str; 9] = ["HEAD", "branches", "config", "description", "gitcd", "hooks", "info", "objects", "refs"];
/// Where [`init`] first creates all of it, in the repository's folder. No branch has this name: names do not start with a dot.
const DRAFT: &str = "gitcd/.new.git";
/// The file that makes a folder a repository.
const HEAD: &str = "HEAD";

/// Returns whether a folder is an incomplete [`init`]: it contains the draft, some of the parts, and nothing else. Then it can be
/// created again.
fn is_half_made(path: &Path) -> bool {
    let is_ours = |entry: fs::DirEntry| entry.file_name().to_str().is_some_and(|name| PARTS.contains(&name));
    let Ok(mut entries) = fs::read_dir(path) else { return false };
    path.join(DRAFT).is_dir()
        && !path.join(HEAD).exists()
        && entries.all(|entry| entry.is_ok_and(is_ours))
        && ["objects", "refs"].iter().all(|part| is_without_files(&path.join(part)))
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

/// Creates a bare repository, durably: after a loss of power it is either complete, or not a repository and can be created again.
pub fn init(config: &Config) -> Result<Repository, CreateError> {
    let path = &config.repository;
    let draft = path.join(DRAFT);
    // Left by a crash.
    remove(&draft)?;
    durable::make_folder(&draft)?;
    let mut options = RepositoryInitOptions::new();
    options.bare(true).no_reinit(true).external_template(false).initial_head(&config.data_reference);
    let failed = |said| CreateError::Repository { path: path.clone(), said };
    Repository::init_opts(&draft, &options).map_err(failed)?;
    // libgit2 does not sync.
    sync_below(&draft)?;
    let parts = fs::read_dir(&draft).and_then(Iterator::collect::<io::Result<Vec<_>>>);
    let parts = parts.map_err(durable::Error::of("read", &draft))?;
    for part in parts.iter().map(fs::DirEntry::file_name).filter(|part| part != HEAD) {
        remove(&path.join(&part))?;
        durable::rename(&draft.join(&part), &path.join(&part))?;
    }
    durable::sync(path)?;
    // Until now, the folder is not a repository.
    durable::rename(&draft.join(HEAD), &path.join(HEAD))?;
    finish(path)?;
    Repository::open_bare(path).map_err(failed)
}

/// Does the last steps of [`init`], which a killed process may have missed.
pub(super) fn finish(git_dir: &Path) -> Result<(), durable::Error> {
    durable::sync_all(&[git_dir, &git_dir.join("..")])?;
    remove(&git_dir.join(DRAFT))
}

/// Syncs all files and folders below a folder.
fn sync_below(folder: &Path) -> Result<(), durable::Error> {
    for entry in fs::read_dir(folder).map_err(durable::Error::of("read", folder))? {
        let path = entry.map_err(durable::Error::of("read", folder))?.path();
        if path.is_dir() { sync_below(&path)? } else { durable::sync(&path)? }
    }
    durable::sync(folder)
}

/// Removes a file or folder if it exists.
fn remove(path: &Path) -> Result<(), durable::Error> {
    let removed = if path.is_dir() { fs::remove_dir_all(path) } else { fs::remove_file(path) };
    match removed {
        Err(error) if error.kind() != io::ErrorKind::NotFound => Err(durable::Error::of("remove", path)(error)),
        _ => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::branch::DEFAULT_NAME;

    #[test]
    fn what_a_crash_left_of_a_new_repository_is_made_again_and_what_others_made_is_not() {
        let parts: [&[&str]; 5] = [
            &["gitcd/.new.git/objects/", "gitcd/.new.git/HEAD"],
            &["gitcd/.new.git/", "objects/pack/", "objects/info/"],
            &["gitcd/.new.git/HEAD", "objects/", "refs/tags/", "description", "config"],
            &["gitcd/.new.git/", "info/exclude", "hooks/", "gitcd/default/lock"],
            &["gitcd/.new.git/refs/heads/", "gitcd/.new.git/_git2_488837e3de73a8b4", "gitcd/.new.git/HEAD.lock"],
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
            init(&Config::named(path.clone(), DEFAULT_NAME)).unwrap();
            let repository = open_repository(&path).unwrap().unwrap();
            assert!(repository.is_bare() && repository.references().unwrap().next().is_none(), "{parts:?}");
            assert_eq!(fs::read_to_string(path.join(HEAD)).unwrap(), "ref: refs/heads/main\n", "{parts:?}");
            assert!(!path.join(DRAFT).exists(), "{parts:?}");
        }
        let others: [&[&str]; 6] = [
            &["config"],
            &["objects/", "refs/"],
            &["gitcd/.new.git/", "thesis.tex"],
            &["gitcd/.new.git/", "objects/ab/cdef"],
            &["gitcd/.new.git/", "refs/heads/main"],
            &["gitcd/.new.git/", "HEAD"],
        ];
        for (number, parts) in others.into_iter().enumerate() {
            let path = made(10 + number, parts);
            assert!(open_repository(&path).is_err(), "{parts:?}");
            assert!(parts.iter().all(|part| path.join(part).exists()), "{parts:?}");
        }
    }
}
