//! Waiting objects, in three lanes.

use std::collections::BTreeMap;

/// Why an object is reconciled; the first lane has the highest priority.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Lane {
    /// The object, or something that it depends on, changed.
    Changed,
    /// It is due: a retry, or a time that the reconciler asked for.
    Due,
    /// Nothing is known to have changed.
    Resync,
}

/// How often each lane may be skipped before it is next.
const PATIENCE: [u32; 3] = [0, 4, 8];

#[derive(Clone, Debug)]
pub(super) struct Lanes<K> {
    lanes: [BTreeMap<u64, K>; 3],
    passed_over: [u32; 3],
}

impl<K> Default for Lanes<K> {
    fn default() -> Self {
        Self { lanes: [const { BTreeMap::new() }; 3], passed_over: [0; 3] }
    }
}

impl<K> Lanes<K> {
    pub(super) fn push(&mut self, lane: Lane, sequence: u64, key: K) {
        self.lanes[lane as usize].insert(sequence, key);
    }

    pub(super) fn remove(&mut self, lane: Lane, sequence: u64) {
        self.lanes[lane as usize].remove(&sequence);
    }

    pub(super) fn len(&self) -> usize {
        self.lanes.iter().map(BTreeMap::len).sum()
    }

    pub(super) fn len_of(&self, lane: Lane) -> usize {
        self.lanes[lane as usize].len()
    }

    /// Takes the next key; without `background`, only from the lane of changed objects.
    pub(super) fn take(&mut self, background: bool) -> Option<(Lane, K)> {
        let open = |lane: &Lane| (background || *lane == Lane::Changed) && !self.lanes[*lane as usize].is_empty();
        let candidates: Vec<_> = [Lane::Changed, Lane::Due, Lane::Resync].into_iter().filter(open).collect();
        let first = *candidates.first()?;
        let impatient = |lane: &&Lane| self.passed_over[**lane as usize] >= PATIENCE[**lane as usize];
        let chosen = candidates.iter().skip(1).find(impatient).copied().unwrap_or(first);
        for lane in candidates {
            self.passed_over[lane as usize] += 1;
        }
        self.passed_over[chosen as usize] = 0;
        self.lanes[chosen as usize].pop_first().map(|(_, key)| (chosen, key))
    }
}
