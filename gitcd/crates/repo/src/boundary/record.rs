//! The records of cuts, in the folder `cuts`.

use std::collections::BTreeSet;
use std::fmt::Write as _;
use std::fs;
use std::path::{Path, PathBuf};

use git2::{ObjectType, Odb, Oid};
use gitcd_core::durable;
use gitcd_core::scope::Scope;

use super::removed::RemovedSummary;
use super::{BoundaryError, FOLDER, found, read, shallow};
use crate::{object, own_folder};

/// The first line of the file.
const FORMAT: &str = "gitcd cuts 1";

/// A cut of the history of a branch.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Cut {
    /// The reference of the data.
    pub reference: String,
    /// The oldest revision that is kept.
    pub revision: i64,
    /// The data commit with this revision.
    pub data: Oid,
    /// When the cut was made, in seconds since 1970.
    pub at: i64,
    /// The repository with the removed commits; empty if they were not archived.
    pub archive: String,
}

/// A boundary, the cuts that made it, and the file with the removed commits.
#[derive(Clone, Debug)]
pub(super) struct Record {
    /// A later record has a higher number, whatever the clock says.
    pub(super) number: u64,
    /// The last cuts of all branches, oldest first, and earlier ones with other archives. Never empty.
    pub(super) cuts: Vec<Cut>,
    /// The commits that lost their parents.
    pub(super) boundary: BTreeSet<Oid>,
    pub(super) removed: String,
    pub(super) listed: RemovedSummary,
    /// Scopes of the merges beyond the boundary that left keys out.
    pub(super) scopes: Vec<Scope>,
}

impl Cut {
    /// Returns the date of the cut in UTC, as `2026-11-27`.
    pub fn date(&self) -> String {
        let (mut days, mut year) = (self.at.div_euclid(86_400), 1970);
        let length = |year: i64| 365 + i64::from(year % 4 == 0 && (year % 100 != 0 || year % 400 == 0));
        while days >= length(year) {
            days -= length(year);
            year += 1;
        }
        let mut month = 1;
        for length in [31, length(year) - 337, 31, 30, 31, 30, 31, 31, 30, 31, 30, 31] {
            if days < length {
                break;
            }
            days -= length;
            month += 1;
        }
        format!("{year}-{month:02}-{:02}", days + 1)
    }

    /// Returns where the removed commits can be read.
    pub fn archive_status(&self) -> String {
        if self.archive.is_empty() { "not archived".to_owned() } else { format!("archived in {}", self.archive) }
    }
}

impl Record {
    /// Returns a record of a boundary, whose file of removed commits is not written yet.
    pub(super) fn new(number: u64, cuts: Vec<Cut>, boundary: BTreeSet<Oid>, scopes: Vec<Scope>) -> Self {
        let listed = RemovedSummary { before: vec![0; cuts.len()], others: 0, hash: Oid::ZERO_SHA1 };
        let removed = format!("{}.removed", name(&boundary));
        Self { number, cuts, boundary, removed, listed, scopes }
    }

    /// Returns the name of the record.
    pub(super) fn name(&self) -> String {
        name(&self.boundary)
    }

    /// Returns the last cut.
    pub(super) fn last(&self) -> &Cut {
        self.cuts.last().expect("a record has a cut")
    }

    pub(super) fn write(&self, git_dir: &Path) -> Result<(), durable::Error> {
        let Self { number, cuts, boundary, removed, listed, scopes } = self;
        let RemovedSummary { before, others, hash } = listed;
        let head = format!("{FORMAT}\nnumber {number}\nremoved {removed}\nhash {hash}\nothers {others}");
        let cuts = cuts.iter().zip(before).fold(String::new(), |text, (cut, before)| {
            let Cut { reference, revision, data, at, archive } = cut;
            text + &format!("cut {data} {revision} {at} {before} {reference}\narchive {archive}\n")
        });
        // As paragraphs, in the form of a merge's message.
        let paragraphs =
            scopes.iter().fold(String::new(), |text, scope| text + "\n" + &scope.trailers(self.last().data));
        let text =
            format!("{head}\nscopes {}\ncuts {}\n{cuts}{}{paragraphs}", scopes.len(), self.cuts.len(), lines(boundary));
        own_folder::replace(git_dir, &folder(git_dir).join(self.name()), text.as_bytes())
    }

    fn read(path: &Path) -> Result<Option<Self>, BoundaryError> {
        let Some(text) = read(path)? else { return Ok(None) };
        let parsed = String::from_utf8(text).ok().and_then(|text| parse(&text));
        // A record under another name, or a part of one, describes another boundary.
        let parsed = parsed.filter(|record| path.ends_with(record.name()));
        parsed.map(Some).ok_or_else(|| BoundaryError::Damaged { path: path.to_owned() })
    }
}

/// Creates the folder of the records, if it does not exist.
pub(super) fn make_folder(git_dir: &Path) -> Result<(), durable::Error> {
    own_folder::make(git_dir, &git_dir.join(FOLDER))?;
    own_folder::make(git_dir, &folder(git_dir))
}

/// Returns the folder of the records.
pub(super) fn folder(git_dir: &Path) -> PathBuf {
    git_dir.join(FOLDER).join("cuts")
}

/// Returns the names of the records in a folder.
pub(super) fn names(folder: &Path) -> Result<Vec<String>, BoundaryError> {
    let Some(entries) = found(folder, fs::read_dir(folder))? else { return Ok(Vec::new()) };
    let mut names = Vec::new();
    for entry in entries {
        let entry = entry.map_err(|source| BoundaryError::Read { path: folder.to_owned(), source })?;
        names.extend(
            entry.file_name().into_string().ok().filter(|name| Oid::from_str(name).is_ok() && name.len() == 40),
        );
    }
    Ok(names)
}

