//! Branches that merge only a part of others.

use gitcd::pull::remote::Remote;
use gitcd::scope::Scope;

use crate::world::{Branch, remote};

const PODS: &str = "^/registry/pods/";
const POD: &str = "/registry/pods/n/p";
const SECRET: &str = "/registry/secrets/n/s";

fn part(name: &str, include: &str) -> Remote {
    Remote { scope: Scope::new(include, "").unwrap(), ..remote(name) }
}

async fn branches<const N: usize>() -> [Branch; N] {
    let mut branches = Vec::new();
    for number in 0..N {
        branches.push(Branch::new(&format!("b{number}")).await);
    }
    branches.try_into().ok().expect("N branches were created")
}

#[tokio::test(flavor = "multi_thread")]
async fn what_was_left_out_once_stays_left_out_though_nothing_else_has_to_be() {
    let [mut part_of_it, mut whole] = branches().await;
    part_of_it.follow(&whole, part("whole", PODS));
    whole.follow(&part_of_it, remote("part"));
    part_of_it.restart().await;
    whole.restart().await;
    whole.put(SECRET, "text").await;
    whole.put(POD, "1").await;
    whole.commit().await;
    part_of_it.pull().await;
    // Only a key within the scope changes now.
    whole.put(POD, "2").await;
    whole.commit().await;
    part_of_it.pull().await;
    assert_eq!((part_of_it.get(POD).as_deref(), part_of_it.get(SECRET)), (Some("2"), None));
    part_of_it.put("/registry/pods/n/q", "1").await;
    part_of_it.commit().await;
    whole.pull().await;
    assert_eq!(whole.get(SECRET).as_deref(), Some("text"), "outside the scope, so its absence is no deletion");
    assert_eq!(whole.get("/registry/pods/n/q").as_deref(), Some("1"));
}

#[tokio::test(flavor = "multi_thread")]
async fn what_one_way_leaves_out_comes_by_another() {
    let [mut taker, mut middle, origin] = branches().await;
    middle.follow(&origin, remote("origin"));
    taker.follow(&middle, part("middle", PODS));
    taker.follow(&origin, remote("origin"));
    middle.restart().await;
    taker.restart().await;
    origin.put(SECRET, "1").await;
    origin.put(POD, "1").await;
    origin.commit().await;
    middle.pull().await;
    middle.put(POD, "2").await;
    middle.commit().await;
    let [from_middle, from_origin] = [0, 1].map(|at| taker.config.pull.remotes[at].clone());
    let puller = taker.server().puller().clone();
    puller.pull(&from_middle).await.unwrap();
    assert_eq!(taker.get(SECRET), None);
    // The origin's commit is already in the history, through the middle branch.
    puller.pull(&from_origin).await.unwrap();
    assert_eq!(taker.get(SECRET).as_deref(), Some("1"));
    assert_eq!(taker.get(POD).as_deref(), Some("2"));
    let head = taker.commit().await;
    puller.pull(&from_origin).await.unwrap();
    puller.pull(&from_middle).await.unwrap();
    assert_eq!(taker.commit().await, head, "no new commit");

    origin.put(SECRET, "2").await;
    origin.commit().await;
    puller.pull(&from_origin).await.unwrap();
    assert_eq!(taker.get(SECRET).as_deref(), Some("2"), "a plain change, no conflict");
    assert_eq!(puller.statuses().all()["origin"].conflicts, 0);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_ring_whose_branches_take_different_parts_comes_to_rest() {
    let [mut one, mut two, mut three] = branches().await;
    one.follow(&two, part("next", PODS));
    two.follow(&three, remote("next"));
    three.follow(&one, part("next", "^/registry/(pods|secrets)/"));
    for branch in [&mut one, &mut two, &mut three] {
        branch.restart().await;
    }
    one.put(SECRET, "1").await;
    two.put(POD, "2").await;
    three.put("/registry/configmaps/n/c", "3").await;
    for branch in [&one, &two, &three] {
        branch.commit().await;
    }
    let mut heads = Vec::new();
    for _ in 0..12 {
        for branch in [&one, &two, &three] {
            branch.pull().await;
        }
        heads.push([one.head(), two.head(), three.head()]);
    }
    assert_eq!(heads[10], heads[11], "the ring keeps making commits: {heads:?}");
    for branch in [&one, &two, &three] {
        assert_eq!(branch.get(POD).as_deref(), Some("2"));
    }
    assert_eq!(two.get(SECRET).as_deref(), Some("1"));
    assert_eq!(one.get("/registry/configmaps/n/c"), None);
    // A pull without changes within the scope counts as caught up.
    let status = one.server().puller().statuses().all()["next"].clone();
    assert_eq!(status.merged, status.seen);
}
