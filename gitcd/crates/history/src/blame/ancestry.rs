//! The history of one key: the graph of commits, without the edges to parents from which a merge left the key out.

use std::collections::{BTreeSet, BinaryHeap, HashMap, HashSet};
use std::sync::Arc;

use git2::Oid;
use gitcd_repo::graph::{Commit, Graph};

use crate::{History, HistoryError};

/// A set of small numbers.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Bits(Vec<u64>);

impl Bits {
    pub(super) fn set(&mut self, number: usize) {
        if self.0.len() <= number / 64 {
            self.0.resize(number / 64 + 1, 0);
        }
        self.0[number / 64] |= 1 << (number % 64);
    }

    pub(super) fn has(&self, number: usize) -> bool {
        self.0.get(number / 64).is_some_and(|word| word & (1 << (number % 64)) != 0)
    }

    /// Adds all numbers of another set. Returns whether any of them is new.
    pub(super) fn add(&mut self, other: &Self) -> bool {
        if self.0.len() < other.0.len() {
            self.0.resize(other.0.len(), 0);
        }
        let mut is_larger = false;
        for (own, more) in self.0.iter_mut().zip(&other.0) {
            is_larger |= more & !*own != 0;
            *own |= more;
        }
        is_larger
    }

    pub(super) fn overlaps(&self, other: &Self) -> bool {
        self.0.iter().zip(&other.0).any(|(one, other)| one & other != 0)
    }

    pub(super) fn len(&self) -> usize {
        self.0.iter().map(|word| word.count_ones() as usize).sum()
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = usize> {
        (0..self.0.len() * 64).filter(|number| self.has(*number))
    }
}

/// The history of a key.
pub(super) struct KeyGraph<'h> {
    history: &'h History,
    /// The whole key.
    key: Vec<u8>,
    graph: Graph,
}

impl<'h> KeyGraph<'h> {
    pub(super) fn new(history: &'h History, key: &[u8]) -> Self {
        Self { history, key: key.to_vec(), graph: Graph::raw() }
    }

    pub(super) fn commit(&mut self, oid: Oid) -> Result<Arc<Commit>, HistoryError> {
        self.history.proceed()?;
        Ok(self.graph.commit(&self.history.repository, oid)?)
    }

    /// Returns the parents from which the key may come, also those that a shallow clone lacks.
    pub(super) fn parents(&mut self, oid: Oid) -> Result<Vec<Oid>, HistoryError> {
        let commit = self.commit(oid)?;
        let left_out = commit.partial.as_ref().filter(|(_, scope)| !scope.covers(&self.key)).map(|(of, _)| *of);
        Ok(commit.parents.iter().copied().filter(|parent| Some(*parent) != left_out).collect())
    }

    /// Returns the parents from which the key may come; `None` if a shallow clone lacks one.
    fn present_parents(&mut self, oid: Oid) -> Result<Option<Vec<Oid>>, HistoryError> {
        let parents = self.parents(oid)?;
        if self.history.is_shallow {
            let odb = self.history.odb()?;
            if parents.iter().any(|parent| self.history.is_cut(&odb, *parent)) {
                return Ok(None);
            }
        }
        Ok(Some(parents))
    }

    /// Returns the commits in the history of one commit and not of another one.
    ///
    /// Reads these commits, and those at least as recent as the oldest of them.
    pub(super) fn only_in(&mut self, one: Oid, other: Oid) -> Result<Vec<Oid>, HistoryError> {
        let mut difference = Difference::new(self, [one, other], usize::MAX)?;
        difference.complete(self, [false, true])?;
        Ok(difference.side(0))
    }

    /// Returns which of some commits have each visited commit in their history, as their indices. A commit has itself.
    ///
    /// Visits all commits that not all of these have, so a commit that is in the history of one of these, and was not visited, is
    /// in the history of all of them.
    pub(super) fn reached_from(&mut self, starts: &[Oid]) -> Result<HashMap<Oid, Bits>, HistoryError> {
        let mut reached: HashMap<Oid, Bits> = HashMap::new();
        let mut waiting: BTreeSet<(i64, Oid)> = BTreeSet::new();
        for (number, oid) in starts.iter().enumerate() {
            reached.entry(*oid).or_default().set(number);
            waiting.insert((self.commit(*oid)?.time, *oid));
        }
        let is_of_all = |bits: &Bits| bits.len() == starts.len();
        // The waiting commits that not all have, as far as is known, and the time of the oldest one that was visited.
        let mut open: HashSet<Oid> = waiting.iter().map(|(_, oid)| *oid).collect();
        open.retain(|oid| !is_of_all(&reached[oid]));
        let mut oldest = i64::MAX;
        while let Some((time, oid)) = waiting.pop_last() {
            // Among commits of the same second, a parent may come before its child.
            if open.is_empty() && time < oldest {
                break;
            }
            let bits = reached[&oid].clone();
            if open.remove(&oid) {
                oldest = oldest.min(time);
            }
            // The history of a shallow clone ends here.
            for parent in self.present_parents(oid)?.unwrap_or_default() {
                let known = reached.entry(parent).or_default();
                // Only clock skew leads to a commit again after it was visited.
                if known.add(&bits) {
                    if is_of_all(known) {
                        open.remove(&parent);
                    } else {
                        open.insert(parent);
                    }
                    waiting.insert((self.commit(parent)?.time, parent));
                }
            }
        }
        Ok(reached)
    }
}

