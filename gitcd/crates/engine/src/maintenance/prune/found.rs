//! The search for unreachable objects.

use std::collections::{BTreeMap, BTreeSet};
use std::fs::{self, File};
use std::io::{self, BufReader, Read};
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

use gitcd_repo::boundary::Boundary;

use super::super::SETTLED;
use super::super::choose::{self, Pack};
use super::super::index::{self, Id};
use super::super::join::{JoinError, MaintenancePaths};
use super::super::record::Record;
use super::is_untouched;

/// Length of a line of `git rev-list`: an ID and a line feed.
const LINE_BYTES: usize = 41;
/// Number of IDs compared at a time.
const AT_A_TIME: usize = 1 << 20;

/// An unreachable object.
pub(super) struct Unreachable {
    /// Numbers of the packs that have it.
    pub(super) packs: Vec<usize>,
    /// Modification time of its loose file, if it has one.
    pub(super) loose: Option<SystemTime>,
    /// Unreachable since this time, as far as is known.
    pub(super) since: SystemTime,
    /// Written, or about to be written again, a moment ago.
    pub(super) is_touched: bool,
    /// Removed by a cut of the history. Looked for only if that matters.
    pub(super) is_cut_off: bool,
}

impl Unreachable {
    fn since(since: SystemTime) -> Self {
        Self { packs: Vec::new(), loose: None, since, is_touched: false, is_cut_off: false }
    }

    /// Accounts for a file with this object and this modification time.
    fn touch(&mut self, at: SystemTime, now: SystemTime) {
        if !is_untouched(at, now) {
            self.is_touched = true;
            self.since = now;
        }
    }
}

/// The unreachable objects, and the packs that may be rewritten.
pub(super) struct Found {
    pub(super) packs: Vec<Pack>,
    pub(super) unreachable: BTreeMap<Id, Unreachable>,
    /// Unreachable objects in packs that must not be rewritten: they count as roots.
    pub(super) apart: Vec<Id>,
    folder: PathBuf,
}

impl Found {
    pub(super) fn look(place: &MaintenancePaths, reached: &Path, now: SystemTime) -> Result<Self, JoinError> {
        let folder = place.packs();
        let packs = choose::ordinary(&folder, now, SETTLED);
        let others = choose::others(&folder, &packs);
        let record = Record::read(place);
        // What a cut removed was reachable until then, whatever else is known.
        let cut = Boundary::read(&place.repository)?.cuts().iter().map(|cut| cut.at).max().unwrap_or_default();
        let cut = u64::try_from(cut).unwrap_or_default();
        let cut = SystemTime::UNIX_EPOCH + Duration::from_secs(cut);
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
                        let since = record.since(&id).unwrap_or(now).max(cut);
                        let found = unreachable.entry(id).or_insert_with(|| Unreachable::since(since));
                        found.packs.push(number);
                        found.touch(pack.modified, now);
                    }
                }
            }
            for (id, modified) in loose.iter().filter(|(id, _)| is_unreachable(id)) {
                let since = record.since(id).unwrap_or(*modified).max(cut);
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
    pub(super) fn affected(&self, old: &BTreeSet<Id>, now: SystemTime) -> (BTreeSet<usize>, Vec<Pack>) {
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

    pub(super) fn loose_of(&self, old: &BTreeSet<Id>) -> Vec<Id> {
        old.iter().filter(|id| self.unreachable[*id].loose.is_some()).copied().collect()
    }
}

/// Returns the wanted IDs of a list, in order.
pub(super) fn reached_in(path: &Path, is_wanted: impl Fn(&Id) -> bool) -> Result<Vec<Id>, JoinError> {
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
