//! Which parent of a merge a field comes from if both have it with the same value: the one whose history has the last edit
//! (`docs/design/merge.md`, *The last edits*).

use std::collections::{HashMap, HashSet};

use git2::Oid;
use gitcd_repo::changes::Finder;

use super::ancestry::{Bits, Difference, KeyGraph};
use super::carry::{FieldMatch, Fields, matches};
use super::versions::{Version, Versions};
use crate::named::Named;
use crate::{CommitInfo, History, HistoryError};

/// Limit on commits to search for edits, as in a merge; beyond it, both parents are followed.
const LOOKED_AT: usize = 4096;
/// Limit on the edits of the key in these commits, as in a merge.
const EDITS: usize = 256;

/// The parent that a field follows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Decision {
    First,
    Second,
    /// Both sides wrote the value independently, or the limits do not allow a decision.
    Either,
}

pub(super) struct Decider<'h> {
    history: &'h History,
    finder: Finder<'h>,
    /// The key as commits of stores name it, which spares most lookups.
    named: Option<Named>,
    pub(super) graph: KeyGraph<'h>,
    blobs: HashMap<Oid, Option<Oid>>,
    /// Whether a commit edited the key.
    is_edit: HashMap<Oid, bool>,
}

impl<'h> Decider<'h> {
    pub(super) fn new(history: &'h History, whole: &[u8], relative: &[u8]) -> Result<Self, HistoryError> {
        Ok(Self {
            history,
            finder: Finder::new(history.odb()?, relative),
            named: Named::new(relative),
            graph: KeyGraph::new(history, whole),
            blobs: HashMap::new(),
            is_edit: HashMap::new(),
        })
    }

    /// Decides for fields that both parents of a merge have with the same value as the merge, whose value of the key is in a blob.
    ///
    /// Reads the commits that only one parent's history has, starting with the side whose commits are known first, and looks the
    /// key up in those that may have changed it. If that side has no edits, nothing else is read. Reads each version if both
    /// histories edited the key.
    pub(super) fn decide(
        &mut self,
        (merge, blob): (&CommitInfo, Oid),
        parents: [Oid; 2],
        fields: &Fields,
        versions: &mut Versions<'h>,
    ) -> Result<Vec<Decision>, HistoryError> {
        let all = |decision: Decision| Ok(vec![decision; fields.len()]);
        // The commits of an octopus merge are in no order.
        if merge.parents.len() > 2 {
            return all(Decision::Either);
        }
        let mut apart = Difference::new(&mut self.graph, parents, LOOKED_AT)?;
        let (mut edits, mut is_complete) = ([Vec::new(), Vec::new()], [false; 2]);
        while is_complete != [true; 2] {
            let Some(side) = apart.complete(&mut self.graph, is_complete)? else { return all(Decision::Either) };
            edits[side] = self.edits(&apart.side(side))?;
            is_complete[side] = true;
            if edits[side].is_empty() {
                // If neither history has edits, both parents have the field from the same commits.
                return all([Decision::Second, Decision::First][side]);
            }
        }
        let [one, other] = edits;
        if one.len() + other.len() > EDITS {
            return all(Decision::Either);
        }
        let edits: Vec<(Oid, usize)> =
            one.into_iter().map(|at| (at, 0)).chain(other.into_iter().map(|at| (at, 1))).collect();
        let among = [apart.side(0), apart.side(1)].concat().into_iter().collect();
        let known = self.field_edits(blob, &edits, fields, versions)?;
        let later = self.later(parents, &among, &edits)?;
        Ok(known.iter().map(|field| field.decision(&edits, &later)).collect())
    }

    /// Returns the commits that edited the key.
    fn edits(&mut self, commits: &[Oid]) -> Result<Vec<Oid>, HistoryError> {
        let mut found = Vec::new();
        for at in commits {
            let is_edit = match self.is_edit.get(at) {
                Some(is_edit) => *is_edit,
                None => self.has_edit(*at)?,
            };
            self.is_edit.insert(*at, is_edit);
            if is_edit {
                found.push(*at);
            }
        }
        Ok(found)
    }

