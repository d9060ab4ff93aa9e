//! Model of branches: an edit gives way only to a concurrent or later edit.

use std::collections::{BTreeMap, BTreeSet};

use git2::{Oid, Repository, Signature, Time};
use gitcd_merge::Outcome;
use gitcd_repo::graph::Graph;
use proptest::prelude::*;
use serde_json::{Value, json};

use super::{Plan, fixtures};

/// The fields of an object: `a`, which all branches write, and optionally one of its own for each branch.
type Fields = BTreeMap<String, String>;

fn object(fields: &Fields) -> Value {
    json!({
        "kind": "ConfigMap", "apiVersion": "v1", "metadata": {"name": "k", "namespace": "n", "uid": "u"}, "data": fields,
    })
}

/// Makes a commit with this `ConfigMap` or none.
pub(super) fn commit(
    repository: &Repository,
    object: Option<&Value>,
    time: i64,
    parents: &[Oid],
    message: &str,
) -> Oid {
    let mut leaf = repository.treebuilder(None).unwrap();
    if let Some(object) = object {
        leaf.insert("k", repository.blob(object.to_string().as_bytes()).unwrap(), 0o100_644).unwrap();
    }
    let mut below = leaf.write().unwrap();
    for name in ["n", "configmaps"] {
        let mut tree = repository.treebuilder(None).unwrap();
        tree.insert(name, below, 0o040_000).unwrap();
        below = tree.write().unwrap();
    }
    let tree = repository.find_tree(below).unwrap();
    let author = Signature::new("a", "a@b", &Time::new(time, 0)).unwrap();
    let parents: Vec<_> = parents.iter().map(|parent| repository.find_commit(*parent).unwrap()).collect();
    let parents: Vec<_> = parents.iter().collect();
    repository.commit(None, &author, &author, message, &tree, &parents).unwrap()
}

/// Makes a merge commit as gitcd does.
pub(super) fn join(repository: &Repository, ours: Oid, theirs: Oid, object: Option<&Value>) -> Oid {
    let parents = [ours.min(theirs), ours.max(theirs)];
    let times = parents.map(|parent| repository.find_commit(parent).unwrap().time().seconds());
    let [one, other] = parents.map(|parent| parent.to_string()[..10].to_owned());
    commit(repository, object, times[0].max(times[1]), &parents, &format!("merge {one} and {other}\n"))
}

/// A modelled branch: its head, and the edits that its next edit has seen.
#[derive(Clone, Debug)]
struct Branch {
    head: Oid,
    fields: Fields,
    known: BTreeSet<usize>,
    /// Deferred history links to commits with the same tree, with the edits known there.
    left: BTreeMap<Oid, BTreeSet<usize>>,
}

#[derive(Clone, Debug)]
enum Step {
    Edit(usize, u8),
    /// The first branch pulls from the second one.
    Pull(usize, usize),
}

struct Model<'r> {
    repository: &'r Repository,
    branches: Vec<Branch>,
    /// The edits of `a`, each with the edits that it has seen.
    edits: Vec<(String, BTreeSet<usize>)>,
    /// Whether each edit also writes a field of the branch's own; and the last values of these fields.
    has_own: bool,
    own: Fields,
    time: i64,
}

/// Returns our fields after a plan.
fn merged(plan: &Plan, ours: &Fields) -> Fields {
    let [key] = &plan.keys[..] else {
        assert!(plan.keys.is_empty(), "there is one key");
        return ours.clone();
    };
    let value = match &key.outcome {
        Outcome::Ours => return ours.clone(),
        Outcome::Theirs => key.theirs.as_ref().expect("no edit deletes it").0.clone(),
        Outcome::New(value) => value.clone().into(),
        other @ Outcome::Deleted => panic!("{other:?}"),
    };
    let value: serde_json::Value = serde_json::from_slice(&value).unwrap();
    serde_json::from_value(value["data"].clone()).unwrap()
}

