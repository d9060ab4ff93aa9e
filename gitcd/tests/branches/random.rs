//! Random graphs of branches with random edits, restarts and kills: all converge, lose nothing that did not conflict, and then
//! stop making commits.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use gitcd::merge::Policy;
use gitcd::pull::remote::Remote;
use gitcd::scope::Scope;
use proptest::prelude::*;

use crate::process::{Client, Process};
use crate::watcher::Watcher;
use crate::world::{Branch, remote};

const OBJECTS: usize = 4;

/// Which branches pull from which.
#[derive(Clone, Copy, Debug)]
enum Shape {
    /// All others from the first, and the first from all others.
    Star,
    /// Each from its neighbours.
    Chain,
    /// Each from the next.
    Ring,
    /// Each from all others.
    Mesh,
}

#[derive(Clone, Debug)]
enum Step {
    /// Sets a field that only this branch sets.
    Own {
        branch: usize,
        object: usize,
        value: u8,
    },
    /// Sets a field that all branches set.
    Shared {
        branch: usize,
        object: usize,
        value: u8,
    },
    /// Deletes a whole object.
    Delete {
        branch: usize,
        object: usize,
    },
    Pull {
        branch: usize,
    },
    Restart {
        branch: usize,
    },
    /// Edits while the server merges, then SIGKILL once the last write to this branch's own fields is acknowledged.
    Kill {
        branch: usize,
        edits: Vec<(usize, u8)>,
        /// Waits with the SIGKILL until one of the writes is committed to Git.
        committed: bool,
    },
    /// Cuts a branch off from all others, until `Mend`.
    Cut {
        branch: usize,
    },
    Mend,
}

fn step() -> impl Strategy<Value = Step> {
    let (branch, object, value) = (0..8_usize, 0..OBJECTS, any::<u8>());
    prop_oneof![
        8 => (branch.clone(), object.clone(), value).prop_map(|(branch, object, value)| Step::Own { branch, object, value }),
        6 => (branch.clone(), object.clone(), value).prop_map(|(branch, object, value)| Step::Shared { branch, object, value }),
        2 => (branch.clone(), object.clone()).prop_map(|(branch, object)| Step::Delete { branch, object }),
        10 => branch.clone().prop_map(|branch| Step::Pull { branch }),
        1 => branch.clone().prop_map(|branch| Step::Restart { branch }),
        1 => (branch.clone(), proptest::collection::vec((object, value), 1..6), any::<bool>())
            .prop_map(|(branch, edits, committed)| Step::Kill { branch, edits, committed }),
        2 => branch.prop_map(|branch| Step::Cut { branch }),
        2 => Just(Step::Mend),
    ]
}

fn neighbours(shape: Shape, branches: usize) -> Vec<Vec<usize>> {
    let all = 0..branches;
    all.clone()
        .map(|own| {
            let mut others: Vec<usize> = match shape {
                Shape::Star if own == 0 => all.clone().collect(),
                Shape::Star => vec![0],
                Shape::Chain => all.clone().filter(|other| own.abs_diff(*other) == 1).collect(),
                Shape::Ring => vec![(own + 1) % branches],
                Shape::Mesh => all.clone().collect(),
            };
            others.retain(|other| *other != own);
            others
        })
        .collect()
}

fn key(object: usize) -> String {
    format!("/registry/configmaps/n/o{object}")
}

/// The object's value as the branch sees it, with one field changed.
fn edited(before: Option<String>, object: usize, field: &str, value: u8) -> String {
    let mut json: serde_json::Value = before.map_or_else(
        || {
            serde_json::json!({"kind": "ConfigMap", "apiVersion": "v1",
                "metadata": {"name": format!("o{object}"), "namespace": "n", "uid": format!("u{object}")}, "data": {}})
        },
        |before| serde_json::from_str(&before).expect("stored values are objects, never conflict markers"),
    );
    json["data"][field] = value.to_string().into();
    json.to_string() + "\n"
}

/// The scopes that a branch may have for another: include and exclude expressions.
const FILTERS: [[&str; 2]; 4] = [[".*", "^$"], ["/o[01]$", "^$"], [".*", "/o[12]$"], ["/o[0-2]$", "/o0$"]];

