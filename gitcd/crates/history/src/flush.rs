//! Metadata and data commits, as far as the history needs them.

use git2::{Odb, Oid};
use gitcd_repo::history_link::HistoryLink;
use gitcd_repo::object;

use super::commit_text::{self, CommitText};
use super::when::When;
use super::{History, HistoryError};

/// A flush: a metadata commit, and the data commit that was written to Git with it.
#[derive(Clone, Debug)]
pub(super) struct Flush {
    pub(super) metadata: Oid,
    pub(super) tree: Oid,
    pub(super) previous: Option<Oid>,
    /// The data commit that it describes.
    pub(super) data: Oid,
    /// The store's revision.
    pub(super) revision: i64,
    /// Seconds since 1970.
    pub(super) time: i64,
    /// The history links that it records.
    pub(super) joins: Vec<HistoryLink>,
}

impl Flush {
    pub(super) fn read(odb: &Odb<'_>, oid: Oid) -> Result<Self, HistoryError> {
        let commit = CommitInfo::read(odb, oid)?;
        let (previous, data) = match commit.parents[..] {
            [data] => (None, data),
            [previous, data] => (Some(previous), data),
            _ => return Err(HistoryError::object(oid, "it is not a metadata commit of gitcd")),
        };
        let said = commit.subject().strip_prefix("metadata at revision ").and_then(|number| number.parse().ok());
        let revision = match said {
            Some(revision) => revision,
            None => in_state(odb, commit.tree)?,
        };
        let joins = HistoryLink::all(&commit.message);
        // The metadata before a conversion has the Go implementation's format.
        let previous = previous.filter(|_| !joins.iter().any(|join| matches!(join, HistoryLink::Converted { .. })));
        Ok(Self { metadata: oid, tree: commit.tree, previous, data, revision, time: commit.time, joins })
    }

    /// Returns whether the whole flush is before `when`.
    pub(super) fn is_before(&self, when: When) -> bool {
        match when {
            When::Revision(revision) => self.revision < revision,
            When::Time(time) => self.time < time,
            // Replaced by its revision before.
            When::Commit(_) | When::Now => false,
        }
    }
}

impl History {
    /// Returns the flush before another one; `None` at the end of a shallow clone.
    pub(super) fn before(&self, odb: &Odb<'_>, flush: &Flush) -> Result<Option<Flush>, HistoryError> {
        self.proceed()?;
        let previous = flush.previous.filter(|previous| !self.is_cut(odb, *previous));
        previous.map(|previous| Flush::read(odb, previous)).transpose()
    }
}

/// Reads the revision from the metadata itself.
fn in_state(odb: &Odb<'_>, tree: Oid) -> Result<i64, HistoryError> {
    let wrong = || HistoryError::object(tree, "it is not the tree of a metadata commit");
    let (_, state) = gitcd_repo::changes::any_entry(odb, tree, b"state")?.ok_or_else(wrong)?;
    let object = object::read(odb, state).map_err(|error| HistoryError::object(state, error.message()))?;
    let text = String::from_utf8_lossy(object.data());
    let number = text.lines().find_map(|line| line.strip_prefix("revision "));
    number.and_then(|number| number.parse().ok()).ok_or_else(wrong)
}

/// The revisions of a data commit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Revisions {
    /// The first one.
    pub first: i64,
    /// The last one.
    pub last: i64,
}

/// A commit.
#[derive(Clone, Debug)]
pub struct CommitInfo {
    /// Its ID.
    pub oid: Oid,
    /// Its tree.
    pub tree: Oid,
    /// Its parents.
    pub parents: Vec<Oid>,
    /// When it was committed, in seconds since 1970.
    pub time: i64,
    /// The author's name.
    pub author: String,
    /// The committer's name.
    pub committer: String,
    /// The message.
    pub message: String,
}

impl CommitInfo {
    pub(super) fn read(odb: &Odb<'_>, oid: Oid) -> Result<Self, HistoryError> {
        CommitText::read(odb, oid, commit_text::info)
    }

    /// Returns whether a gitcd made this merge: its message is a function of the parents (`docs/design/merge.md`, *The commit*).
    pub(super) fn is_merge_of_a_store(&self) -> bool {
        let [one, other] = &self.parents[..] else { return false };
        let short = |oid: &Oid| oid.to_string()[..10].to_owned();
        self.subject() == format!("merge {} and {}", short(one), short(other))
    }

    /// Returns the first line of the message.
    pub fn subject(&self) -> &str {
        commit_text::subject(&self.message)
    }

    /// Returns the revisions that a store committed here. A commit from a fast-forward has those of another store.
    pub fn revisions(&self) -> Option<Revisions> {
        commit_text::revisions(&self.message)
    }

    /// Returns who made the changes: the clients of a store, or the author.
    pub fn by(&self) -> Vec<&str> {
        let clients = self.clients();
        if clients.is_empty() { vec![&self.author] } else { clients }
    }

    /// Returns the clients of a store that made the changes; empty if the commit was not made by a store for clients.
    pub fn clients(&self) -> Vec<&str> {
        commit_text::trailers(&self.message, "Client").collect()
    }
}
