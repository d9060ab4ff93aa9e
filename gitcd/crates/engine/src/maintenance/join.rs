//! Combines several packs into one.
//!
//! `git pack-objects` writes the new pack into a separate folder, searching for deltas among all objects. The pack moves to its
//! place once it is durable and has every object of the old packs; then these are removed. A crash at any point leaves
//! duplicates, never a gap.

use std::collections::BTreeSet;
use std::io;
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::time::Duration;

use gitcd_core::durable;
use gitcd_core::program::{Program, Running, quoted, stderr_excerpt};
use gitcd_repo::boundary::{Boundary, BoundaryError};
use tokio::io::AsyncWriteExt;
use tokio::process::Command;
use tokio::sync::watch;

use super::choose::Pack;
use super::graph;
use super::index::{self, Id};

/// The priority of `git`.
const NICE: i32 = 10;
/// A `git` that runs this long hangs.
const LIMIT: Duration = Duration::from_hours(6);
/// Limits of the processor and memory use.
pub(super) const BOUNDS: [&str; 10] = [
    "-c",
    "pack.threads=1",
    "-c",
    "pack.windowMemory=64m",
    "-c",
    "pack.deltaCacheSize=32m",
    "-c",
    "core.fsync=pack,pack-metadata,commit-graph",
    "-c",
    // The result must be a single pack.
    "pack.packSizeLimit=0",
];
/// Age at which the lock of a commit-graph belongs to a killed process.
const GRAPH_LIMIT: Duration = Duration::from_hours(1);

