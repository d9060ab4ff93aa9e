//! Three branches, each of which merges the other two.

use crate::world::{Branch, remote};

const KEY: &str = "/registry/configmaps/n/a";
const NAMES: [&str; 3] = ["one", "two", "three"];

fn map(x: u8) -> String {
    format!(
        "{{\"kind\":\"ConfigMap\",\"apiVersion\":\"v1\",\"metadata\":{{\"name\":\"a\",\"namespace\":\"n\",\"uid\":\"a\"}},\"data\":{{\"x\":\"{x}\"}}}}\n"
    )
}

async fn mesh() -> Vec<Branch> {
    let mut branches = Vec::new();
    for name in NAMES {
        branches.push(Branch::new(name).await);
    }
    for own in 0..NAMES.len() {
        for other in (0..NAMES.len()).filter(|other| *other != own) {
            let [follower, source] = branches.get_disjoint_mut([own, other]).unwrap();
            follower.follow(source, remote(NAMES[other]));
        }
        branches[own].restart().await;
    }
    branches
}

/// Pulls until all heads are equal.
async fn settle(branches: &[Branch]) {
    for _ in 0..20 {
        for branch in branches {
            let puller = branch.server().puller().clone();
            for remote in puller.remotes() {
                puller.pull_impatiently(remote).await.unwrap();
            }
        }
        if branches.iter().all(|branch| branch.head() == branches[0].head()) {
            return;
        }
    }
    panic!("the branches do not converge");
}

#[tokio::test(flavor = "multi_thread")]
async fn who_leaves_joins_to_several_others_knows_of_all_of_them() {
    let mut branches = mesh().await;
    branches[0].put(KEY, &map(1)).await;
    branches[0].commit().await;
    settle(&branches).await;
    for branch in &branches {
        branch.put(KEY, &map(2)).await;
        branch.commit().await;
    }
    branches.sort_by_key(Branch::head);
    let others = [branches[0].head(), branches[1].head()];
    let last = &branches[2];
    let before = last.head();
    last.pull().await;
    assert_eq!(last.head(), before, "it leaves both merges to the others");

    last.put(KEY, &map(1)).await;
    last.commit().await;
    let repository = git2::Repository::open(last.path()).unwrap();
    for other in others {
        assert!(
            repository.graph_descendant_of(last.head(), other).unwrap(),
            "{other}, which the writer had fetched, is not an ancestor"
        );
    }
    settle(&branches).await;
    for branch in &branches {
        assert_eq!(branch.get(KEY), Some(map(1)));
    }
}
