//! A branch as it was at a revision or a time.

use std::time::{Duration, SystemTime};

use git2::{Odb, Oid};

use super::flush::Flush;
use super::versions::local;
use super::{CommitInfo, History, HistoryError};
use crate::git::changes::{self, Changes};
use crate::git::form::Form;
use crate::git::lookup::{Known, Lookup};

/// When.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum When {
    /// At a revision.
    Revision(i64),
    /// At the end of a second, counted since 1970.
    Time(i64),
    /// As it is now.
    Now,
}

/// A moment in the history of a branch: the state after one commit.
#[derive(Clone, Debug)]
pub struct Moment {
    /// The last revision that is in it. If the commit has others too, or several branches come together there, all of its revisions.
    pub revision: i64,
    /// The data commit.
    pub commit: CommitInfo,
    /// The first flush that has it.
    flush: Flush,
}

/// A key at a moment.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Value {
    /// Its value, exactly as it was put; if `known` is nothing, JSON as kube-apiserver puts it.
    pub bytes: Vec<u8>,
    /// What the metadata says of it; nothing if the moment is between two flushes and it changed before the second one.
    pub known: Option<Known>,
}

impl When {
    /// Reads `4711`, `10m` (ago), `2026-11-22T15:04:05Z`, `2026-11-22 15:04` or `2026-11-22` (UTC), `now`.
    ///
    /// # Errors
    /// What is expected instead.
    pub fn parse(text: &str) -> Result<Self, String> {
        let text = text.trim();
        if text == "now" {
            return Ok(Self::Now);
        }
        if let Ok(revision) = text.parse::<i64>() {
            return if revision > 0 { Ok(Self::Revision(revision)) } else { Err("revisions begin with 1".into()) };
        }
        if let Ok(ago) = humantime::parse_duration(text) {
            return Ok(Self::Time(seconds(SystemTime::now().checked_sub(ago).unwrap_or(SystemTime::UNIX_EPOCH))));
        }
        let mut full = text.to_owned();
        match full.len() {
            10 => full.push_str(" 23:59:59"),
            16 => full.push_str(":59"),
            _ => {}
        }
        let parsed = humantime::parse_rfc3339_weak(&full);
        parsed.map(|time| Self::Time(seconds(time))).map_err(|_| {
            format!("{text:?} is no moment: give a revision (4711), how long ago (10m, 2h, 3days), or a time (2026-11-22, '2026-11-22 15:04', 2026-11-22T15:04:05Z)")
        })
    }
}

fn seconds(time: SystemTime) -> i64 {
    let since = time.duration_since(SystemTime::UNIX_EPOCH).unwrap_or(Duration::ZERO);
    i64::try_from(since.as_secs()).unwrap_or(i64::MAX)
}

impl History {
    /// The last state of the branch that is not after a moment.
    ///
    /// # Errors
    /// [`HistoryError::TooEarly`], [`HistoryError::TooLate`], and if the history cannot be read so far back.
    pub fn at(&self, when: When) -> Result<Moment, HistoryError> {
        let odb = self.odb()?;
        let is_after = |flush: &Flush| match when {
            When::Revision(revision) => flush.revision > revision,
            When::Time(time) => flush.time > time,
            When::Now => false,
        };
        if let When::Revision(asked) = when
            && asked > self.tip.revision
        {
            return Err(HistoryError::TooLate { asked, last: self.tip.revision });
        }
        let (mut newer, mut flush) = (None, self.tip.clone());
        while is_after(&flush) {
            let Some(older) = flush.before(&odb)? else { return self.in_first(when, &flush) };
            newer = Some(std::mem::replace(&mut flush, older));
        }
        if let Some(newer) = newer
            && flush.revision != newer.revision
            && self.is_own(&odb, &newer)?
            && let Some(moment) = within(&odb, when, &flush, &newer)?
        {
            return Ok(moment);
        }
        let commit = CommitInfo::read(&odb, flush.data)?;
        Ok(Moment { revision: flush.revision, commit, flush })
    }

    /// Whether the last data commit of a flush has the revisions of this store: commits of another one may have become ours, and its
    /// revisions are other ones. What the metadata says of a key that it changed tells.
    fn is_own(&self, odb: &Odb<'_>, flush: &Flush) -> Result<bool, HistoryError> {
        let commit = CommitInfo::read(odb, flush.data)?;
        let (Some(own), Some(parent)) = (commit.revisions(), commit.parents.first()) else { return Ok(false) };
        let before = CommitInfo::read(odb, *parent)?.tree;
        let changed = changes::between(&self.repository, Some(before), Some(commit.tree))?.keys;
        let Some((relative, _)) = changed.into_iter().find(|(_, change)| change.to.is_some()) else { return Ok(true) };
        let key = self.config.keys.absolute(&relative);
        let known = super::known(&mut Lookup::new(&key), odb, flush)?;
        Ok(known.is_some_and(|known| (own.first..=own.last).contains(&known.record.mod_revision)))
    }

