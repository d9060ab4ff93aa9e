//! All versions of one key.
//!
//! The metadata says when a key was changed last. So the way back goes from one version to the one before, reading one small commit for each
//! flush in between, and the key's own line at each version only. Where the key does not exist its line is looked for in every flush, and its file
//! in every commit of a flush that has several; what did not change since the flush before is not read again. Commits are looked for in the data between two flushes: by the revision that their
//! message says if there is one change in between, else by their trees, as `git log -- PATH` does.

use git2::{Odb, Oid};

use super::flush::Flush;
use super::{CommitInfo, History, HistoryError};
use crate::git::changes;
use crate::git::form::Form;
use crate::git::lookup::{Known, Lookup};
use crate::git::path;

/// What became of a key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum What {
    /// It was not there before.
    Create,
    /// It got another value.
    Update,
    /// It is gone.
    Delete,
}

impl What {
    /// In a word, as commits say it.
    pub fn word(self) -> &'static str {
        match self {
            Self::Create => "create",
            Self::Update => "update",
            Self::Delete => "delete",
        }
    }
}

/// A change of a key.
#[derive(Clone, Debug)]
pub struct Version {
    /// What happened.
    pub what: What,
    /// The revision, if it is known: several changes may be in one commit, and a deletion leaves no line behind.
    pub revision: Option<i64>,
    /// Number of changes since it was created, if that is known.
    pub version: Option<i64>,
    /// The commit that has it.
    pub commit: CommitInfo,
    form: Option<Form>,
}

/// A key, and where its value is.
#[derive(Clone, Debug)]
struct Key<'k> {
    whole: &'k [u8],
    /// In the data tree.
    relative: Option<&'k [u8]>,
}

impl History {
    /// The versions of a whole key, the newest first: at most `limit`, and none from before `since`, in seconds since 1970.
    ///
    /// # Errors
    /// [`HistoryError`] if what is needed of the history cannot be read. In a shallow clone that is where it ends.
    pub fn versions(&self, key: &[u8], limit: usize, since: Option<i64>) -> Result<Vec<Version>, HistoryError> {
        let odb = self.odb()?;
        let key = Key { whole: key, relative: self.relative(key) };
        let (mut lookup, mut found) = (Lookup::new(key.whole), Vec::new());
        let mut newer = self.tip.clone();
        let mut now = super::known(&mut lookup, &odb, &newer)?;
        while found.len() < limit {
            let (first, older) = back(&odb, &mut lookup, newer, now)?;
            let before = match &older {
                Some(older) => super::known(&mut lookup, &odb, older)?,
                None => None,
            };
            if before.is_some() || now.is_some() || key.relative.is_some() {
                let window = Window { older: older.as_ref(), newer: &first };
                found.extend(self.changes(&odb, &key, &window, before, now)?);
            }
            let is_early = |version: &Version| since.is_some_and(|since| version.commit.time < since);
            if found.last().is_some_and(is_early) {
                found.retain(|version| !is_early(version));
                break;
            }
            let Some(older) = older else { break };
            (newer, now) = (older, before);
        }
        found.truncate(limit);
        Ok(found)
    }

    /// The changes of a key between two flushes, the newest first.
    fn changes(
        &self,
        odb: &Odb<'_>,
        key: &Key<'_>,
        window: &Window<'_>,
        before: Option<Known>,
        now: Option<Known>,
    ) -> Result<Vec<Version>, HistoryError> {
        let is_local = now.or(before).is_some_and(|known| known.is_local);
        let last = |what, commit| Version {
            what,
            revision: now.map(|known| known.record.mod_revision),
            version: now.map(|known| known.record.version),
            commit,
            form: now.map(|known| known.form),
        };
        let what = match (before, now) {
            (None, _) => What::Create,
            (Some(_), Some(_)) => What::Update,
            (Some(_), None) => What::Delete,
        };
        let (Some(relative), false) = (key.relative, is_local) else {
            return Ok(vec![last(what, CommitInfo::read(odb, window.newer.metadata)?)]);
        };
        let until = window.older.map(|older| older.data);
        if let Some(known) = now
            && before.is_some_and(|before| is_one_change(before, known))
            && let Some(commit) = with_revision(odb, window.newer, until, known.record.mod_revision)?
            && self.has_changed(odb, relative, &commit)?
        {
            return Ok(vec![last(what, commit)]);
        }
        let mut found = Vec::new();
        for (what, commit) in self.walk(odb, relative, window.newer.data, until)? {
            let own = commit.revisions().filter(|own| own.first == own.last);
            found.push(if found.is_empty() && now.is_some() {
                last(what, commit)
            } else {
                Version {
                    what,
                    revision: own.map(|own| own.last),
                    version: None,
                    commit,
                    // Nobody has noted how it was stored.
                    form: None,
                }
            });
        }
        if found.is_empty() && now.is_some() {
            // The same value was put again: the metadata alone has changed.
            found.push(last(what, CommitInfo::read(odb, window.newer.metadata)?));
        }
        Ok(found)
    }

    /// Whether a file is another one than in the commit before. The commits of another store may have become ours, and its revisions are
    /// other ones.
    fn has_changed(&self, odb: &Odb<'_>, relative: &[u8], commit: &CommitInfo) -> Result<bool, HistoryError> {
        let Some(parent) = commit.parents.first() else { return Ok(true) };
        let before = CommitInfo::read(odb, *parent)?;
        let blob = |commit: &CommitInfo| changes::find(&self.repository, commit.tree, relative);
        Ok(blob(&before)? != blob(commit)?)
    }

