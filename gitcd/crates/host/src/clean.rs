//! Removes what crashes have left behind.

use std::fs::{self, File};
use std::path::{Path, PathBuf};

use gitcd_engine::maintenance;
use gitcd_repo::refs::Refs;
use rustix::fs::FlockOperation;

use super::name::{MAX_COMPONENTS, is_repository};
use super::push::{KEEP, NEW_REPOSITORY, QUARANTINE, QUARANTINE_LOCK};

/// Removes the quarantines, half-created repositories and locks of dead processes below `root`.
///
/// A live process holds a lock on each of its own, so another host on the same root is not disturbed.
pub(super) fn sweep(root: &Path) {
    let mut folders = vec![(root.to_owned(), 0)];
    while let Some((folder, depth)) = folders.pop() {
        for path in entries(&folder) {
            // Symbolic links are not followed: their targets are swept where they are.
            if !path.symlink_metadata().is_ok_and(|found| found.is_dir()) {
                continue;
            }
            if begins(&path, NEW_REPOSITORY) {
                remove(&path);
            } else if is_repository(&path) {
                sweep_repository(&path);
            } else if depth < MAX_COMPONENTS && !begins(&path, ".") {
                folders.push((path, depth + 1));
            }
        }
    }
}

fn sweep_repository(repository: &Path) {
    let objects = repository.join("objects");
    for path in entries(&objects).into_iter().filter(|path| begins(path, QUARANTINE)) {
        remove(&path);
    }
    let is_keep = |path: &PathBuf| path.extension().is_some_and(|extension| extension == "keep");
    for path in entries(&objects.join("pack")).into_iter().filter(is_keep) {
        if fs::read(&path).is_ok_and(|content| content.starts_with(KEEP.as_bytes())) {
            remove(&path);
        }
    }
    if let Err(error) = maintenance::clear(repository) {
        tracing::warn!(%error, "cannot remove leftovers of a repack");
    }
    match Refs::open(repository).and_then(|refs| refs.release_all()) {
        Ok(0) => {}
        Ok(locks) => tracing::info!(repository = %repository.display(), locks, "removed locks left by a crash"),
        Err(error) => tracing::warn!(%error, "cannot look for locks left by a crash"),
    }
}

fn entries(folder: &Path) -> Vec<PathBuf> {
    match fs::read_dir(folder) {
        Ok(entries) => entries.flatten().map(|entry| entry.path()).collect(),
        Err(error) => {
            tracing::warn!(%error, folder = %folder.display(), "cannot look for leftovers of a crash");
            Vec::new()
        }
    }
}

fn begins(path: &Path, prefix: &str) -> bool {
    path.file_name().is_some_and(|name| name.to_string_lossy().starts_with(prefix))
}

/// Removes a file or folder. If a process still holds it, a thread waits for the lock: the holder is a push of another host,
/// which removes it itself, or a Git process that briefly outlives its killed host.
fn remove(path: &Path) {
    let held: Vec<_> =
        [path.to_owned(), path.join(QUARANTINE_LOCK)].iter().filter_map(|path| File::open(path).ok()).collect();
    if remove_held(path, &held, FlockOperation::NonBlockingLockExclusive) {
        return;
    }
    let later = path.to_owned();
    let waiting = std::thread::Builder::new().name("clean".to_owned());
    let waiting = waiting.spawn(move || remove_held(&later, &held, FlockOperation::LockExclusive));
    if let Err(error) = waiting {
        tracing::warn!(%error, path = %path.display(), "cannot wait for a push to finish");
    }
}

/// Removes `path` once all `held` files are locked; returns `false` if one cannot be locked.
fn remove_held(path: &Path, held: &[File], how: FlockOperation) -> bool {
    if held.iter().any(|file| rustix::fs::flock(file, how).is_err()) {
        return false;
    }
    let removed = match path.symlink_metadata() {
        // Its previous holder has removed it.
        Err(_) => return true,
        Ok(found) if found.is_dir() => fs::remove_dir_all(path),
        Ok(_) => fs::remove_file(path),
    };
    match removed {
        Ok(()) => tracing::info!(path = %path.display(), "removed leftovers of a crash"),
        Err(error) => tracing::warn!(%error, path = %path.display(), "cannot remove leftovers of a crash"),
    }
    true
}
