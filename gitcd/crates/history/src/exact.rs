//! The exact state of a branch at a revision: what an etcd that was never compacted would return.
//!
//! Other reads of a history return the nearest state that Git has. These either prove that Git has the state at exactly this
//! revision, or fail. At the revision of a flush, the metadata has everything. Between two flushes:
//!
//! | what the metadata and the commits say of a key | its record at the revision |
//! |---|---|
//! | the later flush has it with a mod revision that is not after the revision | that of the later flush |
//! | both flushes have it, with the same create revision and versions that differ by 1 | that of the earlier flush |
//! | the earlier flush has it, and no commit up to the revision can have written it | that of the earlier flush |
//! | the tree at the revision is known, and lacks it | none |
//! | anything else | not recorded: of a write in between, Git has neither the lease nor the stored form |
//!
//! The tree at the revision is known if all commits between the flushes are plain commits of this store, and none of them contains
//! both this revision and a later one. Revisions without a commit may have created a key and deleted it again, if the committer took
//! them together; so the revision must be the only one, or the last one, between two commits.

mod list;
mod record;

use git2::{Odb, Oid};
use gitcd_repo::{changes, object};

use super::flush::Flush;
use super::line::Step;
use super::{CommitInfo, History, HistoryError};

pub use self::list::KeyBounds;
pub use self::record::ExactRecord;

/// A revision of a branch whose state may be read exactly.
#[derive(Clone, Debug)]
pub struct ExactMoment {
    revision: i64,
    /// The last flush at or before the revision.
    older: Flush,
    /// The commits after it; `None` if the revision is that of the flush.
    window: Option<Window>,
}

/// What is between a flush and the next one.
#[derive(Clone, Debug)]
struct Window {
    newer: Flush,
    /// The commits that contain revisions up to the requested one; `None` if not all commits are plain commits of this store.
    until: Option<Vec<Step>>,
    /// The data tree at the revision, if it is known.
    tree: Option<Oid>,
}

/// Why an exact state is not returned.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ExactError {
    /// The revision is not in the history of this branch.
    #[error("revision {0} is not in the history of this branch")]
    Absent(i64),
    /// The revision is not committed yet.
    #[error("revision {asked} is not in Git yet; the last one is {last}")]
    Uncommitted {
        /// The requested revision.
        asked: i64,
        /// The last revision in Git.
        last: i64,
    },
    /// Git has the revision only together with others.
    #[error(
        "Git does not have revision {asked} of {what} exactly, because it records several revisions at once; it has those of \
         revisions {before} and {after}"
    )]
    Unrecorded {
        /// The requested revision.
        asked: i64,
        /// What was to be read.
        what: String,
        /// The last revision before it with a complete record.
        before: i64,
        /// The next one.
        after: i64,
    },
    /// The keys are never in Git.
    #[error("{what} may include keys under an ephemeral prefix, which are never in Git")]
    Ephemeral {
        /// What was to be read.
        what: String,
    },
    /// The history cannot be read.
    #[error(transparent)]
    History(#[from] HistoryError),
}

impl ExactMoment {
    /// Returns the error for something that is not recorded.
    fn unrecorded(&self, what: String) -> ExactError {
        let before = self.older.revision;
        let after = self.window.as_ref().map_or(before, |window| window.newer.revision);
        ExactError::Unrecorded { asked: self.revision, what, before, after }
    }
}

impl History {
    /// Finds a revision. Reads one small commit for each later flush, and those of the flush that contains the revision.
    ///
    /// # Errors
    /// [`ExactError::Absent`] before the history of this branch, before the last start without local state, and at a revision of a
    /// branch that was replaced by this one; [`ExactError::Uncommitted`], [`ExactError::History`].
    pub fn exact(&self, revision: i64) -> Result<ExactMoment, ExactError> {
        let odb = self.odb()?;
        if revision > self.tip.revision {
            return Err(ExactError::Uncommitted { asked: revision, last: self.tip.revision });
        }
        let (mut newer, mut older) = (None, self.tip.clone());
        while older.revision > revision {
            let before = self.before(&odb, &older)?;
            // Revisions only go back where another branch was replaced by this one.
            let before = before.filter(|before| before.revision <= older.revision);
            let before = before.ok_or(ExactError::Absent(revision))?;
            newer = Some(std::mem::replace(&mut older, before));
        }
        // A start without local state skips revisions, and may have other prefixes: keys that are not in Git may have existed before.
        if incarnation(&odb, &older)? != incarnation(&odb, &self.tip)? {
            return Err(ExactError::Absent(revision));
        }
        let window = match newer {
            Some(newer) if older.revision < revision => Some(self.window(&odb, revision, &older, newer)?),
            _ => None,
        };
        Ok(ExactMoment { revision, older, window })
    }

    fn window(&self, odb: &Odb<'_>, revision: i64, older: &Flush, newer: Flush) -> Result<Window, ExactError> {
        let steps = self.line(odb, Some(older), Some(&newer), newer.data, usize::MAX)?;
        let is_plain = |step: &Step| step.revisions().is_some() && step.commit.parents.len() == 1;
        // In a shallow repository, the line may end early.
        let is_whole = steps.last().map_or(newer.data == older.data, |first| first.before == Some(older.data));
        if !is_whole || !newer.joins.is_empty() || !steps.iter().all(is_plain) {
            return Ok(Window { newer, until: None, tree: None });
        }
        let is_later = |step: &Step| step.revisions().is_some_and(|own| own.first > revision);
        let (later, until): (Vec<_>, Vec<_>) = steps.into_iter().partition(is_later);
        // Newest first.
        let before = until.first().and_then(Step::revisions).map_or(older.revision, |own| own.last);
        let after = later.last().and_then(Step::revisions).map_or(newer.revision + 1, |own| own.first);
        let is_known = before == revision || (before < revision && (after == revision + 1 || after == before + 2));
        let tree = match until.first() {
            _ if !is_known => None,
            Some(last) => Some(last.commit.tree),
            None => Some(CommitInfo::read(odb, older.data)?.tree),
        };
        Ok(Window { newer, until: Some(until), tree })
    }
}

/// Returns the incarnation of the store that made a flush.
pub(super) fn incarnation(odb: &Odb<'_>, flush: &Flush) -> Result<String, HistoryError> {
    let wrong = || HistoryError::object(flush.metadata, "it is not a metadata commit of gitcd");
    let (_, state) = changes::any_entry(odb, flush.tree, b"state")?.ok_or_else(wrong)?;
    let state = object::read(odb, state).map_err(|error| HistoryError::object(state, error.message()))?;
    let text = String::from_utf8_lossy(state.data());
    let line = text.lines().find_map(|line| line.strip_prefix("incarnation "));
    line.map(ToOwned::to_owned).ok_or_else(wrong)
}
