//! Quarantine for received objects until they are checked.

use std::collections::HashMap;
use std::fs::{self, File};
use std::io::{self, Write as _};
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::sync::Arc;

use gitcd_core::durable;
use gitcd_core::error::chain;
use gitcd_core::program::quoted;
use parking_lot::Mutex;
use rustix::fs::FlockOperation;
use tokio::process::Command;

use super::super::problem::{Problem, blocking};

/// Prefix of a quarantine folder in `objects`; `git prune` also removes old folders with this prefix.
pub(in super::super) const PREFIX: &str = "tmp_objdir-gitcd-";
/// Content of the `.keep` file that protects a pack until references lead to its objects.
pub(in super::super) const KEEP: &str = "gitcd push";
/// Name of the lock file in a quarantine.
pub(in super::super) const LOCK: &str = "lock";
/// Size of a pack without objects: a header and a checksum.
const EMPTY_PACK_BYTES: u64 = 32;

/// A folder of unchecked objects, read only by Git processes with its environment. Removed when dropped.
#[derive(Debug)]
pub(super) struct Quarantine {
    folder: PathBuf,
    objects: PathBuf,
    /// While either is held, no cleanup takes the folder for leftovers of a crash. This process holds both; Git processes that
    /// write into the folder also hold the file, and may live longer.
    _folder_lock: File,
    lock: File,
}

impl Quarantine {
    pub(super) async fn make(repository: &Path) -> Result<Self, Problem> {
        let objects = repository.join("objects");
        let made = blocking("create a quarantine", move || {
            let folder = objects.join(format!("{PREFIX}{:016x}", rand::random::<u64>()));
            fs::create_dir(&folder)?;
            let folder_lock = File::open(&folder)?;
            rustix::fs::flock(&folder_lock, FlockOperation::LockExclusive)?;
            let lock = File::create_new(folder.join(LOCK))?;
            rustix::fs::flock(&lock, FlockOperation::LockExclusive)?;
            let quarantine = Self { folder, objects, _folder_lock: folder_lock, lock };
            fs::create_dir(quarantine.packs())?;
            Ok(quarantine)
        });
        made.await?.map_err(Problem::failed("cannot make a quarantine"))
    }

    /// Sets the environment in which a Git command writes into the quarantine and also reads the repository's objects.
    pub(super) fn apply(&self, repository: &Path, command: &mut Command) {
        command
            .env("GIT_DIR", repository)
            .env("GIT_OBJECT_DIRECTORY", &self.folder)
            .env("GIT_QUARANTINE_PATH", &self.folder)
            .env("GIT_ALTERNATE_OBJECT_DIRECTORIES", quoted(&self.objects));
    }

    /// Returns the lock file as standard output for a process that writes into the quarantine: it then holds the lock as long as
    /// it lives, even if this process is killed.
    pub(super) fn output(&self) -> io::Result<Stdio> {
        self.lock.try_clone().map(Stdio::from)
    }

    pub(super) fn folder(&self) -> &Path {
        &self.folder
    }

    fn packs(&self) -> PathBuf {
        self.folder.join("pack")
    }

    /// Removes it on a thread that may block.
    pub(super) async fn remove(self) {
        let _removed = blocking("remove a quarantine", move || drop(self)).await;
    }

    /// Makes its packs durable and moves them into the repository. No maintenance prunes them until the result is dropped.
    pub(super) async fn migrate(self, kept: &Kept) -> Result<Vec<Keep>, Problem> {
        let kept = kept.clone();
        let migrated = blocking("move a pack into the repository", move || self.migrate_blocking(&kept));
        migrated.await?.map_err(|error| {
            tracing::error!(error = chain(&error), "cannot move a pack into the repository");
            Problem::Failed
        })
    }

    fn migrate_blocking(self, kept: &Kept) -> Result<Vec<Keep>, durable::Error> {
        let (from, to) = (self.packs(), self.objects.join("pack"));
        let mut keeps = Vec::new();
        let listed = fs::read_dir(&from).and_then(Iterator::collect::<io::Result<Vec<_>>>);
        for entry in listed.map_err(durable::Error::of("read", &from))? {
            let path = entry.path();
            // Other files are moved with their packs.
            if path.extension().is_none_or(|extension| extension != "pack") {
                continue;
            }
            let size = path.metadata().map_err(durable::Error::of("read", &path))?.len();
            if size <= EMPTY_PACK_BYTES {
                continue;
            }
            durable::make_folder(&to)?;
            let keep = kept.keep(&to, &path)?;
            let target = keep.path.clone();
            keeps.push(keep);
            // The index comes last: a reader that sees it finds its pack.
            let mut files = ["pack", "rev", "idx"].map(|extension| path.with_extension(extension)).to_vec();
            files.retain(|file| file.exists());
            durable::sync_all(&files.iter().map(PathBuf::as_path).collect::<Vec<_>>())?;
            for file in files {
                durable::rename(&file, &target.with_extension(file.extension().unwrap_or_default()))?;
            }
            durable::sync(&to)?;
        }
        Ok(keeps)
    }
}

