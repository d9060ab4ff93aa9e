//! What one history has that another does not.

use std::collections::{BinaryHeap, HashMap};

use git2::{Oid, Repository};

use super::{Graph, GraphError, ONE, OTHER, STALE};

/// Commits that are in one history only.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Missing {
    /// How many there are.
    pub commits: usize,
    /// There may be more: counting ended here.
    pub more: bool,
    /// Committer's time of the oldest, in seconds since 1970.
    pub oldest: Option<i64>,
}

/// So many commits are looked at; those that the other history has alone are among them.
const LOOKED_AT: usize = 200_000;
/// Once nothing is left to count, so many more are looked at: clocks may have gone backwards.
const SLOP: usize = 256;

impl Graph {
    /// The commits of `theirs` that `ours` does not have, at most about `limit`. Merges that left keys out count as merges.
    ///
    /// Reads the commits that are in one history only, and some more.
    ///
    /// # Errors
    /// [`GraphError`].
    pub fn missing(
        &mut self,
        repository: &Repository,
        theirs: Oid,
        ours: Oid,
        limit: usize,
    ) -> Result<Missing, GraphError> {
        if theirs == ours {
            return Ok(Missing::default());
        }
        let mut flags: HashMap<Oid, u8> = [(theirs, ONE), (ours, OTHER)].into();
        let mut queue: BinaryHeap<(i64, Oid)> = BinaryHeap::new();
        // Those in the queue, and whether they are theirs alone as far as is known.
        let mut waiting: HashMap<Oid, bool> = [(theirs, true), (ours, false)].into();
        for oid in [theirs, ours] {
            queue.push((self.commit(repository, oid)?.time, oid));
        }
        let mut counted: HashMap<Oid, i64> = HashMap::new();
        let (mut to_count, mut slop, mut looked_at) = (1_usize, SLOP, 0);
        while let Some((time, oid)) = queue.pop() {
            if to_count == 0 {
                slop -= 1;
            }
            if slop == 0 || looked_at == LOOKED_AT || counted.len() > limit {
                break;
            }
            looked_at += 1;
            to_count -= usize::from(waiting.remove(&oid).unwrap_or_default());
            let painted = match flags[&oid] & (ONE | OTHER) {
                ONE => {
                    counted.insert(oid, time);
                    ONE
                }
                OTHER => OTHER,
                _ => {
                    counted.remove(&oid);
                    ONE | OTHER | STALE
                }
            };
            let commit = self.commit(repository, oid)?;
            for parent in &commit.parents {
                let known = flags.entry(*parent).or_default();
                if *known & painted == painted {
                    continue;
                }
                *known |= painted;
                let is_theirs = *known & (ONE | OTHER) == ONE;
                let before = waiting.insert(*parent, is_theirs);
                to_count = to_count + usize::from(is_theirs) - usize::from(before.unwrap_or_default());
                if before.is_none() {
                    queue.push((self.commit(repository, *parent)?.time, *parent));
                }
            }
        }
        let more = counted.len() > limit || looked_at == LOOKED_AT;
        let commits = counted.len().clamp(usize::from(more), limit);
        Ok(Missing { commits, more, oldest: counted.values().min().copied() })
    }
}
