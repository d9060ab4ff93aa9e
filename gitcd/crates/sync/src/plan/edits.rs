//! The last edits of keys and fields, which the merge bases do not always show.
//!
//! Merges of the same edits can choose different values, and the choice of one then looks like a later change to the other. A
//! change that was reverted does not look like a change. So the edits themselves are compared, field by field: an edit is not the
//! last one if another edit has it in its history.

mod fields;
mod known;
mod makers;
#[cfg(test)]
mod tests;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use bytes::Bytes;
use git2::Oid;
use gitcd_merge::secrecy::Exposure;
use gitcd_merge::value::{Map, Syntax, Value};
use gitcd_merge::{Conflict, Merged, Outcome, identity as uid, is_terminating};
use gitcd_repo::changes::{self, Changes, Trees};
use gitcd_repo::graph::{Edit, MergeBases};

use self::fields::{Asked, From, Last, Point};
use self::known::Known;
use super::bases::Base;
use super::origins::is_merge_of_a_store;
use super::{PlanError, Planner};

/// Limit on commits to search for edits; beyond it, edits are not considered, since each commit takes time.
const LOOKED_AT: usize = 4096;
/// Limit on the edits in these commits.
const EDITS: usize = 200_000;
/// Limit on the edits of one key, each of which is a version to read.
const OF_A_KEY: usize = 256;

/// Returns whether the last edits may differ from what the merge bases show. If a merge left keys out, the bases alone decide,
/// because which merges left a key out differs from key to key.
pub(super) fn may_matter(meeting: &MergeBases, ours: Oid) -> bool {
    meeting.scopes.is_empty() && !meeting.bases.is_empty() && meeting.bases != [ours]
}

type ByKey = BTreeMap<Vec<u8>, Vec<Edit>>;

/// The edits in the commits that only one of two histories has.
#[derive(Debug, Default)]
pub(super) struct Edits {
    ours: ByKey,
    theirs: ByKey,
    known: Known,
}

/// What to merge for a key.
#[derive(Debug)]
pub(super) struct Meant {
    pub(super) base: Base,
    pub(super) then: Then,
}

/// The correction of a merged value.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Then {
    AsMerged,
    /// Values of last edits for these fields, which neither side has.
    Fields(Vec<(Vec<String>, Option<Value>)>),
    /// The value of a last edit for the whole key, which neither side has.
    Whole(Option<Bytes>),
}

impl std::convert::From<Base> for Meant {
    fn from(base: Base) -> Self {
        Self { base, then: Then::AsMerged }
    }
}

impl Planner<'_, '_> {
    /// Finds the edits. Adds the keys that theirs edited although they equal all bases.
    pub(super) fn edited(&mut self, theirs: &mut Changes) -> Result<(), PlanError> {
        if !may_matter(&self.meeting, self.ours) {
            return Ok(());
        }
        let found = match self.find_edits(theirs) {
            // In a clone with a limited depth, the merge bases alone decide. What gitcd cut must not change a result.
            Err(_) if self.repository.is_shallow() && !self.graph.is_cut() => None,
            found => found?,
        };
        let Some(edits) = found else { return Ok(()) };
        for relative in edits.theirs.keys() {
            if !theirs.keys.contains_key(relative) {
                let blob = changes::find(self.repository, self.their_commit.tree, relative)?;
                theirs.keys.insert(relative.clone(), changes::Change { from: blob, to: blob });
            }
        }
        self.edits = edits;
        Ok(())
    }

    fn find_edits(&mut self, theirs: &Changes) -> Result<Option<Edits>, PlanError> {
        let Some(apart) = self.graph.apart(self.repository, self.ours, self.theirs, LOOKED_AT)? else {
            return Ok(None);
        };
        let mut has_merge = self.meeting.bases.len() > 1;
        for oid in apart.one.iter().chain(&apart.other) {
            has_merge |= self.graph.commit(self.repository, *oid)?.parents.len() > 1;
        }
        if !has_merge {
            return Ok(None);
        }
        let mut left = EDITS;
        let is_taken = |planner: &Self, edit: &Edit| planner.is_taken(&edit.key);
        let Some(their_edits) = self.edits_of(&apart.other, &mut left, is_taken)? else { return Ok(None) };
        let is_looked_at = |edit: &Edit| theirs.keys.contains_key(&edit.key) || their_edits.contains_key(&edit.key);
        let is_wanted = |planner: &Self, edit: &Edit| is_looked_at(edit) && planner.is_taken(&edit.key);
        let Some(our_edits) = self.edits_of(&apart.one, &mut left, is_wanted)? else { return Ok(None) };
        let commits = apart.one.iter().chain(&apart.other);
        let known = Known::new(self.graph, self.repository, [self.ours, self.theirs], commits)?;
        Ok(Some(Edits { ours: our_edits, theirs: their_edits, known }))
    }

