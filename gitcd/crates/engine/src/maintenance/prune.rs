//! Prunes objects that have been unreachable for a grace period.
//!
//! `git rev-list` lists what is reachable from references, reflogs and work trees. All other objects, loose or in ordinary packs,
//! are recorded with the time at which they were first seen unreachable, whatever their age: a branch may have been moved back a
//! moment ago. After the grace period, unless a more recent unreachable object refers to them, their packs are rewritten without
//! them. A crash at any point leaves duplicates or unreachable objects, never a gap.

use std::collections::{BTreeMap, BTreeSet};
use std::fs::{self, File};
use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::Stdio;
use std::time::{Duration, SystemTime};

use gitcd_core::durable;
use gitcd_core::program::Program;
use gitcd_repo::alternates::ObjectsUnused;
use gitcd_repo::boundary;
use tokio::process::Command;
use tokio::sync::watch;

use super::choose::Pack;
use super::index::{self, Id};
use super::join::{BOUNDS, JoinError, MaintenancePaths, make_pack, publish, run, write_commit_graph};
use super::record::Record;

mod cut_off;
mod found;

use found::{Found, Unreachable, reached_in};

/// Which unreachable objects are pruned.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum PruneScope {
    /// Those that were unreachable for so long, and since the last cut of the history.
    Since(Duration),
    /// Those that cuts of the history removed, immediately. No other process uses the repository.
    CutOff,
}

/// Git touches a pack that has an object it was about to write, and may be about to refer to that object.
pub(super) const UNTOUCHED: Duration = Duration::from_hours(1);
/// Attempts to lock the objects, which a push or a fetch keeps locked for moments.
const LOCK_ATTEMPTS: u32 = if cfg!(test) { 10 } else { 200 };
/// The pause between two attempts.
const LOCK_PAUSE: Duration = Duration::from_millis(50);
/// The roots of all objects that must be kept.
const ROOTS: [&str; 3] = ["--all", "--reflog", "--indexed-objects"];

fn is_untouched(modified: SystemTime, now: SystemTime) -> bool {
    now.duration_since(modified).is_ok_and(|age| age >= UNTOUCHED)
}

/// Prunes unreachable objects, and returns their number. Nothing is pruned while a gitcd reads the objects of the repository for
/// another one, or receives some: it may use what is unreachable here.
///
/// Takes as long as `git rev-list --objects --all`, and rewrites the rest of the affected packs.
pub(super) async fn prune(
    git: &Program,
    place: &MaintenancePaths,
    which: PruneScope,
    now: SystemTime,
    stopped: &watch::Receiver<bool>,
) -> Result<usize, JoinError> {
    // Locked again before objects are deleted. If that is impossible now, a search would be in vain.
    drop(wait_alone(&place.repository, stopped).await?);
    let repository = place.repository.clone();
    let is_cut = blocking(move || Ok(boundary::is_cut(&repository)?)).await?;
    place.clear()?;
    let pruned = look_and_prune(git, place, (which, is_cut), now, stopped).await;
    if pruned.is_err() {
        place.give_back();
    }
    pruned
}

