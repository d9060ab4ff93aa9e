//! Conflicts that merges resolved, as their commits record them: one line for each, such as
//! `Conflict: /registry/configmaps/shop/prices data.tea: kept "3", lost "2"` (`docs/design/merge.md`, *The commit*).

use git2::Oid;
use gitcd_core::scope::{escape, unescape};
use gitcd_merge::Conflict;
use gitcd_repo::history_link::HistoryLink;

use super::when::When;
use super::{CommitInfo, History, HistoryError};

/// A merge commit of the branch that records conflicts of a key.
#[derive(Clone, Debug)]
pub struct ResolvedMerge {
    /// The merge commit.
    pub commit: CommitInfo,
    /// The commit that was merged.
    pub merged: CommitInfo,
    /// The branch's revision with the merge.
    pub revision: i64,
    /// The conflicts of the key.
    pub conflicts: Vec<Conflict>,
}

impl History {
    /// Returns the merges that resolved conflicts of a whole key, newest first: at most `limit`, and none before `since`. Reads
    /// one small commit for each flush, and the commits of merges.
    ///
    /// # Errors
    /// [`HistoryError`]. The history of a shallow clone ends where the clone does.
    pub fn decisions(&self, key: &[u8], limit: usize, since: Option<When>) -> Result<Vec<ResolvedMerge>, HistoryError> {
        let (odb, since) = (self.odb()?, self.with_revision(since)?);
        let key = escape(key);
        let mut found = Vec::new();
        let mut newer = Some(self.tip.clone());
        while let Some(flush) =
            newer.take().filter(|flush| found.len() < limit && !since.is_some_and(|since| flush.is_before(since)))
        {
            let older = self.before(&odb, &flush)?;
            if flush.joins.iter().any(|join| matches!(join, HistoryLink::Merged { .. })) {
                for step in self.line(&odb, older.as_ref(), Some(&flush), flush.data, usize::MAX)? {
                    let conflicts: Vec<_> =
                        ConflictLine::all(&step.commit.message).filter_map(|line| line.of(&key)).collect();
                    let merged = step.commit.parents.iter().find(|parent| Some(**parent) != step.before);
                    let Some(merged) = merged.filter(|_| !conflicts.is_empty()) else { continue };
                    let merged = self.known_commit(&odb, *merged, &step.commit)?;
                    found.push(ResolvedMerge { commit: step.commit, merged, revision: flush.revision, conflicts });
                }
            }
            newer = older;
        }
        found.truncate(limit);
        Ok(found)
    }

    /// Reads a parent; returns the merge itself if a shallow clone lacks the parent.
    fn known_commit(&self, odb: &git2::Odb<'_>, parent: Oid, merge: &CommitInfo) -> Result<CommitInfo, HistoryError> {
        if self.is_cut(odb, parent) { Ok(merge.clone()) } else { CommitInfo::read(odb, parent) }
    }
}

/// How a line begins that records a conflict.
const START: &str = "Conflict: ";
/// Spaces at which a name is divided; later ones are taken for a part of the field.
const SPACES: usize = 8;

/// A line of a merge commit that records a conflict.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ConflictLine<'m>(&'m str);

impl<'m> ConflictLine<'m> {
    /// Returns the lines that record conflicts in the message of a commit.
    pub fn all(message: &'m str) -> impl Iterator<Item = Self> {
        let lines = message.lines().filter_map(|line| line.strip_prefix(START));
        lines.filter(|line| values(line).is_some()).map(Self)
    }

    /// Returns a message without the lines that record conflicts, which may have values.
    pub fn without(message: &str) -> String {
        message.lines().filter(|line| !line.starts_with(START)).collect::<Vec<_>>().join("\n")
    }

    /// Returns the conflict, if it is about the key, which is [escaped](escape).
    pub fn of(self, key: &str) -> Option<Conflict> {
        let rest = self.0.strip_prefix(key)?;
        let (field, [kept, lost]) = match rest.strip_prefix(": kept ") {
            Some(values) => ("", pair(values)?),
            None => values(rest.strip_prefix(' ')?)?,
        };
        Some(conflict(field, [kept, lost]))
    }

