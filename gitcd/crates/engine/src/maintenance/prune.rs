//! Prunes objects that have been unreachable for a grace period.
//!
//! `git rev-list` lists what is reachable from references, reflogs and work trees. All other objects, loose or in ordinary packs,
//! are recorded with the time at which they were first seen unreachable, whatever their age: a branch may have been moved back a
//! moment ago. After the grace period, unless a more recent unreachable object refers to them, their packs are rewritten without
//! them. A crash at any point leaves duplicates or unreachable objects, never a gap.

use std::collections::{BTreeMap, BTreeSet};
use std::fs::{self, File};
use std::io::{self, BufRead, BufReader, Read};
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::time::{Duration, SystemTime};

use gitcd_core::durable;
use gitcd_core::program::Program;
use tokio::sync::watch;

use super::choose::{self, Pack};
use super::index::{self, Id};
use super::join::{BOUNDS, JoinError, MaintenancePaths, make_pack, publish, run, write_commit_graph};
use super::record::Record;

/// Git touches a pack that has an object it was about to write, and may be about to refer to that object.
const UNTOUCHED: Duration = Duration::from_hours(1);
/// Length of a line of `git rev-list`: an ID and a line feed.
const LINE_BYTES: usize = 41;
/// Number of IDs compared at a time.
const AT_A_TIME: usize = 1 << 20;
/// The roots of all objects that must be kept.
const ROOTS: [&str; 3] = ["--all", "--reflog", "--indexed-objects"];

/// An unreachable object.
struct Unreachable {
    /// Numbers of the packs that have it.
    packs: Vec<usize>,
    /// Modification time of its loose file, if it has one.
    loose: Option<SystemTime>,
    /// Unreachable since this time, as far as is known.
    since: SystemTime,
    /// Written, or about to be written again, a moment ago.
    is_touched: bool,
}

impl Unreachable {
    fn since(since: SystemTime) -> Self {
        Self { packs: Vec::new(), loose: None, since, is_touched: false }
    }

    /// Accounts for a file with this object and this modification time.
    fn touch(&mut self, at: SystemTime, now: SystemTime) {
        if !is_untouched(at, now) {
            self.is_touched = true;
            self.since = now;
        }
    }
}

fn is_untouched(modified: SystemTime, now: SystemTime) -> bool {
    now.duration_since(modified).is_ok_and(|age| age >= UNTOUCHED)
}

/// Prunes objects that were unreachable for `grace`, and returns their number.
///
/// Takes as long as `git rev-list --objects --all`, and rewrites the rest of the affected packs.
pub(super) async fn prune(
    git: &Program,
    place: &MaintenancePaths,
    grace: Duration,
    now: SystemTime,
    stopped: &watch::Receiver<bool>,
) -> Result<usize, JoinError> {
    place.clear()?;
    let pruned = look_and_prune(git, place, grace, now, stopped).await;
    if pruned.is_err() {
        place.give_back();
    }
    pruned
}

