//! Ancestry among a set of commits.

use std::collections::{BTreeSet, HashMap};

use git2::{Oid, Repository};

use gitcd_repo::graph::{Graph, GraphError};

/// The ancestry among a set of commits; costs a bit for each pair.
#[derive(Debug, Default)]
pub(super) struct Known {
    places: HashMap<Oid, usize>,
    /// For each index, a bit for each commit in its history.
    behind: Vec<Vec<u64>>,
}

impl Known {
    /// Computes the ancestry `among` these commits; no other commits may be on the paths between them.
    pub(super) fn new<'c>(
        graph: &mut Graph,
        repository: &Repository,
        heads: [Oid; 2],
        among: impl Iterator<Item = &'c Oid>,
    ) -> Result<Self, GraphError> {
        let among: BTreeSet<Oid> = among.copied().collect();
        let words = among.len().div_ceil(64);
        let mut known = Self::default();
        // A commit stays in the stack until its parents are done.
        let mut waiting: Vec<Oid> = heads.to_vec();
        while let Some(oid) = waiting.last().copied() {
            if known.places.contains_key(&oid) || !among.contains(&oid) {
                waiting.pop();
                continue;
            }
            let parents = graph.commit(repository, oid)?.parents.clone();
            let open = |parent: &&Oid| among.contains(*parent) && !known.places.contains_key(*parent);
            let before = waiting.len();
            waiting.extend(parents.iter().filter(open));
            if waiting.len() > before {
                continue;
            }
            let mut behind = vec![0_u64; words];
            for place in parents.iter().filter_map(|parent| known.places.get(parent)) {
                behind[place / 64] |= 1 << (place % 64);
                behind.iter_mut().zip(&known.behind[*place]).for_each(|(bits, more)| *bits |= more);
            }
            known.places.insert(oid, known.behind.len());
            known.behind.push(behind);
            waiting.pop();
        }
        Ok(known)
    }

    /// Returns whether `earlier` is in the history of `later`; a commit is not in its own.
    pub(super) fn has(&self, later: Oid, earlier: Oid) -> bool {
        let (Some(later), Some(earlier)) = (self.places.get(&later), self.places.get(&earlier)) else { return false };
        self.behind[*later][earlier / 64] & (1 << (earlier % 64)) != 0
    }
}