    /// Returns each key that the line may be about, with the conflict. Keys may have spaces, so only the trees of the commits say
    /// where the key ends.
    pub fn readings(self) -> impl Iterator<Item = (Vec<u8>, Conflict)> {
        values(self.0).into_iter().flat_map(|(name, values)| {
            let ends = name.match_indices(' ').map(|(at, _)| at).take(SPACES).chain([name.len()]);
            ends.filter_map(move |end| {
                let (key, field) = name.split_at(end);
                Some((unescape(key)?, conflict(field.trim_start(), values)))
            })
        })
    }

    /// Returns the start of the key, up to its first space, as it is written.
    pub fn start(self) -> &'m str {
        values(self.0).and_then(|(name, _)| name.split(' ').next()).unwrap_or_default()
    }
}

/// Divides a line into the name of the key and the field, and the values.
fn values(line: &str) -> Option<(&str, [&str; 2])> {
    let (name, values) = line.split_once(": kept ")?;
    Some((name, pair(values)?))
}

fn pair(values: &str) -> Option<[&str; 2]> {
    let (kept, lost) = values.rsplit_once(", lost ")?;
    Some([kept, lost])
}

fn conflict(field: &str, [kept, lost]: [&str; 2]) -> Conflict {
    let plain =
        |text: &str| unescape(text).map_or_else(|| text.to_owned(), |bytes| String::from_utf8_lossy(&bytes).into());
    let value = |text: &str| (text != "nothing").then(|| plain(text));
    Conflict { field: plain(field), kept: value(kept), lost: value(lost) }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn conflict(field: &str, kept: Option<&str>, lost: Option<&str>) -> Conflict {
        let text = |text: Option<&str>| text.map(ToOwned::to_owned);
        Conflict { field: field.into(), kept: text(kept), lost: text(lost) }
    }

    #[test]
    fn lines_of_merge_commits_are_read_back() {
        let read = |rest: &str| {
            let message = format!("merge a and b\n\nConflict: /a b{rest}\n");
            ConflictLine::all(&message).find_map(|line| line.of("/a b"))
        };
        assert_eq!(read(" data.x: kept \"3\", lost \"2\""), Some(conflict("data.x", Some("\"3\""), Some("\"2\""))));
        assert_eq!(read(": kept Pod a (u), lost nothing"), Some(conflict("", Some("Pod a (u)"), None)));
        assert_eq!(read(" data.%C3%A4: kept \"%25\", lost nothing"), Some(conflict("data.ä", Some("\"%\""), None)));
        assert_eq!(read("2 data.x: kept 1, lost 2"), None, "the line is about another key");
        let odd = ConflictLine("/a: kept data.x: kept 1, lost 2");
        assert_eq!(odd.of("/a: kept"), Some(conflict("data.x", Some("1"), Some("2"))), "a key may have any characters");
    }

    #[test]
    fn the_key_of_a_conflict_may_end_at_each_space() {
        let message = "merge a and b\n\nConflict: /a b data.x: kept \"%25\", lost nothing\n\
                       Conflict: /k: kept Pod a (u), lost \"2\"\nConflict: malformed\nRevision: 4\n";
        let lines: Vec<_> = ConflictLine::all(message).collect();
        let reading = |key: &str, field: &str| (key.as_bytes().to_vec(), conflict(field, Some("\"%\""), None));
        let expected = [reading("/a", "b data.x"), reading("/a b", "data.x"), reading("/a b data.x", "")];
        assert_eq!(lines[0].readings().collect::<Vec<_>>(), expected);
        let whole = (b"/k".to_vec(), conflict("", Some("Pod a (u)"), Some("\"2\"")));
        assert_eq!(lines[1].readings().collect::<Vec<_>>(), [whole]);
        assert_eq!((lines.len(), lines[0].start(), lines[1].start()), (2, "/a", "/k"));
        assert_eq!(ConflictLine::without(message), "merge a and b\n\nRevision: 4");
    }
}
