//! Deletes a control plane with its data.

use std::io;
use std::path::{Path, PathBuf};

use crate::down::{self, Down, DownError};
use crate::plane::home::{Home, HomeError};
use crate::plane::registry::Registry;

/// How many foreign files a message names.
const NAMED: usize = 3;

/// Why a control plane cannot be deleted.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum DeleteError {
    /// There is none.
    #[error("there is no control plane in {dir:?}; `trishanku list` shows the existing ones")]
    None {
        /// The folder.
        dir: PathBuf,
    },
    /// The folder is not one of trishanku.
    #[error("{dir:?} is not the state folder of a control plane ({reason}); nothing was deleted")]
    Other {
        /// The folder.
        dir: PathBuf,
        /// How it differs.
        reason: String,
    },
    /// The folder has files that trishanku did not create.
    #[error("{dir:?} also contains {names}, which trishanku did not create: move that away first; nothing was deleted")]
    OtherFiles {
        /// The folder.
        dir: PathBuf,
        /// The first of them.
        names: String,
    },
    /// A file cannot be read or removed.
    #[error("cannot delete {path:?}")]
    File {
        /// The file or folder.
        path: PathBuf,
        /// The error of the system.
        source: io::Error,
    },
    /// See [`DownError`].
    #[error(transparent)]
    Down(#[from] DownError),
    /// See [`HomeError`].
    #[error(transparent)]
    Home(#[from] HomeError),
}

/// Checks that `home` is the state folder of a control plane and contains nothing else; returns whether the folder exists.
/// If it does not, processes may still run.
///
/// # Errors
/// [`DeleteError::Other`], [`DeleteError::OtherFiles`], [`DeleteError::File`].
pub fn check(home: &Home) -> Result<bool, DeleteError> {
    let dir = home.dir();
    let failed = |source| DeleteError::File { path: dir.into(), source };
    let other = |reason: &str| Err(DeleteError::Other { dir: dir.into(), reason: reason.to_owned() });
    match dir.symlink_metadata() {
        Ok(metadata) if metadata.is_symlink() => {
            return other("it is a symbolic link; give the folder itself with --dir");
        }
        Ok(metadata) if !metadata.is_dir() => return other("it is a file"),
        Ok(_) => {}
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(false),
        Err(error) => return Err(failed(error)),
    }
    if !home.is_used() {
        return other("it has neither state.json nor a lock");
    }
    let mut foreign = Vec::new();
    for entry in dir.read_dir().map_err(failed)? {
        let name = entry.map_err(failed)?.file_name().to_string_lossy().into_owned();
        if !Home::is_own_entry(&name) {
            foreign.push(format!("{name:?}"));
        }
    }
    if foreign.is_empty() {
        return Ok(true);
    }
    foreign.sort();
    let more = if foreign.len() > NAMED { ", …" } else { "" };
    let names = foreign[..foreign.len().min(NAMED)].join(", ") + more;
    Err(DeleteError::OtherFiles { dir: dir.into(), names })
}

/// Stops the control plane in `home` and removes its folder. Blocks the thread.
///
/// If it is interrupted, it can be repeated.
///
/// # Errors
/// See [`DeleteError`].
pub fn delete(home: &Home) -> Result<Down, DeleteError> {
    let exists = check(home)?;
    let down = down::down(home)?;
    if !exists {
        let dir = home.dir().into();
        return if down == Down::NotRunning { Err(DeleteError::None { dir }) } else { Ok(down) };
    }
    // With the lock, no other `trishanku` can start it meanwhile.
    let Some(lock) = home.try_lock()? else {
        return Err(DownError::Busy { dir: home.dir().into() }.into());
    };
    let failed = |path: &Path, source| DeleteError::File { path: path.into(), source };
    let last = [home.state_file(), home.lock_file()];
    for entry in home.dir().read_dir().map_err(|source| failed(home.dir(), source))? {
        let path = entry.map_err(|source| failed(home.dir(), source))?.path();
        // These show that the rest is a control plane's.
        if !last.contains(&path) {
            remove(&path).map_err(|source| failed(&path, source))?;
        }
    }
    for path in &last {
        remove(path).map_err(|source| failed(path, source))?;
    }
    std::fs::remove_dir(home.dir()).map_err(|source| failed(home.dir(), source))?;
    if let Some(registry) = Registry::of_user() {
        // An entry without a folder is removed by the next `list` anyway.
        let _stays = registry.forget(lock.id());
    }
    Ok(down)
}

/// Removes a file, or a folder with its content; links are not followed.
fn remove(path: &Path) -> io::Result<()> {
    let removed = match path.symlink_metadata() {
        Ok(metadata) if metadata.is_dir() => std::fs::remove_dir_all(path),
        Ok(_) => std::fs::remove_file(path),
        Err(error) => Err(error),
    };
    match removed {
        Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error),
        _ => Ok(()),
    }
}
