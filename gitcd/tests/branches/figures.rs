//! Latency of a write's propagation to another branch. Prints measurements; asserts only that all writes arrive.

use std::sync::Arc;
use std::time::{Duration, Instant};

use gitcd::pull::remote::Remote;
use parking_lot::Mutex;

use crate::world::{Branch, remote};

/// Both push to one branch that has no server.
#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
#[ignore = "prints measurements; run it with --ignored --nocapture"]
async fn a_write_reaches_the_other_branch_through_a_branch_that_both_push_to() {
    let (mut one, mut other, mut upstream) =
        (Branch::new("one").await, Branch::new("other").await, Branch::new("up").await);
    upstream.stop().await;
    for branch in [&mut one, &mut other] {
        branch.follow(&upstream, Remote { push_after_merge: true, ..remote("up") });
        followed(branch).await;
    }
    propagation(one, other).await;
}

/// The same through a Git host, over HTTP.
#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
#[ignore = "prints measurements; run it with --ignored --nocapture"]
async fn a_write_reaches_the_other_branch_through_a_git_host() {
    let (mut one, mut other) = (Branch::new("one").await, Branch::new("other").await);
    let root = tempfile::tempdir().unwrap();
    git2::Repository::init_bare(root.path().join("up.git")).unwrap();
    let config =
        gitcd::host::Config { anonymous: Some(gitcd::host::Access::Own), ..gitcd::host::Config::new(root.path()) };
    let host = gitcd::host::Host::start(config).await.unwrap();
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("http://{}/up.git", listener.local_addr().unwrap());
    let serving = tokio::spawn(async move { axum::serve(listener, host.router()).await });
    for branch in [&mut one, &mut other] {
        branch.follow_url(&url, Remote { push_after_merge: true, ..remote("up") });
        followed(branch).await;
    }
    propagation(one, other).await;
    serving.abort();
}

/// An upstream server pulls from both, and both pull from it.
#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
#[ignore = "prints measurements; run it with --ignored --nocapture"]
async fn a_write_reaches_the_other_branch_through_an_upstream() {
    let (mut one, mut other, mut upstream) =
        (Branch::new("one").await, Branch::new("other").await, Branch::new("up").await);
    one.follow(&upstream, remote("up"));
    other.follow(&upstream, remote("up"));
    upstream.follow(&one, remote("one"));
    upstream.follow(&other, remote("other"));
    for branch in [&mut upstream, &mut one, &mut other] {
        followed(branch).await;
    }
    propagation(one, other).await;
    upstream.stop().await;
}

async fn followed(branch: &mut Branch) {
    branch.config.pull.interval = Some(Duration::from_secs(1));
    branch.config.committer.flush_interval = Some(Duration::from_millis(20));
    branch.restart().await;
}

async fn propagation(one: Branch, other: Branch) {
    let seconds = 15_u32;
    let sent: Arc<Mutex<Vec<Option<Instant>>>> = Arc::new(Mutex::new(vec![None; 200 * seconds as usize]));
    let start = Instant::now();
    let writing = |branch: &Branch, name: &'static str, sent: Option<Arc<Mutex<Vec<Option<Instant>>>>>| {
        let store = branch.server().store().clone();
        tokio::spawn(async move {
            let mut ticks = tokio::time::interval(Duration::from_millis(5));
            for number in 0..200 * seconds {
                ticks.tick().await;
                let key = format!("/registry/configmaps/{name}/k{}", number % 50);
                let value = format!(
                    "{{\"kind\":\"ConfigMap\",\"apiVersion\":\"v1\",\"metadata\":{{\"name\":\"k{}\",\"namespace\":\"{name}\",\"uid\":\"{name}{}\"}},\"data\":{{\"n\":\"{number}\"}}}}\n",
                    number % 50,
                    number % 50
                );
                if let Some(sent) = &sent {
                    sent.lock()[number as usize] = Some(Instant::now());
                }
                let put = gitcd::store::txn::Put {
                    key: key.into(),
                    value: Some(value.into()),
                    lease: Some(0),
                    previous: false,
                };
                store.execute(gitcd::store::txn::Op::Put(put), None).await.unwrap();
            }
        })
    };
    let first = writing(&one, "one", Some(sent.clone()));
    let second = writing(&other, "other", None);
    let store = other.server().store().clone();
    let watching = tokio::task::spawn_blocking(move || {
        let mut after = store.revision();
        let mut latencies = Vec::new();
        let mut last = -1_i64;
        while last + 1 < i64::from(200 * seconds) && start.elapsed() < Duration::from_mins(1) {
            let (now, _) = store.wait_for_writes(after, Some(Instant::now() + Duration::from_secs(1)));
            for entry in store.log(after.next(), 10_000) {
                for change in entry.changes() {
                    if change.version.key.starts_with(b"/registry/configmaps/one/") {
                        let text = String::from_utf8_lossy(&change.version.value_in_memory()).into_owned();
                        let Some(number) =
                            text.split("\"n\":\"").nth(1).and_then(|rest| rest.split('"').next()?.parse::<i64>().ok())
                        else {
                            continue;
                        };
                        last = last.max(number);
                        // Writes of the same key that this one superseded have arrived with it.
                        let (mut sent, mut at) = (sent.lock(), Some(number as usize));
                        while let Some(since) = at.and_then(|at| sent[at].take()) {
                            latencies.push(since.elapsed());
                            at = at.and_then(|at| at.checked_sub(50));
                        }
                    }
                }
                after = entry.revision;
            }
            after = after.max(now.min(after));
        }
        (latencies, last)
    });
    first.await.unwrap();
    second.await.unwrap();
    let (mut latencies, last) = watching.await.unwrap();
    latencies.sort();
    let at = |part: f64| latencies[((latencies.len() - 1) as f64 * part) as usize];
    println!(
        "{} seen, last {last}, p50 {:?}, p90 {:?}, p99 {:?}, max {:?}",
        latencies.len(),
        at(0.5),
        at(0.9),
        at(0.99),
        at(1.0)
    );
    println!("{:?}", one.server().puller().statuses().all());
    let packs = std::fs::read_dir(one.path().join("objects/pack")).unwrap().count() / 2;
    println!("{packs} packs, {} commits", one.server().store().revision());
    assert_eq!(last, i64::from(200 * seconds) - 1);
}

