//! Repositories that a push creates.

use std::fs::{self, File};
use std::io;
use std::path::{Path, PathBuf};

use git2::{Repository, RepositoryInitOptions};
use gitcd_core::durable;
use gitcd_core::error::chain;
use rustix::fs::FlockOperation;

use super::super::name::Name;
use super::super::problem::{Problem, blocking};
use super::commands::Command;
use super::reference;

/// Prefix of a repository's temporary name, until it has references; no client can address it.
pub(in super::super) const PREFIX: &str = ".gitcd-new-";

/// A new repository that no client sees yet. Removed when dropped, unless [`Created::publish`]ed.
#[derive(Debug)]
pub(in super::super) struct Created {
    folder: PathBuf,
    place: PathBuf,
    /// Parent folders that were created for it, deepest first.
    above: Vec<PathBuf>,
    is_published: bool,
    /// While it is held, no cleanup takes the folder for leftovers of a crash.
    _lock: File,
}

impl Created {
    /// Creates a bare repository whose `HEAD` is the pushed `main` or `master`, or else the first pushed branch.
    pub(super) async fn make(root: &Path, name: &Name, commands: &[Command]) -> Result<Self, Problem> {
        let valid = || commands.iter().map(|command| &*command.reference).filter(|name| reference::is_valid(name));
        let branches = || valid().filter_map(|name| name.strip_prefix("refs/heads/"));
        let is_usual = |branch: &&str| matches!(*branch, "main" | "master");
        let head = branches().find(is_usual).or_else(|| branches().next()).unwrap_or("main").to_owned();
        let (root, name) = (root.to_owned(), name.clone());
        let made = blocking("create a repository", move || {
            let (parent, last) = name.place(&root).ok_or(Problem::Forbidden)?;
            Self::init(&parent, &last, &head).map_err(Problem::failed("cannot make a repository"))
        });
        made.await?
    }

    /// Creates an empty one to advertise to clients whose push may create the repository.
    pub(in super::super) async fn nothing(root: &Path) -> Result<Self, Problem> {
        let root = root.to_owned();
        let made = blocking("create an empty repository", move || Self::init(&root, "nothing", "main"));
        made.await?.map_err(Problem::failed("cannot make a repository"))
    }

    fn init(parent: &Path, last: &str, head: &str) -> io::Result<Self> {
        let missing = parent.ancestors().take_while(|folder| !folder.exists());
        let above = missing.map(Path::to_owned).collect();
        durable::make_folder(parent).map_err(|error| io::Error::other(chain(&error)))?;
        let folder = parent.join(format!("{PREFIX}{:016x}", rand::random::<u64>()));
        fs::create_dir(&folder)?;
        let lock = File::open(&folder)?;
        rustix::fs::flock(&lock, FlockOperation::LockExclusive)?;
        let place = parent.join(last);
        let created = Self { folder, place, above, is_published: false, _lock: lock };
        let mut options = RepositoryInitOptions::new();
        options.bare(true).no_reinit(false).external_template(false).initial_head(head);
        Repository::init_opts(&created.folder, &options).map_err(io::Error::other)?;
        Ok(created)
    }

    pub(in super::super) fn folder(&self) -> &Path {
        &self.folder
    }

    /// Removes it on a thread that may block.
    pub(in super::super) async fn remove(self) {
        let _removed = blocking("remove a repository that was not published", move || drop(self)).await;
    }

    /// Returns its final path.
    pub(super) fn place(&self) -> &Path {
        &self.place
    }

    /// Renames the repository to its final path, durably. Fails if the path exists by now.
    pub(super) fn publish(mut self) -> io::Result<()> {
        sync_all(&self.folder)?;
        let folder = self.folder.parent().unwrap_or(&self.folder);
        rename(&self.folder, &self.place)?;
        self.is_published = true;
        File::open(folder)?.sync_all()
    }
}

impl Drop for Created {
    fn drop(&mut self) {
        if !self.is_published {
            // What stays is removed at the next start.
            let _gone = fs::remove_dir_all(&self.folder);
            // Stops at a folder that something else has been put into.
            let _all_gone = self.above.iter().try_for_each(fs::remove_dir);
        }
    }
}

/// Renames a folder, never over a repository: `rename(2)` replaces only empty folders, even if one appears after the check.
fn rename(from: &Path, to: &Path) -> io::Result<()> {
    if to.symlink_metadata().is_ok() {
        return Err(io::ErrorKind::AlreadyExists.into());
    }
    fs::rename(from, to)
}

fn sync_all(folder: &Path) -> io::Result<()> {
    for entry in fs::read_dir(folder)? {
        let entry = entry?;
        if entry.file_type()?.is_dir() {
            sync_all(&entry.path())?;
        } else {
            File::open(entry.path())?.sync_all()?;
        }
    }
    File::open(folder)?.sync_all()
}
