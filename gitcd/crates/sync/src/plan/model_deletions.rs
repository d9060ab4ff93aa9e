//! Model of branches: an object that one branch deleted is alive on no branch that knows of the deletion, whatever was done to
//! it.

use std::collections::{BTreeMap, BTreeSet};

use git2::{Oid, Repository};
use gitcd_core::keyspace::KeySpace;
use gitcd_core::scope::Scope;
use gitcd_merge::secrecy::SecretKinds;
use gitcd_merge::{Outcome, Policy};
use gitcd_repo::graph::Graph;
use proptest::prelude::*;
use serde_json::{Value, json};

use super::model::{commit, join};
use super::{Plan, Provenance, Rules, plan};

#[derive(Clone, Debug)]
struct Branch {
    head: Oid,
    object: Option<Value>,
    /// Deleted objects that the branch knows of, by `uid`.
    deleted: BTreeSet<String>,
    left: BTreeMap<Oid, BTreeSet<String>>,
}

#[derive(Clone, Debug)]
enum Step {
    /// Changes the object, or creates it.
    Change(usize),
    AddFinalizer(usize, u8),
    RemoveFinalizer(usize),
    Delete(usize),
    /// The first branch pulls from the second one.
    Pull(usize, usize),
}

struct Model<'r> {
    repository: &'r Repository,
    branches: Vec<Branch>,
    time: i64,
    trace: Vec<String>,
}

/// Returns our object after a plan.
fn merged(plan: &Plan, ours: Option<&Value>) -> Option<Value> {
    let [key] = &plan.keys[..] else {
        assert!(plan.keys.is_empty(), "there is one key");
        return ours.cloned();
    };
    let read = |value: &[u8]| serde_json::from_slice(value).expect("merges write JSON");
    match &key.outcome {
        Outcome::Ours => ours.cloned(),
        Outcome::Theirs => key.theirs.as_ref().map(|(value, _)| read(value)),
        Outcome::New(value) => Some(read(value)),
        Outcome::Deleted => None,
    }
}

fn uid(object: &Value) -> String {
    object["metadata"]["uid"].as_str().expect("every object has one").to_owned()
}

fn finalizers(object: &mut Value) -> &mut Vec<Value> {
    let list = &mut object["metadata"]["finalizers"];
    if list.is_null() {
        *list = json!([]);
    }
    list.as_array_mut().expect("it is a list")
}

fn is_terminating(object: &Value) -> bool {
    object["metadata"].get("deletionTimestamp").is_some()
}

impl Model<'_> {
    /// Applies a request as kube-apiserver would, if it would accept the request.
    fn request(&mut self, at: usize, step: &Step) {
        self.time += 1;
        let time = self.time;
        let mut object = self.branches[at].object.clone();
        match (step, &mut object) {
            (Step::Change(_), Some(object)) => object["data"][format!("of{at}")] = time.to_string().into(),
            (Step::Change(_), None) => {
                object = Some(json!({"kind": "ConfigMap", "apiVersion": "v1", "data": {},
                    "metadata": {"name": "k", "namespace": "n", "uid": format!("u{time}"), "finalizers": [],
                        "creationTimestamp": format!("2026-01-01T00:00:00.{time:06}Z")}}));
            }
            (Step::AddFinalizer(_, name), Some(object)) if !is_terminating(object) => {
                let name = json!(format!("example.org/{name}"));
                if !finalizers(object).contains(&name) {
                    finalizers(object).push(name);
                }
            }
            (Step::RemoveFinalizer(_), Some(found))
                if !found["metadata"]["finalizers"].as_array().is_none_or(Vec::is_empty) =>
            {
                finalizers(found).remove(0);
                if is_terminating(found) && finalizers(found).is_empty() {
                    object = None;
                }
            }
            (Step::Delete(_), Some(found)) => {
                self.branches[at].deleted.insert(uid(found));
                if finalizers(found).is_empty() {
                    object = None;
                } else if !is_terminating(found) {
                    found["metadata"]["deletionTimestamp"] = format!("2026-01-01T00:00:00.{time:06}Z").into();
                    found["metadata"]["deletionGracePeriodSeconds"] = 0.into();
                }
            }
            _ => return,
        }
        // kube-apiserver omits an empty list.
        if let Some(metadata) = object.as_mut().and_then(|object| object["metadata"].as_object_mut())
            && metadata.get("finalizers") == Some(&json!([]))
        {
            metadata.remove("finalizers");
        }
        let branch = &mut self.branches[at];
        if branch.object == object {
            return;
        }
        for (left, deleted) in std::mem::take(&mut branch.left) {
            branch.head = join(self.repository, branch.head, left, branch.object.as_ref());
            branch.deleted.extend(deleted);
        }
        branch.object = object;
        branch.head =
            commit(self.repository, branch.object.as_ref(), time / 2, &[branch.head], "update\n\nRevision: 7\n");
    }

    /// Pulls as [`crate::join`] does.
    fn pull(&mut self, at: usize, from: usize, impatient: bool) {
        let theirs = self.branches[from].clone();
        let branch = &mut self.branches[at];
        let keys = KeySpace::new("/registry", [""; 0]);
        let rules = Rules {
            keys: &keys,
            policy: Policy::Later,
            scope: &Scope::default(),
            fast_forward: true,
            secret_kinds: &SecretKinds::default(),
            verdicts: None,
            provenance: Provenance::ByMessage,
        };
        let mut graph = Graph::default();
        let Some(plan) = plan(self.repository, &mut graph, &rules, branch.head, theirs.head).unwrap() else {
            return;
        };
        let swapped = super::plan(self.repository, &mut graph, &rules, theirs.head, branch.head).unwrap();
        if plan.same_tree && !plan.fast_forward && !impatient && branch.head > theirs.head {
            branch.left.insert(theirs.head, theirs.deleted);
            return;
        }
        branch.left.clear();
        branch.deleted.extend(theirs.deleted);
        if plan.fast_forward {
            (branch.head, branch.object) = (theirs.head, theirs.object);
            return;
        }
        let before = branch.object.take();
        branch.object = merged(&plan, before.as_ref());
        self.trace.push(format!("{at} from {from}: {before:?} and {:?}: {:?}", theirs.object, branch.object));
        if let Some(swapped) = swapped {
            let other = merged(&swapped, theirs.object.as_ref());
            assert_eq!(branch.object, other, "the two sides compute different results");
        }
        branch.head = join(self.repository, branch.head, theirs.head, branch.object.as_ref());
        self.nothing_deleted_is_alive(at);
    }

    fn nothing_deleted_is_alive(&self, at: usize) {
        let branch = &self.branches[at];
        let Some(object) = &branch.object else { return };
        let is_known = branch.deleted.contains(&uid(object));
        assert!(!is_known || is_terminating(object), "{object} came back\n{}", self.trace.join("\n"));
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
        panic!("the branches keep making commits\n{}", self.trace.join("\n"));
    }
}