fn object(name: usize, n: usize, m: usize) -> String {
    format!(
        "{{\"kind\":\"ConfigMap\",\"apiVersion\":\"v1\",\"metadata\":{{\"name\":\"k{name}\",\"namespace\":\"n{}\",\"uid\":\"u{name}\"}},\"data\":{{\"n\":\"{n}\",\"m\":\"{m}\",\"text\":\"{}\"}}}}\n",
        name % 10,
        "x".repeat(500)
    )
}

async fn put_all(branch: &Branch, values: Vec<(usize, String)>) {
    use futures::StreamExt as _;
    let writes = values.into_iter().map(|(name, value)| async move {
        branch.put(&format!("/registry/configmaps/n{}/k{name}", name % 10), &value).await;
    });
    futures::stream::iter(writes).buffer_unordered(256).collect::<Vec<_>>().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
#[ignore = "prints measurements; run it with --ignored --nocapture"]
async fn a_merge_of_a_thousand_changes_into_a_hundred_thousand_keys() {
    const KEYS: usize = 100_000;
    let (mut one, mut other) = (Branch::new("one").await, Branch::new("other").await);
    one.follow(&other, remote("other"));
    other.follow(&one, remote("one"));
    one.restart().await;
    other.restart().await;
    put_all(&one, (0..KEYS).map(|name| (name, object(name, 0, 0))).collect()).await;
    one.commit().await;
    let start = Instant::now();
    other.pull().await;
    println!("first pull of {KEYS} keys: {:?}", start.elapsed());
    one.pull().await;
    assert_eq!(one.head(), other.head());
    for round in 1..=5 {
        // 1,000 changes on each side, half of them to the same keys.
        put_all(&one, (0..1000).map(|at| (at * 97, object(at * 97, round, round - 1))).collect()).await;
        put_all(
            &other,
            (0..1000)
                .map(|at| (at * 97 + at % 2, object(at * 97 + at % 2, if at % 2 == 0 { round - 1 } else { 0 }, round)))
                .collect(),
        )
        .await;
        one.commit().await;
        other.commit().await;
        let start = Instant::now();
        let puller = one.server().puller().clone();
        puller.pull(&puller.remotes()[0]).await.unwrap();
        let merged = start.elapsed();
        let start = Instant::now();
        puller.pull(&puller.remotes()[0]).await.unwrap();
        let unchanged = start.elapsed();
        let start = Instant::now();
        other.pull().await;
        println!(
            "fetch, merge and commit: {merged:?}; unchanged: {unchanged:?}; the other side's fast-forward: {:?}",
            start.elapsed()
        );
        assert_eq!(one.tree(), other.tree());
        let json: serde_json::Value = serde_json::from_str(&one.get("/registry/configmaps/n0/k0").unwrap()).unwrap();
        assert_eq!((&json["data"]["n"], &json["data"]["m"]), (&round.to_string().into(), &round.to_string().into()));
    }
}
