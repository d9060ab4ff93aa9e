//! What commits changed.

use std::collections::BTreeMap;
use std::sync::Arc;

use git2::Oid;

use super::Graph;
use crate::git::changes::{self, TreeError, Trees};

/// What a commit made of a key.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Edit {
    /// The commit.
    pub(crate) at: Oid,
    /// Without the prefix.
    pub(crate) key: Vec<u8>,
    pub(crate) value: Option<Oid>,
    /// What it was in each parent.
    pub(crate) before: Vec<Option<Oid>>,
    /// The commit is a person's merge: whatever it has otherwise than any parent was decided there.
    pub(crate) is_decision: bool,
}

/// So many edits are remembered.
const REMEMBERED: usize = 200_000;

impl Graph {
    /// What a commit with this tree, and parents with these, edited: the keys that it has otherwise than each of its parents, and if a person merged there, than any of
    /// them. Remembers it.
    ///
    /// # Errors
    /// [`TreeError`].
    pub(crate) fn edits(
        &mut self,
        trees: &mut Trees<'_>,
        at: Oid,
        (tree, parents): (Oid, &[Oid]),
        is_decision: bool,
    ) -> Result<Arc<[Edit]>, TreeError> {
        if let Some(known) = self.edits.get(&at) {
            return Ok(known.clone());
        }
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
        if self.edits.values().map(|edits| edits.len()).sum::<usize>() + edits.len() > REMEMBERED {
            self.edits.clear();
        }
        self.edits.insert(at, edits.clone());
        Ok(edits)
    }
}
