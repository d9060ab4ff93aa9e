//! The state of a branch at a revision or a time.

use std::time::{Duration, SystemTime};

use git2::{Odb, Oid};
use gitcd_repo::changes::{self, Changes};
pub use gitcd_repo::history_link::HistoryLink;
use gitcd_repo::lookup::{Known, Lookup};

use super::flush::Flush;
use super::line::Step;
use super::versions::local;
use super::when::{CommitName, When};
use super::{CommitInfo, History, HistoryError, Revisions};

/// A state of a branch: that after one commit.
#[derive(Clone, Debug)]
pub struct Moment {
    /// The requested revision, or the last one before it that ends a commit.
    pub revision: i64,
    /// The data commit.
    pub commit: CommitInfo,
    /// The last revision that may be included.
    until: i64,
    /// The last flush at or before it.
    older: Flush,
    /// The first flush after it.
    newer: Option<Flush>,
}

/// The value of a key at a moment.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Value {
    /// The value, exactly as it was put; without `known`, the JSON that kube-apiserver writes.
    pub bytes: Vec<u8>,
    /// The key's metadata; `None` if the key changed between the moment and the next flush.
    pub known: Option<Known>,
}

/// Where the value of a key at a moment is stored.
pub(super) struct Stored {
    pub(super) blob: Oid,
    /// The key's metadata; `None` if the key changed between the moment and the next flush.
    pub(super) known: Option<Known>,
    /// The data commit that has it; for a key that is stored with the metadata, the metadata commit.
    pub(super) commit: Oid,
}

impl Moment {
    /// Returns the last flush at or before the moment.
    pub(super) fn older(&self) -> &Flush {
        &self.older
    }

    /// Returns the first flush after the moment.
    pub(super) fn newer(&self) -> Option<&Flush> {
        self.newer.as_ref()
    }

    /// Returns the flushes around the moment, newest first.
    pub(super) fn flushes(&self) -> Vec<Flush> {
        self.newer.iter().chain([&self.older]).cloned().collect()
    }
}

impl History {
    /// Returns the last state of the branch at or before `when`.
    ///
    /// # Errors
    /// [`HistoryError::TooEarly`], [`HistoryError::BeforeInit`], [`HistoryError::Shallow`], [`HistoryError::Cut`], [`HistoryError::TooLate`], or the history
    /// cannot be read.
    pub fn at(&self, when: When) -> Result<Moment, HistoryError> {
        let odb = self.odb()?;
        let is_after = |flush: &Flush| match when {
            When::Revision(revision) => flush.revision > revision,
            When::Time(time) => flush.time > time,
            When::Commit(_) | When::Now => false,
        };
        if let When::Commit(name) = when {
            return self.after(&odb, name);
        }
        if let When::Revision(asked) = when
            && asked > self.tip.revision
        {
            return Err(HistoryError::TooLate { asked, last: self.tip.revision });
        }
        let (mut newer, mut flush) = (None, self.tip.clone());
        while is_after(&flush) {
            let Some(older) = self.before(&odb, &flush)? else { return Err(self.too_early(when, &flush)) };
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

    /// Returns the state after a commit of this branch. A metadata commit stands for the data commit that it describes.
    ///
    /// Reads one object for each commit of the branch that is newer.
    fn after(&self, odb: &Odb<'_>, name: CommitName) -> Result<Moment, HistoryError> {
        let wanted = self.resolve_moment(name.as_str())?;
        let (mut newer, mut flush) = (None, self.tip.clone());
        loop {
            let older = self.before(odb, &flush)?;
            // Several flushes have one data commit if only keys that are stored with the metadata changed.
            let is_first = older.as_ref().is_none_or(|older| older.data != wanted);
            if flush.metadata == wanted || (flush.data == wanted && is_first) {
                let (revision, commit) = (flush.revision, CommitInfo::read(odb, flush.data)?);
                return Ok(Moment { revision, commit, until: revision, older: flush, newer });
            }
            let Some(older) = older else { break };
            let steps = self.line(odb, Some(&older), Some(&flush), flush.data, usize::MAX)?;
            if let Some(place) = steps.iter().position(|step| step.commit.oid == wanted) {
                // A merge or an external commit has no revision of its own.
                let revision = steps[place..].iter().find_map(Step::revisions).map_or(older.revision, |own| own.last);
                let commit = steps[place].commit.clone();
                return Ok(Moment { revision, commit, until: revision, older, newer: Some(flush) });
            }
            newer = Some(std::mem::replace(&mut flush, older));
        }
        Err(self.no_moment(name.as_str()))
    }

    /// Returns the moment with a revision in place of a commit.
    pub(super) fn with_revision(&self, when: Option<When>) -> Result<Option<When>, HistoryError> {
        match when {
            Some(When::Commit(_)) => when
                .map(|when| self.at(when))
                .transpose()
                .map(|found| found.map(|found| When::Revision(found.revision))),
            when => Ok(when),
        }
    }

    /// Returns the last commit between two flushes that is at or before `when`, if any.
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
        // A merge or an external commit has no revision of its own: use that of the last commit of this store before it.
        let known = steps[steps.len() - count..].iter().find_map(Step::revisions);
        Ok(Some((known.map_or(older.revision, |own| own.last), found.commit.clone())))
    }

    /// Returns the value of a whole key at a moment.
    ///
    /// # Errors
    /// [`HistoryError`].
    pub fn get(&self, moment: &Moment, key: &[u8]) -> Result<Option<Value>, HistoryError> {
        let Some(Stored { blob, known, .. }) = self.stored(moment, key)? else { return Ok(None) };
        Ok(Some(Value { bytes: self.value(blob, known.map(|known| known.form))?, known }))
    }

    /// Returns where the value of a whole key at a moment is stored.
    pub(super) fn stored(&self, moment: &Moment, key: &[u8]) -> Result<Option<Stored>, HistoryError> {
        let odb = self.odb()?;
        let mut lookup = Lookup::new(key);
        // The last key record that is not after the moment. How a value was stored that was replaced before the flush is not
        // recorded.
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
            return Ok(blob.map(|blob| Stored { blob, known: Some(known), commit: flush.metadata }));
        };
        let blob = changes::find(&self.repository, moment.commit.tree, relative)?;
        let in_flush = match line {
            Some((_, flush)) => changes::find(&self.repository, CommitInfo::read(&odb, flush.data)?.tree, relative)?,
            None => None,
        };
        let known = line.map(|(known, _)| known);
        // The key's last change has no commit of its own, or shares one with later revisions; but it has not changed since.
        if let (Some(blob), Some((found, flush))) = (in_flush, line)
            && found.record.mod_revision > moment.revision
        {
            return Ok(Some(Stored { blob, known, commit: flush.data }));
        }
        let known = known.filter(|_| in_flush == blob);
        Ok(blob.map(|blob| Stored { blob, known, commit: moment.commit.oid }))
    }

