//! Pushed steps from one commit to a later one.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;

use git2::Oid;

use gitcd_repo::received::{self, Received};

/// A pushed commit and the objects of the push that it needs. Together with the histories of the commits in `after`, these are
/// all objects reachable from it.
#[derive(Debug)]
pub(in super::super) struct Step {
    tip: Oid,
    commits: Vec<Oid>,
    after: Vec<Oid>,
    /// In the order of the pack.
    objects: Vec<Oid>,
}

impl Step {
    /// Returns the step to `tip`. `commits` are the pushed commits up to it, `after` their parents that were not pushed, and
    /// `objects` all pushed objects reachable from it. `None` if `tip` was not pushed, if an object is a delta against one that
    /// is neither in `objects` nor in `around` (trees in the histories of `after`), or if deltas form a circle: a base was found
    /// elsewhere then.
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
        let in_order: Vec<Oid> = positions.into_iter().map(|(_, oid)| oid).collect();
        let mut sound = HashSet::new();
        let are_sound = in_order.iter().all(|oid| is_sound(*oid, objects, around, received, &mut sound));
        (commits.contains(&tip) && are_sound).then_some(Self { tip, commits, after, objects: in_order })
    }
}

/// Whether an object is whole, or its chain of delta bases ends at a whole object or in `around`.
fn is_sound(
    oid: Oid,
    objects: &HashSet<Oid>,
    around: &HashSet<Oid>,
    received: &Received,
    sound: &mut HashSet<Oid>,
) -> bool {
    let (mut chain, mut at) = (Vec::new(), oid);
    while !sound.contains(&at) {
        chain.push(at);
        match received.base(at) {
            None => break,
            Some(base) if objects.contains(&base) => at = base,
            Some(base) if around.contains(&base) => break,
            Some(_) => return false,
        }
        if chain.len() > objects.len() {
            return false;
        }
    }
    sound.extend(chain);
    true
}

pub(super) type Pushed = (Arc<Step>, Arc<Received>);

/// The commit graph of some pushes.
#[derive(Debug, Default)]
pub(in super::super) struct History(pub(super) Vec<Pushed>);

type Steps<'p> = HashMap<Oid, (&'p Step, &'p Received)>;

impl History {
    /// Returns the commits `there` and all their ancestors that these pushes know.
    pub(in super::super) fn before(&self, there: &[Oid]) -> HashSet<Oid> {
        before(&self.by_tip(), there)
    }

    fn by_tip(&self) -> Steps<'_> {
        self.0.iter().map(|(step, received)| (step.tip, (&**step, &**received))).collect()
    }

    /// Builds a pack of what `wanted` needs beyond the history of `have`, from pushed entries and without decoding any object.
    /// `None` if the last pushes do not have all of it, or if it is larger than `most` bytes.
    pub(in super::super) fn pack(&self, wanted: &[Oid], have: &[Oid], most: usize) -> Option<Vec<u8>> {
        let steps = self.by_tip();
        let there = before(&steps, have);
        let mut needed: Vec<&(&Step, &Received)> = Vec::new();
        let (mut seen, mut stack) =
            (HashSet::new(), wanted.iter().rev().map(|commit| (*commit, false)).collect::<Vec<_>>());
        // Ancestors first: an object is taken from the push that first had it, and its base precedes it.
        while let Some((commit, is_after)) = stack.pop() {
            if there.contains(&commit) {
                continue;
            }
            let step = steps.get(&commit)?;
            if is_after {
                needed.push(step);
            } else if seen.insert(commit) {
                stack.push((commit, true));
                stack.extend(step.0.after.iter().map(|commit| (*commit, false)));
            }
        }
        let (mut entries, mut packed, mut known) = (Vec::new(), HashSet::new(), HashSet::new());
        for (step, received) in needed {
            let own: HashSet<Oid> = step.objects.iter().copied().collect();
            for oid in &step.objects {
                // The client has any base that is not in the pack. A later push may repeat it, as a delta against the object that
                // it is a base of.
                if known.contains(oid) || !packed.insert(*oid) {
                    continue;
                }
                received.entry(*oid, &mut entries);
                known.extend(received.base(*oid).filter(|base| !own.contains(base) && !packed.contains(base)));
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