async fn look_and_prune(
    git: &Program,
    place: &MaintenancePaths,
    (which, is_cut): (PruneScope, bool),
    now: SystemTime,
    stopped: &watch::Receiver<bool>,
) -> Result<usize, JoinError> {
    let tips = place.draft.join("tips");
    list(git, place, &["for-each-ref", "--format=^%(objectname)"], Vec::new(), &tips, stopped).await?;
    let reached = place.draft.join("reached");
    let walk = [&["rev-list", "--objects", "--no-object-names"], &ROOTS[..]].concat();
    list(git, place, &walk, Vec::new(), &reached, stopped).await?;

    let (here, listed) = (place.clone(), reached.clone());
    let (before, mut found) =
        blocking(move || Ok((known_tips(&tips, &listed)?, Found::look(&here, &listed, now)?))).await?;
    if which == PruneScope::CutOff {
        cut_off::mark(git, place, &mut found.unreachable, stopped).await?;
    }
    let since = |unreachable: &Unreachable| now.duration_since(unreachable.since).unwrap_or_default();
    let is_old = |it: &Unreachable| match which {
        PruneScope::Since(grace) => since(it) >= grace && !it.is_touched,
        PruneScope::CutOff => it.is_cut_off,
    };
    let (mut old, young): (BTreeMap<_, _>, BTreeMap<_, _>) = found.unreachable.iter().partition(|(_, it)| is_old(it));
    if !old.is_empty() {
        // A new reference may be about to be made to a young object, and so to all that it refers to.
        let led_to = place.draft.join("led-to");
        let roots = young.keys().copied().chain(&found.apart);
        let mut input: Vec<u8> = roots.flat_map(|id| [id.hex().as_bytes(), b"\n"].concat()).collect();
        if !input.is_empty() {
            input.extend_from_slice(&before);
            let walk = ["rev-list", "--objects", "--no-object-names", "--ignore-missing", "--stdin"];
            let mut command = listing(git, &walk, &led_to)?;
            if is_cut {
                // What is before a commit that was cut off need not be there.
                command.env("GIT_SHALLOW_FILE", cut_off::ends(place, found.unreachable.keys().chain(&found.apart))?);
            }
            run(command, place, "rev-list", input, stopped).await?;
            for id in ids(&led_to)? {
                old.remove(&id?);
            }
        }
    }
    let old: BTreeSet<Id> = old.into_keys().copied().collect();
    let (numbers, affected) = found.affected(&old, now);
    let goes = |id: &Id, unreachable: &Unreachable| {
        old.contains(id)
            && unreachable.packs.iter().all(|number| numbers.contains(number))
            && unreachable.loose.is_none_or(|at| is_untouched(at, now))
    };
    let mut record = Record::new(now);
    found.unreachable.iter().filter(|(id, it)| !goes(id, it)).for_each(|(id, it)| record.add(*id, it.since));
    let count = found.unreachable.iter().filter(|(id, it)| goes(id, it)).count();
    if count == 0 {
        blocking({
            let place = place.clone();
            move || Ok(record.write(&place)?)
        })
        .await?;
        return Ok(0);
    }
    let named = rest_of(place, &affected, &old).await?;
    let name = if named.is_empty() { None } else { Some(make_pack(git, place, &[], named, stopped).await?) };
    // The old graph names commits that are pruned now.
    write_commit_graph(git, place, true, stopped).await?;
    // Objects may have become reachable meanwhile. A push or a fetch holds the lock from before it looks for an object until references
    // lead to that object. So either the walk finds the object, or they look for it after it was deleted.
    let alone = wait_alone(&place.repository, stopped).await?;
    let recent = place.draft.join("recent");
    let walk = [&["rev-list", "--objects", "--no-object-names", "--ignore-missing", "--stdin"], &ROOTS[..]].concat();
    list(git, place, &walk, before, &recent, stopped).await?;
    for id in ids(&recent)? {
        if old.contains(&id?) {
            return Err(JoinError::Moved);
        }
    }
    let (here, loose) = (place.clone(), found.loose_of(&old));
    let removed = blocking(move || {
        if !affected.is_empty() {
            publish(&here, &affected, name.as_deref(), &old)?;
        }
        loose.iter().for_each(|id| remove_loose(&here, id, now));
        record.write(&here)?;
        drop(alone);
        Ok(count)
    });
    removed.await
}

/// Returns the right to delete objects of a repository.
pub(super) fn alone(repository: &Path) -> Result<ObjectsUnused, JoinError> {
    let taken = ObjectsUnused::take(repository).map_err(JoinError::Read)?;
    taken.ok_or_else(|| JoinError::InUse(repository.to_owned()))
}

/// Returns the right to delete objects of a repository. Waits about ten seconds for pushes and fetches.
async fn wait_alone(repository: &Path, stopped: &watch::Receiver<bool>) -> Result<ObjectsUnused, JoinError> {
    let mut stopped = stopped.clone();
    let mut attempts = 1;
    loop {
        let folder = repository.to_owned();
        match blocking(move || alone(&folder)).await {
            Err(JoinError::InUse(_)) if attempts < LOCK_ATTEMPTS => attempts += 1,
            taken => return taken,
        }
        tokio::select! {
            () = tokio::time::sleep(LOCK_PAUSE) => {}
            _ = stopped.wait_for(|stopped| *stopped) => return Err(JoinError::Stopped),
        }
    }
}

