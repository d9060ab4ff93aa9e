//! The folder with the whole state of a control plane.

use std::fs::DirBuilder;
use std::io;
use std::os::unix::fs::{DirBuilderExt, MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};

use super::lock::HomeLock;

/// The folder of one control plane: repository, keys, kubeconfigs, logs and state.
///
/// Cheap to create and clone; [`Home::create`] creates the folder.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Home {
    dir: PathBuf,
}

/// The name of the supervisor among its components.
pub const SUPERVISOR: &str = "supervisor";

/// What a folder contains; see the functions of [`Home`].
const ENTRIES: [&str; 12] = [
    "past",
    "repo.git",
    "etcd",
    "pki",
    "heavens",
    "secrets",
    "upstream.git",
    "manifests",
    "kubeconfig",
    "log",
    "state.json",
    "lock",
];

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
    /// The folder with the control planes cannot be read.
    #[error("cannot list the control planes in {path:?}")]
    List {
        /// The folder.
        path: PathBuf,
        /// The error of the system.
        source: io::Error,
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
        Ok(Self { dir: Self::data_folder()?.join(name) })
    }

    /// The control planes in the user's data folder, by name.
    ///
    /// # Errors
    /// [`HomeError::NoDataFolder`], [`HomeError::List`].
    pub fn all_named() -> Result<Vec<Self>, HomeError> {
        let data = Self::data_folder()?;
        let failed = |source| HomeError::List { path: data.clone(), source };
        let entries = match std::fs::read_dir(&data) {
            Ok(entries) => entries,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
            Err(error) => return Err(failed(error)),
        };
        let mut found = Vec::new();
        for entry in entries {
            let home = Self { dir: entry.map_err(failed)?.path() };
            if home.is_used() {
                found.push(home);
            }
        }
        found.sort_by(|one, other| one.dir.cmp(&other.dir));
        Ok(found)
    }

    /// The name that selects this folder; `None` if only `--dir` does.
    #[must_use]
    pub fn name(&self) -> Option<&str> {
        let name = self.dir.strip_prefix(Self::data_folder().ok()?).ok()?.to_str()?;
        Self::named(name).ok().filter(|named| named == self).and(Some(name))
    }

    fn data_folder() -> Result<PathBuf, HomeError> {
        let data = xdg_folder("XDG_DATA_HOME", ".local/share").ok_or(HomeError::NoDataFolder)?;
        Ok(data.join("trishanku"))
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
    /// # Errors
    /// [`HomeError::Lock`] if the file cannot be opened or locked at all.
    pub fn try_lock(&self) -> Result<Option<HomeLock>, HomeError> {
        HomeLock::take(&self.lock_file())
    }

    /// The supervisor's lock file.
    #[must_use]
    pub fn lock_file(&self) -> PathBuf {
        self.dir.join("lock")
    }

    /// Whether trishanku creates an entry of this name in the folder.
    pub(crate) fn is_own_entry(name: &str) -> bool {
        ENTRIES.contains(&name.strip_suffix(".next").unwrap_or(name))
    }

    /// Whether a control plane was started in this folder.
    #[must_use]
    pub fn is_used(&self) -> bool {
        self.state_file().is_file() || self.lock_file().is_file()
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

    /// The folder of forks that commands read.
    #[must_use]
    pub fn past(&self) -> PathBuf {
        self.dir.join("past")
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

    /// The log of a component, or of the [`SUPERVISOR`].
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
    fn every_entry_of_the_folder_is_known() {
        let home = Home::at(Path::new("/plane"));
        let entries = [
            home.past(),
            home.repository(),
            home.etcd_data(),
            home.keys(),
            home.heavens(),
            home.secrets(),
            home.upstream(),
            home.manifests(),
            home.kubeconfig(),
            home.logs(),
            home.state_file(),
            home.lock_file(),
        ];
        let names = entries.iter().map(|path| path.file_name().unwrap().to_str().unwrap());
        assert!(names.eq(ENTRIES));
        assert!(Home::is_own_entry("state.json.next") && !Home::is_own_entry("thesis"));
    }
}
