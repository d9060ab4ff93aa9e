//! The edits that commits make.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

use git2::Oid;

use super::Graph;
use crate::changes::{self, TreeError, Trees};

/// An edit of a key by a commit.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Edit {
    /// The commit.
    pub at: Oid,
    /// The key without its prefix.
    pub key: Vec<u8>,
    /// Its blob after the commit; `None` if it was deleted.
    pub value: Option<Oid>,
    /// Its blob in each parent.
    pub before: Vec<Option<Oid>>,
    /// Whether the commit is a user's merge, in which any difference from a parent counts as decided.
    pub is_decision: bool,
}

/// Limit of cached edits.
const REMEMBERED: usize = 200_000;

/// Cached edits by commit, all dropped when there are too many.
#[derive(Debug, Default)]
pub(super) struct Remembered {
    of: HashMap<Oid, Arc<[Edit]>>,
    /// Number of edits, plus one for each commit.
    size: usize,
}

impl Graph {
    /// Returns the cached edits of a commit.
    pub fn known_edits(&self, at: Oid) -> Option<Arc<[Edit]>> {
        self.edits.of.get(&at).cloned()
    }

    /// Returns the edits of a commit with this tree and parents with these trees, and caches them: the keys that differ from all
    /// of its parents, or from any parent if the commit is a user's merge.
    ///
    /// # Errors
    /// [`TreeError`].
    pub fn edits(
        &mut self,
        trees: &mut Trees<'_>,
        at: Oid,
        (tree, parents): (Oid, &[Oid]),
        is_decision: bool,
    ) -> Result<Arc<[Edit]>, TreeError> {
        let mut differing: Vec<BTreeMap<Vec<u8>, changes::Change>> = Vec::new();
        for parent in parents {
            differing.push(changes::among(trees, Some(*parent), Some(tree))?.keys);
        }
        if parents.is_empty() {
            differing.push(changes::among(trees, None, Some(tree))?.keys);
        }
        let mut found: BTreeMap<&Vec<u8>, Option<Oid>> = BTreeMap::new();
        for changed in &differing {
            let is_edit = |key: &Vec<u8>| is_decision || differing.iter().all(|changed| changed.contains_key(key));
            found.extend(changed.iter().filter(|(key, _)| is_edit(key)).map(|(key, change)| (key, change.to)));
        }
        let edit = |(key, value): (&Vec<u8>, Option<Oid>)| {
            let before = differing.iter().map(|changed| changed.get(key).map_or(value, |change| change.from)).collect();
            Edit { at, key: key.clone(), value, before, is_decision }
        };
        let edits: Arc<[Edit]> = found.into_iter().map(edit).collect();
        if self.edits.size + edits.len() >= REMEMBERED {
            self.edits = Remembered::default();
        }
        if self.edits.of.insert(at, edits.clone()).is_none() {
            self.edits.size += edits.len() + 1;
        }
        Ok(edits)
    }
}
