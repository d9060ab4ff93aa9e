//! The archive: an ordinary bare repository with the removed commits. It may soon have the only copy of them.

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::io::ErrorKind;
use std::os::unix::fs::MetadataExt as _;
use std::path::Path;

use git2::{Oid, Repository};
use gitcd_core::durable;
use gitcd_repo::partial::is_partial;
use gitcd_repo::refs::{RefError, Refs};
use rustix::fs::FlockOperation;

use super::super::join::run;
use super::{CutRequest, RetainError, Retention};

/// Settings of the receiving side, which does not get those of the sending side: every file is synced, no hook runs, and it waits
/// for the lock of a reference.
const RECEIVE: &str = "git -c core.fsync=all -c core.fsyncMethod=fsync -c core.hooksPath=/dev/null \
                       -c receive.unpackLimit=1 -c core.filesRefLockTimeout=10000";

/// How often a push is repeated because the archive has changed meanwhile.
const AT_MOST: usize = 3;

/// A file in an archive that is being created.
const STARTED: &str = "gitcd-new";

/// The right to change an archive. Until this is dropped, no other `gitcd retain` uses it.
#[derive(Debug)]
pub(super) struct ArchiveLock(File);

impl ArchiveLock {
    /// Locks the folder of the archive, which must exist. Some network file systems cannot lock folders: there, nothing is locked.
    fn take(archive: &Path) -> Result<Self, RetainError> {
        let folder = File::open(archive).map_err(durable::Error::of("open", archive))?;
        match rustix::fs::flock(&folder, FlockOperation::NonBlockingLockExclusive) {
            Ok(()) => {}
            Err(rustix::io::Errno::WOULDBLOCK) => return Err(RetainError::ArchiveBusy(archive.to_owned())),
            Err(error) => tracing::debug!(archive = %archive.display(), %error, "the archive cannot be locked"),
        }
        Ok(Self(folder))
    }
}

impl Drop for ArchiveLock {
    fn drop(&mut self) {
        // A process that is just being spawned may have inherited the descriptor for a moment.
        let _ended = rustix::fs::flock(&self.0, FlockOperation::Unlock);
    }
}

/// Copies the commits that will be removed to the archive, under the names of their references here. Creates the archive if it does
/// not exist. If an interrupted run archived more, that stays.
///
/// Returns the lock of the archive, to be held until the cut is made.
pub(super) async fn keep(of: &Retention, cut: &CutRequest, archive: &Path) -> Result<ArchiveLock, RetainError> {
    let Some(folder) = archive.to_str().filter(|path| archive.is_absolute() && !path.contains('\n')) else {
        return Err(RetainError::Path(archive.to_owned()));
    };
    // Before anything is created.
    check(of.repository(), archive)?;
    durable::make_folder(archive)?;
    let lock = ArchiveLock::take(archive)?;
    fill(of, cut, archive, folder).await?;
    Ok(lock)
}

/// Copies the commits to the archive, whose folder exists and is locked.
pub(super) async fn fill(of: &Retention, cut: &CutRequest, archive: &Path, folder: &str) -> Result<(), RetainError> {
    if !archive.join("HEAD").exists() || archive.join(STARTED).exists() {
        create(of, cut, archive, folder).await?;
    }
    for again in 0.. {
        let known = references(archive)?;
        let Err(error) = push(of, cut, archive, folder, &known).await else { break };
        // Of a killed run, the receiving side may have been about to end.
        if again == AT_MOST || references(archive)? == known {
            return Err(error);
        }
    }
    check(of.repository(), archive)?;
    has_all(cut, archive)?;
    reaches_all(of, cut, archive, folder).await?;
    // Git syncs files, but not the folders that have them.
    sync_folders(archive)?;
    archive.parent().map_or(Ok(()), durable::sync)?;
    Ok(())
}

/// Pushes what the archive lacks, if it has these references.
async fn push(
    of: &Retention,
    cut: &CutRequest,
    archive: &Path,
    folder: &str,
    known: &BTreeMap<String, Oid>,
) -> Result<(), RetainError> {
    let specs: Vec<String> = cut
        .oldest
        .iter()
        .zip(&cut.references)
        .filter(|(oid, reference)| !known.get(*reference).is_some_and(|tip| has(archive, *tip, **oid)))
        .map(|(oid, reference)| format!("{oid}:{reference}"))
        .collect();
    if specs.is_empty() {
        return Ok(());
    }
    // What an earlier cut removed without an archive, or to another one, is not there: a new archive begins at that cut.
    let may_begin_later =
        cut.plan.before.cut().is_some() && !cut.references.iter().any(|reference| known.contains_key(reference));
    let receive = if may_begin_later { format!("{RECEIVE} -c receive.shallowUpdate=true") } else { RECEIVE.to_owned() };
    let receive = format!("--receive-pack={receive} receive-pack");
    let hooks = "core.hooksPath=/dev/null";
    let flags = ["-c", hooks, "push", "--quiet", "--porcelain", "--atomic", "--no-verify", &receive, "--", folder];
    let words: Vec<&str> = flags.into_iter().chain(specs.iter().map(String::as_str)).collect();
    let pushed = run(of.git.command(&words), &of.turn.place, "push", Vec::new(), &of.stopped).await;
    pushed.map(drop).map_err(|source| RetainError::Archive { folder: archive.to_owned(), source })
}

