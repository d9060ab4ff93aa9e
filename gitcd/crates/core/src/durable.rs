//! Files and folders that survive a crash of the machine once the call returns.
//!
//! A file's content and its directory entry are synced separately, each by its own fsync. These functions order both so that a
//! crash at any moment leaves either the old state or the new one.
//! A failed fsync is never retried: the kernel may have dropped the dirty pages, and would report success.

use std::fs::{self, DirBuilder, File, OpenOptions, Permissions};
use std::io::{self, Write};
use std::os::unix::fs::{DirBuilderExt, MetadataExt as _, OpenOptionsExt, PermissionsExt as _, fchown};
use std::path::{Path, PathBuf};

/// A failed file-system operation.
#[derive(Debug, thiserror::Error)]
#[error("cannot {action} {path:?}")]
pub struct Error {
    /// The operation, as in "cannot … PATH".
    pub action: &'static str,
    /// The file or folder.
    pub path: PathBuf,
    /// The system's error.
    pub source: io::Error,
}

impl Error {
    /// Returns a closure for `map_err`.
    pub fn of(action: &'static str, path: &Path) -> impl FnOnce(io::Error) -> Self {
        let path = path.to_owned();
        move |source| Self { action, path, source }
    }
}

/// Makes a file's content durable, or a folder's entries: what was created in it, renamed into it or deleted from it. One fsync.
///
/// # Errors
/// [`Error`]; what is durable is then unknown.
pub fn sync(path: &Path) -> Result<(), Error> {
    File::open(path).and_then(|file| file.sync_all()).map_err(Error::of("fsync", path))
}

/// Syncs several paths concurrently, which takes about as long as one [`sync`].
///
/// # Errors
/// The [`Error`] of one of them.
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
                // The system has no thread to spare.
                Err(path) => sync(path),
            };
            outcome = outcome.and(synced);
        }
        outcome
    })
}

/// Returns the paths of what is in a folder, in no order; nothing if the folder does not exist.
///
/// # Errors
/// [`Error`] if it cannot be read.
pub fn entries(folder: &Path) -> Result<Vec<PathBuf>, Error> {
    let failed = |error: io::Error| Error::of("read", folder)(error);
    match fs::read_dir(folder) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(Vec::new()),
        Err(error) => Err(failed(error)),
        Ok(entries) => entries.map(|entry| Ok(entry.map_err(failed)?.path())).collect(),
    }
}

/// Permissions of files that only their owner can access.
pub const PRIVATE_FILE: u32 = 0o600;
/// Permissions of folders that only their owner can access.
const PRIVATE_FOLDER: u32 = 0o700;

/// Who can access a file or folder: its permissions and its owner.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Access {
    mode: u32,
    owner: Option<(u32, u32)>,
}

impl Access {
    /// Access for the user of this process only.
    pub const PRIVATE: Self = Self { mode: PRIVATE_FILE, owner: None };

    /// Returns the access of an existing file, for others beside it; [`Self::PRIVATE`] if the file does not exist.
    ///
    /// # Errors
    /// [`Error`] if its metadata cannot be read.
    pub fn of(model: &Path) -> Result<Self, Error> {
        match fs::metadata(model) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(Self::PRIVATE),
            Err(error) => Err(Error::of("read", model)(error)),
            Ok(found) => {
                Ok(Self { mode: (found.mode() & 0o666) | PRIVATE_FILE, owner: Some((found.uid(), found.gid())) })
            }
        }
    }

    /// Returns the access only for users who can also write: for a file that is locked.
    #[must_use]
    pub fn of_writers(self) -> Self {
        let write = self.mode & 0o222;
        Self { mode: write | (write << 1) | PRIVATE_FILE, ..self }
    }

    /// Gives a file or folder that this process has just created this access, as far as the system allows: only root changes owners, and
    /// some file systems have none. Users who can read a folder can also open what is in it.
    pub fn grant(self, file: &File, path: &Path) {
        let Ok(found) = file.metadata() else { return };
        let logged = |result: io::Result<()>| {
            if let Err(error) = result {
                tracing::debug!(path = %path.display(), %error, "the access is not changed");
            }
        };
        if let Some((user, group)) = self.owner {
            if group != found.gid() {
                logged(fchown(file, None, Some(group)));
            }
            if user != found.uid() {
                logged(fchown(file, Some(user), None));
            }
        }
        let mode = if found.is_dir() { self.mode | ((self.mode & 0o444) >> 2) } else { self.mode };
        if found.mode() & 0o777 != mode {
            logged(file.set_permissions(Permissions::from_mode((found.mode() & 0o7000) | mode)));
        }
    }
}

/// Creates a folder and its missing parents, which only their owner can access. One fsync for each that was missing.
///
/// # Errors
/// [`Error`]; some of them may exist then.
pub fn make_folder(folder: &Path) -> Result<(), Error> {
    let missing: Vec<_> = folder.ancestors().take_while(|folder| !folder.exists()).collect();
    let mut builder = DirBuilder::new();
    builder.recursive(true).mode(PRIVATE_FOLDER).create(folder).map_err(Error::of("create", folder))?;
    missing.iter().filter_map(|made| made.parent()).try_for_each(sync)
}

