//! Finds the reference etcd in the folders that `hack/assets.sh` uses.

use std::path::PathBuf;

/// Returns the path of the program `name`.
///
/// # Panics
/// If it is in none of the folders; the message says how to get it.
pub(crate) fn program(name: &str) -> PathBuf {
    let folders = folders();
    folders
        .iter()
        .map(|folder| folder.join(name))
        .find(|path| path.is_file())
        .unwrap_or_else(|| panic!("no {name} in {folders:?}: run `make assets`"))
}

fn folders() -> Vec<PathBuf> {
    let mut folders: Vec<_> = ["TRISHANKU_ASSETS", "KUBEBUILDER_ASSETS"]
        .into_iter()
        .filter_map(std::env::var_os)
        .filter(|value| !value.is_empty())
        .map(PathBuf::from)
        .collect();
    folders.extend(cached());
    folders
}

/// The folders of the cache, newest first.
fn cached() -> Vec<PathBuf> {
    let cache = std::env::var_os("XDG_CACHE_HOME")
        .map(PathBuf::from)
        .or_else(|| Some(PathBuf::from(std::env::var_os("HOME")?).join(".cache")));
    let Some(Ok(entries)) = cache.map(|cache| cache.join("trishanku/assets").read_dir()) else {
        return Vec::new();
    };
    let mut folders: Vec<_> =
        entries.flatten().filter_map(|entry| Some((entry.metadata().ok()?.modified().ok()?, entry.path()))).collect();
    folders.sort();
    folders.into_iter().rev().map(|(_, path)| path).collect()
}