    /// Returns the edits of these commits by key; `None` if there are more than `left`.
    fn edits_of(
        &mut self,
        commits: &[Oid],
        left: &mut usize,
        is_wanted: impl Fn(&Self, &Edit) -> bool,
    ) -> Result<Option<ByKey>, PlanError> {
        let mut trees = Trees::new(self.repository.odb().map_err(|error| self.failed(&error))?);
        let mut keys = ByKey::new();
        for at in commits {
            let edits = match self.graph.known_edits(*at) {
                Some(edits) => edits,
                None => self.edits_in(&mut trees, *at)?,
            };
            let Some(rest) = left.checked_sub(edits.len()) else { return Ok(None) };
            *left = rest;
            for edit in edits.iter().filter(|edit| is_wanted(self, edit)) {
                keys.entry(edit.key.clone()).or_default().push(edit.clone());
            }
        }
        Ok(Some(keys))
    }

    fn edits_in(&mut self, trees: &mut Trees<'_>, at: Oid) -> Result<Arc<[Edit]>, PlanError> {
        let commit = self.graph.commit(self.repository, at)?;
        let mut parents = Vec::new();
        for parent in &commit.parents {
            parents.push(self.graph.commit(self.repository, *parent)?.tree);
        }
        let is_decision = parents.len() > 1
            && !is_merge_of_a_store(&self.repository.find_commit(at).map_err(|error| self.failed(&error))?);
        Ok(self.graph.edits(trees, at, (commit.tree, &parents), is_decision)?)
    }

    /// Returns what to merge for a key, such that a side whose edits are the last ones counts as the one that changed it.
    pub(super) fn as_edited(
        &mut self,
        relative: &[u8],
        base: Base,
        [ours, theirs]: [Option<Oid>; 2],
    ) -> Result<Meant, PlanError> {
        let of = |edits: &ByKey| edits.get(relative).cloned().unwrap_or_default();
        let (our_edits, their_edits) = (of(&self.edits.ours), of(&self.edits.theirs));
        let has_both = !our_edits.is_empty() && !their_edits.is_empty();
        let is_relevant = if ours == theirs { has_both } else { !our_edits.is_empty() || !their_edits.is_empty() };
        // True for most keys: the base leads to the same result, and nothing has to be read.
        let is_plain = our_edits.is_empty() && base.is(ours) || their_edits.is_empty() && base.is(theirs);
        if !is_relevant || is_plain || our_edits.len() + their_edits.len() > OF_A_KEY {
            return Ok(base.into());
        }
        let mut edits: Vec<(Edit, From)> = Vec::new();
        edits.extend(our_edits.into_iter().map(|edit| (edit, From::Ours)));
        edits.extend(their_edits.into_iter().map(|edit| (edit, From::Theirs)));
        let known = std::mem::take(&mut self.edits.known);
        let meant = self.meant(&known, relative, &edits, base, [ours, theirs]);
        self.edits.known = known;
        meant
    }

    fn meant(
        &mut self,
        known: &Known,
        relative: &[u8],
        edits: &[(Edit, From)],
        base: Base,
        sides: [Option<Oid>; 2],
    ) -> Result<Meant, PlanError> {
        let mut parsed: BTreeMap<Option<Oid>, Option<Value>> = BTreeMap::new();
        let blobs = edits.iter().flat_map(|(edit, _)| edit.before.iter().chain([&edit.value]));
        for blob in blobs.chain(&sides).copied().collect::<BTreeSet<_>>() {
            parsed.insert(blob, self.object(relative, blob)?);
        }
        let values = sides.map(|side| parsed[&side].as_ref());
        let deleted = deleted(known, edits, &parsed);
        let is_one_object = values[0].and_then(uid) == values[1].and_then(uid);
        let is_dead = values.map(|value| {
            let uid = value.filter(|value| !is_terminating(value)).and_then(uid);
            // Fields decide if the other side has the same object: it is terminating in the result.
            uid.and_then(|uid| deleted.get(&uid)).is_some_and(|how| *how == Deletion::Removed || !is_one_object)
        });
        if let Some(meant) = self.without_the_dead(relative, &base, sides, (values, is_dead))? {
            return Ok(meant);
        }
        let [Some(one), Some(other)] = values else {
            return self.of_whole(known, relative, edits, base, sides);
        };
        if uid(one) != uid(other) {
            return self.of_whole(known, relative, edits, base, sides);
        }
        // Edits that deleted it, or wrote to another object of its name, do not count for its fields.
        let is_it = |value: Option<&Value>| value.is_some_and(|value| uid(value).is_none() || uid(value) == uid(one));
        let points: Vec<Point<Option<&Value>>> = edits
            .iter()
            .map(|(edit, from)| Point {
                at: edit.at,
                from: *from,
                is_decision: edit.is_decision,
                value: parsed[&edit.value].as_ref(),
                before: edit.before.iter().map(|blob| parsed[blob].as_ref()).collect(),
            })
            .filter(|point| is_it(point.value))
            .collect();
        let before = self.bytes(relative, &base)?.and_then(|bytes| Value::parse(&bytes)).map(|(value, _)| value);
        // The same side as in the merge, independent of which one is ours.
        let described = if sides[0] > sides[1] { one } else { other };
        let text = |name: &str| described.at(&[name]).and_then(Value::as_text).unwrap_or_default().into_owned();
        let schemas = self.schemas.clone();
        let asked = Asked {
            known,
            base: before.as_ref(),
            sides: [one, other],
            points,
            root: schemas.of(&text("apiVersion"), &text("kind")),
        };
        let adjusted = fields::adjusted(asked, &mut |side, path, touching| {
            self.is_made_by_a_last_edit(side, relative, Some(path), touching)
        })?;
        let Some(adjusted) = adjusted else { return Ok(base.into()) };
        let base = match adjusted.base {
            Some(map) => Base::Value(Some(Value::Map(map).write(Syntax::Json).into())),
            None => base,
        };
        let then = if adjusted.neither.is_empty() { Then::AsMerged } else { Then::Fields(adjusted.neither) };
        Ok(Meant { base, then })
    }