/// The filter that each follower has for each other branch.
#[derive(Clone, Debug)]
struct Filters(Vec<usize>);

impl Filters {
    fn scope(&self, own: usize, other: usize) -> Scope {
        let [include, exclude] = self.expressions(own, other);
        Scope::new(include, exclude).unwrap()
    }

    fn expressions(&self, own: usize, other: usize) -> [&'static str; 2] {
        FILTERS[self.0[(own * 8 + other) % self.0.len()]]
    }
}

fn filters() -> impl Strategy<Value = Filters> {
    prop_oneof![
        2 => Just(Filters(vec![0])),
        3 => proptest::collection::vec(0..FILTERS.len(), 64).prop_map(Filters),
    ]
}

struct World {
    branches: Vec<Branch>,
    /// The branches that each branch follows, with their scopes.
    takes: Vec<Vec<(usize, Scope)>>,
    filters: Filters,
    watchers: Vec<Watcher>,
    cut: Vec<bool>,
    /// The last value of each field that only one branch sets; keyed by branch and object.
    own: BTreeMap<(usize, usize), Option<u8>>,
    /// Objects that were deleted on some branch: a deletion may win over changes to their fields.
    deleted: Vec<usize>,
    /// Branches that were killed at least once.
    killed: BTreeSet<usize>,
}

impl World {
    async fn new(shape: Shape, count: usize, policy: Policy, filters: &Filters) -> Self {
        let mut branches = Vec::new();
        for number in 0..count {
            branches.push(Branch::new(&format!("b{number}")).await);
        }
        let mut takes = vec![Vec::new(); count];
        for (own, others) in neighbours(shape, count).into_iter().enumerate() {
            for other in others {
                let scope = filters.scope(own, other);
                takes[own].push((other, scope.clone()));
                let (low, high) = branches.split_at_mut(own.max(other));
                let (follower, other_branch) =
                    if own < other { (&mut low[own], &high[0]) } else { (&mut high[0], &low[other]) };
                // With a fixed winner, the branch with the greater number wins on both sides.
                let policy = match policy {
                    Policy::Later => Policy::Later,
                    _ if own > other => Policy::Ours,
                    _ => Policy::Theirs,
                };
                follower.follow(other_branch, Remote { policy, scope, ..remote(&format!("b{other}")) });
            }
        }
        for branch in &mut branches {
            branch.restart().await;
        }
        let watchers = branches.iter().map(|branch| Watcher::new(branch.address())).collect();
        let (own, deleted, killed) = (BTreeMap::new(), Vec::new(), BTreeSet::new());
        let (cut, filters) = (vec![false; count], filters.clone());
        Self { branches, takes, filters, watchers, cut, own, deleted, killed }
    }

    /// Whether an object can reach `to` from `from`, through any branches.
    fn gets(&self, from: usize, to: usize, object: usize) -> bool {
        let key = key(object);
        let (mut reached, mut next) = (vec![to], vec![to]);
        while let Some(at) = next.pop() {
            for (other, scope) in &self.takes[at] {
                if scope.covers(key.as_bytes()) && !reached.contains(other) {
                    reached.push(*other);
                    next.push(*other);
                }
            }
        }
        reached.contains(&from)
    }

    async fn step(&mut self, step: &Step) {
        let count = self.branches.len();
        match *step {
            Step::Kill { branch, ref edits, committed } => self.kill(branch % count, edits, committed).await,
            Step::Own { branch, object, value } => {
                let (branch, number) = (&self.branches[branch % count], branch % count);
                let value_now = edited(branch.get(&key(object)), object, &format!("of{number}"), value);
                branch.put(&key(object), &value_now).await;
                self.own.insert((number, object), Some(value));
            }
            Step::Shared { branch, object, value } => {
                let branch = &self.branches[branch % count];
                let value_now = edited(branch.get(&key(object)), object, "shared", value % 3);
                branch.put(&key(object), &value_now).await;
            }
            Step::Delete { branch, object } => {
                self.branches[branch % count].delete(&key(object)).await;
                self.deleted.push(object);
            }
            Step::Pull { branch } => self.pull(branch % count).await,
            Step::Restart { branch } => self.branches[branch % count].restart().await,
            Step::Cut { branch } => self.cut[branch % count] = true,
            Step::Mend => self.cut.fill(false),
        }
    }

