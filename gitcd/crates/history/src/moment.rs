//! A branch as it was at a revision or a time.

use std::time::{Duration, SystemTime};

use git2::Odb;
use gitcd_repo::changes::{self, Changes};
pub use gitcd_repo::join::Join;
use gitcd_repo::lookup::{Known, Lookup};

use super::flush::Flush;
use super::line::Step;
use super::versions::local;
use super::{CommitInfo, History, HistoryError, Revisions};

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
    /// The last revision that is in it: the one that was asked for, or the last one before that has a commit of its own.
    pub revision: i64,
    /// The data commit.
    pub commit: CommitInfo,
    /// The last revision that may be in it.
    until: i64,
    /// The last flush before it, or at it,
    older: Flush,
    /// and the first one after it.
    newer: Option<Flush>,
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
    /// [`HistoryError::TooEarly`], [`HistoryError::BeforeInit`], [`HistoryError::Cut`], [`HistoryError::TooLate`], and if the history cannot be read so far back.
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
            let Some(older) = self.before(&odb, &flush)? else { return Err(too_early(when, &flush)) };
            newer = Some(std::mem::replace(&mut flush, older));
        }
        let found = match &newer {
            Some(newer) if newer.data != flush.data => self.within(&odb, when, &flush, newer)?,
            _ => None,
        };
        let (revision, commit) = match found {
            Some(found) => found,
            None => (flush.revision, CommitInfo::read(&odb, flush.data)?),
        };
        let until = match when {
            When::Revision(asked) => asked.max(revision),
            _ => revision,
        };
        Ok(Moment { revision, commit, until, older: flush, newer })
    }

    /// The last commit between two flushes that is not after a moment, if there is one.
    fn within(
        &self,
        odb: &Odb<'_>,
        when: When,
        older: &Flush,
        newer: &Flush,
    ) -> Result<Option<(i64, CommitInfo)>, HistoryError> {
        let steps = self.line(odb, Some(older), Some(newer), newer.data, usize::MAX)?;
        if let When::Revision(asked) = when {
            let own = |step: &Step| step.revisions().map(|own| own.last).filter(|last| *last <= asked);
            return Ok(steps.into_iter().find_map(|step| Some((own(&step)?, step.commit))));
        }
        let is_after = |step: &Step| matches!(when, When::Time(time) if step.commit.time > time);
        let count = steps.iter().rev().take_while(|step| !is_after(step)).count();
        let Some(found) = steps[steps.len() - count..].first() else { return Ok(None) };
        // Of a merge, or a person's commit, it is known that it came after those below.
        let known = steps[steps.len() - count..].iter().find_map(Step::revisions);
        Ok(Some((known.map_or(older.revision, |own| own.last), found.commit.clone())))
    }

    /// The value of a whole key at a moment.
    ///
    /// # Errors
    /// [`HistoryError`].
    pub fn get(&self, moment: &Moment, key: &[u8]) -> Result<Option<Value>, HistoryError> {
        let odb = self.odb()?;
        let mut lookup = Lookup::new(key);
        // The last line that is not from after the moment: how the value was stored that a later one replaced before the flush nobody has noted.
        let mut line = None;
        for flush in moment.newer.iter().chain([&moment.older]) {
            let found = super::known(&mut lookup, &odb, flush)?;
            line = found.filter(|found| found.record.mod_revision <= moment.until).map(|found| (found, flush));
            if line.is_some() {
                break;
            }
        }
        let Some(relative) = self.relative(key) else {
            let Some((known, flush)) = line else { return Ok(None) };
            let blob = local(&self.repository, flush.tree, key)?;
            let bytes = blob.map(|blob| self.value(blob, Some(known.form))).transpose()?;
            return Ok(bytes.map(|bytes| Value { bytes, known: Some(known) }));
        };
        let blob = changes::find(&self.repository, moment.commit.tree, relative)?;
        let in_flush = match line {
            Some((_, flush)) => changes::find(&self.repository, CommitInfo::read(&odb, flush.data)?.tree, relative)?,
            None => None,
        };
        // What changed it has no commit of its own, or shares one with later revisions; but it has not changed since.
        let is_later = line.is_some_and(|(known, _)| known.record.mod_revision > moment.revision);
        let Some(blob) = in_flush.filter(|_| is_later).or(blob) else { return Ok(None) };
        let known = line.map(|(known, _)| known).filter(|_| in_flush == Some(blob));
        Ok(Some(Value { bytes: self.value(blob, known.map(|known| known.form))?, known }))
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

    /// The data commits of the branch itself with their revisions here, the newest first: at most `limit`, and none that came before `since`.
    ///
    /// # Errors
    /// [`HistoryError`]. In a shallow clone history ends where that does.
    pub fn commits(
        &self,
        limit: usize,
        since: Option<When>,
    ) -> Result<Vec<(Option<Revisions>, CommitInfo)>, HistoryError> {
        let odb = self.odb()?;
        // What people have committed since.
        let people = self.line(&odb, Some(&self.tip), None, self.head, limit)?;
        let mut found: Vec<_> = people.into_iter().map(|step| (None, step.commit)).collect();
        let mut newer = Some(self.tip.clone());
        while let Some(flush) =
            newer.take().filter(|flush| found.len() < limit && !since.is_some_and(|since| flush.is_before(since)))
        {
            let older = self.before(&odb, &flush)?;
            let steps = self.line(&odb, older.as_ref(), Some(&flush), flush.data, limit - found.len())?;
            found.extend(steps.into_iter().map(|step| (step.revisions(), step.commit)));
            newer = older;
        }
        Ok(found)
    }
}

fn too_early(when: When, first: &Flush) -> HistoryError {
    let is_adopted = first.joins.iter().any(|join| matches!(join, Join::Adopted { .. }));
    let asked = match when {
        When::Revision(revision) => format!("revision {revision}"),
        When::Time(time) => {
            let time = SystemTime::UNIX_EPOCH + Duration::from_secs(u64::try_from(time).unwrap_or_default());
            humantime::format_rfc3339_seconds(time).to_string()
        }
        When::Now => "now".into(),
    };
    let (is_cut, first) = (first.previous.is_some(), first.revision);
    if is_adopted {
        HistoryError::BeforeInit { asked, first }
    } else if is_cut {
        HistoryError::Cut { asked, first }
    } else {
        HistoryError::TooEarly { asked, first }
    }
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
