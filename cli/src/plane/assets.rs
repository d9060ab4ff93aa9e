//! Finding the programs that a control plane consists of.

use std::path::{Path, PathBuf};
use std::time::SystemTime;

use super::home::xdg_folder;

/// The programs of Kubernetes.
pub const KUBERNETES: [&str; 4] = ["kube-apiserver", "kube-controller-manager", "kube-scheduler", "kubectl"];

/// A folder that holds the Kubernetes programs (and perhaps etcd).
#[derive(Clone, Debug)]
pub struct Assets {
    dir: PathBuf,
}

/// Why no program was found.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum AssetsError {
    /// A named folder lacks programs.
    #[error(
        "{dir:?} (from {from}) has no {}; name the folder that `make assets` prints, or leave {from} out to search there",
        programs.join(", ")
    )]
    Incomplete {
        /// The folder.
        dir: PathBuf,
        /// The option or variable that named it.
        from: &'static str,
        /// The programs that are missing.
        programs: Vec<&'static str>,
    },
    /// No folder was named, and the cache has no complete one.
    #[error(
        "no Kubernetes programs found in {cache:?}; run `make assets`, or name their folder with --assets or KUBEBUILDER_ASSETS"
    )]
    NotFound {
        /// The cache.
        cache: PathBuf,
    },
    /// The gitcd program was not found.
    #[error("no gitcd at {tried:?} nor on PATH; build it with `cargo build -p gitcd`, or name it with --gitcd")]
    NoGitcd {
        /// The first place that was searched.
        tried: PathBuf,
    },
}

impl Assets {
    /// The folder `explicit`, else `$TRISHANKU_ASSETS`, else `$KUBEBUILDER_ASSETS`, else the newest complete folder of the cache
    /// that `make assets` fills.
    ///
    /// A named folder is used or rejected, never skipped: naming one selects those versions.
    ///
    /// # Errors
    /// [`AssetsError::Incomplete`] for a named folder, [`AssetsError::NotFound`] for the cache.
    pub fn find(explicit: Option<&Path>) -> Result<Self, AssetsError> {
        let variable = |name: &'static str| {
            std::env::var_os(name).filter(|value| !value.is_empty()).map(|value| (name, PathBuf::from(value)))
        };
        let named = explicit
            .map(|dir| ("--assets", dir.to_path_buf()))
            .or_else(|| variable("TRISHANKU_ASSETS"))
            .or_else(|| variable("KUBEBUILDER_ASSETS"));
        match named {
            Some((from, dir)) => Self::in_folder(&dir, from),
            None => {
                Self::newest_in(&xdg_folder("XDG_CACHE_HOME", ".cache").unwrap_or_default().join("trishanku/assets"))
            }
        }
    }

    fn in_folder(dir: &Path, from: &'static str) -> Result<Self, AssetsError> {
        let dir = std::path::absolute(dir).unwrap_or_else(|_| dir.to_path_buf());
        let programs = missing(&dir);
        if programs.is_empty() { Ok(Self { dir }) } else { Err(AssetsError::Incomplete { dir, from, programs }) }
    }

    fn newest_in(cache: &Path) -> Result<Self, AssetsError> {
        let modified = |dir: &PathBuf| {
            dir.join("kube-apiserver").metadata().and_then(|m| m.modified()).unwrap_or(SystemTime::UNIX_EPOCH)
        };
        std::fs::read_dir(cache)
            .into_iter()
            .flatten()
            .filter_map(|entry| Some(entry.ok()?.path()))
            .filter(|dir| missing(dir).is_empty())
            .max_by_key(modified)
            .map(|dir| Self { dir })
            .ok_or_else(|| AssetsError::NotFound { cache: cache.to_path_buf() })
    }

    /// Uses a folder without checking it.
    #[cfg(test)]
    pub(crate) fn at(dir: &Path) -> Self {
        Self { dir: dir.into() }
    }

    /// The path of a program in this folder.
    #[must_use]
    pub fn program(&self, name: &str) -> PathBuf {
        self.dir.join(name)
    }
}

/// The gitcd named by `explicit`, else the one beside this executable, else the first on `PATH`.
///
/// # Errors
/// [`AssetsError::NoGitcd`] if there is none.
pub fn find_gitcd(explicit: Option<&Path>) -> Result<PathBuf, AssetsError> {
    let beside = std::env::current_exe().map(|exe| exe.with_file_name("gitcd")).unwrap_or_default();
    let path = std::env::var_os("PATH").unwrap_or_default();
    let found = match explicit {
        Some(program) => Some(program.to_path_buf()).filter(|p| p.is_file()),
        None => std::iter::once(beside.clone())
            .chain(std::env::split_paths(&path).map(|dir| dir.join("gitcd")))
            .find(|program| program.is_file()),
    };
    let tried = || explicit.unwrap_or(&beside).to_path_buf();
    let program = found.ok_or_else(|| AssetsError::NoGitcd { tried: tried() })?;
    Ok(std::path::absolute(&program).unwrap_or(program))
}

fn missing(dir: &Path) -> Vec<&'static str> {
    KUBERNETES.into_iter().filter(|program| !dir.join(program).is_file()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn fill(dir: &Path, programs: &[&str]) {
        std::fs::create_dir_all(dir).unwrap();
        for program in programs {
            std::fs::write(dir.join(program), "").unwrap();
        }
    }

    #[test]
    fn the_newest_complete_folder_of_the_cache_is_taken() {
        let cache = tempfile::tempdir().unwrap();
        fill(&cache.path().join("old"), &KUBERNETES);
        fill(&cache.path().join("new"), &KUBERNETES);
        fill(&cache.path().join("incomplete"), &KUBERNETES[..2]);
        let hour_ago = SystemTime::now() - std::time::Duration::from_hours(1);
        std::fs::File::open(cache.path().join("old/kube-apiserver")).unwrap().set_modified(hour_ago).unwrap();
        let assets = Assets::newest_in(cache.path()).unwrap();
        assert_eq!(assets.program("kubectl"), cache.path().join("new").join("kubectl"));
    }

    #[test]
    fn an_empty_cache_is_an_error_that_says_what_to_run() {
        let error = Assets::newest_in(Path::new("/nonexistent")).unwrap_err();
        assert!(error.to_string().contains("make assets"), "{error}");
    }

    #[test]
    fn a_named_folder_without_programs_is_refused_with_their_names_and_a_remedy() {
        let dir = tempfile::tempdir().unwrap();
        fill(dir.path(), &KUBERNETES[..2]);
        let error = Assets::find(Some(dir.path())).unwrap_err().to_string();
        assert!(error.contains("has no kube-scheduler, kubectl;"), "{error}");
        assert!(error.contains("`make assets` prints, or leave --assets out"), "{error}");
    }
}