/// Creates the archive. Starts over if a killed run left an incomplete one.
async fn create(of: &Retention, cut: &CutRequest, archive: &Path, folder: &str) -> Result<(), RetainError> {
    let started = archive.join(STARTED);
    if started.exists() {
        // Nothing was archived yet. Git would not start with the lock of a killed one.
        for path in durable::entries(archive)?.into_iter().filter(|path| *path != started) {
            let removed = if path.is_dir() { fs::remove_dir_all(&path) } else { fs::remove_file(&path) };
            removed.map_err(durable::Error::of("remove", &path))?;
        }
    } else {
        if !durable::entries(archive)?.is_empty() {
            return Err(RetainError::NoArchive(archive.to_owned()));
        }
        // An empty file is created in one step, so a kill leaves no temporary file.
        durable::create(&started, durable::PRIVATE_FILE, b"")?;
        durable::sync(archive)?;
    }
    let branch = cut.references[0].strip_prefix("refs/heads/").unwrap_or("main");
    let branch = format!("--initial-branch={branch}");
    let init = ["-c", "core.fsync=all", "init", "--quiet", "--bare", &branch, folder];
    run(of.git.command(&init), &of.turn.place, "init", Vec::new(), &of.stopped).await?;
    sync_folders(archive)?;
    fs::remove_file(&started).map_err(durable::Error::of("remove", &started))?;
    Ok(())
}

/// Refuses an archive that does not have its objects itself.
fn check(repository: &Path, archive: &Path) -> Result<(), RetainError> {
    let is_same = is_one(repository, archive) || is_one(&repository.join("objects"), &archive.join("objects"));
    if is_same {
        return Err(RetainError::Same(archive.to_owned()));
    }
    for name in ["objects/info/alternates", "objects/info/http-alternates"] {
        let path = archive.join(name);
        if fs::metadata(&path).is_ok() {
            return Err(RetainError::Borrows(archive.to_owned()));
        }
    }
    if is_partial(archive) {
        return Err(RetainError::PartialArchive(archive.to_owned()));
    }
    Ok(())
}

/// Fails if the archive lacks a commit that will be removed. A push that only continues a shallow history succeeds, although older
/// commits are missing there.
fn has_all(cut: &CutRequest, archive: &Path) -> Result<(), RetainError> {
    let failed = |source| RefError::Open { path: archive.to_owned(), source };
    let opened = Repository::open(archive).map_err(failed)?;
    let odb = opened.odb().map_err(failed)?;
    let mut missing = cut.plan.removed.iter().copied().filter(|oid| !odb.exists(*oid));
    match missing.next() {
        None => Ok(()),
        Some(first) => Err(RetainError::Incomplete { folder: archive.to_owned(), missing: 1 + missing.count(), first }),
    }
}

fn references(archive: &Path) -> Result<BTreeMap<String, Oid>, RetainError> {
    Ok(Refs::open(archive)?.list()?.into_iter().collect())
}

/// Returns whether the archive has a commit in the history of another one.
fn has(archive: &Path, tip: Oid, commit: Oid) -> bool {
    let Ok(opened) = Repository::open(archive) else { return false };
    tip == commit || opened.graph_descendant_of(tip, commit).unwrap_or(false)
}

/// Fails if the archive has a commit that will be removed only as an unreachable object, as a shallow repository may until `git gc`. A
/// commit that a reference reaches has its objects, unless this is a partial clone.
async fn reaches_all(of: &Retention, cut: &CutRequest, archive: &Path, folder: &str) -> Result<(), RetainError> {
    let known = references(archive)?;
    let tips = cut.references.iter().filter_map(|reference| known.get(reference));
    let lines = cut.plan.removed.iter().map(|oid| format!("{oid}\n")).chain(tips.map(|tip| format!("^{tip}\n")));
    let input = lines.collect::<String>().into_bytes();
    let there = format!("--git-dir={folder}");
    let words = [there.as_str(), "rev-list", "--max-count=1", "--stdin"];
    let found = run(of.git.command(&words), &of.turn.place, "rev-list", input, &of.stopped).await?;
    match Oid::from_str(found.trim()) {
        Ok(first) => Err(RetainError::Unreachable { folder: archive.to_owned(), first }),
        Err(_) => Ok(()),
    }
}

/// Syncs a folder and those in it. One that vanishes meanwhile is a temporary one of another `git`.
fn sync_folders(folder: &Path) -> Result<(), durable::Error> {
    for path in durable::entries(folder)? {
        if path.is_dir() && !path.is_symlink() {
            sync_folders(&path)?;
        }
    }
    match durable::sync(folder) {
        Err(error) if error.source.kind() == ErrorKind::NotFound => Ok(()),
        synced => synced,
    }
}

fn is_one(one: &Path, other: &Path) -> bool {
    let inode = |path: &Path| fs::metadata(path).ok().map(|file| (file.dev(), file.ino()));
    inode(one).is_some_and(|own| inode(other) == Some(own))
}
