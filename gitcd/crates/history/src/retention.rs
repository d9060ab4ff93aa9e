//! Where a history can be cut so that the current state, and all that follows the cut, stays.
//!
//! A cut is made at a flush: its commits become the oldest ones. Commits keep their IDs: the oldest ones are the boundary of a shallow
//! repository (gitformat-shallow, in Git's `Documentation/technical/shallow.adoc`), so they only lose their parents.
//!
//! Source: `docs/design/retention.md`.

use std::collections::BTreeSet;

use git2::{Oid, Revwalk, Sort};

use super::flush::Flush;
use super::when::When;
use super::{CommitInfo, History, HistoryError};

/// Which part of the history is kept.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Keep {
    /// What was committed since this moment, and the state at it.
    Since(When),
    /// At least so many of the last data commits on this branch.
    Commits(usize),
}

/// A cut of a history.
#[derive(Clone, Debug)]
pub struct Cut {
    /// The oldest revision that is kept.
    pub revision: i64,
    /// When it was committed, in seconds since 1970.
    pub time: i64,
    /// The data commit with this revision.
    pub data: Oid,
    /// The metadata commit that describes it.
    pub metadata: Oid,
    /// The commits that lose their parents: these two, and others with parents before the cut.
    pub boundary: BTreeSet<Oid>,
    /// The newest commits that go.
    pub removed: BTreeSet<Oid>,
    /// How many data commits go.
    pub commits: usize,
    /// For what more is kept than was asked for: a reference that is behind, or one of `needed`.
    pub kept_for: Option<String>,
}

/// Why a history cannot be cut.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum CutError {
    /// Another reference has a history of its own.
    #[error(
        "{reference} has a history of its own, of which more than {MAX_BOUNDARY} commits begin before the cut: remove the reference, or keep more"
    )]
    Apart {
        /// The reference.
        reference: String,
    },
    /// The history cannot be read.
    #[error(transparent)]
    History(#[from] HistoryError),
}

/// Limit on commits that lose their parents, each of which keeps a tree.
const MAX_BOUNDARY: usize = 1000;

impl History {
    /// Finds the latest cut that keeps a part of the history, or `None` if nothing is before it. No reference may be left behind the
    /// cut: a merge with what it leads to would have no common base. The commits in `needed`, each with what needs it, stay as well.
    ///
    /// Reads each flush and each commit after the cut, and counts those before it.
    ///
    /// # Errors
    /// [`CutError`].
    pub fn cut(&self, keep: Keep, needed: &[(String, Oid)]) -> Result<Option<Cut>, CutError> {
        let odb = self.odb()?;
        let references = self.tips()?;
        let mut line = vec![self.tip.clone()];
        let mut commits = 0;
        loop {
            let newest = &line[line.len() - 1];
            let is_enough = match keep {
                Keep::Since(When::Now) => true,
                Keep::Since(When::Time(time)) => newest.time <= time,
                Keep::Since(When::Revision(revision)) => newest.revision <= revision,
                Keep::Commits(wanted) => commits >= wanted,
            };
            let older = self.before(&odb, newest)?;
            let Some(older) = older.filter(|_| !is_enough) else { break };
            if matches!(keep, Keep::Commits(_)) {
                commits += self.line(&odb, Some(&older), Some(newest), newest.data, usize::MAX)?.len();
            }
            line.push(older);
        }
        let mut flush = line.swap_remove(line.len() - 1);
        let mut kept_for = None;
        while let Some((reference, _)) = references.iter().chain(needed).find(|(_, tip)| self.is_behind(*tip, &flush)) {
            kept_for = Some(reference.clone());
            let Some(older) = self.before(&odb, &flush)? else { break };
            flush = older;
        }
        self.cut_at(&flush, &references, kept_for)
    }

    /// Returns whether a commit is before a flush, so that a cut there would leave it behind.
    fn is_behind(&self, tip: Oid, flush: &Flush) -> bool {
        let before = |commit| self.repository.graph_descendant_of(commit, tip).unwrap_or(false);
        tip != flush.data && tip != flush.metadata && (before(flush.data) || before(flush.metadata))
    }

    /// Returns the commits of all references, in order of their names.
    fn tips(&self) -> Result<Vec<(String, Oid)>, HistoryError> {
        let failed = |error: git2::Error| HistoryError::object(self.tip.metadata, error.message());
        let mut tips = Vec::new();
        for reference in self.repository.references().map_err(failed)? {
            let reference = reference.map_err(failed)?;
            // A reference to another one is found under that name; a tag of a tree keeps it as it is.
            if reference.symbolic_target().ok().flatten().is_none()
                && let Ok(commit) = reference.peel_to_commit()
            {
                tips.push((String::from_utf8_lossy(reference.name_bytes()).into_owned(), commit.id()));
            }
        }
        tips.sort();
        Ok(tips)
    }

    fn cut_at(
        &self,
        flush: &Flush,
        references: &[(String, Oid)],
        kept_for: Option<String>,
    ) -> Result<Option<Cut>, CutError> {
        let odb = self.odb()?;
        let ended = self.boundary();
        let (mut kept, mut parents) = (BTreeSet::new(), BTreeSet::from([flush.data, flush.metadata]));
        for (reference, tip) in references {
            let before = parents.len();
            for oid in self.ancestors(&[*tip], &[flush.data, flush.metadata])? {
                let oid = oid.map_err(|error| HistoryError::object(*tip, error.message()))?;
                if kept.insert(oid) && !ended.contains(&oid) {
                    parents.extend(CommitInfo::read(&odb, oid)?.parents);
                }
            }
            if parents.difference(&kept).count() > before + MAX_BOUNDARY {
                return Err(CutError::Apart { reference: reference.clone() });
            }
        }
        let oldest: BTreeSet<Oid> = parents.difference(&kept).copied().collect();
        let mut removed = BTreeSet::new();
        for oid in oldest.difference(&ended) {
            removed.extend(CommitInfo::read(&odb, *oid)?.parents);
        }
        removed.retain(|oid| !oldest.contains(oid));
        if removed.is_empty() {
            return Ok(None);
        }
        // Other references may end where they ended before.
        let boundary = &oldest | &(&kept & &ended);
        let commits = self.ancestors(&[flush.data], &[])?.count().saturating_sub(1);
        let Flush { revision, time, data, metadata, .. } = *flush;
        Ok(Some(Cut { revision, time, data, metadata, boundary, removed, commits, kept_for }))
    }

    /// Returns the commits at which the history of the repository ends already.
    fn boundary(&self) -> BTreeSet<Oid> {
        let text = std::fs::read_to_string(self.repository.path().join("shallow")).unwrap_or_default();
        text.lines().filter_map(|line| Oid::from_str(line).ok()).collect()
    }

    /// Walks from commits to their ancestors, except those of others.
    pub(super) fn ancestors(&self, from: &[Oid], without: &[Oid]) -> Result<Revwalk<'_>, HistoryError> {
        let failed = |error: git2::Error| HistoryError::object(from[0], error.message());
        let mut walk = self.repository.revwalk().map_err(failed)?;
        walk.set_sorting(Sort::TOPOLOGICAL | Sort::TIME).map_err(failed)?;
        for oid in from {
            walk.push(*oid).map_err(failed)?;
        }
        for oid in without {
            walk.hide(*oid).map_err(failed)?;
        }
        Ok(walk)
    }
}
