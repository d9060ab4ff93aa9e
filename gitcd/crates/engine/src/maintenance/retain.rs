//! Cuts the history of a repository: older commits are archived in another repository, and removed from this one.
//!
//! The steps, each durable before the next one:
//!
//! 1. The archive gets all commits that go, by a push, and so checks that it has every object.
//! 2. `gitcd-maintenance/cuts` records the cut, so that no gitcd fetches the removed history again.
//! 3. The removed objects are recorded as unreachable since long ago.
//! 4. The file `shallow` makes the oldest kept commits the boundary of the history (gitformat-shallow). From here on, no program
//!    reads beyond it.
//! 5. The removed objects are pruned like any others.
//!
//! A crash between two steps leaves a repository with more objects than needed, never with fewer. Running it again continues.
//!
//! Source: `docs/design/retention.md`.

use std::collections::BTreeSet;
use std::fs;
use std::io::ErrorKind;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use git2::Oid;
use gitcd_core::durable;
use gitcd_core::program::Program;
use gitcd_mvcc::snapshot::{Snapshot, SnapshotError};
use tokio::sync::watch;

use super::join::{JoinError, run};
use super::record::Record;
use super::{MaintenanceLock, OWN, prune};

/// The first line of the record of cuts.
const FORMAT: &str = "gitcd cuts 1";
/// Settings under which the archive is written: it may soon be the only copy.
const DURABLE: [&str; 2] = ["-c", "core.fsync=all"];

/// A cut to make.
#[derive(Clone, Debug)]
pub struct Cut {
    /// The oldest revision that is kept.
    pub revision: i64,
    /// The data commit with this revision, and the metadata commit that describes it.
    pub oldest: [Oid; 2],
    /// The references of the branch: of its data and of its metadata.
    pub references: [String; 2],
    /// The commits that lose their parents.
    pub boundary: BTreeSet<Oid>,
    /// The newest commits that go.
    pub removed: BTreeSet<Oid>,
}

/// When removed objects are pruned.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Prune {
    /// Immediately. Only if no gitcd serves the repository, and no other program writes to it.
    Now,
    /// With the daily search, after the repository's grace period.
    Later,
}

