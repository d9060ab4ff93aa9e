//! All versions of one key.
//!
//! The metadata says when a key was changed last. So the way back goes from one version to the one before, reading one small commit for each
//! flush in between, and the key's own line at each version only. Where the key does not exist its line is looked for in every flush, and its file
//! in every commit of a flush that has several; what did not change since the flush before is not read again. Commits are looked for in the data between two flushes: by the revision that their
//! message says if there is one change in between, else by their trees.

use git2::{Odb, Oid};
use gitcd_core::path;
use gitcd_merge::form::Form;
use gitcd_repo::changes::{self, Finder};
use gitcd_repo::lookup::{Known, Lookup};

use super::flush::Flush;
use super::line::Step;
use super::moment::When;
use super::named::Named;
use super::{CommitInfo, History, HistoryError, Revisions};

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
    /// The commit that brought it; of another branch, if it came with a merge.
    pub commit: CommitInfo,
    form: Option<Form>,
    /// The trees of this branch before and after it: of the data, or of the metadata for a key that is kept there. None if only its
    /// revision has changed.
    trees: Option<Trees>,
}

/// The trees of a branch before and after a commit.
type Trees = [Option<Oid>; 2];

/// A change of a file: in which commit of this branch, and in which it was brought.
struct Walked {
    what: What,
    revisions: Option<Revisions>,
    brought: CommitInfo,
    trees: Trees,
}

/// A key, and where its value is.
#[derive(Clone, Debug)]
struct Key<'k> {
    whole: &'k [u8],
    /// In the data tree.
    relative: Option<&'k [u8]>,
}

impl History {
    /// The versions of a whole key, the newest first: at most `limit`, and none that came here before `since`.
    ///
    /// # Errors
    /// [`HistoryError`] if what is needed of the history cannot be read. In a shallow clone that is where it ends.
    pub fn versions(&self, key: &[u8], limit: usize, since: Option<When>) -> Result<Vec<Version>, HistoryError> {
        let odb = self.odb()?;
        let key = Key { whole: key, relative: self.relative(key) };
        let (mut lookup, mut found) = (Lookup::new(key.whole), Vec::new());
        let mut newer = self.tip.clone();
        let mut now = super::known(&mut lookup, &odb, &newer)?;
        while found.len() < limit {
            let (first, older) = self.back(&odb, &mut lookup, newer, now)?;
            if since.is_some_and(|since| first.is_before(since)) {
                break;
            }
            let before = match &older {
                Some(older) => super::known(&mut lookup, &odb, older)?,
                None => None,
            };
            if before.is_some() || now.is_some() || key.relative.is_some() {
                let window = Window { older: older.as_ref(), newer: &first };
                found.extend(self.changes(&odb, &key, &window, before, now)?);
            }
            let Some(older) = older else { break };
            (newer, now) = (older, before);
        }
        found.truncate(limit);
        Ok(found)
    }