async fn look_and_prune(
    git: &Program,
    place: &MaintenancePaths,
    grace: Duration,
    now: SystemTime,
    stopped: &watch::Receiver<bool>,
) -> Result<usize, JoinError> {
    let tips = place.draft.join("tips");
    list(git, place, &["for-each-ref", "--format=^%(objectname)"], Vec::new(), &tips, stopped).await?;
    let reached = place.draft.join("reached");
    let walk = [&["rev-list", "--objects", "--no-object-names"], &ROOTS[..]].concat();
    list(git, place, &walk, Vec::new(), &reached, stopped).await?;

    let (here, listed) = (place.clone(), reached.clone());
    let (before, found) =
        blocking(move || Ok((known_tips(&tips, &listed)?, Found::look(&here, &listed, now)?))).await?;
    let since = |unreachable: &Unreachable| now.duration_since(unreachable.since).unwrap_or_default();
    let (mut old, young): (BTreeMap<_, _>, BTreeMap<_, _>) =
        found.unreachable.iter().partition(|(_, it)| since(it) >= grace && !it.is_touched);
    if !old.is_empty() {
        // A new reference may be about to be made to a young object, and so to all that it refers to.
        let led_to = place.draft.join("led-to");
        let roots = young.keys().copied().chain(&found.apart);
        let mut input: Vec<u8> = roots.flat_map(|id| [id.hex().as_bytes(), b"\n"].concat()).collect();
        if !input.is_empty() {
            input.extend_from_slice(&before);
            let walk = ["rev-list", "--objects", "--no-object-names", "--ignore-missing", "--stdin"];
            list(git, place, &walk, input, &led_to, stopped).await?;
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
    // Objects may have become reachable meanwhile.
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
        Ok(count)
    });
    removed.await
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
    let file = File::create(to).map_err(durable::Error::of("create", to))?;
    let mut command = git.command(&[&BOUNDS[..], words].concat());
    command.stdout(Stdio::from(file));
    // Git before 2.34 would skip references to missing objects, and all that is reachable from them.
    command.env("GIT_REF_PARANOIA", "1");
    let name = match words[0] {
        "rev-list" => "rev-list",
        "config" => "config",
        _ => "for-each-ref",
    };
    run(command, place, name, input, stopped).await.map(drop)
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

/// The unreachable objects, and the packs that may be rewritten.
struct Found {
    packs: Vec<Pack>,
    unreachable: BTreeMap<Id, Unreachable>,
    /// Unreachable objects in packs that must not be rewritten: they count as roots.
    apart: Vec<Id>,
    folder: PathBuf,
}

impl Found {
    fn look(place: &MaintenancePaths, reached: &Path, now: SystemTime) -> Result<Self, JoinError> {
        let folder = place.packs();
        let packs = choose::ordinary(&folder, now, super::SETTLED);
        let others = choose::others(&folder, &packs);
        let record = Record::read(place);
        let (mut unreachable, mut apart): (BTreeMap<Id, Unreachable>, Vec<Id>) = Default::default();
        let loose = loose(place);
        let lines = fs::metadata(reached).map_err(JoinError::Read)?.len() / LINE_BYTES as u64;
        let parts = lines.div_ceil(AT_A_TIME as u64).clamp(1, 256);
        for part in 0..parts {
            let is_here = |id: &Id| u64::from(id.first()) * parts / 256 == part;
            let reached = reached_in(reached, is_here)?;
            let is_unreachable = |id: &Id| is_here(id) && reached.binary_search(id).is_err();
            for (number, pack) in packs.iter().enumerate() {
                let index = folder.join(format!("{}.idx", pack.name));
                for id in index::ids(&index).map_err(JoinError::Read)? {
                    let id = id.map_err(JoinError::Read)?;
                    if is_unreachable(&id) {
                        let since = record.since(&id).unwrap_or(now);
                        let found = unreachable.entry(id).or_insert_with(|| Unreachable::since(since));
                        found.packs.push(number);
                        found.touch(pack.modified, now);
                    }
                }
            }
            for (id, modified) in loose.iter().filter(|(id, _)| is_unreachable(id)) {
                let since = record.since(id).unwrap_or(*modified);
                let found = unreachable.entry(*id).or_insert_with(|| Unreachable::since(since));
                found.loose = Some(*modified);
                // Git touches a loose object's file when the same object is written again.
                found.since = found.since.max(*modified);
                found.touch(*modified, now);
            }
            for index in &others {
                for id in index::ids(index).map_err(JoinError::Read)? {
                    apart.extend(Some(id.map_err(JoinError::Read)?).filter(is_unreachable));
                }
            }
        }
        Ok(Self { packs, unreachable, apart, folder })
    }

    /// Returns the packs that have old objects and were not touched for a while, as numbers and as packs.
    fn affected(&self, old: &BTreeSet<Id>, now: SystemTime) -> (BTreeSet<usize>, Vec<Pack>) {
        let mut numbers: BTreeSet<usize> =
            old.iter().flat_map(|id| self.unreachable[id].packs.iter().copied()).collect();
        numbers.retain(|number| {
            let path = self.folder.join(format!("{}.pack", self.packs[*number].name));
            let modified = fs::metadata(path).and_then(|metadata| metadata.modified());
            modified.is_ok_and(|at| is_untouched(at, now))
        });
        let packs = numbers.iter().map(|number| self.packs[*number].clone()).collect();
        (numbers, packs)
    }

    fn loose_of(&self, old: &BTreeSet<Id>) -> Vec<Id> {
        old.iter().filter(|id| self.unreachable[*id].loose.is_some()).copied().collect()
    }
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

/// Returns the wanted IDs of a list, in order.
fn reached_in(path: &Path, is_wanted: impl Fn(&Id) -> bool) -> Result<Vec<Id>, JoinError> {
    let mut file = BufReader::with_capacity(256 << 10, File::open(path).map_err(JoinError::Read)?);
    let (mut found, mut line) = (Vec::new(), [0; LINE_BYTES]);
    loop {
        match file.read_exact(&mut line) {
            Ok(()) => {}
            Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => break,
            Err(error) => return Err(JoinError::Read(error)),
        }
        let id = str::from_utf8(&line[..40]).ok().and_then(Id::parse).ok_or_else(JoinError::listed)?;
        if is_wanted(&id) {
            found.push(id);
        }
    }
    found.sort_unstable();
    Ok(found)
}

/// Returns the loose objects, and the modification time of each.
fn loose(place: &MaintenancePaths) -> Vec<(Id, SystemTime)> {
    let mut found = Vec::new();
    for first in 0..=u8::MAX {
        let folder = place.repository.join(format!("objects/{first:02x}"));
        for entry in fs::read_dir(folder).into_iter().flatten().flatten() {
            let name = entry.file_name();
            let id = name.to_str().and_then(|name| Id::parse(&format!("{first:02x}{name}")));
            if let (Some(id), Ok(modified)) = (id, entry.metadata().and_then(|metadata| metadata.modified())) {
                found.push((id, modified));
            }
        }
    }
    found
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
mod tests;
