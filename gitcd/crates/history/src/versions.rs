//! All versions of a key.
//!
//! The metadata records the last change of each key. So the walk goes from one version to the previous one, reading one small
//! commit for each flush in between, and the key record at each version only. While the key does not exist, its record is
//! searched in every flush, and its file in every commit of a flush with several; trees that did not change since the previous
//! flush are not read again. Data commits between two flushes are found by the revision in their message if there is one change
//! in between, otherwise by their trees.

mod windows;

use git2::{Odb, Oid};
use gitcd_core::path;
use gitcd_merge::form::Form;
use gitcd_repo::changes::{self, Finder};
use gitcd_repo::lookup::Known;

use super::line::{Step, StepText};
use super::named::Named;
use super::when::When;
use super::{CommitInfo, History, HistoryError, Revisions};

use self::windows::{Window, Windows};

/// The kind of a change.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ChangeKind {
    /// The key did not exist before.
    Create,
    /// The key got another value.
    Update,
    /// The key was deleted.
    Delete,
    /// The key has this value where the history begins: older commits were removed, or are not in a clone with a limited depth. So
    /// when it was written is not known.
    Boundary,
}

impl ChangeKind {
    /// Returns the word that commit subjects use, and Git's word for the commits with which a history begins.
    pub fn word(self) -> &'static str {
        match self {
            Self::Create => "create",
            Self::Update => "update",
            Self::Delete => "delete",
            Self::Boundary => "boundary",
        }
    }
}

/// A change of a key.
#[derive(Clone, Debug)]
pub struct Version {
    /// The kind of the change.
    pub what: ChangeKind,
    /// The revision, if known: a commit may have several changes, and a deletion leaves no key record.
    pub revision: Option<i64>,
    /// Number of writes since the creation, if known.
    pub version: Option<i64>,
    /// The commit that made the change; for a merged change, a commit of the other branch.
    pub commit: CommitInfo,
    form: Option<Form>,
    /// The trees of this branch before and after the change: data trees, or metadata trees for a key that is stored there. `None`
    /// if only the key's revision changed.
    trees: Option<Trees>,
}

/// The trees of a branch before and after a commit.
type Trees = [Option<Oid>; 2];

/// A change of a file by a commit of this branch, and the commit that first made it.
struct Walked {
    what: ChangeKind,
    revisions: Option<Revisions>,
    brought: CommitInfo,
    trees: Trees,
}

/// A key and the location of its value.
#[derive(Clone, Debug)]
struct Key<'k> {
    whole: &'k [u8],
    /// The key's path part, if it is in the data tree.
    relative: Option<&'k [u8]>,
}

impl History {
    /// Returns the versions of a whole key, newest first: at most `limit`, and none that reached this branch before `since`.
    ///
    /// # Errors
    /// [`HistoryError`] if a part of the history cannot be read. The history of a shallow clone ends where the clone does.
    pub fn versions(&self, key: &[u8], limit: usize, since: Option<When>) -> Result<Vec<Version>, HistoryError> {
        let since = self.with_revision(since)?;
        let key = Key { whole: key, relative: self.relative(key) };
        let mut windows = Windows::new(self, &key, since)?;
        let mut found = Vec::new();
        while found.len() < limit {
            let Some(window) = windows.next() else { break };
            found.extend(self.changes(&key, &window?)?);
        }
        found.truncate(limit);
        Ok(found)
    }