/// Returns all records, also of boundaries that the repository does not have.
pub(super) fn all(git_dir: &Path) -> Result<Vec<Record>, BoundaryError> {
    let folder = folder(git_dir);
    let read = |name: String| Record::read(&folder.join(name)).transpose();
    names(&folder)?.into_iter().filter_map(read).collect()
}

/// Returns the highest number of a record; 0 if there is none.
pub(super) fn last_number(git_dir: &Path) -> Result<u64, BoundaryError> {
    Ok(all(git_dir)?.iter().map(|record| record.number).max().unwrap_or_default())
}

/// Returns the record of the boundary that the repository has now; `None` if the history is whole, or if another program made this
/// boundary.
pub(super) fn find(git_dir: &Path) -> Result<Option<Record>, BoundaryError> {
    let folder = folder(git_dir);
    if names(&folder)?.is_empty() {
        return Ok(None);
    }
    let listed: BTreeSet<Oid> = shallow(git_dir)?.into_iter().collect();
    if listed.is_empty() {
        return Ok(None);
    }
    if let Some(record) = Record::read(&folder.join(name(&listed)))? {
        return Ok(Some(record));
    }
    // `git gc` removes commits from the file that no reference leads to. Of several, the earliest one was made for certain.
    let mut known = all(git_dir)?;
    known.retain(|record| listed.is_subset(&record.boundary) && is_shrunk(git_dir, &listed, record));
    Ok(known.into_iter().min_by_key(|record| record.number))
}

/// Returns whether `git gc` may have removed commits from the boundary of a record. It is different if the oldest commit of a branch
/// has got its parents back: then another program fetched a part of what was removed.
fn is_shrunk(git_dir: &Path, listed: &BTreeSet<Oid>, record: &Record) -> bool {
    // An earlier cut of the same branch has no part of the removed commits, and its commit is not the oldest one.
    let is_oldest = |(number, before): &(usize, &u64)| **before > 0 || number + 1 == record.cuts.len();
    let oldest = record.listed.before.iter().enumerate().filter(is_oldest).map(|(number, _)| record.cuts[number].data);
    let gone: Vec<Oid> = oldest.filter(|data| !listed.contains(data)).collect();
    gone.is_empty() || objects(git_dir).is_ok_and(|odb| gone.iter().all(|data| !odb.exists(*data)))
}

/// Returns whether all parents of the commits on the boundary are here, as far as these are here themselves.
pub(super) fn is_whole(git_dir: &Path, record: &Record) -> bool {
    let Ok(odb) = objects(git_dir) else { return false };
    let has_parents = |oid: &Oid| {
        let Ok(commit) = object::read(&odb, *oid) else { return true };
        let text = String::from_utf8_lossy(commit.data());
        let mut parents =
            text.lines().take_while(|line| !line.is_empty()).filter_map(|line| line.strip_prefix("parent "));
        parents.all(|parent| Oid::from_str(parent).is_ok_and(|parent| odb.exists(parent)))
    };
    record.boundary.iter().all(has_parents)
}

/// Opens the objects of a repository without the rest of it.
fn objects(git_dir: &Path) -> Result<Odb<'static>, git2::Error> {
    let odb = Odb::new()?;
    odb.add_disk_alternate(&git_dir.join("objects").to_string_lossy())?;
    Ok(odb)
}

/// Returns the file `shallow` of a boundary.
pub(super) fn lines(boundary: &BTreeSet<Oid>) -> String {
    boundary.iter().fold(String::new(), |mut text, oid| {
        writeln!(text, "{oid}").expect("writing to a string does not fail");
        text
    })
}

fn name(boundary: &BTreeSet<Oid>) -> String {
    let hashed = Oid::hash_object(ObjectType::Blob, lines(boundary).as_bytes());
    hashed.expect("a text in memory can be hashed").to_string()
}

fn parse(text: &str) -> Option<Record> {
    let mut paragraphs = text.split("\n\n");
    let mut lines = paragraphs.next()?.lines();
    if lines.next()? != FORMAT {
        return None;
    }
    let mut value = |name: &str| Some(lines.next()?.strip_prefix(name)?.strip_prefix(' ')?.to_owned());
    let (number, removed) = (value("number")?.parse().ok()?, value("removed")?);
    let (hash, others) = (Oid::from_str(&value("hash")?).ok()?, value("others")?.parse().ok()?);
    let (count, of_cuts): (usize, usize) = (value("scopes")?.parse().ok()?, value("cuts")?.parse().ok()?);
    let (mut cuts, mut before) = (Vec::new(), Vec::new());
    for _ in 0..of_cuts {
        let line = value("cut")?;
        let mut words = line.splitn(5, ' ');
        let (data, revision) = (Oid::from_str(words.next()?).ok()?, words.next()?.parse().ok()?);
        let at = words.next()?.parse().ok()?;
        before.push(words.next()?.parse().ok()?);
        cuts.push(Cut { reference: words.next()?.to_owned(), revision, data, at, archive: value("archive")? });
    }
    let boundary = lines.map(|line| Oid::from_str(line).ok()).collect::<Option<_>>()?;
    let scopes = paragraphs.map(|text| Some(Scope::parse::<Oid>(text.as_bytes())?.1)).collect::<Option<Vec<_>>>()?;
    // A part of a record is none.
    let is_whole = scopes.len() == count && !cuts.is_empty();
    let listed = RemovedSummary { before, others, hash };
    is_whole.then_some(Record { number, cuts, boundary, removed, listed, scopes })
}