    fn has_edit(&mut self, at: Oid) -> Result<bool, HistoryError> {
        let commit = CommitInfo::read(&self.history.odb()?, at)?;
        let is_plain = commit.parents.len() == 1 && commit.revisions().is_some();
        if is_plain && self.named.as_ref().is_some_and(|named| !named.may_be_in(commit.subject())) {
            return Ok(false);
        }
        let value = self.blob(at)?;
        let mut before = Vec::new();
        for parent in self.graph.parents(at)? {
            before.push(self.blob(parent)?);
        }
        let differs = |before: &Option<Oid>| *before != value;
        if before.is_empty() {
            return Ok(value.is_some());
        }
        // A person's merge may be an edit even if it took a side's value.
        let is_decision = commit.parents.len() > 1 && !commit.is_merge_of_a_store();
        Ok(before.iter().all(differs) || is_decision && before.iter().any(differs))
    }

    /// Returns which edits of the key edited each field.
    fn field_edits(
        &mut self,
        blob: Oid,
        edits: &[(Oid, usize)],
        fields: &Fields,
        versions: &mut Versions<'h>,
    ) -> Result<Vec<FieldEdits>, HistoryError> {
        let here = versions.get(blob)?;
        let mut found = vec![FieldEdits::default(); fields.len()];
        // Of successive edits, one wrote what the next one replaced.
        let mut order: Vec<(i64, usize)> = Vec::new();
        for (number, (at, _)) in edits.iter().enumerate() {
            order.push((self.graph.commit(*at)?.time, number));
        }
        order.sort_unstable();
        for (_, number) in order {
            let at = edits[number].0;
            let value = self.blob(at)?;
            let Some(written) = value.map(|value| versions.get(value)).transpose()? else { continue };
            // Edits that deleted the object, or wrote to another object of its name, do not count for its fields.
            if !is_version_of(&written, &here) {
                continue;
            }
            let (Some(object), Some(wrote)) = (here.object(), written.object()) else {
                found.iter_mut().for_each(|field| field.add(number, value == Some(blob)));
                continue;
            };
            let node = versions.node(object);
            let after = aligned(fields, matches(object, wrote, node, fields));
            let mut touched = Vec::new();
            for parent in self.graph.parents(at)? {
                let before = self.blob(parent)?.map(|before| versions.get(before)).transpose()?;
                let before = before.filter(|before| is_version_of(before, &here));
                let node = versions.node(object);
                let before = match before.as_ref().and_then(|before| before.object()) {
                    Some(before) => aligned(fields, matches(object, before, node, fields)),
                    None => aligned(fields, Vec::new()),
                };
                touched.push(
                    after.iter().zip(&before).map(|(after, before)| differ(after.as_ref(), before.as_ref())).collect(),
                );
            }
            let is_decision = touched.len() > 1 && !CommitInfo::read(&self.history.odb()?, at)?.is_merge_of_a_store();
            for (index, field) in found.iter_mut().enumerate() {
                if is_touched(&touched, index, is_decision, after[index].is_some()) {
                    field.add(number, matches!(after[index], Some(FieldMatch::Same(_))));
                }
            }
        }
        Ok(found)
    }

