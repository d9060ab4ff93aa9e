//! The symmetric difference of two histories.

use std::collections::{BinaryHeap, HashMap};

use git2::{Oid, Repository};

use super::{Graph, GraphError, ONE, OTHER, none_left_out};

/// Commits that are in one history only.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct SymmetricDifference {
    /// Commits of the first history, by ID.
    pub one: Vec<Oid>,
    /// Commits of the second history, by ID.
    pub other: Vec<Oid>,
}

impl Graph {
    /// Returns the symmetric difference of two histories; `None` if more than `limit` commits had to be read. Partial merges
    /// count as merges.
    ///
    /// Reads the commits that are in one history only, and those at least as recent as the oldest of them.
    ///
    /// # Errors
    /// [`GraphError`], also if the boundary of the history is among them: what it changed, and what precedes it, is not known.
    pub fn apart(
        &mut self,
        repository: &Repository,
        one: Oid,
        other: Oid,
        limit: usize,
    ) -> Result<Option<SymmetricDifference>, GraphError> {
        self.refresh(repository)?;
        let (mut flags, is_complete) = self.separate(repository, one, other, limit)?;
        if !is_complete {
            return Ok(None);
        }
        self.share_ends(repository, [one, other], &none_left_out, &mut flags)?;
        self.check_whole(&flags)?;
        let of = |flag: u8| {
            let mut commits: Vec<Oid> =
                flags.iter().filter(|(_, flags)| **flags == flag).map(|(oid, _)| *oid).collect();
            commits.sort();
            commits
        };
        Ok(Some(SymmetricDifference { one: of(ONE), other: of(OTHER) }))
    }

    /// Returns the commits that the search for the symmetric difference found, with the histories that have each, and whether it
    /// ended before `limit` commits were read.
    pub(super) fn separate(
        &mut self,
        repository: &Repository,
        one: Oid,
        other: Oid,
        limit: usize,
    ) -> Result<(HashMap<Oid, u8>, bool), GraphError> {
        const BOTH: u8 = ONE | OTHER;
        let mut flags: HashMap<Oid, u8> = HashMap::new();
        let mut queue: BinaryHeap<(i64, Oid)> = BinaryHeap::new();
        for (oid, flag) in [(one, ONE), (other, OTHER)] {
            *flags.entry(oid).or_default() |= flag;
            queue.push((self.commit(repository, oid)?.time, oid));
        }
        // Number of queued commits that are in one history only, as far as is known.
        let mut single = flags.values().filter(|flags| **flags != BOTH).count();
        let mut waiting: HashMap<Oid, bool> = flags.iter().map(|(oid, flags)| (*oid, *flags != BOTH)).collect();
        let (mut oldest, mut looked_at) = (i64::MAX, 0);
        while let Some((time, oid)) = queue.pop() {
            let Some(was_single) = waiting.remove(&oid) else { continue };
            // Among commits of the same second, a parent may come before its child.
            if single == 0 && time < oldest {
                break;
            }
            if looked_at == limit {
                return Ok((flags, false));
            }
            looked_at += 1;
            single -= usize::from(was_single);
            let painted = flags[&oid];
            if painted != BOTH {
                oldest = oldest.min(time);
            }
            for parent in &self.commit(repository, oid)?.parents {
                let known = flags.entry(*parent).or_default();
                if *known & painted == painted {
                    continue;
                }
                *known |= painted;
                let is_single = *known != BOTH;
                single += usize::from(is_single);
                if let Some(before) = waiting.insert(*parent, is_single) {
                    single -= usize::from(before);
                }
                queue.push((self.commit(repository, *parent)?.time, *parent));
            }
        }
        Ok((flags, true))
    }
}
