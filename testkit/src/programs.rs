//! Paths of kube-apiserver and of the programs beside it.

use std::path::{Path, PathBuf};
use std::time::SystemTime;

const PROGRAM: &str = "kube-apiserver";

/// Why a program was not found.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ProgramsError {
    /// A variable names a folder without kube-apiserver.
    #[error("{dir:?} (from {variable}) has no kube-apiserver; name the folder that `make assets` prints, or unset it")]
    Lacks {
        /// The folder.
        dir: PathBuf,
        /// The variable.
        variable: &'static str,
    },
    /// No variable is set, and the cache has no kube-apiserver.
    #[error("no kube-apiserver in {cache:?}; run `make assets`, or set KUBEBUILDER_ASSETS to its folder")]
    NotFound {
        /// The cache.
        cache: PathBuf,
    },
    /// The folder of kube-apiserver has no kube-controller-manager, as in envtest's own archives.
    #[error("{dir:?} has kube-apiserver but no kube-controller-manager; name the folder that `make assets` prints")]
    NoControllers {
        /// The folder.
        dir: PathBuf,
    },
    /// The folder of kube-apiserver has no etcd.
    #[error("{dir:?} has kube-apiserver but no etcd; name the folder that `make assets` prints")]
    NoEtcd {
        /// The folder.
        dir: PathBuf,
    },
    /// Neither the folder of kube-apiserver nor `$PATH` has kubectl, which deletes the namespaces of tests.
    #[error("no kubectl in PATH or beside kube-apiserver; install it, because it deletes the namespaces of the tests")]
    NoKubectl,
}

/// Returns the kube-apiserver of `$TRISHANKU_ASSETS` or `$KUBEBUILDER_ASSETS`, or else the newest in the cache that `make
/// assets` fills.
pub(crate) fn apiserver() -> Result<PathBuf, ProgramsError> {
    for variable in ["TRISHANKU_ASSETS", "KUBEBUILDER_ASSETS"] {
        if let Some(dir) = std::env::var_os(variable).filter(|dir| !dir.is_empty()) {
            return named(dir.into(), variable);
        }
    }
    let absolute = |variable| std::env::var_os(variable).map(PathBuf::from).filter(|folder| folder.is_absolute());
    let cache = absolute("XDG_CACHE_HOME").or_else(|| Some(absolute("HOME")?.join(".cache"))).unwrap_or_default();
    newest(&cache.join("trishanku/assets"))
}

/// Returns the kube-controller-manager beside this kube-apiserver.
pub(crate) fn controller_manager(apiserver: &Path) -> Result<PathBuf, ProgramsError> {
    beside(apiserver, "kube-controller-manager").map_err(|dir| ProgramsError::NoControllers { dir })
}

/// Returns the etcd beside this kube-apiserver.
pub(crate) fn etcd(apiserver: &Path) -> Result<PathBuf, ProgramsError> {
    beside(apiserver, "etcd").map_err(|dir| ProgramsError::NoEtcd { dir })
}

/// Returns the kubectl beside kube-apiserver, or else the one in `$PATH`.
pub(crate) fn kubectl() -> Result<PathBuf, ProgramsError> {
    let ours = apiserver().ok().and_then(|apiserver| beside(&apiserver, "kubectl").ok());
    let path = std::env::var_os("PATH").unwrap_or_default();
    let installed = || std::env::split_paths(&path).map(|dir| dir.join("kubectl")).find(|program| program.is_file());
    ours.or_else(installed).ok_or(ProgramsError::NoKubectl)
}

/// Returns a program beside another one, or the folder that lacks it.
fn beside(program: &Path, name: &str) -> Result<PathBuf, PathBuf> {
    let found = program.with_file_name(name);
    if found.is_file() { Ok(found) } else { Err(program.parent().unwrap_or(program).to_owned()) }
}

fn named(dir: PathBuf, variable: &'static str) -> Result<PathBuf, ProgramsError> {
    let program = dir.join(PROGRAM);
    if program.is_file() { Ok(program) } else { Err(ProgramsError::Lacks { dir, variable }) }
}

fn newest(cache: &Path) -> Result<PathBuf, ProgramsError> {
    let modified = |program: &PathBuf| program.metadata().and_then(|m| m.modified()).unwrap_or(SystemTime::UNIX_EPOCH);
    std::fs::read_dir(cache)
        .into_iter()
        .flatten()
        .filter_map(|entry| Some(entry.ok()?.path().join(PROGRAM)))
        .filter(|program| program.is_file())
        .max_by_key(modified)
        .ok_or_else(|| ProgramsError::NotFound { cache: cache.to_owned() })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_missing_is_said_with_a_remedy() {
        let dir = tempfile::tempdir().unwrap();
        let error = named(dir.path().into(), "KUBEBUILDER_ASSETS").unwrap_err().to_string();
        assert!(error.contains("KUBEBUILDER_ASSETS") && error.contains("make assets"), "{error}");
        let error = newest(dir.path()).unwrap_err().to_string();
        assert!(error.contains("make assets"), "{error}");
        let error = controller_manager(&dir.path().join(PROGRAM)).unwrap_err().to_string();
        assert!(error.contains("no kube-controller-manager") && error.contains("make assets"), "{error}");
        let error = etcd(&dir.path().join(PROGRAM)).unwrap_err().to_string();
        assert!(error.contains("no etcd") && error.contains("make assets"), "{error}");
    }

    #[test]
    fn the_newest_of_the_cache_is_taken() {
        let cache = tempfile::tempdir().unwrap();
        for (folder, age) in [("old", 1), ("new", 0)] {
            let program = cache.path().join(folder).join(PROGRAM);
            std::fs::create_dir_all(program.parent().unwrap()).unwrap();
            let file = std::fs::File::create(&program).unwrap();
            file.set_modified(SystemTime::now() - std::time::Duration::from_hours(age)).unwrap();
        }
        std::fs::create_dir(cache.path().join("empty")).unwrap();
        assert_eq!(newest(cache.path()).unwrap(), cache.path().join("new").join(PROGRAM));
    }
}
