//! The description of the last cut.

use std::collections::BTreeSet;
use std::fmt::Write as _;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use git2::Oid;
use gitcd_core::durable;

use super::{BoundaryError, FOLDER};

/// The first line of the file.
const FORMAT: &str = "gitcd cut 1";

/// A cut of a history: its oldest commits, and where the removed ones are.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Cut {
    /// The reference of the data.
    pub reference: String,
    /// The oldest revision that is kept.
    pub revision: i64,
    /// When the cut was made, in seconds since 1970.
    pub at: i64,
    /// The repository with the removed commits; empty if they were not archived.
    pub archive: String,
    /// The commits that lost their parents.
    pub boundary: BTreeSet<Oid>,
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
    pub fn whereabouts(&self) -> String {
        if self.archive.is_empty() { "not archived".to_owned() } else { format!("archived in {}", self.archive) }
    }

    pub(super) fn read(git_dir: &Path) -> Result<Option<Self>, BoundaryError> {
        let path = path(git_dir);
        match fs::read_to_string(&path) {
            Ok(text) => parse(&text).map(Some).ok_or(BoundaryError::Damaged { path }),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
            Err(source) => Err(BoundaryError::Read { path, source }),
        }
    }

    pub(super) fn write(&self, git_dir: &Path) -> Result<(), durable::Error> {
        let Self { reference, revision, at, archive, boundary } = self;
        let mut text = format!("{FORMAT}\nreference {reference}\nrevision {revision}\nat {at}\narchive {archive}\n");
        for oid in boundary {
            writeln!(text, "{oid}").expect("writing to a string does not fail");
        }
        durable::replace(&path(git_dir), text.as_bytes())
    }
}

pub(super) fn path(git_dir: &Path) -> PathBuf {
    git_dir.join(FOLDER).join("cut")
}

fn parse(text: &str) -> Option<Cut> {
    let mut lines = text.lines();
    if lines.next()? != FORMAT {
        return None;
    }
    let mut value = |name: &str| Some(lines.next()?.strip_prefix(name)?.strip_prefix(' ')?.to_owned());
    let (reference, revision) = (value("reference")?, value("revision")?.parse().ok()?);
    let (at, archive) = (value("at")?.parse().ok()?, value("archive")?);
    let boundary = lines.map(|line| Oid::from_str(line).ok()).collect::<Option<_>>()?;
    Some(Cut { reference, revision, at, archive, boundary })
}
