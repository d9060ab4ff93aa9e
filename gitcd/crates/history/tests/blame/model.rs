//! The writers that the rules admit for each field in each commit, computed from the whole graph.

use std::collections::{BTreeMap, BTreeSet, HashMap};

use git2::Oid;
use serde_json::Value;

use crate::fields::{self, Fields};

/// A value in a commit.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct State {
    uid: Option<String>,
    fields: Fields,
}

impl State {
    /// Returns a field, if this is the object with that identity.
    fn get(&self, uid: Option<&String>, path: &str) -> Option<&Value> {
        self.fields.get(path).filter(|_| self.uid.as_ref() == uid)
    }
}

struct Commit {
    parents: Vec<Oid>,
    history: BTreeSet<Oid>,
    /// By key.
    states: BTreeMap<String, State>,
    writers: BTreeMap<(String, String), BTreeSet<Oid>>,
}

#[derive(Default)]
pub(crate) struct Model {
    commits: HashMap<Oid, Commit>,
}

impl Model {
    pub(crate) fn has(&self, commit: Oid) -> bool {
        self.commits.contains_key(&commit)
    }

    /// Returns whether a commit is another one, or in its history.
    pub(crate) fn has_behind(&self, later: Oid, commit: Oid) -> bool {
        self.commits[&later].history.contains(&commit)
    }

    /// Adds a commit, whose parents are known, with the values of its keys.
    pub(crate) fn add(&mut self, oid: Oid, parents: Vec<Oid>, values: &BTreeMap<String, Vec<u8>>) {
        let states = values.iter().map(|(key, value)| {
            let (uid, fields) = fields::of(value);
            (key.clone(), State { uid, fields })
        });
        let mut history: BTreeSet<Oid> = [oid].into();
        parents.iter().for_each(|parent| history.extend(&self.commits[parent].history));
        let states: BTreeMap<String, State> = states.collect();
        let commit = Commit { parents, history, states: states.clone(), writers: BTreeMap::new() };
        self.commits.insert(oid, commit);
        for (key, state) in states {
            for (path, value) in &state.fields {
                let writers = self.found(oid, &key, state.uid.as_ref(), path, value);
                self.commits
                    .get_mut(&oid)
                    .expect("it was just added")
                    .writers
                    .insert((key.clone(), path.clone()), writers);
            }
        }
    }

    fn value(&self, commit: Oid, key: &str, uid: Option<&String>, path: &str) -> Option<&Value> {
        self.commits[&commit].states.get(key)?.get(uid, path)
    }

    fn found(&self, oid: Oid, key: &str, uid: Option<&String>, path: &str, value: &Value) -> BTreeSet<Oid> {
        let parents = &self.commits[&oid].parents;
        let same: Vec<Oid> =
            parents.iter().copied().filter(|parent| self.value(*parent, key, uid, path) == Some(value)).collect();
        let of = |parent: Oid| self.commits[&parent].writers[&(key.to_owned(), path.to_owned())].clone();
        let [one, other] = same[..] else {
            return same.first().map_or_else(|| [oid].into(), |parent| of(*parent));
        };
        let apart = |from: Oid, without: Oid| {
            let without = &self.commits[&without].history;
            self.commits[&from].history.difference(without).copied().collect::<Vec<_>>()
        };
        let edits = [apart(one, other), apart(other, one)]
            .map(|commits| commits.into_iter().filter(|at| self.is_edit(*at, key, uid, path)).collect::<Vec<_>>());
        match [edits[0].is_empty(), edits[1].is_empty()] {
            // Both have it from the same commits, as far as the rule says.
            [true, true] => return of(one).union(&of(other)).copied().collect(),
            [false, true] => return of(one),
            [true, false] => return of(other),
            [false, false] => {}
        }
        let all: Vec<Oid> = edits.iter().flatten().copied().collect();
        let is_last = |at: &Oid| !all.iter().any(|later| later != at && self.commits[later].history.contains(at));
        let made = |edits: &[Oid]| edits.iter().any(|at| is_last(at) && self.value(*at, key, uid, path) == Some(value));
        match [made(&edits[0]), made(&edits[1])] {
            [true, false] => of(one),
            [false, true] => of(other),
            // Both wrote it, or the rule does not decide which value is older.
            _ => of(one).union(&of(other)).copied().collect(),
        }
    }

    /// Returns whether a commit edited a field: its value differs from that in each parent. Deletions of the object do not count.
    fn is_edit(&self, at: Oid, key: &str, uid: Option<&String>, path: &str) -> bool {
        let commit = &self.commits[&at];
        let Some(state) = commit.states.get(key).filter(|state| state.uid.as_ref() == uid) else { return false };
        let value = state.get(uid, path);
        commit.parents.iter().all(|parent| self.value(*parent, key, uid, path) != value)
            && (value.is_some() || !commit.parents.is_empty())
    }

    /// Returns the admitted writers of the fields of a key in a commit.
    pub(crate) fn writers(&self, commit: Oid, key: &str) -> BTreeMap<String, BTreeSet<Oid>> {
        let of_key = self.commits[&commit].writers.iter().filter(|((of, _), _)| of == key);
        of_key.map(|((_, path), writers)| (path.clone(), writers.clone())).collect()
    }
}
