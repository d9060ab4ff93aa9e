//! When a merged remote commit is pushed back (an echo), and which exchanges remotes of one repository skip.

use std::collections::{BTreeMap, BTreeSet};
use std::time::{Duration, Instant};

use git2::{Oid, Repository};
use gitcd::pull::remote::Remote;
use proptest::prelude::*;

use crate::world::{Branch, remote};

/// An upper bound for any wait, even on a busy machine.
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
        assert!(start.elapsed() < PATIENCE, "timed out after {PATIENCE:?} waiting for {what}");
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
}

/// The commit of a branch in another branch's repository.
fn there(repository: &Branch, branch: &str) -> Option<Oid> {
    Repository::open(repository.path()).unwrap().refname_to_id(&format!("refs/heads/{branch}")).ok()
}

/// Follows `other` without polling, and pushes to it.
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
        assert_eq!(there(&up, "one"), pushed, "pushed an echo that contains no commit of our own");
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

/// Merges `one` into `up`, as a server that follows both would: later commits of `up` can then fast-forward `one`.
async fn take_in(up: &Branch, one: &Branch) {
    let options = gitcd::pull::MergeOptions {
        policy: gitcd::merge::Policy::Later,
        scope: gitcd::scope::Scope::default(),
        fast_forward: true,
        impatient: true,
        history_link: gitcd::pull::HistoryLink::Always,
        on_top_of: None,
        strict: false,
        dry_run: gitcd::pull::DryRun::Never,
        provenance: gitcd::pull::Provenance::ByMessage,
        by: "up".into(),
    };
    up.server().puller().merger().merge(one.head(), &options).await.unwrap();
    eventually("the merged head to be noticed", || up.head() == one.head()).await;
}

/// A failing push is not hidden by exchanges that defer the echo: it is reported, retried with backoff, and recovers.
#[tokio::test(flavor = "multi_thread")]
async fn an_echo_that_is_refused_is_a_failure_until_it_is_not() {
    let (up, mut one) = (Branch::new("up").await, Branch::at("one", "team/one").await);
    followed(&mut one, &up, Some(Duration::from_millis(10))).await;
    let status = || one.server().puller().statuses().all()["up"].clone();
    eventually("one history", || status().merges > 0 && there(&up, "team/one") == Some(one.head())).await;
    take_in(&up, &one).await;
    eventually("both to settle", || there(&up, "team/one") == Some(one.head()) && one.head() == up.head()).await;
    // A reference `team` blocks `team/one`: the remote can be read, but its branch cannot be updated.
    let packed = std::process::Command::new("git").arg("-C").arg(up.path()).args(["pack-refs", "--all"]).status();
    assert!(packed.unwrap().success());
    let (folder, head) = (up.path().join("refs/heads/team"), up.head());
    std::fs::remove_dir_all(&folder).ok();
    std::fs::write(&folder, format!("{head}\n")).unwrap();
    up.put(&key(0), &map(0)).await;
    up.commit().await;
    eventually("a failed push", || status().failures > 0).await;
    assert_eq!(one.head(), up.head(), "nothing of our own to push");
    eventually("four failures in a row", || {
        let status = status();
        assert!(status.failures > 0, "reported as healthy: {status:?}");
        status.failures >= 4
    })
    .await;
    std::fs::remove_file(&folder).unwrap();
    eventually("the push", || there(&up, "team/one") == Some(up.head())).await;
    eventually("recovery", || status().failures == 0).await;
}