    /// The commits that changed a file, the newest first: where a merge took one side as it was, that side alone counts.
    fn walk(
        &self,
        odb: &Odb<'_>,
        relative: &[u8],
        from: Oid,
        until: Option<Oid>,
    ) -> Result<Vec<(What, CommitInfo)>, HistoryError> {
        let blob = |commit: &CommitInfo| changes::find(&self.repository, commit.tree, relative);
        let (mut found, mut passed_merge) = (Vec::new(), false);
        let mut next = (until != Some(from)).then_some(from);
        while let Some(oid) = next.take() {
            if let Some(until) = until.filter(|_| passed_merge)
                && self.repository.graph_descendant_of(until, oid).unwrap_or(true)
            {
                // What came with a fast-forward may go around the commit of before.
                break;
            }
            let commit = CommitInfo::read(odb, oid)?;
            let here = blob(&commit)?;
            passed_merge |= commit.parents.len() > 1;
            let mut of_first = None;
            for (at, parent) in commit.parents.iter().enumerate() {
                let there = blob(&CommitInfo::read(odb, *parent)?)?;
                if there == here {
                    next = Some(*parent);
                    break;
                }
                if at == 0 {
                    of_first = there;
                }
            }
            if next.is_none() && (here.is_some() || of_first.is_some()) {
                let what = match (of_first, here) {
                    (None, _) => What::Create,
                    (_, Some(_)) => What::Update,
                    (_, None) => What::Delete,
                };
                next = commit.parents.first().copied();
                found.push((what, commit));
            }
            next = next.filter(|next| until != Some(*next));
        }
        Ok(found)
    }

    /// The value before and after a version of a whole key; `None` where there was none, and where only its revision has changed.
    ///
    /// # Errors
    /// [`HistoryError`].
    pub fn change(&self, key: &[u8], version: &Version) -> Result<[Option<Vec<u8>>; 2], HistoryError> {
        let odb = self.odb()?;
        let is_metadata = version.commit.subject().starts_with("metadata ");
        if is_metadata && self.relative(key).is_some() {
            return Ok([None, None]);
        }
        let at = |tree: Oid| match self.relative(key).filter(|_| !is_metadata) {
            Some(relative) => changes::find(&self.repository, tree, relative),
            None => local(&self.repository, tree, key),
        };
        let before = match version.commit.parents.first() {
            Some(parent) if version.what != What::Create => at(CommitInfo::read(&odb, *parent)?.tree)?,
            _ => None,
        };
        let after = at(version.commit.tree)?;
        let value = |blob: Option<Oid>, form| blob.map(|blob| self.value(blob, form)).transpose();
        Ok([value(before, None)?, value(after, version.form)?])
    }
}

/// The value of a key that is kept with the metadata.
pub(super) fn local(
    repository: &git2::Repository,
    metadata: Oid,
    key: &[u8],
) -> Result<Option<Oid>, changes::TreeError> {
    debug_assert!(path::fits(key), "the store takes no other");
    let odb =
        repository.odb().map_err(|error| changes::TreeError { oid: metadata, problem: error.message().to_owned() })?;
    match changes::any_entry(&odb, metadata, b"local")? {
        Some((true, local)) => changes::find(repository, local, key),
        _ => Ok(None),
    }
}

/// The time between two flushes.
struct Window<'f> {
    older: Option<&'f Flush>,
    newer: &'f Flush,
}

/// Whether nothing but the last change can have happened since.
fn is_one_change(before: Known, now: Known) -> bool {
    before.record.create_revision == now.record.create_revision && now.record.version == before.record.version + 1
}

/// Whether there is at most one data commit between two flushes.
fn is_one_commit(odb: &Odb<'_>, older: &Flush, newer: &Flush) -> Result<bool, HistoryError> {
    Ok(newer.data == older.data || CommitInfo::read(odb, newer.data)?.parents == [older.data])
}

/// The commit of this store that has a revision.
fn with_revision(
    odb: &Odb<'_>,
    from: &Flush,
    until: Option<Oid>,
    revision: i64,
) -> Result<Option<CommitInfo>, HistoryError> {
    let mut next = Some(from.data);
    while let Some(oid) = next.filter(|next| until != Some(*next)) {
        let commit = CommitInfo::read(odb, oid)?;
        match commit.revisions() {
            // A merge has revisions of its own, which no message says.
            None => return Ok(None),
            Some(own) if own.first <= revision && revision <= own.last => return Ok(Some(commit)),
            Some(own) if own.last < revision => return Ok(None),
            Some(_) => next = commit.parents.first().copied(),
        }
    }
    Ok(None)
}

/// The first flush in which a key is as it is in `newer`, and the one before that.
fn back(
    odb: &Odb<'_>,
    lookup: &mut Lookup,
    newer: Flush,
    now: Option<Known>,
) -> Result<(Flush, Option<Flush>), HistoryError> {
    let mut first = newer;
    loop {
        let Some(older) = first.before(odb)? else { return Ok((first, None)) };
        let is_same = match now {
            // A store that goes on from Git jumps ahead, and never back, unless it was begun anew.
            Some(known) => older.revision >= known.record.mod_revision && older.revision <= first.revision,
            // It may have come and gone in between.
            None => super::known(lookup, odb, &older)?.is_none() && is_one_commit(odb, &older, &first)?,
        };
        if !is_same {
            return Ok((first, Some(older)));
        }
        first = older;
    }
}
