//! From one commit to a later one, as it was pushed.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;

use git2::Oid;

use crate::git::received::{self, Received};

/// A commit that came with a push, and what of the push it needs: with the histories of some commits that were there before, this is
/// everything that it leads to.
#[derive(Debug)]
pub(in super::super) struct Step {
    tip: Oid,
    commits: Vec<Oid>,
    after: Vec<Oid>,
    /// In the order of the pack.
    objects: Vec<Oid>,
}

impl Step {
    /// `commits` lead to the `tip` and came with the push, `after` are their parents that did not, and `objects` all that came and
    /// that the tip leads to. `None` if one of them is a delta against something else than these and what is `around`: in the
    /// histories of `after`.
    pub(in super::super) fn new(
        tip: Oid,
        commits: Vec<Oid>,
        after: Vec<Oid>,
        objects: &HashSet<Oid>,
        around: &HashSet<Oid>,
        received: &Received,
    ) -> Option<Self> {
        let mut positions: Vec<(usize, Oid)> =
            objects.iter().map(|oid| Some((received.position(*oid)?, *oid))).collect::<Option<_>>()?;
        positions.sort_unstable();
        let objects_in_order: Vec<Oid> = positions.into_iter().map(|(_, oid)| oid).collect();
        let is_known = |base: &Oid| objects.contains(base) || around.contains(base);
        let are_known = objects_in_order.iter().filter_map(|oid| received.base(*oid)).all(|base| is_known(&base));
        are_known.then_some(Self { tip, commits, after, objects: objects_in_order })
    }
}

pub(super) type Pushed = (Arc<Step>, Arc<Received>);

/// How the commits of some pushes follow one another.
#[derive(Debug, Default)]
pub(in super::super) struct History(pub(super) Vec<Pushed>);

type Steps<'p> = HashMap<Oid, (&'p Step, &'p Received)>;

impl History {
    /// The commits that came with these pushes and lie before some that are `there`, and these.
    pub(in super::super) fn before(&self, there: &[Oid]) -> HashSet<Oid> {
        before(&self.by_tip(), there)
    }

    fn by_tip(&self) -> Steps<'_> {
        self.0.iter().map(|(step, received)| (step.tip, (&**step, &**received))).collect()
    }

    /// See [`super::Recent::pack`].
    pub(super) fn pack(&self, wanted: &[Oid], have: &[Oid], most: usize) -> Option<Vec<u8>> {
        let steps = self.by_tip();
        let there = before(&steps, have);
        let (mut needed, mut seen, mut stack) = (Vec::new(), HashSet::new(), wanted.to_vec());
        while let Some(commit) = stack.pop() {
            if there.contains(&commit) || !seen.insert(commit) {
                continue;
            }
            let step = steps.get(&commit)?;
            needed.push(step);
            stack.extend(step.0.after.iter().copied());
        }
        let (mut entries, mut packed) = (Vec::new(), HashSet::new());
        // Bases come before what is against them, mostly: readers take them in any order.
        for (step, received) in needed.iter().rev() {
            for oid in &step.objects {
                if packed.insert(*oid) {
                    received.entry(*oid, &mut entries);
                }
            }
            if entries.len() > most {
                return None;
            }
        }
        let count = u32::try_from(packed.len()).ok().filter(|count| *count > 0)?;
        Some(received::pack_of(count, &entries))
    }
}

fn before(steps: &Steps<'_>, there: &[Oid]) -> HashSet<Oid> {
    let (mut found, mut walked, mut stack) = (HashSet::new(), HashSet::new(), there.to_vec());
    while let Some(commit) = stack.pop() {
        found.insert(commit);
        if let Some((step, _)) = steps.get(&commit)
            && walked.insert(commit)
        {
            found.extend(step.commits.iter().copied());
            stack.extend(step.after.iter().copied());
        }
    }
    found
}
