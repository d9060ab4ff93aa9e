//! Merges that had to decide about a key, from what their commits say.

use git2::Oid;
use gitcd_core::scope::{escape, unescape};
use gitcd_merge::Conflict;
use gitcd_repo::join::Join;

use super::moment::When;
use super::{CommitInfo, History, HistoryError};

/// A merge commit of the branch that names conflicts of a key.
#[derive(Clone, Debug)]
pub struct Decision {
    /// The merge commit.
    pub commit: CommitInfo,
    /// The commit that was merged.
    pub merged: CommitInfo,
    /// The revision of the branch with the merge.
    pub revision: i64,
    /// What both sides had changed.
    pub conflicts: Vec<Conflict>,
}

impl History {
    /// The merges that had to decide about a whole key, the newest first: at most `limit`, and none from before `since`. Reads a small
    /// commit for each flush, and those of merges.
    ///
    /// # Errors
    /// [`HistoryError`]. In a shallow clone history ends where that does.
    pub fn decisions(&self, key: &[u8], limit: usize, since: Option<When>) -> Result<Vec<Decision>, HistoryError> {
        let odb = self.odb()?;
        let start = format!("Conflict: {}", escape(key));
        let mut found = Vec::new();
        let mut newer = Some(self.tip.clone());
        while let Some(flush) =
            newer.take().filter(|flush| found.len() < limit && !since.is_some_and(|since| flush.is_before(since)))
        {
            let older = self.before(&odb, &flush)?;
            if flush.joins.iter().any(|join| matches!(join, Join::Merged { .. })) {
                for step in self.line(&odb, older.as_ref(), Some(&flush), flush.data, usize::MAX)? {
                    let conflicts: Vec<_> =
                        step.commit.message.lines().filter_map(|line| read(line.strip_prefix(&start)?)).collect();
                    let merged = step.commit.parents.iter().find(|parent| Some(**parent) != step.before);
                    let Some(merged) = merged.filter(|_| !conflicts.is_empty()) else { continue };
                    let merged = self.known_commit(&odb, *merged, &step.commit)?;
                    found.push(Decision { commit: step.commit, merged, revision: flush.revision, conflicts });
                }
            }
            newer = older;
        }
        found.truncate(limit);
        Ok(found)
    }

    /// A parent, or the merge itself where a shallow clone does not have it.
    fn known_commit(&self, odb: &git2::Odb<'_>, parent: Oid, merge: &CommitInfo) -> Result<CommitInfo, HistoryError> {
        if self.is_cut(odb, parent) { Ok(merge.clone()) } else { CommitInfo::read(odb, parent) }
    }
}

/// What follows the key in a line of a merge commit: `data.x: kept "3", lost "2"`.
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
        assert_eq!(read("2 data.x: kept 1, lost 2"), None, "that is another key");
    }
}
