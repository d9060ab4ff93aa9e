//! Commits of which nothing is copied, so that a walk of a long history can pass by most of them.

use git2::{ObjectType, Odb, Oid};
use gitcd_repo::object;

use super::{CommitInfo, HistoryError, Revisions};

/// A commit, as parts of the text that Git stores.
pub(super) struct CommitText<'t> {
    pub(super) oid: Oid,
    pub(super) tree: Oid,
    pub(super) parents: Vec<Oid>,
    /// Seconds since 1970.
    pub(super) time: i64,
    pub(super) author: &'t str,
    pub(super) committer: &'t str,
    pub(super) message: &'t str,
}

impl CommitText<'_> {
    /// Reads a commit, and passes it to `then`.
    pub(super) fn read<T>(odb: &Odb<'_>, oid: Oid, then: impl FnOnce(&CommitText<'_>) -> T) -> Result<T, HistoryError> {
        let object = object::read(odb, oid).map_err(|error| HistoryError::object(oid, error.message()))?;
        if object.kind() != ObjectType::Commit {
            return Err(HistoryError::object(oid, format!("it is a {}", object.kind().str())));
        }
        let text = String::from_utf8_lossy(object.data());
        let commit = parse(oid, &text).ok_or_else(|| HistoryError::object(oid, "it is a malformed commit"))?;
        Ok(then(&commit))
    }
}

/// Copies a commit.
pub(super) fn info(commit: &CommitText<'_>) -> CommitInfo {
    CommitInfo {
        oid: commit.oid,
        tree: commit.tree,
        parents: commit.parents.clone(),
        time: commit.time,
        author: commit.author.to_owned(),
        committer: commit.committer.to_owned(),
        message: commit.message.to_owned(),
    }
}

fn parse(oid: Oid, text: &str) -> Option<CommitText<'_>> {
    let (head, message) = text.split_once("\n\n").unwrap_or((text, ""));
    let (mut tree, mut parents, mut time, mut author, mut committer) = (None, Vec::new(), 0, "", "");
    for line in head.lines() {
        match line.split_once(' ') {
            Some(("tree", id)) => tree = Oid::from_str(id).ok(),
            Some(("parent", id)) => parents.push(Oid::from_str(id).ok()?),
            Some(("author", who)) => author = name(who),
            Some(("committer", who)) => {
                committer = name(who);
                time = who.rsplit(' ').nth(1)?.parse().ok()?;
            }
            _ => {}
        }
    }
    Some(CommitText { oid, tree: tree?, parents, time, author, committer, message })
}

/// Returns the name in the value of an author or a committer.
fn name(who: &str) -> &str {
    who.split(" <").next().unwrap_or_default()
}

/// Returns the first line of a message.
pub(super) fn subject(message: &str) -> &str {
    message.lines().next().unwrap_or_default()
}

/// Returns the values of the trailers with a name.
pub(super) fn trailers<'m>(message: &'m str, name: &str) -> impl Iterator<Item = &'m str> {
    message.lines().skip(1).filter_map(move |line| line.strip_prefix(name)?.strip_prefix(": "))
}

/// Returns the revisions that the message of a store's commit has.
pub(super) fn revisions(message: &str) -> Option<Revisions> {
    let range = trailers(message, "Revision").next()?;
    let (first, last) = range.split_once('-').unwrap_or((range, range));
    Some(Revisions { first: first.parse().ok()?, last: last.parse().ok()? })
}
