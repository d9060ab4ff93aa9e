//! Objects by a part of their keys.

use std::collections::{BTreeMap, BTreeSet};

use super::Branch;
use crate::keys::Key;
use crate::problem::Problem;
use crate::rights::ObjectRef;
use crate::work::Deadline;

/// Objects of a page.
const FOUND: usize = 500;
/// Recent commits in which deleted objects are searched.
const SCANNED: usize = 1000;

/// The result of a search.
#[derive(Default)]
pub(crate) struct Found {
    /// Objects that exist.
    pub(crate) present: Vec<Key>,
    /// Objects that were deleted, with the commit.
    pub(crate) deleted: Vec<(Key, String)>,
    /// Whether there are more.
    pub(crate) is_cut: bool,
    /// Recent commits in which deleted objects were searched.
    pub(crate) scanned: usize,
}

impl Found {
    /// Returns the objects whose rights decide what is shown.
    pub(crate) fn objects(&self) -> BTreeSet<ObjectRef> {
        let keys = self.present.iter().chain(self.deleted.iter().map(|(key, _)| key));
        keys.filter_map(|key| key.object.clone()).collect()
    }
}

impl Branch {
    /// Finds objects whose key has the text, in any case. Reads the names of all keys, and the trees of recent commits until the
    /// deadline.
    pub(crate) fn search(&self, text: &str, deadline: Deadline) -> Result<Found, Problem> {
        let text = text.to_lowercase();
        let mut found = Found::default();
        let all = self.history.between(None, &self.tip)?.keys;
        let mut matching =
            all.keys().map(|relative| self.key_of(relative)).filter(|key| key.text.to_lowercase().contains(&text));
        found.present = matching.by_ref().take(FOUND).collect();
        found.is_cut = matching.next().is_some();
        let mut deleted: BTreeMap<Vec<u8>, String> = BTreeMap::new();
        for step in self.recent()? {
            if deadline.is_over() || deleted.len() >= FOUND {
                break;
            }
            found.scanned += 1;
            for (relative, change) in self.history.changes_of(&step)?.keys {
                if change.to.is_none() && !all.contains_key(&relative) {
                    deleted.entry(relative).or_insert_with(|| step.commit.oid.to_string());
                }
            }
        }
        let deleted = deleted.into_iter().map(|(relative, id)| (self.key_of(&relative), id));
        found.deleted = deleted.filter(|(key, _)| key.text.to_lowercase().contains(&text)).take(FOUND).collect();
        Ok(found)
    }

    /// Returns the recent commits of the branch, newest first.
    fn recent(&self) -> Result<Vec<gitcd_history::commits::BranchCommit>, Problem> {
        let commits = self.history.commits(SCANNED, None)?;
        let next: Vec<_> = commits.iter().skip(1).map(|(_, commit)| commit.oid).collect();
        let steps = commits.into_iter().enumerate().map(|(at, (revisions, commit))| {
            let before = next.get(at).copied().or(commit.parents.first().copied());
            gitcd_history::commits::BranchCommit { commit, revisions, before }
        });
        Ok(steps.collect())
    }
}
