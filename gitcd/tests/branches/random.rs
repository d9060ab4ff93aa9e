//! Random graphs of branches with random edits: all reach the same, nothing that did not conflict is lost, and then all is quiet.

use std::collections::BTreeMap;

use gitcd::merge::Policy;
use gitcd::merge::scope::Scope;
use gitcd::pull::remote::Remote;
use proptest::prelude::*;

use crate::watcher::Watcher;
use crate::world::{Branch, remote};

/// Who pulls from whom.
#[derive(Clone, Copy, Debug)]
enum Shape {
    /// Everyone from the first, and it from everyone.
    Star,
    /// Each from its neighbours.
    Chain,
    /// Each from the next.
    Ring,
    /// Everyone from everyone.
    Mesh,
}

#[derive(Clone, Debug)]
enum Step {
    /// A field of an object that only this branch sets.
    Own {
        branch: usize,
        object: usize,
        value: u8,
    },
    /// A field that all set.
    Shared {
        branch: usize,
        object: usize,
        value: u8,
    },
    /// A whole object goes.
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
    /// Some of them cannot reach others for a while.
    Cut {
        branch: usize,
    },
    Mend,
}

fn step() -> impl Strategy<Value = Step> {
    let (branch, object, value) = (0..8_usize, 0..4_usize, any::<u8>());
    prop_oneof![
        4 => (branch.clone(), object.clone(), value).prop_map(|(branch, object, value)| Step::Own { branch, object, value }),
        3 => (branch.clone(), object.clone(), value).prop_map(|(branch, object, value)| Step::Shared { branch, object, value }),
        1 => (branch.clone(), object).prop_map(|(branch, object)| Step::Delete { branch, object }),
        5 => branch.clone().prop_map(|branch| Step::Pull { branch }),
        1 => branch.clone().prop_map(|branch| Step::Restart { branch }),
        1 => branch.prop_map(|branch| Step::Cut { branch }),
        1 => Just(Step::Mend),
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

/// An object as a branch sees it, with one field changed.
fn edited(before: Option<String>, object: usize, field: &str, value: u8) -> String {
    let mut json: serde_json::Value = before.map_or_else(
        || {
            serde_json::json!({"kind": "ConfigMap", "apiVersion": "v1",
                "metadata": {"name": format!("o{object}"), "namespace": "n", "uid": format!("u{object}")}, "data": {}})
        },
        |before| serde_json::from_str(&before).expect("only objects are stored, never marks of a conflict"),
    );
    json["data"][field] = value.to_string().into();
    json.to_string() + "\n"
}

struct World {
    branches: Vec<Branch>,
    watchers: Vec<Watcher>,
    cut: Vec<bool>,
    /// The last value of every field that only one branch sets.
    own: BTreeMap<(usize, usize), Option<u8>>,
    /// Objects that somebody deleted: their fields may be lost to that.
    deleted: Vec<usize>,
}

impl World {
    async fn new(shape: Shape, count: usize, policy: Policy) -> Self {
        let mut branches = Vec::new();
        for number in 0..count {
            branches.push(Branch::new(&format!("b{number}")).await);
        }
        for (own, others) in neighbours(shape, count).into_iter().enumerate() {
            for other in others {
                let (low, high) = branches.split_at_mut(own.max(other));
                let (follower, other_branch) =
                    if own < other { (&mut low[own], &high[0]) } else { (&mut high[0], &low[other]) };
                // Complementary wherever two name a winner: the one with the greater number.
                let policy = match policy {
                    Policy::Later => Policy::Later,
                    _ if own > other => Policy::Ours,
                    _ => Policy::Theirs,
                };
                follower
                    .follow(other_branch, Remote { policy, scope: Scope::default(), ..remote(&format!("b{other}")) });
            }
        }
        for branch in &mut branches {
            branch.restart().await;
        }
        let watchers = branches.iter().map(|branch| Watcher::new(branch.address())).collect();
        Self { cut: vec![false; count], watchers, branches, own: BTreeMap::new(), deleted: Vec::new() }
    }

    async fn step(&mut self, step: &Step) {
        let count = self.branches.len();
        match *step {
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

    async fn pull(&self, number: usize) {
        let branch = &self.branches[number];
        branch.commit().await;
        let puller = branch.server().puller().clone();
        for remote in puller.remotes() {
            let other: usize = remote.name[1..].parse().unwrap();
            if !self.cut[number] && !self.cut[other] {
                puller.pull(remote).await.unwrap();
            }
        }
    }

    /// Pulls until no branch makes a commit any more; fails if that does not come.
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
            if before == after {
                return;
            }
        }
        panic!("commits go on after {bound} rounds");
    }
}

async fn run(shape: Shape, count: usize, policy: Policy, steps: Vec<Step>) {
    let mut world = World::new(shape, count, policy).await;
    for step in &steps {
        world.step(step).await;
    }
    world.settle().await;
    let first = world.branches[0].content();
    for branch in &world.branches {
        assert_eq!(branch.content(), first, "{}", branch.config.branch.name);
        assert_eq!(branch.tree(), world.branches[0].tree());
    }
    for (branch, watcher) in world.branches.iter().zip(&world.watchers) {
        let revision = branch.server().store().revision().get();
        assert_eq!(
            watcher.reached(revision).await,
            branch.content(),
            "as the watchers of {} see it",
            branch.config.branch.name
        );
    }
    for ((number, object), value) in &world.own {
        let Some(value) = value else { continue };
        if world.deleted.contains(object) {
            continue;
        }
        let json: serde_json::Value = serde_json::from_str(&first[&key(*object)]).unwrap();
        assert_eq!(json["data"][format!("of{number}")], value.to_string(), "only branch {number} ever set it");
    }
    for branch in &mut world.branches {
        branch.stop().await;
    }
}

fn shapes() -> impl Strategy<Value = Shape> {
    prop_oneof![Just(Shape::Star), Just(Shape::Chain), Just(Shape::Ring), Just(Shape::Mesh)]
}

proptest! {
    #![proptest_config(ProptestConfig { cases: cases(), max_shrink_iters: shrinks(), ..ProptestConfig::default() })]

    #[test]
    fn all_branches_come_to_the_same_and_are_quiet(
        shape in shapes(),
        count in 2..6_usize,
        explicit in any::<bool>(),
        steps in proptest::collection::vec(step(), 1..40),
    ) {
        let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap();
        let policy = if explicit { Policy::Ours } else { Policy::Later };
        runtime.block_on(run(shape, count, policy, steps));
    }
}

/// `GITCD_BRANCHES_CASES` for a long run.
fn cases() -> u32 {
    std::env::var("GITCD_BRANCHES_CASES").ok().and_then(|text| text.parse().ok()).unwrap_or(12)
}

/// `GITCD_BRANCHES_SHRINKS` for a smaller example of a failure, which may take minutes.
fn shrinks() -> u32 {
    std::env::var("GITCD_BRANCHES_SHRINKS").ok().and_then(|text| text.parse().ok()).unwrap_or(0)
}
