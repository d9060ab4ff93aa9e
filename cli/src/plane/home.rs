//! The folder with the whole state of a control plane.

use std::fs::{DirBuilder, File, OpenOptions};
use std::io;
use std::os::unix::fs::{DirBuilderExt, MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};

/// The folder of one control plane: repository, keys, kubeconfigs, logs and state.
///
/// Cheap to create and clone; [`Home::create`] creates the folder.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Home {
    dir: PathBuf,
}

/// Why a control plane's folder cannot be used.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum HomeError {
    /// Neither `XDG_DATA_HOME` nor `HOME` is set to an absolute path.
    #[error("no folder for the data: set HOME or XDG_DATA_HOME, or give --dir")]
    NoDataFolder,
    /// The name is not a valid folder name.
    #[error(
        "{name:?} cannot name a control plane: use letters, digits, '-', '_' and '.', starting with a letter or digit"
    )]
    BadName {
        /// The name as given.
        name: String,
    },
    /// A folder cannot be created.
    #[error("cannot create the folder {path:?}; choose another one with --dir")]
    Create {
        /// The folder.
        path: PathBuf,
        /// The error of the system.
        source: io::Error,
    },
    /// Other users can read the folder, and its mode must not be changed.
    #[error(
        "other users can read the folder {path:?}, which will contain Secrets: {reason}; set its owner to you and its mode to 0700, or choose another folder with --dir"
    )]
    Open {
        /// The folder.
        path: PathBuf,
        /// Why its mode was not changed.
        reason: String,
    },
    /// The lock file could not be used.
    #[error("cannot lock {path:?}")]
    Lock {
        /// The lock file.
        path: PathBuf,
        /// The error of the system.
        source: io::Error,
    },
}

impl Home {
    /// The control plane in `dir`, made absolute against the current folder.
    #[must_use]
    pub fn at(dir: &Path) -> Self {
        // Only an empty path cannot be made absolute; it means the current folder.
        let dir = std::path::absolute(dir).unwrap_or_else(|_| PathBuf::from("."));
        Self { dir }
    }

    /// The control plane `name` in the user's data folder.
    ///
    /// # Errors
    /// [`HomeError::BadName`], [`HomeError::NoDataFolder`].
    pub fn named(name: &str) -> Result<Self, HomeError> {
        let first = name.chars().next();
        let fits = first.is_some_and(|c| c.is_ascii_alphanumeric())
            && name.chars().all(|c| c.is_ascii_alphanumeric() || "-_.".contains(c));
        if !fits {
            return Err(HomeError::BadName { name: name.into() });
        }
        let data = xdg_folder("XDG_DATA_HOME", ".local/share").ok_or(HomeError::NoDataFolder)?;
        Ok(Self { dir: data.join("trishanku").join(name) })
    }

    /// Creates the folder and its subfolders, readable by the owner only. Removes others' access to an existing folder of
    /// the user, if that is empty or a control plane's.
    ///
    /// # Errors
    /// [`HomeError::Create`] names the folder that cannot be created, [`HomeError::Open`] the one that other users can
    /// still read.
    pub fn create(&self) -> Result<(), HomeError> {
        self.close()?;
        for path in [self.dir.clone(), self.keys(), self.logs()] {
            DirBuilder::new()
                .recursive(true)
                .mode(0o700)
                .create(&path)
                .map_err(|source| HomeError::Create { path, source })?;
        }
        Ok(())
    }

    /// Removes others' access to an existing folder.
    fn close(&self) -> Result<(), HomeError> {
        let create = |source| HomeError::Create { path: self.dir.clone(), source };
        let metadata = match self.dir.metadata() {
            Ok(metadata) => metadata,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
            Err(error) => return Err(create(error)),
        };
        let is_ours = metadata.uid() == rustix::process::geteuid().as_raw();
        let for_others = metadata.mode() & 0o077;
        if for_others == 0 && is_ours {
            return Ok(());
        }
        let open = |reason: String| HomeError::Open { path: self.dir.clone(), reason };
        if !is_ours {
            return Err(open(format!("it belongs to user {}", metadata.uid())));
        }
        // `--dir /tmp` as root must not close /tmp to all users.
        let is_known = self.keys().is_dir() || self.state_file().is_file();
        if !is_known && std::fs::read_dir(&self.dir).map_err(create)?.next().is_some() {
            return Err(open("it contains other files, so its mode was not changed".into()));
        }
        let closed = std::fs::set_permissions(&self.dir, std::fs::Permissions::from_mode(0o700));
        closed.map_err(|error| open(error.to_string()))
    }