/// Returns the grace period that the repository's `gc.pruneExpire` sets, in any of Git's formats.
pub(super) async fn grace(
    git: &Program,
    place: &MaintenancePaths,
    stopped: &watch::Receiver<bool>,
) -> Result<Duration, JoinError> {
    place.clear()?;
    let to = place.draft.join("expire");
    let words = ["config", "--type=expiry-date", "--default=2.weeks.ago", "--get", "gc.pruneExpire"];
    list(git, place, &words, Vec::new(), &to, stopped).await?;
    let text = fs::read_to_string(&to).map_err(JoinError::Read)?;
    let before = text.trim().parse().map_or(Some(SystemTime::UNIX_EPOCH), |seconds| {
        SystemTime::UNIX_EPOCH.checked_add(Duration::from_secs(seconds))
    });
    // `now` is a time beyond the range of the clock, `never` is the epoch. Git counts from the current time.
    Ok(before.and_then(|before| SystemTime::now().duration_since(before).ok()).unwrap_or_default())
}

/// Runs `git` with its output redirected to a file.
async fn list(
    git: &Program,
    place: &MaintenancePaths,
    words: &[&str],
    input: Vec<u8>,
    to: &Path,
    stopped: &watch::Receiver<bool>,
) -> Result<(), JoinError> {
    let name = match words[0] {
        "rev-list" => "rev-list",
        "config" => "config",
        _ => "for-each-ref",
    };
    run(listing(git, words, to)?, place, name, input, stopped).await.map(drop)
}

/// Returns the command `git` with its output redirected to a file.
fn listing(git: &Program, words: &[&str], to: &Path) -> Result<Command, JoinError> {
    let file = File::create(to).map_err(durable::Error::of("create", to))?;
    let mut command = git.command(&[&BOUNDS[..], words].concat());
    command.stdout(Stdio::from(file));
    // Git before 2.34 would skip references to missing objects, and all that is reachable from them.
    command.env("GIT_REF_PARANOIA", "1");
    Ok(command)
}

async fn blocking<T: Send + 'static>(
    work: impl FnOnce() -> Result<T, JoinError> + Send + 'static,
) -> Result<T, JoinError> {
    tokio::task::spawn_blocking(work).await.expect("searching for unreachable objects does not panic")
}

/// Returns the IDs of a list with one per line.
fn ids(path: &Path) -> Result<impl Iterator<Item = Result<Id, JoinError>>, JoinError> {
    let lines = BufReader::new(File::open(path).map_err(JoinError::Read)?).lines();
    Ok(lines.map(|line| Id::parse(&line.map_err(JoinError::Read)?).ok_or_else(JoinError::listed)))
}

/// Returns the tips that were reached, as `^id` lines. A later walk must not stop at a tip that was not reached, since its
/// reference moved before or after the walk.
fn known_tips(tips: &Path, reached: &Path) -> Result<Vec<u8>, JoinError> {
    let text = fs::read_to_string(tips).map_err(JoinError::Read)?;
    let tips: BTreeSet<Id> = text.lines().filter_map(|line| Id::parse(line.strip_prefix('^')?)).collect();
    let known = reached_in(reached, |id| tips.contains(id))?;
    Ok(known.iter().flat_map(|id| ["^", &id.hex(), "\n"].concat().into_bytes()).collect())
}

/// Returns the objects of these packs that are kept, one ID per line.
async fn rest_of(place: &MaintenancePaths, packs: &[Pack], old: &BTreeSet<Id>) -> Result<Vec<u8>, JoinError> {
    let (folder, packs, old) = (place.packs(), packs.to_vec(), old.clone());
    blocking(move || {
        let mut lines = Vec::new();
        for pack in packs {
            for id in index::ids(&folder.join(format!("{}.idx", pack.name))).map_err(JoinError::Read)? {
                let id = id.map_err(JoinError::Read)?;
                if !old.contains(&id) {
                    lines.extend_from_slice(id.hex().as_bytes());
                    lines.push(b'\n');
                }
            }
        }
        Ok(lines)
    })
    .await
}

/// Removes a loose object's file, unless it was just touched.
fn remove_loose(place: &MaintenancePaths, id: &Id, now: SystemTime) {
    let hex = id.hex();
    let folder = place.repository.join("objects").join(&hex[..2]);
    let path = folder.join(&hex[2..]);
    let modified = fs::metadata(&path).and_then(|metadata| metadata.modified());
    if modified.is_ok_and(|at| is_untouched(at, now)) {
        // If this fails, the next run finds the object again.
        let _ = fs::remove_file(&path);
        let _not_empty = fs::remove_dir(&folder);
    }
}

#[cfg(test)]
pub(super) mod tests;