    /// Returns the data keys that start with `beginning`, in order.
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

    /// Returns the data keys that differ between two moments, without the key prefix; without `from`, all keys of `to`.
    ///
    /// # Errors
    /// [`HistoryError`].
    pub fn between(&self, from: Option<&Moment>, to: &Moment) -> Result<Changes, HistoryError> {
        Ok(changes::between(&self.repository, from.map(|from| from.commit.tree), Some(to.commit.tree))?)
    }

    /// Returns the commits of the branch with their revisions here, newest first: at most `limit`, and none before `since`.
    ///
    /// # Errors
    /// [`HistoryError`]. The history of a shallow clone ends where the clone does.
    pub fn commits(
        &self,
        limit: usize,
        since: Option<When>,
    ) -> Result<Vec<(Option<Revisions>, CommitInfo)>, HistoryError> {
        let (odb, since) = (self.odb()?, self.with_revision(since)?);
        // External commits since the last flush.
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

impl History {
    fn too_early(&self, when: When, first: &Flush) -> HistoryError {
        let is_adopted = first.joins.iter().any(|join| matches!(join, HistoryLink::Adopted { .. }));
        let shown = |time: i64| {
            let time = SystemTime::UNIX_EPOCH + Duration::from_secs(u64::try_from(time).unwrap_or_default());
            humantime::format_rfc3339_seconds(time).to_string()
        };
        let asked = match when {
            When::Revision(revision) => format!("revision {revision}"),
            When::Time(time) => shown(time),
            When::Commit(name) => name.as_str().to_owned(),
            When::Now => "now".into(),
        };
        let (is_cut, data, time, first) = (first.previous.is_some(), first.data, shown(first.time), first.revision);
        if is_adopted {
            HistoryError::BeforeInit { asked, first }
        } else if is_cut {
            let own = self.boundary.cuts().iter().rfind(|cut| cut.data == data);
            match own.or_else(|| self.boundary.cut()) {
                Some(cut) => HistoryError::Cut { asked, first, date: cut.date(), archive_status: cut.archive_status() },
                None => HistoryError::Shallow { asked, first },
            }
        } else {
            HistoryError::TooEarly { asked, first, time }
        }
    }
}