    /// Returns the changes of a key between two flushes, newest first.
    fn changes(&self, key: &Key<'_>, window: &Window) -> Result<Vec<Version>, HistoryError> {
        let odb = &self.odb()?;
        let Window { before, now, .. } = *window;
        if before.is_none() && now.is_none() && key.relative.is_none() {
            return Ok(Vec::new());
        }
        let is_local = now.or(before).is_some_and(|known| known.is_local);
        let last = |what, commit, trees| Version {
            what,
            revision: now.map(|known| known.record.mod_revision),
            version: now.map(|known| known.record.version),
            commit,
            form: now.map(|known| known.form),
            trees,
        };
        let is_oldest = window.older.is_none() && window.newer.previous.is_some();
        let what = match (before, now) {
            (None, Some(_)) if is_oldest => ChangeKind::Boundary,
            (None, _) => ChangeKind::Create,
            (Some(_), Some(_)) => ChangeKind::Update,
            (Some(_), None) => ChangeKind::Delete,
        };
        let of_metadata = || CommitInfo::read(odb, window.newer.metadata);
        let (Some(relative), false) = (key.relative, is_local) else {
            let before = if is_oldest { Some(&window.newer) } else { window.older.as_ref() };
            let trees = [before.map(|before| before.tree), Some(window.newer.tree)];
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
                // The stored form is not recorded.
                Version { what, revision, version: None, commit, form: None, trees: Some(trees) }
            });
        }
        if found.is_empty() && now.is_some() {
            // The same value was put again: only the metadata changed.
            found.push(last(what, of_metadata()?, None));
        }
        Ok(found)
    }

    /// Returns this store's commit with a revision, if the file has not changed since, up to the newer flush.
    fn only_change(
        &self,
        odb: &Odb<'_>,
        relative: &[u8],
        window: &Window,
        revision: i64,
    ) -> Result<Option<(CommitInfo, Trees)>, HistoryError> {
        if !window.newer.joins.is_empty() {
            return Ok(None);
        }
        let until = window.older.as_ref().map(|older| older.data);
        let blob = |tree: Oid| changes::find(&self.repository, tree, relative);
        let mut next = Some(window.newer.data);
        while let Some(oid) = next.filter(|next| until != Some(*next)) {
            self.proceed()?;
            let commit = CommitInfo::read(odb, oid)?;
            match commit.revisions().filter(|_| !self.boundary.has(oid)) {
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

    /// Returns the commits of this branch between two flushes that changed a file, newest first, each with the commit that made
    /// the change.
    fn walk(&self, odb: &Odb<'_>, relative: &[u8], window: &Window) -> Result<Vec<Walked>, HistoryError> {
        let named = Named::new(relative);
        let may_have = |step: &StepText<'_>| named.as_ref().is_none_or(|named| step.may_have(named));
        let steps =
            self.line_where(odb, window.older.as_ref(), Some(&window.newer), window.newer.data, usize::MAX, may_have)?;
        let mut finder = Finder::new(self.odb()?, relative);
        let mut found = Vec::new();
        for (at, step) in steps.iter().enumerate() {
            self.proceed()?;
            let here = finder.find(step.commit.tree)?;
            let before = match (step.before, steps.get(at + 1)) {
                (Some(before), Some(next)) if next.commit.oid == before => Some(next.commit.tree),
                (Some(before), _) => Some(CommitInfo::read(odb, before)?.tree),
                (None, _) => None,
            };
            let there = before.map(|before| finder.find(before)).transpose()?.flatten();
            let what = match (there, here) {
                (there, here) if there == here => continue,
                (None, _) if step.is_oldest() => ChangeKind::Boundary,
                (None, _) => ChangeKind::Create,
                (_, Some(_)) => ChangeKind::Update,
                (_, None) => ChangeKind::Delete,
            };
            let brought = self.brought(odb, relative, step, here)?;
            let before = if step.is_oldest() { Some(step.commit.tree) } else { before };
            let trees = [before, Some(step.commit.tree)];
            found.push(Walked { what, revisions: step.revisions(), brought, trees });
        }
        Ok(found)
    }

    /// Returns the commit from which a merge took the file; the merge itself if it combined both sides.
    pub(super) fn brought(
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
        // Follows the parents like `git log -- PATH`.
        'commits: loop {
            self.proceed()?;
            if self.boundary.has(commit.oid) {
                // Its parents may be here, but not what leads to them.
                return Ok(commit);
            }
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

    /// Returns the value before and after a version of a whole key; `None` for an absent value, and if only the revision changed.
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
        // Where the history begins, both are the same value.
        let form_before = version.form.filter(|_| version.what == ChangeKind::Boundary);
        Ok([value(before, form_before)?, value(after, version.form)?])
    }
}

/// Returns the value of a key that is stored with the metadata.
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

/// Returns whether `now` is the only change since `before`.
fn is_one_change(before: Known, now: Known) -> bool {
    before.record.create_revision == now.record.create_revision && now.record.version == before.record.version + 1
}
