//! Which parent of a merge a field comes from if both have it with the same value: the one whose history has the last edit
//! (`docs/design/merge.md`, *The last edits*).

use std::collections::HashMap;
use std::rc::Rc;

use git2::Oid;
use gitcd_merge::value::Value;
use gitcd_repo::changes::Finder;
use gitcd_repo::graph::Graph;

use super::leaves::value_at;
use super::path::FieldPath;
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

/// An edit of the key in a commit that only one parent's history has.
struct Edit {
    at: Oid,
    side: usize,
    /// Whether it is a person's merge, in which any difference from a parent is an edit.
    is_decision: bool,
    blob: Option<Oid>,
    value: Option<Rc<Version>>,
    before: Vec<Option<Rc<Version>>>,
}

pub(super) struct Decider<'h> {
    history: &'h History,
    finder: Finder<'h>,
    /// The key as commits of stores name it, which spares most lookups.
    named: Option<Named>,
    graph: Graph,
    /// The paths of the fields by number.
    paths: Vec<FieldPath>,
    blobs: HashMap<Oid, Option<Oid>>,
    behind: HashMap<(Oid, Oid), bool>,
}

impl<'h> Decider<'h> {
    pub(super) fn new(history: &'h History, relative: &[u8], paths: Vec<FieldPath>) -> Result<Self, HistoryError> {
        let finder = Finder::new(history.odb()?, relative);
        Ok(Self {
            history,
            finder,
            named: Named::new(relative),
            graph: Graph::default(),
            paths,
            blobs: HashMap::new(),
            behind: HashMap::new(),
        })
    }

    /// Decides for fields that both parents of a merge have with the same value as the merge, whose value of the key is in a blob.
    ///
    /// Reads the commits that only one parent's history has, looks the key up in those that may have changed it, and reads each
    /// version if both histories edited it.
    pub(super) fn decide(
        &mut self,
        (merge, blob): (&CommitInfo, Oid),
        parents: [Oid; 2],
        fields: &[usize],
        versions: &mut Versions<'h>,
    ) -> Result<Vec<Decision>, HistoryError> {
        let all = |decision: Decision| Ok(vec![decision; fields.len()]);
        // The commits of an octopus merge are in no order.
        if merge.parents.len() > 2 {
            return all(Decision::Either);
        }
        let apart = match self.graph.apart(&self.history.repository, parents[0], parents[1], LOOKED_AT) {
            Err(_) if self.history.is_shallow => return all(Decision::Either),
            Err(error) => return Err(HistoryError::object(error.oid, error.problem)),
            Ok(None) => return all(Decision::Either),
            Ok(Some(apart)) => apart,
        };
        let (one, other) = (self.edits(&apart.one)?, self.edits(&apart.other)?);
        match (one.len(), other.len()) {
            // If neither history has edits, both parents have the field from the same commits.
            (_, 0) => return all(Decision::First),
            (0, _) => return all(Decision::Second),
            (one, other) if one + other > EDITS => return all(Decision::Either),
            _ => {}
        }
        let here = versions.get(blob)?;
        let mut edits = Vec::new();
        for (at, side) in one.into_iter().map(|at| (at, 0)).chain(other.into_iter().map(|at| (at, 1))) {
            let edit = self.read(at, side, versions)?;
            // Edits that deleted the object, or wrote to another object of its name, do not count for its fields.
            if edit.value.as_ref().is_some_and(|version| is_version_of(version, &here)) {
                edits.push(edit);
            }
        }
        fields.iter().map(|field| self.of_field(&self.paths[*field].clone(), (&here, blob), &edits)).collect()
    }

    /// Returns the commits that edited the key.
    fn edits(&mut self, commits: &[Oid]) -> Result<Vec<Oid>, HistoryError> {
        let mut found = Vec::new();
        let odb = self.history.odb()?;
        for at in commits {
            let commit = CommitInfo::read(&odb, *at)?;
            let is_plain = commit.parents.len() == 1 && commit.revisions().is_some();
            if is_plain && self.named.as_ref().is_some_and(|named| !named.may_be_in(commit.subject())) {
                continue;
            }
            let value = self.blob(*at)?;
            let mut before = Vec::new();
            for parent in self.parents(*at)? {
                before.push(self.blob(parent)?);
            }
            let differs = |before: &Option<Oid>| *before != value;
            // A person's merge may be an edit even if it took a side's value: ask for the message only then.
            let is_edit = if before.is_empty() { value.is_some() } else { before.iter().all(differs) };
            if is_edit || before.len() > 1 && before.iter().any(differs) && self.is_decision(*at)? {
                found.push(*at);
            }
        }
        Ok(found)
    }

