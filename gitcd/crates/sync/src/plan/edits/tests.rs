use git2::{Oid, Repository, Signature, Time};
use gitcd_merge::Outcome;
use gitcd_repo::graph::Graph;
use serde_json::{Value, json};

use crate::plan::{Plan, fixtures};

struct History {
    repository: Repository,
    commits: std::cell::Cell<i64>,
    _folder: tempfile::TempDir,
}

impl History {
    fn new() -> Self {
        let folder = tempfile::tempdir().unwrap();
        let repository = Repository::init_bare(folder.path()).unwrap();
        Self { repository, commits: std::cell::Cell::new(1000), _folder: folder }
    }

    /// Makes a commit as a store does, with this pod or none.
    fn edit(&self, pod: Option<&Value>, parents: &[Oid]) -> Oid {
        self.commit(pod, parents, "update pods\n\nRevision: 7\n")
    }

    /// Makes a merge commit as gitcd does.
    fn merge(&self, pod: Option<&Value>, parents: [Oid; 2]) -> Oid {
        let [one, other] = parents.map(|parent| parent.to_string()[..10].to_owned());
        self.commit(pod, &parents, &format!("merge {one} and {other}\n"))
    }

    fn commit(&self, pod: Option<&Value>, parents: &[Oid], message: &str) -> Oid {
        self.commits.set(self.commits.get() + 1);
        let mut below = self.repository.treebuilder(None).unwrap();
        if let Some(pod) = pod {
            below.insert("p", self.repository.blob(pod.to_string().as_bytes()).unwrap(), 0o100_644).unwrap();
        }
        let mut below = below.write().unwrap();
        for name in ["n", "pods"] {
            let mut tree = self.repository.treebuilder(None).unwrap();
            tree.insert(name, below, 0o040_000).unwrap();
            below = tree.write().unwrap();
        }
        let author = Signature::new("a", "a@b", &Time::new(self.commits.get(), 0)).unwrap();
        let parents: Vec<_> = parents.iter().map(|parent| self.repository.find_commit(*parent).unwrap()).collect();
        let tree = self.repository.find_tree(below).unwrap();
        self.repository.commit(None, &author, &author, message, &tree, &parents.iter().collect::<Vec<_>>()).unwrap()
    }

    fn plan(&self, ours: Oid, theirs: Oid) -> Plan {
        fixtures::merged(&self.repository, &mut Graph::default(), ours, theirs).expect("the commits differ")
    }

    /// Returns the result of a merge, which both sides must compute alike, given each side's commit and value.
    fn both(&self, sides: [(Oid, Option<&Value>); 2]) -> Option<Value> {
        let made = [sides, [sides[1], sides[0]]].map(|[(ours, value), (theirs, _)]| {
            let plan = self.plan(ours, theirs);
            let Some(key) = plan.keys.first() else { return value.cloned() };
            match &key.outcome {
                Outcome::Ours => value.cloned(),
                Outcome::Theirs => key.theirs.as_ref().map(|(value, _)| serde_json::from_slice(value).unwrap()),
                Outcome::New(value) => Some(serde_json::from_slice(value).unwrap()),
                Outcome::Deleted => None,
            }
        });
        assert_eq!(made[0], made[1], "the two sides compute different results");
        let [made, _] = made;
        made
    }
}

fn pod(uid: &str, containers: &[(&str, &str)], phase: &str) -> Value {
    let containers: Vec<_> = containers.iter().map(|(name, image)| json!({"name": name, "image": image})).collect();
    json!({
        "kind": "Pod", "apiVersion": "v1", "metadata": {"name": "p", "namespace": "n", "uid": uid},
        "spec": {"containers": containers}, "status": {"phase": phase},
    })
}

/// Both sides deleted an object, then merged another branch's change of it, which won. The object keeps its unchanged fields.
#[test]
fn overridden_deletions_remove_nothing() {
    let history = History::new();
    let (first, changed) = (pod("u", &[("web", "0")], "0"), pod("u", &[("web", "1")], "0"));
    let root = history.edit(Some(&first), &[]);
    let change = history.edit(Some(&changed), &[root]);
    let deletions = [history.edit(None, &[root]), history.edit(None, &[root])];
    let merges = deletions.map(|deletion| (history.merge(Some(&changed), [deletion, change]), Some(&changed)));
    assert_eq!(history.both(merges), Some(changed.clone()));
}

/// Two branches changed the status of an object that a third one deleted. It stays deleted although neither has seen the
/// other's edit.
#[test]
fn a_key_that_both_sides_deleted_stays_deleted() {
    let history = History::new();
    let root = history.edit(Some(&pod("u", &[("web", "0")], "0")), &[]);
    let deletion = history.edit(None, &[root]);
    let merges = ["1", "2"].map(|phase| {
        let edit = history.edit(Some(&pod("u", &[("web", "0")], phase)), &[root]);
        (history.merge(None, [edit, deletion]), None)
    });
    assert_eq!(history.both(merges), None);
}

/// Two branches wrote to the previous object of the same name.
#[test]
fn writes_to_another_object_of_the_same_name_are_not_merged() {
    let history = History::new();
    let root = history.edit(Some(&pod("u", &[("web", "0")], "0")), &[]);
    let another = pod("v", &[("web", "0")], "0");
    let replaced = history.edit(Some(&another), &[root]);
    let merges = ["1", "2"].map(|phase| {
        let edit = history.edit(Some(&pod("u", &[("web", phase)], phase)), &[root]);
        (history.merge(Some(&another), [edit, replaced]), Some(&another))
    });
    assert_eq!(history.both(merges), Some(another.clone()));
}

/// One side removes an item that it has seen; the other one adds another item.
#[test]
fn lists_that_both_have_edited_are_merged_by_their_items() {
    let history = History::new();
    let of = |containers: &[(&str, &str)]| pod("u", containers, "0");
    let root = history.edit(Some(&of(&[("web", "0")])), &[]);
    let image = history.edit(Some(&of(&[("web", "1")])), &[root]);
    let added = history.edit(Some(&of(&[("web", "0"), ("q", "0")])), &[root]);
    let removed = history.edit(Some(&of(&[("web", "0")])), &[added]);
    let ours = of(&[("web", "1")]);
    let another = history.edit(Some(&of(&[("web", "1"), ("s", "0")])), &[image]);
    let theirs = of(&[("web", "1"), ("q", "0"), ("s", "0")]);
    let sides = [
        (history.merge(Some(&ours), [removed, image]), Some(&ours)),
        (history.merge(Some(&theirs), [another, added]), Some(&theirs)),
    ];
    assert_eq!(history.both(sides), Some(of(&[("web", "1"), ("s", "0")])));
}

/// `git merge -s ours` drops a change. An edit of another field on the other side does not bring it back.
#[test]
fn a_decision_in_an_external_merge_counts() {
    let history = History::new();
    let of = |image: &str, phase: &str| pod("u", &[("web", image)], phase);
    let five = history.edit(Some(&of("5", "0")), &[]);
    let six = history.edit(Some(&of("6", "0")), &[five]);
    let refused = history.commit(Some(&of("5", "0")), &[five, six], "Merge branch 'six'\n");
    let elsewhere = history.edit(Some(&of("6", "1")), &[six]);
    let sides = [(elsewhere, Some(of("6", "1"))), (refused, Some(of("5", "0")))];
    let sides = [(sides[0].0, sides[0].1.as_ref()), (sides[1].0, sides[1].1.as_ref())];
    assert_eq!(history.both(sides), Some(of("5", "1")));
}
