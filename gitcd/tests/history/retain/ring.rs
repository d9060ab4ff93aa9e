//! Three branches in a ring are written, and their histories are cut, while `gitcd retain` and the servers are killed.

use std::collections::{BTreeMap, BTreeSet};
use std::process::Stdio;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use gitcd::proto::etcdserverpb::kv_client::KvClient;
use rand::rngs::StdRng;
use rand::{Rng as _, SeedableRng as _};
use tonic::transport::Channel;

use super::*;
use crate::support::build::{delete, put};

const NAMES: [&str; 3] = ["one", "two", "three"];

/// What was acknowledged to the only writer of some keys.
#[derive(Default)]
struct Acknowledged {
    number: usize,
    /// The number that was last put to each key.
    put: BTreeMap<String, usize>,
    deleted: BTreeSet<String>,
}

/// Writes until stopped, or until the server is gone.
async fn write(
    mut client: KvClient<Channel>,
    member: &'static str,
    mut known: Acknowledged,
    stop: Arc<AtomicBool>,
) -> Acknowledged {
    let pad = "x".repeat(1500);
    while !stop.load(Ordering::Relaxed) {
        known.number += 1;
        let number = known.number;
        let key = format!("/registry/configmaps/{member}/{}", number % 7);
        let value = format!("{{\"kind\":\"K\",\"n\":{number},\"pad\":\"{pad}\"}}\n");
        // After an error, it is not known whether it was written.
        let Ok(_) = client.put(put(&key, &value)).await else { return known };
        known.put.insert(key, number);
        if number.is_multiple_of(5) {
            let key = format!("/registry/configmaps/{member}/gone-{number}");
            let Ok(_) = client.put(put(&key, "{\"kind\":\"K\"}\n")).await else { return known };
            let Ok(_) = client.delete_range(delete(&key)).await else { return known };
            known.deleted.insert(key);
        }
    }
    known
}

async fn state(store: &Store) -> BTreeMap<String, usize> {
    let answer = store.client.range(list("/registry/")).await.ok();
    let entry = |key: &[u8], value: &[u8]| {
        let value: Value = serde_json::from_slice(value).expect("the test writes JSON");
        (
            String::from_utf8(key.to_vec()).expect("the test writes text"),
            value["n"].as_u64().unwrap_or_default() as usize,
        )
    };
    answer.kvs.iter().map(|kv| entry(&kv.key, &kv.value)).collect()
}

/// Waits until all have everything that was acknowledged, and nothing that was deleted.
async fn check(stores: &[Store], known: &[Acknowledged]) {
    for store in stores {
        eventually("what was acknowledged", async || {
            let state = state(store).await;
            let is_there = |(key, number): (&String, &usize)| state.get(key).is_some_and(|found| found >= number);
            let all = known.iter().flat_map(|known| &known.put).all(is_there);
            let none = known.iter().flat_map(|known| &known.deleted).all(|key| !state.contains_key(key));
            (all && none).then_some(())
        })
        .await;
    }
}

async fn back(store: &mut Store) {
    if store.server.try_answer("/livez").await.is_none() {
        store.server.restart().await;
    }
    store.client = store.server.client().await;
}

