//! The records of cuts, in the folder `cuts`.

use std::cmp::Reverse;
use std::collections::BTreeSet;
use std::fmt::Write as _;
use std::fs;
use std::path::{Path, PathBuf};

use git2::{ObjectType, Oid};
use gitcd_core::durable;
use gitcd_core::scope::Scope;

use super::removed::RemovedSummary;
use super::{BoundaryError, FOLDER, found, read, shallow};
use crate::own_folder;

/// The first line of the file.
const FORMAT: &str = "gitcd cut 2";

/// A cut of a history: its oldest commits, and where the removed ones are.
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
    /// The commits that lost their parents.
    pub boundary: BTreeSet<Oid>,
}

/// A cut, and the file with the removed commits.
#[derive(Clone, Debug)]
pub(super) struct Record {
    pub(super) cut: Cut,
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

    /// Returns the file `shallow` of the boundary.
    pub(super) fn lines(&self) -> String {
        lines(&self.boundary)
    }
}

impl Record {
    /// Returns a record of a cut, whose file of removed commits is not written yet.
    pub(super) fn of(cut: &Cut, scopes: Vec<Scope>) -> Self {
        let listed = RemovedSummary { count: 0, older: 0, hash: Oid::ZERO_SHA1 };
        Self { cut: cut.clone(), removed: removed_name(&cut.boundary), listed, scopes }
    }

    /// Returns the name of the record.
    pub(super) fn name(&self) -> String {
        name(&self.cut.boundary)
    }

    pub(super) fn write(&self, git_dir: &Path) -> Result<(), durable::Error> {
        let Self { cut: Cut { reference, revision, data, at, archive, boundary }, removed, listed, scopes } = self;
        let RemovedSummary { count, older, hash } = listed;
        let head = format!(
            "reference {reference}\nrevision {revision}\ndata {data}\nat {at}\narchive {archive}\nremoved {removed}"
        );
        // As paragraphs, in the form of a merge's message.
        let paragraphs = scopes.iter().fold(String::new(), |text, scope| text + "\n" + &scope.trailers(data));
        let text = format!(
            "{FORMAT}\n{head}\ncount {count}\nolder {older}\nhash {hash}\nscopes {}\n{}{paragraphs}",
            scopes.len(),
            lines(boundary)
        );
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

/// Returns the name of the file with the commits that a cut to this boundary removed.
pub(super) fn removed_name(boundary: &BTreeSet<Oid>) -> String {
    format!("{}.removed", name(boundary))
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
    // `git gc` removes commits from the file that no reference leads to. Of several, the oldest one was made for certain.
    let mut known = Vec::new();
    for name in names(&folder)? {
        known.extend(Record::read(&folder.join(name))?.filter(|record| listed.is_subset(&record.cut.boundary)));
    }
    Ok(known.into_iter().min_by_key(|record| (record.cut.at, Reverse(record.cut.boundary.len()))))
}

fn lines(boundary: &BTreeSet<Oid>) -> String {
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
    let (reference, revision) = (value("reference")?, value("revision")?.parse().ok()?);
    let data = Oid::from_str(&value("data")?).ok()?;
    let (at, archive, removed) = (value("at")?.parse().ok()?, value("archive")?, value("removed")?);
    let (count, older) = (value("count")?.parse().ok()?, value("older")?.parse().ok()?);
    let listed = RemovedSummary { count, older, hash: Oid::from_str(&value("hash")?).ok()? };
    let count: usize = value("scopes")?.parse().ok()?;
    let boundary = lines.map(|line| Oid::from_str(line).ok()).collect::<Option<_>>()?;
    let scopes = paragraphs.map(|text| Some(Scope::parse::<Oid>(text.as_bytes())?.1)).collect::<Option<Vec<_>>>()?;
    // A part of a record is none.
    let is_whole = scopes.len() == count;
    let cut = Cut { reference, revision, data, at, archive, boundary };
    is_whole.then_some(Record { cut, removed, listed, scopes })
}