/// A search for the commits that only one of two histories has, newest first. It ends as early as the caller allows.
pub(super) struct Difference {
    flags: HashMap<Oid, u8>,
    queue: BinaryHeap<(i64, Oid)>,
    /// The flags with which commits were queued.
    waiting: HashMap<Oid, u8>,
    /// Number of queued commits that only this side has, as far as is known.
    single: [usize; 2],
    /// The time of the oldest visited commit that only this side has.
    oldest: [i64; 2],
    /// Number of commits that may still be visited.
    left: usize,
}

/// The flag of each side.
const SIDES: [u8; 2] = [1, 2];

impl Difference {
    /// Starts a search that visits at most `limit` commits.
    pub(super) fn new(graph: &mut KeyGraph<'_>, heads: [Oid; 2], limit: usize) -> Result<Self, HistoryError> {
        let mut difference = Self {
            flags: HashMap::new(),
            queue: BinaryHeap::new(),
            waiting: HashMap::new(),
            single: [0; 2],
            oldest: [i64::MAX; 2],
            left: limit,
        };
        for (head, flag) in heads.into_iter().zip(SIDES) {
            difference.paint(graph, head, flag)?;
        }
        Ok(difference)
    }

    /// Continues until all commits are known that only one side has, of a side that is not yet complete. Returns the side; `None`
    /// at the limit, or at the end of a shallow clone.
    pub(super) fn complete(
        &mut self,
        graph: &mut KeyGraph<'_>,
        is_complete: [bool; 2],
    ) -> Result<Option<usize>, HistoryError> {
        loop {
            while self.queue.peek().is_some_and(|(_, oid)| !self.waiting.contains_key(oid)) {
                self.queue.pop();
            }
            // Among commits of the same second, a parent may come before its child.
            let next = self.queue.peek().map(|(time, _)| *time);
            let is_done = |side: &usize| {
                !is_complete[*side] && self.single[*side] == 0 && next.is_none_or(|next| next < self.oldest[*side])
            };
            if let Some(side) = [0, 1].iter().find(|side| is_done(side)) {
                return Ok(Some(*side));
            }
            if self.left == 0 || !self.step(graph)? {
                return Ok(None);
            }
            self.left -= 1;
        }
    }

    /// Returns the commits that only one side has, by ID.
    pub(super) fn side(&self, side: usize) -> Vec<Oid> {
        let own = self.flags.iter().filter(|(_, flags)| **flags == SIDES[side]);
        let mut commits: Vec<Oid> = own.map(|(oid, _)| *oid).collect();
        commits.sort_unstable();
        commits
    }

    /// Visits the newest commit. Returns false at the end of a shallow clone.
    fn step(&mut self, graph: &mut KeyGraph<'_>) -> Result<bool, HistoryError> {
        let Some((time, oid)) = self.queue.pop() else { return Ok(false) };
        let Some(flags) = self.waiting.remove(&oid) else { return Ok(true) };
        if let Some(side) = single(flags) {
            self.single[side] -= 1;
            self.oldest[side] = self.oldest[side].min(time);
        }
        let Some(parents) = graph.present_parents(oid)? else { return Ok(false) };
        for parent in parents {
            self.paint(graph, parent, flags)?;
        }
        Ok(true)
    }

    fn paint(&mut self, graph: &mut KeyGraph<'_>, oid: Oid, flags: u8) -> Result<(), HistoryError> {
        let known = self.flags.entry(oid).or_default();
        if *known & flags == flags {
            return Ok(());
        }
        *known |= flags;
        let flags = *known;
        if let Some(side) = single(flags) {
            self.single[side] += 1;
        }
        if let Some(side) = self.waiting.insert(oid, flags).and_then(single) {
            self.single[side] -= 1;
        }
        self.queue.push((graph.commit(oid)?.time, oid));
        Ok(())
    }
}

/// Returns the only side that flags name.
fn single(flags: u8) -> Option<usize> {
    SIDES.iter().position(|side| *side == flags)
}