    fn read(&mut self, at: Oid, side: usize, versions: &mut Versions<'h>) -> Result<Edit, HistoryError> {
        let mut version = |blob: Option<Oid>| blob.map(|blob| versions.get(blob)).transpose();
        let blob = self.blob(at)?;
        let value = version(blob)?;
        let mut before = Vec::new();
        for parent in self.parents(at)? {
            before.push(version(self.blob(parent)?)?);
        }
        let is_decision = before.len() > 1 && self.is_decision(at)?;
        Ok(Edit { at, side, is_decision, blob, value, before })
    }

    fn of_field(
        &mut self,
        path: &FieldPath,
        (here, blob): (&Version, Oid),
        edits: &[Edit],
    ) -> Result<Decision, HistoryError> {
        let wanted = field(Some(here), here, path);
        let is_wanted = |edit: &Edit| match here {
            Version::Object(_) => field(edit.value.as_deref(), here, path) == wanted,
            Version::Opaque => edit.blob == Some(blob),
        };
        let touching: Vec<&Edit> = edits.iter().filter(|edit| touches(edit, here, path)).collect();
        let has = |side: usize| touching.iter().any(|edit| edit.side == side);
        match (has(0), has(1)) {
            (_, false) => return Ok(Decision::First),
            (false, true) => return Ok(Decision::Second),
            (true, true) => {}
        }
        let mut made = [false; 2];
        for edit in &touching {
            if is_wanted(edit) && self.is_last(edit, &touching)? {
                made[edit.side] = true;
            }
        }
        Ok(match made {
            [true, false] => Decision::First,
            [false, true] => Decision::Second,
            _ => Decision::Either,
        })
    }

    fn is_last(&mut self, edit: &Edit, touching: &[&Edit]) -> Result<bool, HistoryError> {
        for later in touching.iter().filter(|later| later.at != edit.at) {
            if self.is_behind(edit.at, later.at)? {
                return Ok(false);
            }
        }
        Ok(true)
    }

    /// Returns whether `earlier` is in the history of `later`.
    pub(super) fn is_behind(&mut self, earlier: Oid, later: Oid) -> Result<bool, HistoryError> {
        if let Some(known) = self.behind.get(&(earlier, later)) {
            return Ok(*known);
        }
        let is_behind = match self.graph.is_ancestor(&self.history.repository, earlier, later) {
            Err(_) if self.history.is_shallow => false,
            found => found.map_err(|error| HistoryError::object(error.oid, error.problem))?,
        };
        self.behind.insert((earlier, later), is_behind);
        Ok(is_behind)
    }

    fn parents(&mut self, at: Oid) -> Result<Vec<Oid>, HistoryError> {
        let commit = self.graph.commit(&self.history.repository, at);
        Ok(commit.map_err(|error| HistoryError::object(error.oid, error.problem))?.parents.clone())
    }

    fn blob(&mut self, at: Oid) -> Result<Option<Oid>, HistoryError> {
        if let Some(blob) = self.blobs.get(&at) {
            return Ok(*blob);
        }
        let commit = self.graph.commit(&self.history.repository, at);
        let tree = commit.map_err(|error| HistoryError::object(error.oid, error.problem))?.tree;
        let blob = self.finder.find(tree)?;
        self.blobs.insert(at, blob);
        Ok(blob)
    }

    /// Returns whether a merge was made by a person.
    fn is_decision(&self, at: Oid) -> Result<bool, HistoryError> {
        Ok(!CommitInfo::read(&self.history.odb()?, at)?.is_merge_of_a_store())
    }
}

/// Returns whether a version is one of the object, or of the same value that is not an object.
fn is_version_of(version: &Version, here: &Version) -> bool {
    version.is_same_object(here) || version.object().is_none() && here.object().is_none()
}

/// Returns the value of a field in a version of the object.
fn field<'v>(version: Option<&'v Version>, here: &Version, path: &FieldPath) -> Option<&'v Value> {
    let version = version.filter(|version| is_version_of(version, here))?;
    value_at(version.object()?, path)
}

/// Returns whether an edit of the key edited the field.
fn touches(edit: &Edit, here: &Version, path: &FieldPath) -> bool {
    if here.object().is_none() {
        return true;
    }
    let value = field(edit.value.as_deref(), here, path);
    let differs = |before: &Option<Rc<Version>>| field(before.as_deref(), here, path) != value;
    if edit.is_decision {
        edit.before.iter().any(differs)
    } else {
        edit.before.iter().all(differs) && (value.is_some() || !edit.before.is_empty())
    }
}