impl Model<'_> {
    fn edit(&mut self, at: usize, value: u8) {
        let branch = &mut self.branches[at];
        let value = value.to_string();
        let is_edit = branch.fields["a"] != value;
        if !is_edit && !self.has_own {
            return;
        }
        for (left, known) in std::mem::take(&mut branch.left) {
            branch.head = join(self.repository, branch.head, left, Some(&object(&branch.fields)));
            branch.known.extend(known);
        }
        self.time += 1;
        if self.has_own {
            branch.fields.insert(format!("of{at}"), self.time.to_string());
            self.own.insert(format!("of{at}"), self.time.to_string());
        }
        branch.fields.insert("a".to_owned(), value.clone());
        branch.head = commit(
            self.repository,
            Some(&object(&branch.fields)),
            self.time / 2,
            &[branch.head],
            &self.time.to_string(),
        );
        if is_edit {
            self.edits.push((value, branch.known.clone()));
            branch.known.insert(self.edits.len() - 1);
        }
    }

    /// Pulls as [`crate::join`] does.
    fn pull(&mut self, at: usize, from: usize, impatient: bool) {
        let theirs = self.branches[from].clone();
        let branch = &mut self.branches[at];
        let mut graph = Graph::default();
        let Some(plan) = fixtures::merged(self.repository, &mut graph, branch.head, theirs.head) else {
            return;
        };
        let swapped = fixtures::merged(self.repository, &mut graph, theirs.head, branch.head);
        if plan.same_tree && !plan.fast_forward && !impatient && branch.head > theirs.head {
            branch.left.insert(theirs.head, theirs.known);
            return;
        }
        branch.left.clear();
        branch.known.extend(theirs.known);
        if plan.fast_forward {
            (branch.head, branch.fields) = (theirs.head, theirs.fields);
            return;
        }
        let is_agreed = branch.fields["a"] == theirs.fields["a"];
        let before = branch.fields.clone();
        branch.fields = merged(&plan, &before);
        if let Some(swapped) = swapped {
            assert_eq!(branch.fields, merged(&swapped, &theirs.fields), "the two sides compute different results");
        }
        // The last edits among those that are known now.
        let seen: BTreeSet<usize> = branch.known.iter().flat_map(|edit| &self.edits[*edit].1).copied().collect();
        let last: BTreeSet<&String> = branch.known.difference(&seen).map(|edit| &self.edits[*edit].0).collect();
        assert!(last.contains(&branch.fields["a"]), "{} comes from no last edit: {last:?}", branch.fields["a"]);
        if is_agreed && last.contains(&before["a"]) {
            assert_eq!(branch.fields["a"], before["a"], "both agree");
        }
        branch.head = join(self.repository, branch.head, theirs.head, Some(&object(&branch.fields)));
    }

    fn settle(&mut self) {
        let heads = |model: &Self| model.branches.iter().map(|branch| branch.head).collect::<Vec<_>>();
        for round in 0..40 {
            let before = heads(self);
            for at in 0..before.len() {
                for from in (0..before.len()).filter(|from| *from != at) {
                    self.pull(at, from, round % 2 == 1);
                }
            }
            if round % 2 == 1 && heads(self) == before {
                return;
            }
        }
        panic!("the branches keep making commits");
    }
}

/// Generates steps of several branches, each of which may pull from each.
fn steps() -> impl Strategy<Value = (usize, Vec<Step>)> {
    (2..6_usize).prop_flat_map(|branches| {
        let step = prop_oneof![
            2 => (0..branches, 0..3_u8).prop_map(|(at, value)| Step::Edit(at, value)),
            3 => (0..branches, 1..branches).prop_map(move |(at, next)| Step::Pull(at, (at + next) % branches)),
        ];
        (Just(branches), prop::collection::vec(step, 1..12 * branches))
    })
}

