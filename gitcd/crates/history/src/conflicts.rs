//! Merges that resolved conflicts of a key, as their commits record them.

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
        let odb = self.odb()?;
        let start = format!("Conflict: {}", escape(key));
        let mut found = Vec::new();
        let mut newer = Some(self.tip.clone());
        while let Some(flush) =
            newer.take().filter(|flush| found.len() < limit && !since.is_some_and(|since| flush.is_before(since)))
        {
            let older = self.before(&odb, &flush)?;
            if flush.joins.iter().any(|join| matches!(join, HistoryLink::Merged { .. })) {
                for step in self.line(&odb, older.as_ref(), Some(&flush), flush.data, usize::MAX)? {
                    let conflicts: Vec<_> =
                        step.commit.message.lines().filter_map(|line| read(line.strip_prefix(&start)?)).collect();
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

/// Parses what follows the key in a line of a merge commit: `data.x: kept "3", lost "2"`.
fn read(text: &str) -> Option<Conflict> {
    let (field, values) = match text.strip_prefix(": kept ") {
        Some(values) => ("", values),
        None => text.strip_prefix(' ')?.split_once(": kept ")?,
    };
    let (kept, lost) = values.rsplit_once(", lost ")?;
    let plain =
        |text: &str| unescape(text).map_or_else(|| text.to_owned(), |bytes| String::from_utf8_lossy(&bytes).into());
    let value = |text: &str| (text != "nothing").then(|| plain(text));
    Some(Conflict { field: plain(field), kept: value(kept), lost: value(lost) })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_of_merge_commits_are_read_back() {
        let conflict = |field: &str, kept: Option<&str>, lost: Option<&str>| Conflict {
            field: field.into(),
            kept: kept.map(ToOwned::to_owned),
            lost: lost.map(ToOwned::to_owned),
        };
        assert_eq!(read(" data.x: kept \"3\", lost \"2\""), Some(conflict("data.x", Some("\"3\""), Some("\"2\""))));
        assert_eq!(read(": kept Pod a (u), lost nothing"), Some(conflict("", Some("Pod a (u)"), None)));
        assert_eq!(read(" data.%C3%A4: kept \"%25\", lost nothing"), Some(conflict("data.ä", Some("\"%\""), None)));
        assert_eq!(read("2 data.x: kept 1, lost 2"), None, "the line is about another key");
    }
}