    /// Takes the supervisor's lock; `None` if another process holds it.
    ///
    /// The system releases the lock when the process exits, however that happens.
    ///
    /// # Errors
    /// [`HomeError::Lock`] if the file cannot be opened or locked at all.
    pub fn try_lock(&self) -> Result<Option<File>, HomeError> {
        let path = self.dir.join("lock");
        let failed = |source| HomeError::Lock { path: path.clone(), source };
        let file = OpenOptions::new().create(true).truncate(false).write(true).open(&path).map_err(failed)?;
        match file.try_lock() {
            Ok(()) => Ok(Some(file)),
            Err(std::fs::TryLockError::WouldBlock) => Ok(None),
            Err(std::fs::TryLockError::Error(source)) => Err(failed(source)),
        }
    }

    /// The folder itself.
    #[must_use]
    pub fn dir(&self) -> &Path {
        &self.dir
    }

    /// The bare Git repository that holds the objects.
    #[must_use]
    pub fn repository(&self) -> PathBuf {
        self.dir.join("repo.git")
    }

    /// The data folder of a stock etcd, for comparisons.
    #[must_use]
    pub fn etcd_data(&self) -> PathBuf {
        self.dir.join("etcd")
    }

    /// The folder of certificates and private keys.
    #[must_use]
    pub fn keys(&self) -> PathBuf {
        self.dir.join("pki")
    }

    /// The folder of the heavens' folders, by name.
    #[must_use]
    pub fn heavens(&self) -> PathBuf {
        self.dir.join("heavens")
    }

    /// The folder of the Secrets that heavens share; each is a folder of files.
    #[must_use]
    pub fn secrets(&self) -> PathBuf {
        self.dir.join("secrets")
    }

    /// The upstream repository of a headless cluster.
    #[must_use]
    pub fn upstream(&self) -> PathBuf {
        self.dir.join("upstream.git")
    }

    /// The manifests of a headless cluster.
    #[must_use]
    pub fn manifests(&self) -> PathBuf {
        self.dir.join("manifests")
    }

    /// The administrator's kubeconfig.
    #[must_use]
    pub fn kubeconfig(&self) -> PathBuf {
        self.dir.join("kubeconfig")
    }

    /// The kubeconfig of a component.
    #[must_use]
    pub fn component_kubeconfig(&self, component: &str) -> PathBuf {
        self.keys().join(format!("{component}.kubeconfig"))
    }

    /// The folder of the logs.
    #[must_use]
    pub fn logs(&self) -> PathBuf {
        self.dir.join("log")
    }

    /// The log of a component (or of the `supervisor`).
    #[must_use]
    pub fn log(&self, component: &str) -> PathBuf {
        // In a heaven's components, the name has a slash.
        self.logs().join(format!("{}.log", component.replace('/', ".")))
    }

    /// The supervisor's record of what runs; see [`crate::plane::state`].
    #[must_use]
    pub fn state_file(&self) -> PathBuf {
        self.dir.join("state.json")
    }
}

/// The folder that an XDG variable names, else the given one below `HOME`. Relative paths are ignored, as XDG demands.
pub(crate) fn xdg_folder(variable: &str, below_home: &str) -> Option<PathBuf> {
    let absolute = |name: &str| std::env::var_os(name).map(PathBuf::from).filter(|path| path.is_absolute());
    absolute(variable).or_else(|| Some(absolute("HOME")?.join(below_home)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_cannot_leave_the_data_folder() {
        for name in ["", "..", ".", "a/b", "/etc", "-x", "ü"] {
            assert!(matches!(Home::named(name), Err(HomeError::BadName { .. })), "{name:?}");
        }
        assert!(Home::named("team-a_1.36").is_ok());
    }

    #[test]
    fn a_folder_that_others_could_look_into_is_closed_or_refused() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("home");
        let chmod = |mode| std::fs::set_permissions(&path, std::fs::Permissions::from_mode(mode)).unwrap();
        let mode = || path.metadata().unwrap().mode() & 0o777;
        std::fs::create_dir(&path).unwrap();
        chmod(0o755);
        std::fs::write(path.join("thesis"), "").unwrap();
        let said = Home::at(&path).create().unwrap_err().to_string();
        assert!(said.contains("mode to 0700") && mode() == 0o755, "{said}");
        std::fs::remove_file(path.join("thesis")).unwrap();
        for open in [0o755, 0o750, 0o700] {
            // Empty at first, a control plane's afterwards.
            chmod(open);
            Home::at(&path).create().unwrap();
            assert_eq!(mode(), 0o700);
        }
    }

    #[test]
    fn the_lock_is_exclusive_and_goes_with_its_holder() {
        let dir = tempfile::tempdir().unwrap();
        let home = Home::at(dir.path());
        let held = home.try_lock().unwrap();
        assert!(held.is_some());
        assert!(home.try_lock().unwrap().is_none());
        drop(held);
        assert!(home.try_lock().unwrap().is_some());
    }
}