impl Drop for Quarantine {
    fn drop(&mut self) {
        if let Err(error) = fs::remove_dir_all(&self.folder) {
            tracing::warn!(%error, folder = %self.folder.display(), "cannot remove a quarantine; the next start tries again");
        }
    }
}

/// The `.keep` files of running pushes, each locked while its push needs it.
#[derive(Clone, Debug, Default)]
pub(in super::super) struct Kept(Arc<Mutex<HashMap<PathBuf, File>>>);

/// Protects a pack from pruning. [Released](release) once references lead to its objects.
#[derive(Debug)]
pub(super) struct Keep {
    kept: Kept,
    path: PathBuf,
}

/// Ends the protection of packs, on a thread that may block: it removes their files.
pub(super) async fn release(keeps: Vec<Keep>) {
    if !keeps.is_empty() {
        let _released = blocking("release a pack", move || drop(keeps)).await;
    }
}

impl Kept {
    /// Protects a pack that is about to enter a folder, under its own name or, if a pack has that name already, under a random
    /// one.
    ///
    /// An existing pack must not get a `.keep` file: `git repack -d` lists the kept packs once, at its start, and deletes all
    /// others at its end. If one of those is kept meanwhile, `git pack-objects` leaves its objects out of the new pack, and they
    /// are lost.
    fn keep(&self, folder: &Path, pack: &Path) -> Result<Keep, durable::Error> {
        // Complete and locked before it gets its name, so that no cleanup finds one without an owner.
        let draft = pack.with_extension("keep");
        let write = || {
            let mut file = File::create_new(&draft)?;
            rustix::fs::flock(&file, FlockOperation::LockExclusive)?;
            file.write_all(KEEP.as_bytes())?;
            Ok(file)
        };
        let written: io::Result<File> = write();
        let file = written.map_err(durable::Error::of("write", &draft))?;
        let mut path = folder.join(pack.file_name().unwrap_or_default()).with_extension("keep");
        let mut kept = self.0.lock();
        loop {
            let is_there = path.with_extension("pack").exists() || path.with_extension("idx").exists();
            // Not synced: it is not needed after a crash.
            let made = if is_there { Err(io::ErrorKind::AlreadyExists.into()) } else { fs::hard_link(&draft, &path) };
            match made {
                Ok(()) => {
                    kept.insert(path.clone(), file);
                    return Ok(Keep { kept: self.clone(), path });
                }
                Err(found) if found.kind() == io::ErrorKind::AlreadyExists => {
                    let name = rand::random::<[u8; 20]>().map(|byte| format!("{byte:02x}")).concat();
                    path = folder.join(format!("pack-{name}.keep"));
                }
                Err(found) => return Err(durable::Error::of("create", &path)(found)),
            }
        }
    }
}

impl Drop for Keep {
    fn drop(&mut self) {
        if self.kept.0.lock().remove(&self.path).is_some() {
            // A file that stays costs only disk space: its pack is not repacked. The next start removes it.
            let _gone = fs::remove_file(&self.path);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_pack_that_is_there_already_is_not_kept_but_comes_under_another_name() {
        let (folder, quarantines) = (tempfile::tempdir().unwrap(), [(); 3].map(|()| tempfile::tempdir().unwrap()));
        let (to, [one, other, last]) =
            (folder.path(), quarantines.each_ref().map(|folder| folder.path().join("pack-12.pack")));
        let kept = Kept::default();
        let first = kept.keep(to, &one).unwrap();
        assert_eq!(first.path, to.join("pack-12.keep"));
        // While the first is in progress, and once its pack exists.
        let second = kept.keep(to, &other).unwrap();
        File::create(to.join("pack-12.pack")).unwrap();
        drop(first);
        let third = kept.keep(to, &last).unwrap();
        assert!(!to.join("pack-12.keep").exists());
        assert!(second.path != third.path && second.path.exists() && third.path.exists());
        drop((second, third));
        assert_eq!(fs::read_dir(to).unwrap().count(), 1);
    }
}
