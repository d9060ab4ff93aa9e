//! The commits of some histories that others do not have.

use std::collections::{BinaryHeap, HashMap, HashSet};

use git2::{Oid, Repository};

use super::{Graph, GraphError, ONE, OTHER};

impl Graph {
    /// Returns the commits that are reachable from `wanted` and not from `known`. With clock skew, there may be more of them.
    ///
    /// Reads these commits, and those of `known` that are at least as recent as the oldest of them.
    ///
    /// # Errors
    /// [`GraphError`].
    pub fn beyond(
        &mut self,
        repository: &Repository,
        wanted: &[Oid],
        known: &[Oid],
    ) -> Result<HashSet<Oid>, GraphError> {
        self.refresh(repository)?;
        let mut flags: HashMap<Oid, u8> = HashMap::new();
        for (oid, flag) in wanted.iter().map(|oid| (*oid, ONE)).chain(known.iter().map(|oid| (*oid, OTHER))) {
            *flags.entry(oid).or_default() |= flag;
        }
        let mut queue: BinaryHeap<(i64, Oid)> = BinaryHeap::new();
        for oid in flags.keys() {
            queue.push((self.commit(repository, *oid)?.time, *oid));
        }
        // Queued commits, and whether they are only in `wanted` as far as is known.
        let mut waiting: HashMap<Oid, bool> = flags.iter().map(|(oid, flags)| (*oid, *flags == ONE)).collect();
        let mut fresh = waiting.values().filter(|is_fresh| **is_fresh).count();
        let mut oldest = i64::MAX;
        while let Some((time, oid)) = queue.pop() {
            // Among commits of the same second, a parent may come before its child.
            if fresh == 0 && time < oldest {
                break;
            }
            let Some(was_fresh) = waiting.remove(&oid) else { continue };
            fresh -= usize::from(was_fresh);
            let painted = flags[&oid];
            if painted == ONE {
                oldest = oldest.min(time);
            }
            for parent in &self.commit(repository, oid)?.parents {
                let theirs = flags.entry(*parent).or_default();
                if *theirs & painted == painted {
                    continue;
                }
                *theirs |= painted;
                let is_fresh = *theirs == ONE;
                fresh += usize::from(is_fresh);
                fresh -= usize::from(waiting.insert(*parent, is_fresh).unwrap_or_default());
                queue.push((self.commit(repository, *parent)?.time, *parent));
            }
        }
        Ok(flags.into_iter().filter(|(_, flags)| *flags == ONE).map(|(oid, _)| oid).collect())
    }
}