    /// Serves the branch from a separate process, which merges and accepts edits until it is killed.
    async fn kill(&mut self, number: usize, edits: &[(usize, u8)], committed: bool) {
        self.branches[number].stop().await;
        let branch = &self.branches[number];
        let before = branch.head();
        let remotes = branch.config.pull.remotes.iter().filter_map(|remote| {
            let other: usize = remote.name[1..].parse().unwrap();
            (!self.cut[number] && !self.cut[other]).then(|| (remote, self.filters.expressions(number, other)))
        });
        let mut process = Process::start(branch, &remotes.collect::<Vec<_>>());
        let mut client = process.client().await;
        // Writes in flight during the kill. They set the shared field, so the test does not check their outcome.
        let shared = |mut client: Client, (object, value): (usize, u8)| async move {
            client.edit(&key(object), |before| edited(before, object, "shared", value % 3)).await
        };
        let mut under_way = Vec::new();
        for (object, value) in edits.iter().copied() {
            let field = format!("of{number}");
            client.edit(&key(object), |before| edited(before, object, &field, value)).await.unwrap();
            self.own.insert((number, object), Some(value));
            under_way.push(tokio::spawn(shared(client.clone(), (object, value))));
        }
        // An edit that changes nothing makes no commit, so stop waiting after a while: this only chooses when to kill.
        for _ in 0..if committed { 50 } else { 0 } {
            if branch.head() != before {
                break;
            }
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
        drop(process);
        for written in under_way {
            // Acknowledged or not.
            drop(written.await.unwrap());
        }
        self.killed.insert(number);
        self.branches[number].start().await;
        self.has_what_it_set(number);
    }

    /// Asserts that a branch still has all values that only it sets, except in deleted objects.
    fn has_what_it_set(&self, number: usize) {
        let content = self.branches[number].content();
        for ((_, object), value) in self.own.iter().filter(|((own, _), _)| *own == number) {
            let Some(value) = value.filter(|_| !self.deleted.contains(object)) else { continue };
            let text = content.get(&key(*object));
            let text = text.unwrap_or_else(|| panic!("the kill of branch {number} lost object {object}: {content:?}"));
            let json: serde_json::Value = serde_json::from_str(text).unwrap();
            assert_eq!(
                json["data"][format!("of{number}")],
                value.to_string(),
                "acknowledged before branch {number} was killed"
            );
        }
    }

    async fn pull(&self, number: usize) {
        self.pull_how(number, false).await;
    }

    async fn pull_how(&self, number: usize, impatiently: bool) {
        let branch = &self.branches[number];
        branch.commit().await;
        let puller = branch.server().puller().clone();
        for remote in puller.remotes() {
            let other: usize = remote.name[1..].parse().unwrap();
            if !self.cut[number] && !self.cut[other] {
                let done = if impatiently { puller.pull_impatiently(remote).await } else { puller.pull(remote).await };
                if let Err(error) = done {
                    let fsck = std::process::Command::new("git").arg("-C").arg(branch.path()).arg("fsck").output();
                    panic!("branch {number} pulls from {}: {error}; git fsck: {fsck:?}", remote.name);
                }
            }
        }
    }

    /// Pulls until no branch makes a new commit; panics after a bounded number of rounds.
    async fn settle(&mut self) {
        self.cut.fill(false);
        for branch in &self.branches {
            branch.commit().await;
        }
        let heads = |world: &Self| world.branches.iter().map(Branch::head).collect::<Vec<_>>();
        let bound = 6 * self.branches.len() + 12;
        for _ in 0..bound {
            let before = heads(self);
            for number in 0..self.branches.len() {
                self.pull(number).await;
            }
            let after = heads(self);
            if before != after {
                continue;
            }
            // Branches may leave a merge to one another. In a server the shortest patience ends that; here the first branch
            // merges.
            for number in 0..self.branches.len() {
                self.pull_how(number, true).await;
                if heads(self) != after {
                    break;
                }
            }
            if heads(self) == after {
                return;
            }
        }
        panic!("still making commits after {bound} rounds");
    }
}

async fn run(shape: Shape, count: usize, policy: Policy, filters: &Filters, steps: Vec<Step>) {
    let mut world = World::new(shape, count, policy, filters).await;
    for step in &steps {
        world.step(step).await;
    }
    world.settle().await;
    let contents: Vec<_> = world.branches.iter().map(Branch::content).collect();
    for one in 0..count {
        for other in 0..one {
            for object in 0..OBJECTS {
                if world.gets(one, other, object) && world.gets(other, one, object) {
                    let (here, there) = (contents[one].get(&key(object)), contents[other].get(&key(object)));
                    assert_eq!(here, there, "object {object} of branches {one} and {other}");
                }
            }
        }
    }
    if world.takes.iter().flatten().all(|(_, scope)| scope.is_everything()) {
        for branch in &world.branches {
            assert_eq!(branch.tree(), world.branches[0].tree());
        }
    }
    for (branch, watcher) in world.branches.iter().zip(&world.watchers) {
        let revision = branch.server().store().revision().get();
        assert_eq!(
            watcher.reached(revision).await,
            branch.content(),
            "content that the watcher of {} has seen",
            branch.config.branch.name
        );
    }
    for ((number, object), value) in &world.own {
        let Some(value) = value else { continue };
        if world.deleted.contains(object) {
            continue;
        }
        for (to, content) in contents.iter().enumerate().filter(|(to, _)| world.gets(*number, *to, *object)) {
            let Some(text) = content.get(&key(*object)) else {
                let have: Vec<_> = contents.iter().map(|content| content.get(&key(*object))).collect();
                panic!("object {object} of branch {number} is missing on {to}: {have:?}");
            };
            let json: serde_json::Value = serde_json::from_str(text).unwrap();
            let found = &json["data"][format!("of{number}")];
            assert_eq!(
                *found,
                value.to_string(),
                "field that only branch {number} sets on object {object}, read on {to}"
            );
        }
    }
    for branch in &mut world.branches {
        branch.stop().await;
    }
    for number in &world.killed {
        let fsck = std::process::Command::new("git")
            .arg("-C")
            .arg(world.branches[*number].path())
            .args(["fsck", "--full", "--strict"])
            .output()
            .unwrap();
        assert!(fsck.status.success(), "branch {number} was killed: {fsck:?}");
    }
}

/// Mostly few branches: many take seconds to settle.
fn counts() -> impl Strategy<Value = usize> {
    prop_oneof![5 => 2..5_usize, 1 => 5..9_usize]
}

fn shapes() -> impl Strategy<Value = Shape> {
    prop_oneof![Just(Shape::Star), Just(Shape::Chain), Just(Shape::Ring), Just(Shape::Mesh)]
}

proptest! {
    #![proptest_config(ProptestConfig { cases: cases(), max_shrink_iters: shrinks(), ..ProptestConfig::default() })]

    #[test]
    fn all_branches_come_to_the_same_and_are_quiet(
        shape in shapes(),
        count in counts(),
        filters in filters(),
        explicit in any::<bool>(),
        steps in proptest::collection::vec(step(), 1..40),
    ) {
        let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap();
        let policy = if explicit { Policy::Ours } else { Policy::Later };
        runtime.block_on(run(shape, count, policy, &filters, steps));
    }
}

/// `GITCD_BRANCHES_CASES` sets the number of cases, for a long run.
fn cases() -> u32 {
    std::env::var("GITCD_BRANCHES_CASES").ok().and_then(|text| text.parse().ok()).unwrap_or(12)
}

/// `GITCD_BRANCHES_SHRINKS` allows that many shrink steps, which may take minutes.
fn shrinks() -> u32 {
    std::env::var("GITCD_BRANCHES_SHRINKS").ok().and_then(|text| text.parse().ok()).unwrap_or(0)
}