    /// Returns what to merge if one history deleted an object that the other side has: a deleted `uid` is never alive in a
    /// result. `None` if no such rule applies.
    fn without_the_dead(
        &self,
        relative: &[u8],
        base: &Base,
        sides: [Option<Oid>; 2],
        (values, is_dead): ([Option<&Value>; 2], [bool; 2]),
    ) -> Result<Option<Meant>, PlanError> {
        if is_dead == [false, false] {
            return Ok(None);
        }
        let before =
            self.bytes(relative, base)?.and_then(|bytes| Value::parse(&bytes)).and_then(|(value, _)| uid(&value));
        Ok(match is_dead {
            [true, true] if values[0].and_then(uid) == values[1].and_then(uid) => None,
            [true, true] => Some(Meant { base: base.clone(), then: Then::Whole(None) }),
            [is_ours, _] => {
                let dead = usize::from(!is_ours);
                // Finalizers that were added since may keep it terminating.
                let is_deletion = values[1 - dead].is_none() && values[dead].and_then(uid) == before;
                Some(if is_deletion { base.clone().into() } else { Base::Blob(sides[dead]).into() })
            }
        })
    }

    fn of_whole(
        &mut self,
        known: &Known,
        relative: &[u8],
        edits: &[(Edit, From)],
        base: Base,
        [ours, theirs]: [Option<Oid>; 2],
    ) -> Result<Meant, PlanError> {
        let points: Vec<_> = edits
            .iter()
            .map(|(edit, from)| Point {
                at: edit.at,
                from: *from,
                is_decision: edit.is_decision,
                value: edit.value,
                before: edit.before.clone(),
            })
            .collect();
        let order = |blob: Option<Oid>| blob.map(|blob| blob.as_bytes().to_vec()).unwrap_or_default();
        let last = fields::last(known, &points, [ours, theirs], order, |side, touching| {
            self.is_made_by_a_last_edit(side, relative, None, touching)
        })?;
        // Never creates or deletes an object that neither side has created or deleted.
        let last = last.filter(|last| match last {
            Last::Neither(blob) => blob.is_some() && ours.is_some() && theirs.is_some(),
            _ => true,
        });
        Ok(match last {
            Some(Last::Ours) => Base::Blob(theirs).into(),
            Some(Last::Theirs) => Base::Blob(ours).into(),
            Some(Last::Neither(blob)) => Meant { base, then: Then::Whole(self.value(relative, blob)?) },
            None => base.into(),
        })
    }

    pub(super) fn object(&self, relative: &[u8], blob: Option<Oid>) -> Result<Option<Value>, PlanError> {
        Ok(self.value(relative, blob)?.and_then(|value| Value::parse(&value)).map(|(value, _)| value))
    }
}

/// How much of a deletion is in a history.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Deletion {
    /// The object got a `deletionTimestamp`.
    Requested,
    /// The object is absent or replaced.
    Removed,
}

