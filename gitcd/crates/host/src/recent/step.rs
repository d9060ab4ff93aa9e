//! From one commit to a later one, as it was pushed.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;

use git2::Oid;

use gitcd_repo::received::{self, Received};

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
    /// that the tip leads to. `None` if the tip itself did not come, or if one of them is a delta against something else than these and what is
    /// `around`, which is in the histories of `after`, or against itself by a detour: its base was found elsewhere then.
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

/// Whether an object is whole, or a delta whose bases lead to one that is or to what is around.
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

    /// What `wanted` needs for whoever has the history of `have`, put together from what was pushed, without looking into any object;
    /// `None` if it did not come with the last pushes, or is larger than so many bytes.
    pub(in super::super) fn pack(&self, wanted: &[Oid], have: &[Oid], most: usize) -> Option<Vec<u8>> {
        let steps = self.by_tip();
        let there = before(&steps, have);
        let mut needed: Vec<&(&Step, &Received)> = Vec::new();
        let (mut seen, mut stack) =
            (HashSet::new(), wanted.iter().rev().map(|commit| (*commit, false)).collect::<Vec<_>>());
        // What comes before something else is first: an object is taken from where it came first, and its base is there by then.
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
                // What is a base of something and was not sent before they have. If a later push has it once more, it might be against that very thing.
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
