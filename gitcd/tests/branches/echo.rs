//! When what came from a remote goes back there, and what remotes of one repository spare one another.

use std::time::{Duration, Instant};

use git2::{Oid, Repository};
use gitcd::pull::remote::Remote;

use crate::world::{Branch, remote};

/// Nothing takes longer on a busy machine.
const PATIENCE: Duration = Duration::from_secs(30);
const NEVER: Duration = Duration::from_hours(1);

fn key(number: usize) -> String {
    format!("/registry/configmaps/n/k{number}")
}

fn map(number: usize) -> String {
    format!(
        "{{\"kind\":\"ConfigMap\",\"apiVersion\":\"v1\",\"metadata\":{{\"name\":\"k{number}\",\"namespace\":\"n\",\"uid\":\"{number}\"}}}}\n"
    )
}

async fn eventually(what: &str, is_so: impl Fn() -> bool) {
    let start = Instant::now();
    while !is_so() {
        assert!(start.elapsed() < PATIENCE, "{what} takes longer than {PATIENCE:?}");
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
}

/// Where a branch is in the repository of another one.
fn there(repository: &Branch, branch: &str) -> Option<Oid> {
    Repository::open(repository.path()).unwrap().refname_to_id(&format!("refs/heads/{branch}")).ok()
}

/// Follows the other one without being asked, and pushes there.
async fn followed(branch: &mut Branch, other: &Branch, echoes_after: Option<Duration>) {
    branch.follow(other, Remote { push_after_merge: true, ..remote("up") });
    branch.config.pull.interval = Some(NEVER);
    branch.config.pull.echoes_after = echoes_after;
    branch.config.committer.flush_interval = Some(Duration::from_millis(20));
    branch.restart().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn what_came_from_there_goes_back_with_something_of_ours_or_when_nothing_more_comes() {
    let (up, mut one) = (Branch::new("up").await, Branch::at("one", "one").await);
    followed(&mut one, &up, Some(NEVER)).await;
    let merges = || one.server().puller().statuses().all()["up"].merges;
    eventually("one history", || merges() > 0 && there(&up, "one") == Some(one.head())).await;
    take_in(&up, &one).await;
    up.put(&key(0), &map(0)).await;
    up.commit().await;
    eventually("the first change", || one.head() == up.head()).await;
    one.put(&key(1), &map(1)).await;
    one.commit().await;
    eventually("a push of both", || there(&up, "one") == Some(one.head())).await;
    let pushed = there(&up, "one");
    for number in 2..6 {
        take_in(&up, &one).await;
        up.put(&key(number), &map(number)).await;
        up.commit().await;
        eventually("a change", || one.get(&key(number)).is_some() && one.head() == up.head()).await;
        assert_eq!(there(&up, "one"), pushed, "there is nothing in it that is not there");
    }
    one.put(&key(6), &map(6)).await;
    one.commit().await;
    eventually("a push of our own", || there(&up, "one") == Some(one.head())).await;

    one.config.pull.echoes_after = Some(Duration::from_millis(10));
    one.restart().await;
    take_in(&up, &one).await;
    up.put(&key(7), &map(7)).await;
    up.commit().await;
    eventually("the echo", || there(&up, "one") == Some(up.head())).await;
    assert_eq!(one.head(), up.head());
}

/// As whoever follows both does: what comes after it can become the other's.
async fn take_in(up: &Branch, one: &Branch) {
    let how = gitcd::pull::How {
        policy: gitcd::merge::Policy::Later,
        scope: gitcd::merge::scope::Scope::default(),
        fast_forward: true,
        impatient: true,
        histories: gitcd::pull::Histories::Now,
        on_top_of: None,
        strict: false,
        by: "up".into(),
    };
    up.server().puller().joiner().join(one.head(), &how).await.unwrap();
    eventually("what is there to be known", || up.head() == one.head()).await;
}

/// As an `AutomatedMerge`: its remotes are branches of one repository, which gets their merge.
#[tokio::test(flavor = "multi_thread")]
async fn of_remotes_of_one_repository_each_knows_what_another_one_has_brought() {
    let (mut merge, mut source) = (Branch::at("merge", "merge").await, Branch::new("source").await);
    source.config.committer.flush_interval = Some(Duration::from_millis(20));
    source.restart().await;
    source.put(&key(0), &map(0)).await;
    let head = source.commit().await;
    let repository = Repository::open(source.path()).unwrap();
    repository.reference("refs/heads/still", head, false, "").unwrap();
    for (name, branch) in [("main", "main"), ("still", "still")] {
        let reference = format!("refs/heads/{branch}");
        merge.follow(&source, Remote { push_after_merge: true, data_reference: reference, ..remote(name) });
    }
    merge.config.pull.interval = Some(NEVER);
    merge.restart().await;
    for number in 1..6 {
        source.put(&key(number), &map(number)).await;
        source.commit().await;
        let is_there = || merge.get(&key(number)).is_some() && there(&source, "merge") == Some(merge.head());
        eventually("the merge to get there", is_there).await;
        let pushed = |name: &str| merge.server().puller().statuses().all()[name].pushed.clone();
        let told = || ["main", "still"].iter().all(|name| pushed(name) == Some(merge.head().to_string()));
        eventually("both to be told of it", told).await;
    }
}

/// Where a branch is missing ours is pushed all the same, once.
#[tokio::test(flavor = "multi_thread")]
async fn a_branch_that_is_missing_is_not_looked_for_all_the_time() {
    let (mut up, mut one) = (Branch::new("up").await, Branch::at("one", "one").await);
    up.stop().await;
    up.empty();
    one.follow(&up, Remote { push_after_merge: true, push_on_pull_failure: true, ..remote("up") });
    one.config.pull.interval = Some(NEVER);
    one.restart().await;
    eventually("the push", || there(&up, "one") == Some(one.head())).await;
    let failures = || one.server().puller().statuses().all()["up"].failures;
    eventually("the failed pull", || failures() > 0).await;
    tokio::time::sleep(Duration::from_millis(500)).await;
    assert!(failures() <= 3, "in half a second {} attempts", failures());
    one.put(&key(0), &map(0)).await;
    one.commit().await;
    eventually("the push of what is written", || there(&up, "one") == Some(one.head())).await;
}