    /// Returns for each edit the edits that have it in their history. `among` are all commits that only one of the parents has.
    fn later(
        &mut self,
        parents: [Oid; 2],
        among: &HashSet<Oid>,
        edits: &[(Oid, usize)],
    ) -> Result<Vec<Bits>, HistoryError> {
        let numbers: HashMap<Oid, usize> = edits.iter().zip(0..).map(|((at, _), number)| (*at, number)).collect();
        let mut behind: HashMap<Oid, Bits> = HashMap::new();
        let mut later = vec![Bits::default(); edits.len()];
        // A commit stays in the stack until its parents are done.
        let mut waiting = parents.to_vec();
        while let Some(at) = waiting.last().copied() {
            if behind.contains_key(&at) || !among.contains(&at) {
                waiting.pop();
                continue;
            }
            let parents = self.graph.parents(at)?;
            let count = waiting.len();
            waiting.extend(parents.iter().filter(|parent| among.contains(*parent) && !behind.contains_key(*parent)));
            if waiting.len() > count {
                continue;
            }
            let mut earlier = Bits::default();
            for parent in parents.iter().filter_map(|parent| behind.get(parent)) {
                earlier.add(parent);
            }
            if let Some(number) = numbers.get(&at) {
                earlier.iter().for_each(|edit| later[edit].set(*number));
                earlier.set(*number);
            }
            behind.insert(at, earlier);
            waiting.pop();
        }
        Ok(later)
    }

    fn blob(&mut self, at: Oid) -> Result<Option<Oid>, HistoryError> {
        if let Some(blob) = self.blobs.get(&at) {
            return Ok(*blob);
        }
        let tree = self.graph.commit(at)?.tree;
        let blob = self.finder.find(tree)?;
        self.blobs.insert(at, blob);
        Ok(blob)
    }
}

/// The edits of one field, as their indices.
#[derive(Clone, Default)]
struct FieldEdits {
    all: Bits,
    /// Those that wrote the blamed value.
    wrote: Bits,
}

impl FieldEdits {
    fn add(&mut self, number: usize, is_wanted: bool) {
        self.all.set(number);
        if is_wanted {
            self.wrote.set(number);
        }
    }

    /// Decides, given the side of each edit and the edits that have it in their history.
    fn decision(&self, edits: &[(Oid, usize)], later: &[Bits]) -> Decision {
        let has = |side: usize| self.all.iter().any(|number| edits[number].1 == side);
        match (has(0), has(1)) {
            (_, false) => return Decision::First,
            (false, true) => return Decision::Second,
            (true, true) => {}
        }
        let is_last = |number: &usize| !later[*number].overlaps(&self.all);
        let mut made = [false; 2];
        self.wrote.iter().filter(is_last).for_each(|number| made[edits[number].1] = true);
        match made {
            [true, false] => Decision::First,
            [false, true] => Decision::Second,
            _ => Decision::Either,
        }
    }
}

/// Returns whether a version is one of the object, or of the same value that is not an object.
fn is_version_of(version: &Version, here: &Version) -> bool {
    version.is_same_object(here) || version.object().is_none() && here.object().is_none()
}

/// Returns what was found for each field, in the order of the fields.
fn aligned<'t>(fields: &Fields, found: Vec<(usize, FieldMatch<'t>)>) -> Vec<Option<FieldMatch<'t>>> {
    let mut found = found.into_iter().peekable();
    fields.keys().map(|field| found.next_if(|(number, _)| number == field).map(|(_, found)| found)).collect()
}

/// Returns whether two versions have different values of a field.
fn differ(one: Option<&FieldMatch<'_>>, other: Option<&FieldMatch<'_>>) -> bool {
    match (one, other) {
        (None, None) | (Some(FieldMatch::Same(_)), Some(FieldMatch::Same(_))) => false,
        (Some(FieldMatch::Other(one)), Some(FieldMatch::Other(other))) => one != other,
        _ => true,
    }
}

/// Returns whether an edit of the key edited a field, given whether the field differs from that in each parent.
fn is_touched(differs: &[Vec<bool>], field: usize, is_decision: bool, is_present: bool) -> bool {
    let mut differs = differs.iter().map(|parent| parent[field]);
    match differs.len() {
        // The first commit of a history.
        0 => is_present,
        _ if is_decision => differs.any(|differs| differs),
        _ => differs.all(|differs| differs),
    }
}
