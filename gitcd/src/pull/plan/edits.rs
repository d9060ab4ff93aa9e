//! Who wrote a key last, which cannot always be told from where the histories meet.
//!
//! Merges of the same edits may go different ways, and what one of them chose looks like a later change to the other; what was changed and taken back does not look
//! like a change at all. So the edits themselves are asked, field by field: one that another one has seen is not the last one.

mod fields;
mod known;

use std::collections::BTreeMap;

use bytes::Bytes;
use git2::{Oid, Repository};

use self::fields::{Last, Point};
use self::known::Known;
use super::bases::Base;
use super::{PlanError, Planner};
use crate::git::changes::{self, Changes, Trees};
use crate::git::graph::{Graph, GraphError, Meeting};
use crate::merge::value::{Map, Syntax, Value};

/// Looking for edits ends after so many commits, and then none counts: it takes time for each.
const LOOKED_AT: usize = 4096;

/// Whether edits may say more than where the histories meet does. Which merges left a key out differs from key to key; there the bases alone decide.
pub(super) fn may_tell(meeting: &Meeting, ours: Oid) -> bool {
    meeting.scopes.is_empty() && !meeting.bases.is_empty() && meeting.bases != [ours]
}

/// What a commit made of a key.
#[derive(Clone, Debug)]
struct Edit {
    at: Oid,
    value: Option<Oid>,
    /// What it was in the parents. A merge that took it from one of them is no edit.
    before: Vec<Option<Oid>>,
}

/// What was written in one of two histories only, by key, without the prefix.
#[derive(Debug, Default)]
pub(super) struct Edits {
    ours: BTreeMap<Vec<u8>, Vec<Edit>>,
    theirs: BTreeMap<Vec<u8>, Vec<Edit>>,
    known: Known,
}

/// What is to be merged of a key.
#[derive(Debug)]
pub(super) struct Meant {
    pub(super) base: Base,
    pub(super) theirs: Option<Instead>,
}

/// What is taken in the place of what theirs has, or nothing.
#[derive(Debug)]
pub(super) struct Instead(pub(super) Option<Bytes>);

impl From<Base> for Meant {
    fn from(base: Base) -> Self {
        Self { base, theirs: None }
    }
}

impl Edits {
    /// Costs what the commits that only one of the two histories has have changed.
    fn find(
        graph: &mut Graph,
        repository: &Repository,
        [ours, theirs]: [Oid; 2],
        bases: &[Oid],
    ) -> Result<Self, PlanError> {
        let Some(apart) = graph.apart(repository, ours, theirs, LOOKED_AT)? else { return Ok(Self::default()) };
        let mut has_merge = bases.len() > 1;
        for oid in apart.one.iter().chain(&apart.other) {
            has_merge |= graph.commit(repository, *oid)?.parents.len() > 1;
        }
        if !has_merge {
            return Ok(Self::default());
        }
        let odb = repository.odb().map_err(|error| GraphError { oid: ours, problem: error.message().to_owned() })?;
        let mut trees = Trees::new(odb);
        let mut edited = |commits: &[Oid]| {
            let mut keys: BTreeMap<Vec<u8>, Vec<Edit>> = BTreeMap::new();
            for oid in commits {
                for (key, edit) in edits_of(graph, repository, &mut trees, *oid)? {
                    keys.entry(key).or_default().push(edit);
                }
            }
            Ok::<_, PlanError>(keys)
        };
        let (our_edits, their_edits) = (edited(&apart.one)?, edited(&apart.other)?);
        let known = Known::new(graph, repository, [ours, theirs], apart.one.iter().chain(&apart.other))?;
        Ok(Self { ours: our_edits, theirs: their_edits, known })
    }
}

fn edits_of(
    graph: &mut Graph,
    repository: &Repository,
    trees: &mut Trees<'_>,
    at: Oid,
) -> Result<Vec<(Vec<u8>, Edit)>, PlanError> {
    let commit = graph.commit(repository, at)?;
    let mut parents = commit.parents.iter().copied();
    let first = parents.next().map(|parent| graph.commit(repository, parent)).transpose()?.map(|parent| parent.tree);
    let changed = changes::among(trees, first, Some(commit.tree))?.keys;
    let mut found: BTreeMap<Vec<u8>, Edit> = changed
        .into_iter()
        .map(|(key, change)| (key, Edit { at, value: change.to, before: vec![change.from] }))
        .collect();
    for parent in parents {
        if found.is_empty() {
            break;
        }
        let tree = graph.commit(repository, parent)?.tree;
        let changed = changes::among(trees, Some(tree), Some(commit.tree))?.keys;
        found.retain(|key, edit| {
            edit.before.extend(changed.get(key).map(|change| change.from));
            changed.contains_key(key)
        });
    }
    Ok(found.into_iter().collect())
}