/// Generates steps of several branches, each of which may pull from each.
fn steps() -> impl Strategy<Value = (usize, Vec<Step>)> {
    (2..5_usize).prop_flat_map(|branches| {
        let step = prop_oneof![
            4 => (0..branches).prop_map(Step::Change),
            1 => (0..branches, 0..3_u8).prop_map(|(at, name)| Step::AddFinalizer(at, name)),
            1 => (0..branches).prop_map(Step::RemoveFinalizer),
            2 => (0..branches).prop_map(Step::Delete),
            6 => (0..branches, 1..branches).prop_map(move |(at, next)| Step::Pull(at, (at + next) % branches)),
        ];
        (Just(branches), prop::collection::vec(step, 1..12 * branches))
    })
}

fn run(branches: usize, steps: &[Step]) {
    let folder = tempfile::tempdir().unwrap();
    let repository = Repository::init_bare(folder.path()).unwrap();
    let head = commit(&repository, None, 1000, &[], "root");
    let branch = Branch { head, object: None, deleted: BTreeSet::new(), left: BTreeMap::new() };
    let mut model = Model { repository: &repository, branches: vec![branch; branches], time: 2000, trace: Vec::new() };
    for step in steps {
        match step {
            Step::Pull(at, from) => model.pull(*at, *from, false),
            Step::Change(at) | Step::AddFinalizer(at, _) | Step::RemoveFinalizer(at) | Step::Delete(at) => {
                model.request(*at, step);
            }
        }
    }
    model.settle();
    for at in 0..branches {
        assert_eq!(model.branches[at].object, model.branches[0].object, "{}", model.trace.join("\n"));
        model.nothing_deleted_is_alive(at);
    }
}

/// Two branches create objects of one name. A merge drops one of the two while it is terminating. A branch that has it from
/// before its deletion does not bring it back.
#[test]
fn an_object_that_was_dropped_while_terminating_stays_deleted() {
    use Step::{AddFinalizer, Change, Delete, Pull};
    let steps =
        [Change(2), Pull(3, 2), Change(0), Delete(3), AddFinalizer(0, 0), Pull(3, 0), Change(0), Change(0), Delete(0)];
    run(4, &steps);
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(cases()))]

    #[test]
    fn a_deleted_key_stays_deleted((branches, steps) in steps()) {
        run(branches, &steps);
    }
}

/// Returns the number of cases: `GITCD_MODEL_CASES`, for long runs.
fn cases() -> u32 {
    std::env::var("GITCD_MODEL_CASES").ok().and_then(|text| text.parse().ok()).unwrap_or(128)
}
