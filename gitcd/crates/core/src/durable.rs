//! Files and folders that are on disk when a call returns, whatever becomes of the machine after it.
//!
//! To a file system, a file's content and its entry in a folder are two things, and each takes an fsync of its own. What
//! is here does both, in an order in which a crash at any moment leaves either the old state or the new one.
//! An fsync that failed is never tried again: the system may have dropped what it could not write, and would report success.

use std::fs::{self, File, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

/// What could not be done, and on what.
#[derive(Debug, thiserror::Error)]
#[error("cannot {action} {path:?}")]
pub struct Error {
    /// What was tried.
    pub action: &'static str,
    /// The file or folder.
    pub path: PathBuf,
    /// What the system said.
    pub source: io::Error,
}

impl Error {
    /// For `map_err`.
    pub fn of(action: &'static str, path: &Path) -> impl FnOnce(io::Error) -> Self {
        let path = path.to_owned();
        move |source| Self { action, path, source }
    }
}

/// Makes the content of a file durable, or the entries of a folder: what was made in it, renamed into it or deleted from
/// it. One fsync.
///
/// # Errors
/// [`Error`]; it is then unknown what is durable.
pub fn sync(path: &Path) -> Result<(), Error> {
    File::open(path).and_then(|file| file.sync_all()).map_err(Error::of("fsync", path))
}

/// The same for several at once, which takes about as long as one.
///
/// # Errors
/// [`Error`] of one of them.
pub fn sync_all(paths: &[&Path]) -> Result<(), Error> {
    let Some((first, others)) = paths.split_first() else { return Ok(()) };
    std::thread::scope(|scope| {
        let others: Vec<_> = others
            .iter()
            .map(|path| std::thread::Builder::new().spawn_scoped(scope, || sync(path)).map_err(|_| *path))
            .collect();
        let mut outcome = sync(first);
        for other in others {
            let synced = match other {
                Ok(thread) => thread.join().expect("an fsync does not panic"),
                // There is no thread to be had.
                Err(path) => sync(path),
            };
            outcome = outcome.and(synced);
        }
        outcome
    })
}

/// Makes a folder and the missing ones above it. One fsync for each that was missing.
///
/// # Errors
/// [`Error`]; some of them may be there then.
pub fn make_folder(folder: &Path) -> Result<(), Error> {
    let missing: Vec<_> = folder.ancestors().take_while(|folder| !folder.exists()).collect();
    fs::create_dir_all(folder).map_err(Error::of("create", folder))?;
    missing.iter().filter_map(|made| made.parent()).try_for_each(sync)
}

/// Makes a folder and the missing ones above it up to `root`, which has to be there: a repository that was moved away meanwhile
/// does not get a hollow one in its place, which would be in the way when it comes back. One fsync for each that was missing.
///
/// # Errors
/// [`Error`]; some of them may be there then.
///
/// # Panics
/// If `folder` is not below `root`.
pub fn make_folder_in(root: &Path, folder: &Path) -> Result<(), Error> {
    if folder.is_dir() {
        return Ok(());
    }
    let mut made = root.to_path_buf();
    for name in folder.strip_prefix(root).expect("it is below the root") {
        let above = made.clone();
        made.push(name);
        match fs::create_dir(&made) {
            Ok(()) => sync(&above)?,
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists && made.is_dir() => {}
            Err(error) => return Err(Error::of("create", &made)(error)),
        }
    }
    Ok(())
}

/// Writes a new file with these permissions, and syncs its content; its entry in the folder is the caller's to sync, who
/// will rename or link it. One fsync.
///
/// # Errors
/// [`Error`], among others if there is such a file; a part of it may be there then.
pub fn create(path: &Path, mode: u32, content: &[u8]) -> Result<(), Error> {
    finish(&mut create_new(path, mode)?, path, content)
}

/// The same without the fsync, which is the caller's, too.
///
/// # Errors
/// [`Error`], as [`create`].
pub fn draft(path: &Path, mode: u32, content: &[u8]) -> Result<(), Error> {
    create_new(path, mode)?.write_all(content).map_err(Error::of("write", path))
}

fn create_new(path: &Path, mode: u32) -> Result<File, Error> {
    OpenOptions::new().write(true).create_new(true).mode(mode).open(path).map_err(Error::of("create", path))
}

/// Gives a file this content, whether it was there or not: after a crash at any moment it has the former content or this
/// one, never a part of either. Two fsyncs; the new content is written beside it, in a file that ends with `.new`.
///
/// # Errors
/// [`Error`]; the former content stays, unless the last step failed (the fsync of the folder): then it is the new one, but
/// a crash may bring the former one back.
pub fn replace(path: &Path, content: &[u8]) -> Result<(), Error> {
    let temporary = path.with_extension("new");
    // What a crash left of an earlier one is overwritten.
    let mut file = File::create(&temporary).map_err(Error::of("create", &temporary))?;
    finish(&mut file, &temporary, content)?;
    rename(&temporary, path)?;
    path.parent().map_or(Ok(()), sync)
}

/// Gives a file another name in the same folder, whose entries are the caller's to sync.
///
/// # Errors
/// [`Error`]; the names are as before.
pub fn rename(from: &Path, to: &Path) -> Result<(), Error> {
    fs::rename(from, to).map_err(Error::of("replace", to))
}

fn finish(file: &mut File, path: &Path, content: &[u8]) -> Result<(), Error> {
    file.write_all(content).map_err(Error::of("write", path))?;
    file.sync_all().map_err(Error::of("fsync", path))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_is_replaced_whole_and_nothing_is_left_beside_it() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("file");
        // A crash left this.
        fs::write(folder.path().join("file.new"), "a part of something long").unwrap();
        for content in ["first", "second", ""] {
            replace(&path, content.as_bytes()).unwrap();
            assert_eq!(fs::read_to_string(&path).unwrap(), content);
            assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 1);
        }
    }

    #[test]
    fn folders_are_made_in_what_is_there_only() {
        let folder = tempfile::tempdir().unwrap();
        let (root, away) = (folder.path().join("up.git"), folder.path().join("away.git"));
        fs::create_dir(&root).unwrap();
        let below = root.join("objects/pack");
        for _ in 0..2 {
            make_folder_in(&root, &below).unwrap();
            assert!(below.is_dir());
        }
        fs::write(root.join("file"), "").unwrap();
        let error = make_folder_in(&root, &root.join("file/pack")).unwrap_err();
        assert!(error.to_string().contains("file"), "{error}");
        fs::rename(&root, &away).unwrap();
        make_folder_in(&root, &below).unwrap_err();
        assert!(!root.exists(), "nothing is in the way of what comes back");
    }

    #[test]
    fn a_file_that_cannot_be_replaced_stays_and_the_error_says_what_failed() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("file");
        fs::create_dir_all(path.join("below")).unwrap();
        let error = replace(&path, b"new").unwrap_err();
        assert_eq!((error.action, &error.path), ("replace", &path));
        assert!(path.join("below").is_dir());
        let absent = folder.path().join("none/file");
        let error = replace(&absent, b"new").unwrap_err();
        assert_eq!((error.action, error.source.kind()), ("create", io::ErrorKind::NotFound));
    }

    #[test]
    fn a_new_file_is_not_written_over_another() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("file");
        create(&path, 0o444, b"first").unwrap();
        assert_eq!(create(&path, 0o444, b"second").unwrap_err().source.kind(), io::ErrorKind::AlreadyExists);
        assert_eq!(fs::read(&path).unwrap(), b"first");
        assert!(fs::metadata(&path).unwrap().permissions().readonly());
    }

    #[test]
    fn folders_are_made_with_those_above_them() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("a/b/c");
        make_folder(&path).unwrap();
        make_folder(&path).unwrap();
        assert!(path.is_dir());
        fs::write(path.join("file"), "").unwrap();
        assert!(make_folder(&path.join("file")).is_err());
    }
}