impl Planner<'_, '_> {
    /// Looks for edits. Adds the keys that theirs has edits of and that nevertheless are what they are in all bases.
    pub(super) fn edited(&mut self, theirs: &mut Changes) -> Result<(), PlanError> {
        if !may_tell(&self.meeting, self.ours) {
            return Ok(());
        }
        // What cannot be read, as below a shallow clone, tells nothing.
        let heads = [self.ours, self.theirs];
        let mut edits = Edits::find(self.graph, self.repository, heads, &self.meeting.bases).unwrap_or_default();
        edits.ours.retain(|relative, _| self.is_taken(relative));
        edits.theirs.retain(|relative, _| self.is_taken(relative));
        self.edits = edits;
        for relative in self.edits.theirs.keys() {
            if !theirs.keys.contains_key(relative) {
                let blob = changes::find(self.repository, self.their_commit.tree, relative)?;
                theirs.keys.insert(relative.clone(), changes::Change { from: blob, to: blob });
            }
        }
        Ok(())
    }

    /// What to merge of a key so that a side whose edits are the last ones is the one that has changed it.
    pub(super) fn as_edited(
        &self,
        relative: &[u8],
        base: Base,
        [ours, theirs]: [Option<Oid>; 2],
    ) -> Result<Meant, PlanError> {
        let of = |edits: &BTreeMap<Vec<u8>, Vec<Edit>>| edits.get(relative).cloned().unwrap_or_default();
        let (our_edits, their_edits) = (of(&self.edits.ours), of(&self.edits.theirs));
        match (our_edits.is_empty(), their_edits.is_empty()) {
            (false, false) => {}
            _ if ours == theirs => return Ok(base.into()),
            (true, false) => return Ok(Base::Blob(ours).into()),
            (false, true) => return Ok(Base::Blob(theirs).into()),
            (true, true) => return Ok(base.into()),
        }
        let mut edits: Vec<(Edit, fields::From)> = Vec::new();
        edits.extend(our_edits.into_iter().map(|edit| (edit, fields::From::Ours)));
        edits.extend(their_edits.into_iter().map(|edit| (edit, fields::From::Theirs)));
        let mut parsed: BTreeMap<Option<Oid>, Option<Value>> = BTreeMap::new();
        for blob in edits.iter().flat_map(|(edit, _)| edit.before.iter().chain([&edit.value])) {
            if parsed.contains_key(blob) {
                continue;
            }
            let Ok(value) = self.object(relative, *blob) else { return Ok(base.into()) };
            parsed.insert(*blob, value);
        }
        let (our_value, their_value) = (self.object(relative, ours)?, self.object(relative, theirs)?);
        let (Some(one), Some(other)) = (&our_value, &their_value) else {
            return self.of_whole(relative, &edits, base, [ours, theirs]);
        };
        let uid =
            |value: &Value| value.at(&["metadata", "uid"]).and_then(Value::as_text).map(std::borrow::Cow::into_owned);
        if uid(one) != uid(other) {
            return self.of_whole(relative, &edits, base, [ours, theirs]);
        }
        let points: Vec<Point<Option<&Value>>> = edits
            .iter()
            .map(|(edit, from)| Point {
                at: edit.at,
                from: *from,
                value: parsed[&edit.value].as_ref(),
                before: edit.before.iter().map(|blob| parsed[blob].as_ref()).collect(),
            })
            .collect();
        let before: Option<Bytes> = self.bytes(relative, &base)?;
        let before = before.and_then(|bytes| Value::parse(&bytes)).map(|(value, _)| value);
        let Some(adjusted) = fields::adjusted(&self.edits.known, before.as_ref(), [one, other], &points) else {
            return Ok(base.into());
        };
        let bytes = |map: Map| Bytes::from(Value::Map(map).write(Syntax::Json));
        Ok(Meant {
            base: Base::Value(Some(bytes(adjusted.base))),
            theirs: adjusted.theirs.map(|map| Instead(Some(bytes(map)))),
        })
    }

    fn of_whole(
        &self,
        relative: &[u8],
        edits: &[(Edit, fields::From)],
        base: Base,
        [ours, theirs]: [Option<Oid>; 2],
    ) -> Result<Meant, PlanError> {
        let points: Vec<_> = edits
            .iter()
            .map(|(edit, from)| Point { at: edit.at, from: *from, value: edit.value, before: edit.before.clone() })
            .collect();
        let order = |blob: Option<Oid>| blob.map(|blob| blob.as_bytes().to_vec()).unwrap_or_default();
        Ok(match fields::last(&self.edits.known, &points, [ours, theirs], order) {
            Some(Last::Ours) => Base::Blob(theirs).into(),
            Some(Last::Theirs) => Base::Blob(ours).into(),
            Some(Last::Neither(blob)) => {
                Meant { base: Base::Blob(ours), theirs: Some(Instead(self.value(relative, blob)?)) }
            }
            None => base.into(),
        })
    }

    fn object(&self, relative: &[u8], blob: Option<Oid>) -> Result<Option<Value>, PlanError> {
        Ok(self.value(relative, blob)?.and_then(|value| Value::parse(&value)).map(|(value, _)| value))
    }
}