/// Why a history was not cut.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum RetainError {
    /// Maintenance is running.
    #[error("maintenance of {0:?} is running; try again when it has finished")]
    Busy(PathBuf),
    /// Another program changes the boundary.
    #[error("{0:?} exists: another Git program changes the boundary of the history; if none runs, remove the file")]
    Locked(PathBuf),
    /// The archive is not a repository of its own.
    #[error("{0:?} is the repository itself; an archive is another repository")]
    Same(PathBuf),
    /// The path of the archive cannot be given to Git.
    #[error("{0:?} is not an absolute path in UTF-8")]
    Path(PathBuf),
    /// A step failed. Nothing is lost; run it again to continue.
    #[error(transparent)]
    Maintenance(#[from] JoinError),
    /// The local state of a branch cannot be read, so it is not known which history it needs.
    #[error(transparent)]
    Snapshot(#[from] SnapshotError),
    /// A file cannot be written.
    #[error(transparent)]
    Durable(#[from] durable::Error),
}

/// Returns the metadata commits from which gitcds would replay their journals, each with the name of its branch: they must stay.
///
/// # Errors
/// [`RetainError::Snapshot`].
pub fn replayed_from(repository: &Path) -> Result<Vec<(String, Oid)>, RetainError> {
    let mut found = Vec::new();
    for entry in fs::read_dir(repository.join("gitcd")).into_iter().flatten().flatten() {
        if let Some(snapshot) = Snapshot::read(&entry.path())? {
            let oid = Oid::from_bytes(&snapshot.metadata).expect("an object ID has 20 bytes");
            found.push((entry.file_name().to_string_lossy().into_owned(), oid));
        }
    }
    Ok(found)
}

/// Cuts the history of the repository in this folder. Prunes what this cut, or an earlier one that was interrupted, removed, and
/// returns the number of pruned objects.
///
/// Takes the time of a push of what goes, of `git rev-list --objects` of it, and of pruning. Memory: the IDs of the removed objects.
///
/// # Errors
/// [`RetainError`].
pub async fn retain(
    git: &Program,
    repository: &Path,
    cut: Option<&Cut>,
    archive: Option<&Path>,
    when: Prune,
    stopped: &watch::Receiver<bool>,
) -> Result<usize, RetainError> {
    let Some(turn) = MaintenanceLock::take(repository)? else {
        return Err(RetainError::Busy(repository.to_owned()));
    };
    if let Some(cut) = cut {
        if let Some(archive) = archive {
            keep(git, &turn, cut, archive, stopped).await?;
        }
        record(repository, cut)?;
        expire(git, &turn, cut, stopped).await?;
        set_boundary(repository, &cut.boundary)?;
    }
    if when == Prune::Later {
        return Ok(0);
    }
    // Nothing else is old enough: what is unreachable for another reason keeps its own grace period.
    let now = SystemTime::now() + prune::UNTOUCHED;
    Ok(prune::prune(git, &turn.place, Duration::from_hours(24 * 365), now, stopped).await?)
}

/// Records the objects that go as unreachable since long ago. As long as they are reachable, the record has no effect.
async fn expire(
    git: &Program,
    turn: &MaintenanceLock,
    cut: &Cut,
    stopped: &watch::Receiver<bool>,
) -> Result<(), RetainError> {
    turn.place.clear()?;
    let listed = turn.place.draft.join("cut");
    let roots: Vec<u8> = cut.removed.iter().flat_map(|oid| format!("{oid}\n").into_bytes()).collect();
    let walk = ["rev-list", "--objects", "--no-object-names", "--stdin"];
    prune::list(git, &turn.place, &walk, roots, &listed, stopped).await?;
    let mut known = Record::read(&turn.place);
    for id in prune::ids(&listed)? {
        known.add(id?, UNIX_EPOCH);
    }
    Ok(known.write(&turn.place)?)
}

/// Copies what goes to the archive, a bare repository that is created if there is none, under the names that it has here.
async fn keep(
    git: &Program,
    turn: &MaintenanceLock,
    cut: &Cut,
    archive: &Path,
    stopped: &watch::Receiver<bool>,
) -> Result<(), RetainError> {
    if is_one_file(&turn.place.repository, archive) {
        return Err(RetainError::Same(archive.to_owned()));
    }
    let Some(folder) = archive.to_str().filter(|_| archive.is_absolute()) else {
        return Err(RetainError::Path(archive.to_owned()));
    };
    if !archive.join("HEAD").exists() {
        durable::make_folder(archive)?;
        let branch = cut.references[0].strip_prefix("refs/heads/").unwrap_or("main");
        let init = ["init", "--quiet", "--bare", "--initial-branch", branch, folder];
        run(git.command(&init), &turn.place, "init", Vec::new(), stopped).await?;
    }
    let mut words = DURABLE.map(ToOwned::to_owned).to_vec();
    words.extend(["push", "--quiet", "--porcelain"].map(ToOwned::to_owned));
    words.push(folder.to_owned());
    words.extend(cut.oldest.iter().zip(&cut.references).map(|(oid, reference)| format!("{oid}:{reference}")));
    let words: Vec<&str> = words.iter().map(String::as_str).collect();
    let mut push = git.command(&words);
    // Git's own receive-pack reads the archive's configuration; this applies to it as well.
    push.env("GIT_CONFIG_COUNT", "1").env("GIT_CONFIG_KEY_0", "core.fsync").env("GIT_CONFIG_VALUE_0", "all");
    run(push, &turn.place, "push", Vec::new(), stopped).await?;
    durable::sync(archive)?;
    Ok(())
}

/// Records a cut in the repository.
fn record(repository: &Path, cut: &Cut) -> Result<(), durable::Error> {
    let path = cuts(repository);
    let known = fs::read_to_string(&path).unwrap_or_default();
    let known = known.strip_prefix(&format!("{FORMAT}\n")).unwrap_or_default();
    let [data, metadata] = &cut.oldest;
    let line = format!("{} {} {data} {metadata}\n", cut.references[0], cut.revision);
    if known.ends_with(&line) {
        return Ok(());
    }
    durable::make_folder(&repository.join(OWN))?;
    durable::replace(&path, format!("{FORMAT}\n{known}{line}").as_bytes())
}

fn cuts(repository: &Path) -> PathBuf {
    repository.join(OWN).join("cuts")
}

/// Returns whether the history of the repository in this folder was cut here, rather than cloned without its beginning.
pub fn is_cut(repository: &Path) -> bool {
    cuts(repository).exists()
}

/// Makes these commits the boundary of the history, under Git's own lock. The lock is a link to a file of gitcd, so that one that a
/// killed gitcd left is recognized.
fn set_boundary(repository: &Path, boundary: &BTreeSet<Oid>) -> Result<(), RetainError> {
    let (path, lock) = (repository.join("shallow"), repository.join("shallow.lock"));
    let own = repository.join(OWN).join("shallow");
    if is_one_file(&own, &lock) {
        fs::remove_file(&lock).map_err(durable::Error::of("remove", &lock))?;
    }
    let lines: Vec<String> = boundary.iter().map(Oid::to_string).collect();
    durable::replace(&own, format!("{}\n", lines.join("\n")).as_bytes())?;
    match fs::hard_link(&own, &lock) {
        Ok(()) => {}
        Err(error) if error.kind() == ErrorKind::AlreadyExists => return Err(RetainError::Locked(lock)),
        Err(error) => return Err(durable::Error::of("create", &lock)(error).into()),
    }
    durable::rename(&lock, &path)?;
    durable::sync(repository)?;
    fs::remove_file(&own).map_err(durable::Error::of("remove", &own))?;
    Ok(())
}

fn is_one_file(one: &Path, other: &Path) -> bool {
    let inode = |path: &Path| fs::metadata(path).ok().map(|file| (file.dev(), file.ino()));
    inode(one).is_some_and(|own| inode(other) == Some(own))
}