/// Returns the `uid`s of the objects that these edits deleted: objects in a parent that the commit does not have, or that are
/// terminating in it. A deletion does not count if a later edit restored the object, as with `git revert`.
///
/// A requested deletion counts, too, because no edit shows the removal of an object that a merge dropped while it was
/// terminating: the merge took the value of its other parent.
fn deleted(
    known: &Known,
    edits: &[(Edit, From)],
    parsed: &BTreeMap<Option<Oid>, Option<Value>>,
) -> BTreeMap<String, Deletion> {
    // The `uid`, and whether the object is terminating.
    let object =
        |blob: &Option<Oid>| parsed[blob].as_ref().and_then(|value| Some((uid(value)?, is_terminating(value))));
    let touching = || edits.iter().map(|(edit, _)| edit).filter(|edit| edit.before.iter().all(|it| *it != edit.value));
    let mut deleted = BTreeMap::new();
    for edit in touching() {
        let left = object(&edit.value);
        for (uid, was_terminating) in edit.before.iter().filter_map(object) {
            let how = match &left {
                Some((left, is_terminating)) if *left == uid => {
                    if was_terminating || !is_terminating {
                        continue;
                    }
                    Deletion::Requested
                }
                _ => Deletion::Removed,
            };
            let is_restored = touching().any(|later| {
                let has = |found: Option<(String, bool)>| found.filter(|(found, _)| *found == uid);
                let restores = |was: Option<bool>| match how {
                    Deletion::Removed => was.is_none(),
                    Deletion::Requested => was != Some(false),
                };
                let is_there = has(object(&later.value))
                    .is_some_and(|(_, is_terminating)| how == Deletion::Removed || !is_terminating);
                let is_new = later.before.iter().all(|blob| restores(has(object(blob)).map(|(_, was)| was)));
                is_there && is_new && known.has(later.at, edit.at)
            });
            if !is_restored {
                let known = deleted.entry(uid).or_insert(how);
                *known = how.max(*known);
            }
        }
    }
    deleted
}

/// Returns the merged value with the values of last edits that neither side has; reports them as conflicts. Takes the values of
/// both sides, and how much of them may be printed.
pub(super) fn corrected(
    merged: Merged,
    then: Then,
    [ours, theirs]: [Option<&Bytes>; 2],
    exposure: impl FnOnce() -> Exposure,
) -> Merged {
    let mut conflicts = merged.conflicts;
    let mut report = |field: String| {
        let lost = Some("the value on both sides, which later edits had replaced".into());
        conflicts.push(Conflict { field, kept: None, lost });
    };
    let outcome = match then {
        Then::AsMerged => merged.outcome,
        Then::Whole(value) => {
            let loses = |side: &Bytes| gitcd_merge::has_edit_of_a_person(None, side);
            if value.is_some() || [ours, theirs].into_iter().flatten().any(loses) {
                report(String::new());
            }
            value.map_or(Outcome::Deleted, |value| Outcome::New(value.into()))
        }
        Then::Fields(fields) => {
            let value = match &merged.outcome {
                Outcome::Ours => ours.map(|value| &value[..]),
                Outcome::Theirs => theirs.map(|value| &value[..]),
                Outcome::New(value) => Some(&value[..]),
                Outcome::Deleted => None,
            };
            let Some((Value::Map(mut map), syntax)) = value.and_then(Value::parse) else {
                return Merged { outcome: merged.outcome, conflicts };
            };
            let is_content = |path: &[String]| !matches!(path.first().map(String::as_str), Some("metadata" | "status"));
            if fields.iter().any(|(path, _)| is_content(path)) {
                raise_generation(&mut map, [ours, theirs]);
            }
            let exposure = exposure();
            for (path, value) in fields {
                put(&mut map, &path, value);
                report(exposure.path(&path.join(".")).to_owned());
            }
            Outcome::New(Value::Map(map).write_over(syntax, value.unwrap_or_default()))
        }
    };
    Merged { outcome, conflicts }
}

/// Raises the generation, because neither side has this content.
fn raise_generation(map: &mut Map, sides: [Option<&Bytes>; 2]) {
    let number = |value: &Value| value.at(&["metadata", "generation"])?.as_text()?.parse::<i64>().ok();
    let highest = sides.into_iter().flatten().filter_map(|value| number(&Value::parse(value)?.0)).max();
    if let (Some(highest), Some(Value::Map(metadata))) = (highest, map.get_mut("metadata")) {
        metadata.set("generation", Value::number(highest.saturating_add(1)));
    }
}

fn put(map: &mut Map, path: &[String], value: Option<Value>) {
    match (path, value) {
        ([], _) => {}
        ([name], Some(value)) => map.set(name, value),
        ([name], None) => map.remove(name),
        ([name, rest @ ..], value) => {
            if let Some(Value::Map(below)) = map.get_mut(name) {
                put(below, rest, value);
            }
        }
    }
}
