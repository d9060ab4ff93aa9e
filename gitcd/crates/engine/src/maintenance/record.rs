//! The record of unreachable objects, and since when they are unreachable.
//!
//! If the file is lost, pruning only takes another grace period.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::fs::{self, File};
use std::io::{BufRead as _, BufReader};
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use gitcd_core::durable;

use super::index::Id;
use super::join::MaintenancePaths;

const FORMAT: &str = "gitcd unreachable 1";

/// The result of one search.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Record {
    looked: SystemTime,
    since: BTreeMap<Id, u64>,
}

impl Record {
    pub(super) fn new(looked: SystemTime) -> Self {
        Self { looked, since: BTreeMap::new() }
    }

    pub(super) fn add(&mut self, id: Id, since: SystemTime) {
        self.since.insert(id, seconds(since));
    }

    /// Returns since when an object is unreachable, if recorded.
    pub(super) fn since(&self, id: &Id) -> Option<SystemTime> {
        self.since.get(id).map(|since| UNIX_EPOCH + Duration::from_secs(*since))
    }

    /// Returns the time of the last search; `None` if there was none or the record cannot be parsed.
    pub(super) fn looked(repository: &Path) -> Option<SystemTime> {
        // Only the first lines: after a cut, the record is long, and this is asked twice a minute.
        let mut lines = BufReader::new(File::open(file(repository)).ok()?).lines();
        let (format, looked) = (lines.next()?.ok()?, lines.next()?.ok()?);
        parse(&format!("{format}\n{looked}\n")).map(|record| record.looked)
    }

    /// Returns the last record; an empty one if there is none or it cannot be parsed.
    pub(super) fn read(place: &MaintenancePaths) -> Self {
        let text = fs::read_to_string(file(&place.repository)).unwrap_or_default();
        parse(&text).unwrap_or_else(|| Self::new(UNIX_EPOCH))
    }

    pub(super) fn write(&self, place: &MaintenancePaths) -> Result<(), durable::Error> {
        let mut text = format!("{FORMAT}\nlooked {}\n", seconds(self.looked));
        for (id, since) in &self.since {
            writeln!(text, "{} {since}", id.hex()).expect("writing to a string does not fail");
        }
        durable::replace(&file(&place.repository), text.as_bytes())
    }
}

fn file(repository: &Path) -> PathBuf {
    repository.join(super::OWN).join("unreachable")
}

fn seconds(time: SystemTime) -> u64 {
    time.duration_since(UNIX_EPOCH).unwrap_or_default().as_secs()
}

fn parse(text: &str) -> Option<Record> {
    let mut lines = text.lines();
    if lines.next()? != FORMAT {
        return None;
    }
    let looked = lines.next()?.strip_prefix("looked ")?.parse().ok()?;
    let since = lines.map(|line| {
        let (id, since) = line.split_once(' ')?;
        Some((Id::parse(id)?, since.parse().ok()?))
    });
    Some(Record { looked: UNIX_EPOCH + Duration::from_secs(looked), since: since.collect::<Option<_>>()? })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_record_comes_back_and_what_is_none_is_as_good_as_none() {
        let folder = tempfile::tempdir().unwrap();
        fs::create_dir(folder.path().join(super::super::OWN)).unwrap();
        let place = MaintenancePaths { repository: folder.path().to_owned(), draft: folder.path().join("draft") };
        assert_eq!(Record::looked(folder.path()), None);
        let at = UNIX_EPOCH + Duration::from_secs(1_700_000_000);
        let mut record = Record::new(at);
        let id = Id::parse("c0ffee00c0ffee00c0ffee00c0ffee00c0ffee00").unwrap();
        record.add(id, at - Duration::from_secs(9));
        record.write(&place).unwrap();
        assert_eq!(Record::read(&place), record);
        assert_eq!(Record::looked(folder.path()), Some(at));
        assert_eq!(record.since(&id), Some(at - Duration::from_secs(9)));
        for text in [
            "",
            "gitcd unreachable 2\nlooked 1\n",
            "gitcd unreachable 1\nlooked x\n",
            "gitcd unreachable 1\nlooked 1\nabc 1\n",
        ] {
            fs::write(file(folder.path()), text).unwrap();
            assert_eq!(Record::read(&place), Record::new(UNIX_EPOCH), "{text:?}");
            let is_begun = text.starts_with("gitcd unreachable 1\nlooked 1\n");
            assert_eq!(Record::looked(folder.path()).is_some(), is_begun, "only the first lines are read: {text:?}");
        }
    }
}