    fn in_first(&self, when: When, first: &Flush) -> Result<Moment, HistoryError> {
        let asked = match when {
            When::Revision(revision) => format!("revision {revision}"),
            When::Time(time) => {
                let time = SystemTime::UNIX_EPOCH + Duration::from_secs(u64::try_from(time).unwrap_or_default());
                humantime::format_rfc3339_seconds(time).to_string()
            }
            When::Now => "now".into(),
        };
        debug_assert_eq!(first.previous, None, "{:?}", self.tip);
        Err(HistoryError::TooEarly { asked, first: first.revision })
    }

    /// The value of a whole key at a moment.
    ///
    /// # Errors
    /// [`HistoryError`].
    pub fn get(&self, moment: &Moment, key: &[u8]) -> Result<Option<Value>, HistoryError> {
        let odb = self.odb()?;
        let known = super::known(&mut Lookup::new(key), &odb, &moment.flush)?;
        let in_flush = known.is_some_and(|known| known.record.mod_revision <= moment.revision);
        let blob = match self.relative(key) {
            Some(relative) => changes::find(&self.repository, moment.commit.tree, relative)?,
            None => local(&self.repository, moment.flush.tree, key)?,
        };
        let Some(blob) = blob else { return Ok(None) };
        // How a value was stored that a later one of the same flush replaced, nobody has noted.
        let form: Option<Form> = known.filter(|_| in_flush).map(|known| known.form);
        Ok(Some(Value { bytes: self.value(blob, form)?, known: known.filter(|_| in_flush) }))
    }

    /// The data keys that begin with this, in order.
    ///
    /// # Errors
    /// [`HistoryError`].
    pub fn list(&self, moment: &Moment, beginning: &[u8]) -> Result<Vec<Vec<u8>>, HistoryError> {
        let all = changes::between(&self.repository, None, Some(moment.commit.tree))?;
        let keys = all.keys.into_keys().map(|relative| self.config.keys.absolute(&relative));
        let mut keys: Vec<_> = keys.filter(|key| key.starts_with(beginning)).collect();
        keys.sort_unstable();
        Ok(keys)
    }

    /// Which data keys differ between two moments, by what follows the key prefix; from nothing, if there is no first one.
    ///
    /// # Errors
    /// [`HistoryError`].
    pub fn between(&self, from: Option<&Moment>, to: &Moment) -> Result<Changes, HistoryError> {
        Ok(changes::between(&self.repository, from.map(|from| from.commit.tree), Some(to.commit.tree))?)
    }

    /// The data commits of the branch itself, the newest first, back to `since` in seconds since 1970.
    ///
    /// # Errors
    /// [`HistoryError`].
    pub fn commits(&self, limit: usize, since: Option<i64>) -> Result<Vec<CommitInfo>, HistoryError> {
        let odb = self.odb()?;
        let (mut found, mut next) = (Vec::new(), Some(self.head));
        while let Some(oid) = next.filter(|_| found.len() < limit) {
            let commit = CommitInfo::read(&odb, oid)?;
            if since.is_some_and(|since| commit.time < since) {
                break;
            }
            next = commit.parents.first().copied();
            found.push(commit);
        }
        Ok(found)
    }
}

/// A commit between two flushes that is not after a moment, if there is one.
fn within(odb: &Odb<'_>, when: When, older: &Flush, newer: &Flush) -> Result<Option<Moment>, HistoryError> {
    let mut next: Option<Oid> = Some(newer.data);
    while let Some(oid) = next.filter(|next| *next != older.data) {
        let commit = CommitInfo::read(odb, oid)?;
        let own = commit.revisions().filter(|own| own.first > older.revision && own.last <= newer.revision);
        let Some(own) = own else { return Ok(None) };
        let is_in = match when {
            When::Revision(revision) => own.last <= revision,
            When::Time(time) => commit.time <= time,
            When::Now => true,
        };
        if is_in {
            return Ok(Some(Moment { revision: own.last, commit, flush: newer.clone() }));
        }
        next = commit.parents.first().copied();
    }
    Ok(None)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_moment_is_a_revision_a_time_or_how_long_ago() {
        assert_eq!(When::parse("4711"), Ok(When::Revision(4711)));
        assert_eq!(When::parse("1970-01-02"), Ok(When::Time(2 * 86_400 - 1)));
        assert_eq!(When::parse("1970-01-01 00:01"), Ok(When::Time(119)));
        assert_eq!(When::parse("1970-01-01T00:01:00Z"), Ok(When::Time(60)));
        assert_eq!(When::parse("now"), Ok(When::Now));
        let Ok(When::Time(ago)) = When::parse("10m") else { panic!("it is a time") };
        assert!((seconds(SystemTime::now()) - 600 - ago).abs() <= 1);
        for wrong in ["0", "-3", "", "yesterday", "2026-13-01"] {
            assert!(When::parse(wrong).is_err(), "{wrong}");
        }
    }
}