/// Like an `AutomatedMerge`: its remotes are branches of one repository, which also gets the merge.
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
    let status = |name: &str| merge.server().puller().statuses().all()[name].clone();
    eventually("both remotes to record the push", || {
        ["main", "still"].iter().all(|name| status(name).pushed == Some(merge.head().to_string()))
    })
    .await;
    let (before, rounds) = (status("still").pulls, 12);
    for number in 1..=rounds {
        source.put(&key(number), &map(number)).await;
        source.commit().await;
        let is_there = || merge.get(&key(number)).is_some() && there(&source, "merge") == Some(merge.head());
        eventually("the merge to be pushed", is_there).await;
        let is_recorded = || ["main", "still"].iter().all(|name| status(name).pushed == Some(merge.head().to_string()));
        eventually("both remotes to record the push", is_recorded).await;
    }
    // On a busy machine a remote may miss the notification and fetch by itself.
    let looks = status("still").pulls - before;
    assert!(looks < rounds as u64 / 2, "the unchanged branch was fetched {looks} times");
}

/// One step of the writers.
#[derive(Clone, Copy, Debug)]
enum Step {
    Put { branch: usize, object: usize },
    Restart { branch: usize },
    Pause { millis: u64 },
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        12 => (0..3_usize, 0..4_usize).prop_map(|(branch, object)| Step::Put { branch, object }),
        1 => (0..4_usize).prop_map(|branch| Step::Restart { branch }),
        6 => (0..60_u64).prop_map(|millis| Step::Pause { millis }),
    ]
}

/// Nothing polls here, so a skipped exchange that was needed would be missed for good.
#[test]
fn whoever_follows_others_has_all_soon_whatever_was_spared() {
    let settings =
        ProptestConfig { cases: 4, max_shrink_iters: 8, failure_persistence: None, ..ProptestConfig::default() };
    proptest!(settings, |(steps in proptest::collection::vec(step(), 40..80))| {
        let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap();
        runtime.block_on(star(&steps));
    });
}

/// Three written branches and a merge of them, which each follows; all four push to one repository.
async fn star(steps: &[Step]) {
    let mut up = Branch::new("up").await;
    up.stop().await;
    up.empty();
    let names = ["a", "b", "c"];
    let of = |name: &str, branch: &str| Remote {
        push_after_merge: true,
        push_on_pull_failure: true,
        data_reference: format!("refs/heads/{branch}"),
        ..remote(name)
    };
    let mut branches = Vec::new();
    for name in names {
        let mut branch = Branch::at(name, name).await;
        branch.follow(&up, of("up", "cluster"));
        branch.config.pull.echoes_after = Some(Duration::from_millis(100));
        branches.push(branch);
    }
    let mut merge = Branch::at("cluster", "cluster").await;
    names.iter().for_each(|name| merge.follow(&up, of(name, name)));
    branches.push(merge);
    for branch in &mut branches {
        branch.config.pull.interval = Some(NEVER);
        branch.config.committer.flush_interval = Some(Duration::from_millis(20));
        branch.restart().await;
    }
    let mut written = BTreeMap::new();
    for (number, step) in steps.iter().enumerate() {
        match *step {
            Step::Put { branch, object } => {
                let key = format!("/registry/things/n/{branch}-{object}");
                branches[branch].put(&key, &number.to_string()).await;
                written.insert(key, number.to_string());
            }
            Step::Restart { branch } => branches[branch].restart().await,
            Step::Pause { millis } => tokio::time::sleep(Duration::from_millis(millis)).await,
        }
    }
    eventually("all branches to converge", || {
        let heads: BTreeSet<_> = branches.iter().map(Branch::head).collect();
        let is_at = |branch: &&str| there(&up, branch).is_some_and(|id| heads.contains(&id));
        heads.len() == 1
            && names.iter().chain(&["cluster"]).all(is_at)
            && branches.iter().all(|branch| branch.content() == written)
    })
    .await;
    for branch in &mut branches {
        branch.stop().await;
    }
}

/// A branch missing from the remote does not block our push, and is not fetched in a loop.
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
    // Counts attempts over a fixed time: the absence of further attempts cannot be awaited.
    tokio::time::sleep(Duration::from_millis(500)).await;
    assert!(failures() <= 3, "{} attempts in half a second", failures());
    one.put(&key(0), &map(0)).await;
    one.commit().await;
    eventually("the push of the new write", || there(&up, "one") == Some(one.head())).await;
}