#[tokio::test]
async fn under_load_and_kills_nothing_current_is_lost_and_what_was_cut_is_gone() {
    let cycles = std::env::var("GITCD_RETAIN_CYCLES").map_or(3, |text| text.parse().expect("a number"));
    let seed = std::env::var("GITCD_RETAIN_SEED").map_or_else(|_| rand::rng().random(), |text| text.parse().unwrap());
    println!("GITCD_RETAIN_SEED={seed}");
    let mut rng = StdRng::seed_from_u64(seed);
    let (folder, mut stores) = members(NAMES).await;
    let mut known: Vec<Acknowledged> = NAMES.map(|_| Acknowledged::default()).into();
    let (mut before, mut after, mut killed) = (0, 0, 0);
    for cycle in 0..cycles {
        let stop = Arc::new(AtomicBool::new(false));
        let mut writers = Vec::new();
        for (at, known) in known.drain(..).enumerate() {
            let client = KvClient::new(stores[at].server.channel().await);
            writers.push(tokio::spawn(write(client, NAMES[at], known, stop.clone())));
        }
        let (cut, hit) = (rng.random_range(0..3), rng.random_range(0..3));
        let repository = stores[cut].server.repository();
        let to_archive = format!("--archive={}", folder.path().join(format!("archive-{}.git", NAMES[cut])).display());
        let words = ["retain", "--keep-commits=10", &to_archive];
        let mut command = Command::new(env!("CARGO_BIN_EXE_gitcd"));
        command.args(words).env("GITCD_REPO", repository.path()).stdout(Stdio::null()).stderr(Stdio::null());
        let mut running = command.spawn().expect("gitcd can be started");
        tokio::time::sleep(Duration::from_millis(rng.random_range(0..250))).await;
        if rng.random_bool(0.5) {
            stores[hit].server.kill();
        }
        tokio::time::sleep(Duration::from_millis(rng.random_range(0..60))).await;
        killed += usize::from(running.try_wait().expect("it can be asked").is_none());
        let _may_have_ended = running.kill();
        running.wait().expect("it was started");
        stop.store(true, Ordering::Relaxed);
        for writer in writers {
            known.push(writer.await.expect("a writer does not panic"));
        }
        for store in &mut stores {
            back(store).await;
        }
        compacted_now(&mut stores[cut]).await;
        // Continued, and completed while nothing else uses the repository.
        stores[cut].committed().await;
        stores[cut].server.terminate().await;
        let history = Parents::read(&repository);
        before += size(repository.path());
        let made = eventually("the cut", async || {
            let output = gitcd(repository.path(), &[&words[..], &["--prune=now", "--json"]].concat());
            let is_busy = String::from_utf8_lossy(&output.stderr).contains("is running");
            assert!(output.status.success() || is_busy, "seed {seed}, cycle {cycle}: {output:?}");
            serde_json::from_slice::<Value>(&output.stdout).ok()
        })
        .await;
        after += size(repository.path());
        for (oid, end) in history.before(&shallow(&repository)) {
            let is_there = repository.run(&["cat-file", "-e", &oid]).status.success();
            // A kill may leave a commit that no reference leads to. It keeps its parent until its own grace period is over.
            let is_needed = || children(&repository, &oid).iter().any(|child| !history.0.contains_key(child));
            assert!(!is_there || is_needed(), "seed {seed}, cycle {cycle}: {oid}, before {end}, is there: {made:#}");
        }
        repository.fsck();
        repository.verify();
        back(&mut stores[cut]).await;
        check(&stores, &known).await;
    }
    for store in &stores {
        store.committed().await.fsck();
    }
    let written: usize = known.iter().map(|known| known.number).sum();
    println!(
        "{cycles} cycles, {killed} cuts killed, {written} writes; packs {before} B before the cuts, {after} B after them"
    );
}

/// The parents of each commit of a branch and of its metadata.
struct Parents(BTreeMap<String, Vec<String>>);

impl Parents {
    fn read(repository: &Repository) -> Self {
        let listed = repository.git(&["rev-list", "--parents", DATA, METADATA]);
        let mut lines = listed.lines().map(|line| line.split(' ').map(ToOwned::to_owned));
        Self(std::iter::from_fn(|| lines.next().and_then(|mut ids| Some((ids.next()?, ids.collect())))).collect())
    }

    /// Returns the ancestors of some commits that are none of them, each after such a commit.
    fn before(&self, ends: &BTreeSet<String>) -> BTreeMap<String, String> {
        let mut found = BTreeMap::new();
        for end in ends {
            let mut waiting: Vec<&String> = self.0.get(end).into_iter().flatten().collect();
            while let Some(oid) = waiting.pop() {
                if found.insert(oid.clone(), end.clone()).is_none() {
                    waiting.extend(self.0.get(oid).into_iter().flatten());
                }
            }
        }
        found.retain(|oid, _| !ends.contains(oid));
        found
    }
}

/// Returns the boundary of the history; nothing if it is whole.
fn shallow(repository: &Repository) -> BTreeSet<String> {
    let text = std::fs::read_to_string(repository.path().join("shallow")).unwrap_or_default();
    text.lines().map(ToOwned::to_owned).collect()
}

/// Returns the commits that have a commit as a parent, also unreachable ones.
fn children(repository: &Repository, oid: &str) -> Vec<String> {
    let all = repository.git(&["cat-file", "--batch-all-objects", "--batch-check=%(objecttype) %(objectname)"]);
    let commits = all.lines().filter_map(|line| line.strip_prefix("commit "));
    let parent = format!("parent {oid}");
    let is_child = |commit: &&str| repository.git(&["cat-file", "commit", commit]).lines().any(|line| line == parent);
    commits.filter(is_child).map(ToOwned::to_owned).collect()
}

/// Compacts, so that the journal starts later with the next segments.
async fn compacted_now(store: &mut Store) {
    let answer = store.client.range(list("/registry/")).await.ok();
    let revision = answer.header.expect("a response has a header").revision;
    let _compacted = store.client.compact(compact(revision)).await;
}