/// Creates a folder and its missing parents below `root`, which must exist: if a repository was moved away, no empty one is
/// created that would block moving it back. One fsync for each that was missing.
///
/// # Errors
/// [`Error`]; some of them may exist then.
///
/// # Panics
/// If `folder` is not below `root`.
pub fn make_folder_in(root: &Path, folder: &Path) -> Result<(), Error> {
    if folder.is_dir() {
        return Ok(());
    }
    let mut made = root.to_path_buf();
    for name in folder.strip_prefix(root).expect("the folder is below the root") {
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

/// Creates a new file with these permissions and syncs its content. The caller syncs the folder entry after renaming or linking
/// the file. One fsync.
///
/// # Errors
/// [`Error`], for example if the file exists; a part of it may have been written.
pub fn create(path: &Path, mode: u32, content: &[u8]) -> Result<(), Error> {
    finish(&mut create_new(path, mode)?, path, content)
}

/// Does the same without the fsync, which is left to the caller as well.
///
/// # Errors
/// [`Error`], as for [`create`].
pub fn draft(path: &Path, mode: u32, content: &[u8]) -> Result<(), Error> {
    create_new(path, mode)?.write_all(content).map_err(Error::of("write", path))
}

fn create_new(path: &Path, mode: u32) -> Result<File, Error> {
    OpenOptions::new().write(true).create_new(true).mode(mode).open(path).map_err(Error::of("create", path))
}

/// Creates a file or replaces its content atomically: after a crash at any moment the file has the former content or the new one,
/// never a part of either. Only the owner can access it. Two fsyncs; the new content is first written beside it, to a file that
/// ends with `.new`.
///
/// # Errors
/// [`Error`]; the former content stays, unless the last step failed (the fsync of the folder): then the file has the new content,
/// but a crash may bring the former back.
pub fn replace(path: &Path, content: &[u8]) -> Result<(), Error> {
    replace_with(path, |file| file.write_all(content))
}

/// Does the same with the content that `write` writes, which need not be in memory as a whole.
///
/// # Errors
/// [`Error`], as for [`replace`]; also if `write` fails.
pub fn replace_with(path: &Path, write: impl FnOnce(&mut File) -> io::Result<()>) -> Result<(), Error> {
    replace_as(path, Access::PRIVATE, write)
}

/// Does the same as [`replace_with`], with the given access from the first moment on.
///
/// # Errors
/// [`Error`], as for [`replace_with`].
pub fn replace_as(path: &Path, access: Access, write: impl FnOnce(&mut File) -> io::Result<()>) -> Result<(), Error> {
    let temporary = path.with_extension("new");
    let mut options = OpenOptions::new();
    let file = if access == Access::PRIVATE {
        // Overwrites what a crash left of an earlier attempt.
        options.write(true).create(true).truncate(true).mode(PRIVATE_FILE).open(&temporary)
    } else {
        // What gets another owner is a file of this process, and nothing that a link leads to.
        let _left = fs::remove_file(&temporary);
        options.write(true).create_new(true).mode(PRIVATE_FILE).open(&temporary)
    };
    let mut file = file.map_err(Error::of("create", &temporary))?;
    if access != Access::PRIVATE {
        access.grant(&file, &temporary);
    }
    write(&mut file).map_err(Error::of("write", &temporary))?;
    file.sync_all().map_err(Error::of("fsync", &temporary))?;
    rename(&temporary, path)?;
    path.parent().map_or(Ok(()), sync)
}

/// Renames a file within its folder; syncing the folder is left to the caller.
///
/// # Errors
/// [`Error`]; the names are unchanged.
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
        // Left by a crash.
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
        assert!(!root.exists(), "no new root blocks moving the old one back");
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
    fn files_and_folders_are_private_to_their_owner() {
        use std::os::unix::fs::PermissionsExt;
        let folder = tempfile::tempdir().unwrap();
        let mode = |path: &Path| fs::metadata(path).unwrap().permissions().mode() & 0o777;
        let below = folder.path().join("a/b");
        make_folder(&below).unwrap();
        assert_eq!([mode(&folder.path().join("a")), mode(&below)], [PRIVATE_FOLDER; 2]);
        replace(&below.join("file"), b"content").unwrap();
        assert_eq!(mode(&below.join("file")), PRIVATE_FILE);
    }

    #[test]
    fn a_file_can_have_the_access_of_another() {
        let folder = tempfile::tempdir().unwrap();
        let [model, path, below] = ["HEAD", "file", "below"].map(|name| folder.path().join(name));
        assert_eq!(Access::of(&model).unwrap(), Access::PRIVATE);
        fs::write(&model, "").unwrap();
        fs::set_permissions(&model, Permissions::from_mode(0o640)).unwrap();
        let access = Access::of(&model).unwrap();
        let mode = |path: &Path| fs::metadata(path).unwrap().permissions().mode() & 0o777;
        replace_as(&path, access, |file| file.write_all(b"content")).unwrap();
        assert_eq!(mode(&path), 0o640);
        access.of_writers().grant(&File::open(&path).unwrap(), &path);
        assert_eq!(mode(&path), 0o600);
        fs::create_dir(&below).unwrap();
        access.grant(&File::open(&below).unwrap(), &below);
        assert_eq!(mode(&below), 0o750);
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
