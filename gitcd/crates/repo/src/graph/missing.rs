//! The commits that one history has and another does not.

use std::collections::{BinaryHeap, HashMap};

use git2::{Oid, Repository};

use super::{Graph, GraphError, ONE, OTHER, STALE, none_left_out};
use crate::boundary::Boundary;

/// The number of commits that are in one history only.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Missing {
    /// Number of commits.
    pub commits: usize,
    /// Whether there may be more, since counting stopped early.
    pub more: bool,
    /// Committer time of the oldest one, in seconds since 1970.
    pub oldest: Option<i64>,
}

/// Limit of commits read, including those that only the other history has.
const LOOKED_AT: usize = 200_000;
/// Number of commits to read once nothing is left to count, in case of clock skew.
const SLOP: usize = 256;

impl Graph {
    /// Counts the commits of `theirs` that `ours` does not have, up to about `limit`. Partial merges count as merges. If `theirs` starts
    /// before the history was cut, there may be more.
    ///
    /// Reads the commits that are in one history only, and some more.
    ///
    /// # Errors
    /// [`GraphError`], also if `ours` may have some of them beyond the boundary of the history.
    pub fn missing(
        &mut self,
        repository: &Repository,
        theirs: Oid,
        ours: Oid,
        limit: usize,
    ) -> Result<Missing, GraphError> {
        self.refresh(repository)?;
        if theirs == ours {
            return Ok(Missing::default());
        }
        let mut flags: HashMap<Oid, u8> = [(theirs, ONE), (ours, OTHER)].into();
        let mut queue: BinaryHeap<(i64, Oid)> = BinaryHeap::new();
        // Queued commits, and whether they are only in `theirs` as far as is known.
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
        self.share_ends(repository, [theirs, ours], &none_left_out, &mut flags)?;
        self.check_ends(&flags)?;
        // Of the commits that only `theirs` shows, `ours` may have those on the boundary, below another one that both have.
        let [is_cut, _] = self.ends(&flags).map(|end| end.is_some());
        for oid in self.boundary.iter().flat_map(Boundary::commits) {
            counted.remove(&oid);
        }
        let more = counted.len() > limit || looked_at == LOOKED_AT || is_cut;
        let commits = counted.len().clamp(usize::from(more), limit);
        Ok(Missing { commits, more, oldest: counted.values().min().copied() })
    }
}