/// Why maintenance failed. The packs are unchanged.
#[derive(Debug, thiserror::Error)]
pub enum JoinError {
    /// `git` failed.
    #[error("git {command}: {said}")]
    Git {
        /// The subcommand.
        command: &'static str,
        /// The error output.
        said: String,
    },
    /// The server is stopping.
    #[error("stopped")]
    Stopped,
    /// `git` cannot be started.
    #[error("git cannot be run; install Git 2.32 or later: {0}")]
    Run(#[source] io::Error),
    /// A file or folder cannot be written.
    #[error(transparent)]
    Durable(#[from] durable::Error),
    /// A pack index or git's output cannot be read.
    #[error("cannot read packs or the output of git: {0}")]
    Read(#[source] io::Error),
    /// The new pack lacks objects.
    #[error("the new pack lacks objects of {0}")]
    Lacks(String),
    /// An object became reachable during the prune.
    #[error("an unreachable object is referenced again")]
    Moved,
    /// Another repository may need objects that are unreachable here.
    #[error(
        "a gitcd reads the objects of {0:?} for another repository (`gitcd serve --at`, `trishanku at`, or a server of a repository \
         with objects/info/alternates), or a push or fetch takes long, so none is deleted; stop it first"
    )]
    InUse(PathBuf),
    /// It is not known whether the history was cut.
    #[error(transparent)]
    Boundary(#[from] BoundaryError),
}

impl JoinError {
    /// Returns the error for `git` output that is not a list of IDs.
    pub(super) fn listed() -> Self {
        Self::Read(io::Error::other("git lists something other than object IDs"))
    }
}

/// Paths of a repository for maintenance.
#[derive(Clone, Debug)]
pub(super) struct MaintenancePaths {
    /// The repository's folder.
    pub(super) repository: PathBuf,
    /// Where a pack is drafted, as if it were a repository's object folder; exclusive to the holder of the lock.
    pub(super) draft: PathBuf,
}

impl MaintenancePaths {
    pub(super) fn packs(&self) -> PathBuf {
        self.repository.join("objects/pack")
    }

    /// Returns whether one of these packs no longer exists.
    pub(super) fn lacks_any(&self, packs: &[Pack]) -> bool {
        packs.iter().any(|pack| !self.packs().join(format!("{}.pack", pack.name)).exists())
    }

    fn drafts(&self) -> PathBuf {
        self.draft.join("pack")
    }

    /// Frees the space of unfinished work, since lack of space may be why it failed.
    pub(super) fn give_back(&self) {
        if let Err(error) = self.clear() {
            tracing::warn!(%error, "cannot remove unfinished files; the next run tries again");
        }
    }

    /// Removes what a killed `git` left. The folder holds nothing else.
    pub(super) fn clear(&self) -> Result<(), durable::Error> {
        let drafts = self.drafts();
        durable::make_folder(&drafts)?;
        for folder in [&drafts, &self.draft] {
            for entry in std::fs::read_dir(folder).map_err(durable::Error::of("read", folder))?.flatten() {
                let path = entry.path();
                if !path.is_dir() {
                    std::fs::remove_file(&path).map_err(durable::Error::of("remove", &path))?;
                }
            }
        }
        Ok(())
    }
}

/// Combines several packs into one.
pub(super) async fn join(
    git: &Program,
    place: &MaintenancePaths,
    packs: &[Pack],
    stopped: &watch::Receiver<bool>,
) -> Result<(), JoinError> {
    place.clear()?;
    let joined = draft(git, place, packs, stopped).await;
    if joined.is_err() {
        place.give_back();
    }
    joined
}

async fn draft(
    git: &Program,
    place: &MaintenancePaths,
    packs: &[Pack],
    stopped: &watch::Receiver<bool>,
) -> Result<(), JoinError> {
    let names = packs.iter().flat_map(|pack| [&pack.name, ".pack\n"]).collect::<String>();
    let name = make_pack(git, place, &["--stdin-packs"], names.into_bytes(), stopped).await?;
    let (place, packs) = (place.clone(), packs.to_vec());
    let published = tokio::task::spawn_blocking(move || publish(&place, &packs, Some(&name), &BTreeSet::new()));
    published.await.expect("publishing a pack does not panic")
}

/// Drafts one pack of the packs or objects that `input` lists, and returns its name.
pub(super) async fn make_pack(
    git: &Program,
    place: &MaintenancePaths,
    how: &[&str],
    input: Vec<u8>,
    stopped: &watch::Receiver<bool>,
) -> Result<String, JoinError> {
    let base = place.drafts().join("pack");
    let base = base.to_str().ok_or_else(|| JoinError::Run(io::Error::other("the repository's path is not UTF-8")))?;
    let words = [&["pack-objects", "--delta-base-offset", "--non-empty", "-q"], how, &[base]].concat();
    let mut command = git.command(&[&BOUNDS[..], &words].concat());
    // Keeps unfinished files out of the repository's packs if `git` is killed.
    command.env("GIT_OBJECT_DIRECTORY", &place.draft);
    command.env("GIT_ALTERNATE_OBJECT_DIRECTORIES", quoted(&place.repository.join("objects")));
    let said = run(command, place, "pack-objects", input, stopped).await?;
    Ok(format!("pack-{}", said.trim()))
}

/// Writes the commit-graph, which makes history reads fast: a part for the new commits, or `all` of it.
pub(super) async fn write_commit_graph(
    git: &Program,
    place: &MaintenancePaths,
    all: bool,
    stopped: &watch::Receiver<bool>,
) -> Result<(), JoinError> {
    if Boundary::read(&place.repository)?.cut().is_some() {
        // Git neither writes nor reads it in a repository with a boundary, and libgit2 would read beyond the boundary.
        return graph::remove_all(&place.repository).map_err(JoinError::from);
    }
    let lock = place.repository.join("objects/info/commit-graphs/commit-graph-chain.lock");
    let modified = lock.metadata().and_then(|metadata| metadata.modified()).ok();
    if modified.and_then(|at| at.elapsed().ok()).is_some_and(|age| age > GRAPH_LIMIT) {
        // The lock of a killed process would block all later writers.
        remove(&lock);
    }
    let split = if all { "--split=replace" } else { "--split" };
    let words = ["commit-graph", "write", "--reachable", split, "--no-progress"];
    let command = git.command(&[&BOUNDS[..], &words].concat());
    run(command, place, "commit-graph", Vec::new(), stopped).await.map(drop)
}

/// Moves a drafted pack to its place and removes the packs that it replaces, after checking that it has all of their objects
/// `but` these. `name` is `None` if there are no other objects.
pub(super) fn publish(
    place: &MaintenancePaths,
    packs: &[Pack],
    name: Option<&str>,
    but: &BTreeSet<Id>,
) -> Result<(), JoinError> {
    let (draft, folder) = (&place.drafts(), place.packs());
    let index = name.map(|name| draft.join(format!("{name}.idx")));
    for pack in packs {
        let part = folder.join(format!("{}.idx", pack.name));
        if !index::has_all(index.as_deref(), &part, but).map_err(JoinError::Read)? {
            return Err(JoinError::Lacks(pack.name.clone()));
        }
    }
    let mut files: Vec<PathBuf> = std::fs::read_dir(draft)
        .map_err(durable::Error::of("read", draft))?
        .flatten()
        .map(|entry| entry.path())
        .collect();
    // Rename the index last: a pack is used once its index is visible.
    files.sort_by_key(|path| path.extension().is_some_and(|extension| extension == "idx"));
    durable::sync_all(&files.iter().map(PathBuf::as_path).collect::<Vec<_>>())?;
    for file in files.iter().filter(|file| name.is_some_and(|name| file.file_stem().is_some_and(|stem| stem == name))) {
        let to = folder.join(file.file_name().unwrap_or_default());
        std::fs::rename(file, &to).map_err(durable::Error::of("rename", file))?;
    }
    durable::sync(&folder)?;
    // It names packs that are removed now. Without it, Git searches each pack.
    if folder.join("multi-pack-index").exists() {
        remove(&folder.join("multi-pack-index"));
        // Before they are removed, or it would be damaged.
        durable::sync(&folder)?;
    }
    for pack in packs.iter().filter(|pack| Some(pack.name.as_str()) != name) {
        let of = |extension: &str| folder.join(format!("{}.{extension}", pack.name));
        let modified = of("pack").metadata().and_then(|metadata| metadata.modified());
        // Git has reused an object in it or rewritten it meanwhile, or it is marked as kept: it stays, as a duplicate.
        if modified.is_ok_and(|at| at > pack.modified) || of("keep").exists() {
            continue;
        }
        // Remove the index first: without it no process starts to use the pack.
        for extension in ["idx", "pack", "rev", "bitmap"] {
            remove(&of(extension));
        }
    }
    Ok(())
}

/// Removes a file. If that fails, it is only a duplicate, and the next repack removes it.
fn remove(path: &Path) {
    if let Err(error) = std::fs::remove_file(path)
        && error.kind() != io::ErrorKind::NotFound
    {
        tracing::warn!(file = %path.display(), %error, "cannot remove a pack that is part of a larger one");
    }
}

/// Runs `git` at low priority and returns its output. If stopped, it gets time to remove its unfinished files.
pub(super) async fn run(
    mut started: Command,
    place: &MaintenancePaths,
    command: &'static str,
    input: Vec<u8>,
    stopped: &watch::Receiver<bool>,
) -> Result<String, JoinError> {
    started.env("GIT_DIR", &place.repository).stdin(Stdio::piped());
    let mut running = Running::start(&mut started).map_err(JoinError::Run)?;
    if let Some(pid) = running.child().id().and_then(|id| rustix::process::Pid::from_raw(id.cast_signed())) {
        // The priority is an optimization.
        let _ended = rustix::process::setpriority_process(Some(pid), NICE);
    }
    let child = running.child();
    let (stdin, stdout, stderr) = (child.stdin.take(), child.stdout.take(), child.stderr.take());
    let work = async {
        let feed = async {
            if let Some(mut stdin) = stdin {
                // If `git` exits early, its error output says why.
                let _ended = stdin.write_all(&input).await;
            }
        };
        let listen = async {
            match stdout {
                Some(stdout) => stderr_excerpt(stdout).await,
                None => String::new(),
            }
        };
        let complain = async {
            match stderr {
                Some(stderr) => stderr_excerpt(stderr).await,
                None => String::new(),
            }
        };
        let ((), said, complaint) = tokio::join!(feed, listen, complain);
        match running.child().wait().await {
            Ok(status) if status.success() => Ok(said),
            Ok(status) if complaint.is_empty() => Err(JoinError::Git { command, said: status.to_string() }),
            Ok(_) => Err(JoinError::Git { command, said: complaint }),
            Err(error) => Err(JoinError::Run(error)),
        }
    };
    let late = |_| Err(JoinError::Git { command, said: format!("timed out after {LIMIT:?}") });
    let mut stopped = stopped.clone();
    let outcome = tokio::select! {
        ended = tokio::time::timeout(LIMIT, work) => ended.unwrap_or_else(late),
        _ = stopped.wait_for(|stopped| *stopped) => Err(JoinError::Stopped),
    };
    running.stop().await;
    outcome
}