    /// The first flush in which a key is as it is in `newer`, and the one before that.
    fn back(
        &self,
        odb: &Odb<'_>,
        lookup: &mut Lookup,
        newer: Flush,
        now: Option<Known>,
    ) -> Result<(Flush, Option<Flush>), HistoryError> {
        let mut first = newer;
        loop {
            let Some(older) = self.before(odb, &first)? else { return Ok((first, None)) };
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
        let last = |what, commit, trees| Version {
            what,
            revision: now.map(|known| known.record.mod_revision),
            version: now.map(|known| known.record.version),
            commit,
            form: now.map(|known| known.form),
            trees,
        };
        let what = match (before, now) {
            (None, _) => What::Create,
            (Some(_), Some(_)) => What::Update,
            (Some(_), None) => What::Delete,
        };
        let of_metadata = || CommitInfo::read(odb, window.newer.metadata);
        let (Some(relative), false) = (key.relative, is_local) else {
            let trees = [window.older.map(|older| older.tree), Some(window.newer.tree)];
            return Ok(vec![last(what, of_metadata()?, Some(trees))]);
        };
        if let Some(known) = now
            && before.is_some_and(|before| is_one_change(before, known))
            && let Some((commit, trees)) = self.only_change(odb, relative, window, known.record.mod_revision)?
        {
            return Ok(vec![last(what, commit, Some(trees))]);
        }
        let mut found = Vec::new();
        for Walked { what, revisions, brought: commit, trees } in self.walk(odb, relative, window)? {
            let revision = revisions.filter(|own| own.first == own.last).map(|own| own.last);
            found.push(if found.is_empty() && now.is_some() {
                last(what, commit, Some(trees))
            } else {
                // How it was stored nobody has noted.
                Version { what, revision, version: None, commit, form: None, trees: Some(trees) }
            });
        }
        if found.is_empty() && now.is_some() {
            // The same value was put again: the metadata alone has changed.
            found.push(last(what, of_metadata()?, None));
        }
        Ok(found)
    }

    /// The commit of this store that has a revision, if that is what made a file what it is in the newer flush.
    fn only_change(
        &self,
        odb: &Odb<'_>,
        relative: &[u8],
        window: &Window<'_>,
        revision: i64,
    ) -> Result<Option<(CommitInfo, Trees)>, HistoryError> {
        if !window.newer.joins.is_empty() {
            return Ok(None);
        }
        let until = window.older.map(|older| older.data);
        let blob = |tree: Oid| changes::find(&self.repository, tree, relative);
        let mut next = Some(window.newer.data);
        while let Some(oid) = next.filter(|next| until != Some(*next)) {
            let commit = CommitInfo::read(odb, oid)?;
            match commit.revisions() {
                Some(own) if own.first > revision && commit.parents.len() == 1 => next = Some(commit.parents[0]),
                Some(own) if own.first <= revision && revision <= own.last && commit.parents.len() == 1 => {
                    let before = CommitInfo::read(odb, commit.parents[0])?.tree;
                    let last = CommitInfo::read(odb, window.newer.data)?.tree;
                    let here = blob(commit.tree)?;
                    let is_it = blob(before)? != here && blob(last)? == here;
                    let trees = [Some(before), Some(commit.tree)];
                    return Ok(is_it.then_some((commit, trees)));
                }
                _ => return Ok(None),
            }
        }
        Ok(None)
    }

    /// The commits of this branch between two flushes that changed a file, the newest first; each with the commit that brought the change.
    fn walk(&self, odb: &Odb<'_>, relative: &[u8], window: &Window<'_>) -> Result<Vec<Walked>, HistoryError> {
        let steps = self.line(odb, window.older, Some(window.newer), window.newer.data, usize::MAX)?;
        let mut finder = Finder::new(self.odb()?, relative);
        let mut found = Vec::new();
        let named = Named::new(relative);
        let may_have = |step: &Step| named.as_ref().is_none_or(|named| step.may_have(named));
        for (at, step) in steps.iter().enumerate().filter(|(_, step)| may_have(step)) {
            let here = finder.find(step.commit.tree)?;
            let before = match (step.before, steps.get(at + 1)) {
                (Some(before), Some(next)) if next.commit.oid == before => Some(next.commit.tree),
                (Some(before), _) => Some(CommitInfo::read(odb, before)?.tree),
                (None, _) => None,
            };
            let there = before.map(|before| finder.find(before)).transpose()?.flatten();
            let what = match (there, here) {
                (there, here) if there == here => continue,
                (None, _) => What::Create,
                (_, Some(_)) => What::Update,
                (_, None) => What::Delete,
            };
            let brought = self.brought(odb, relative, step, here)?;
            let trees = [before, Some(step.commit.tree)];
            found.push(Walked { what, revisions: step.revisions(), brought, trees });
        }
        Ok(found)
    }

    /// The commit that a merge took a file from; the merge itself, if it made it of both.
    fn brought(
        &self,
        odb: &Odb<'_>,
        relative: &[u8],
        step: &Step,
        here: Option<Oid>,
    ) -> Result<CommitInfo, HistoryError> {
        let mut commit = step.commit.clone();
        if commit.parents.len() < 2 {
            return Ok(commit);
        }
        // As `git log -- PATH` goes.
        'commits: loop {
            for parent in &commit.parents {
                if self.is_cut(odb, *parent) {
                    continue;
                }
                let parent = CommitInfo::read(odb, *parent)?;
                if changes::find(&self.repository, parent.tree, relative)? == here {
                    commit = parent;
                    continue 'commits;
                }
            }
            return Ok(commit);
        }
    }

    /// The value before and after a version of a whole key; `None` where there was none, and where only its revision has changed.
    ///
    /// # Errors
    /// [`HistoryError`].
    pub fn change(&self, key: &[u8], version: &Version) -> Result<[Option<Vec<u8>>; 2], HistoryError> {
        let Some([before, after]) = version.trees else { return Ok([None, None]) };
        let is_metadata = version.commit.subject().starts_with("metadata ");
        let value = |tree: Option<Oid>, form| {
            let Some(tree) = tree else { return Ok(None) };
            let blob = match self.relative(key).filter(|_| !is_metadata) {
                Some(relative) => changes::find(&self.repository, tree, relative)?,
                None => local(&self.repository, tree, key)?,
            };
            blob.map(|blob| self.value(blob, form)).transpose()
        };
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