fn run(branches: usize, steps: &[Step], has_own: bool) -> Result<(), TestCaseError> {
    let folder = tempfile::tempdir().unwrap();
    let repository = Repository::init_bare(folder.path()).unwrap();
    let fields: Fields = [("a".to_owned(), "0".to_owned())].into();
    let head = commit(&repository, Some(&object(&fields)), 1000, &[], "root");
    let branch = Branch { head, fields, known: BTreeSet::from([0]), left: BTreeMap::new() };
    let branches = vec![branch; branches];
    let edits = vec![("0".to_owned(), BTreeSet::new())];
    let mut model = Model { repository: &repository, branches, edits, has_own, own: Fields::new(), time: 2000 };
    for step in steps {
        match step {
            Step::Edit(at, value) => model.edit(*at, *value),
            Step::Pull(at, from) => model.pull(*at, *from, false),
        }
    }
    model.settle();
    let mut fields = model.branches[0].fields.clone();
    prop_assert!(model.branches.iter().all(|branch| branch.fields == fields));
    let later: BTreeSet<usize> = model.edits.iter().flat_map(|(_, before)| before).copied().collect();
    let may_stay = model.edits.iter().enumerate().filter(|(at, _)| !later.contains(at)).map(|(_, (value, _))| value);
    let may_stay: BTreeSet<&String> = may_stay.collect();
    let value = fields.remove("a").expect("no edit removes it");
    prop_assert!(may_stay.contains(&value), "{value} comes from no last edit: {may_stay:?}");
    prop_assert_eq!(fields, model.own, "only their branches write them");
    Ok(())
}

/// Counterexamples that this model has found.
#[test]
fn no_later_edit_is_taken_back() {
    use Step::{Edit, Pull};
    let cases: [(usize, &[Step]); 5] = [
        // A and B set 1, C merges both, A sets 0; B merges that and keeps 1, C merges it and takes 0; A sets 1 again.
        (3, &[Edit(0, 1), Edit(1, 1), Pull(2, 0), Edit(0, 0), Pull(2, 1), Pull(1, 0), Pull(2, 0), Edit(0, 1)]),
        // The base has the value of an edit that one side has seen since.
        (
            3,
            &[
                Edit(2, 1),
                Pull(1, 2),
                Edit(1, 2),
                Edit(2, 0),
                Pull(0, 1),
                Pull(1, 2),
                Edit(1, 1),
                Edit(0, 0),
                Edit(0, 1),
            ],
        ),
        // Both sides made the same change and reverted it, and meanwhile merged it from other branches.
        (4, &[Edit(3, 1), Edit(1, 1), Pull(0, 3), Edit(0, 0), Pull(2, 1), Edit(1, 0), Pull(1, 3), Pull(0, 2)]),
        // There is one merge base, and a merge chose the value that differs from it.
        (
            4,
            &[
                Edit(1, 0),
                Edit(0, 0),
                Edit(2, 0),
                Edit(3, 2),
                Edit(1, 1),
                Pull(2, 1),
                Pull(1, 3),
                Pull(3, 2),
                Pull(1, 2),
                Edit(2, 0),
                Pull(1, 3),
                Pull(0, 3),
                Pull(0, 2),
            ],
        ),
        // A merge at a merge base chose a value that was replaced since.
        (
            4,
            &[
                Edit(0, 0),
                Edit(2, 1),
                Pull(0, 2),
                Edit(0, 0),
                Edit(0, 1),
                Pull(3, 2),
                Edit(0, 1),
                Edit(3, 0),
                Edit(2, 2),
                Pull(1, 0),
                Pull(1, 3),
                Edit(0, 0),
                Pull(3, 2),
                Edit(3, 1),
                Pull(3, 1),
                Edit(0, 1),
            ],
        ),
    ];
    for (branches, steps) in cases {
        for has_own in [false, true] {
            run(branches, steps, has_own).unwrap();
        }
    }
}

/// Three branches write concurrently, and two of them merge the third one's value. It stays, although neither of the two has seen
/// the other's earlier edit.
#[test]
fn a_value_that_all_branches_have_stays() {
    use Step::{Edit, Pull};
    for values in [[1, 2, 3], [1, 3, 2], [2, 1, 3], [2, 3, 1], [3, 1, 2], [3, 2, 1]] {
        let [one, other, third] = values;
        let steps = [Edit(0, one), Edit(1, other), Edit(2, third), Pull(0, 2), Pull(1, 2), Pull(0, 1), Pull(1, 0)];
        for has_own in [false, true] {
            run(3, &steps, has_own).unwrap();
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(96))]

    /// Also if branches reach the same value on their own, and one of them continues before a commit links the histories.
    #[test]
    fn an_edit_gives_way_only_to_one_that_did_not_know_of_it_or_came_after((branches, steps) in steps()) {
        run(branches, &steps, false)?;
        run(branches, &steps, true)?;
    }
}
