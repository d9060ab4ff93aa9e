//! Forks: a served fork has the state of its moment, and shares nothing that it writes.

use std::collections::BTreeMap;
use std::path::Path;

use rand::rngs::StdRng;
use rand::seq::IndexedRandom as _;
use rand::{Rng as _, SeedableRng as _};
use serde_json::json;

use super::{KEYS, Store, gitcd, gitcd_json, object};
use crate::support::build::{get, list, put};
use crate::support::{Kind, Launch, Server};

/// What a store knows of a key: value, create revision, mod revision, version.
pub(super) type Known = BTreeMap<String, (String, i64, i64, i64)>;

/// Returns the data keys at a revision.
pub(super) fn known(store: &Store, revision: i64) -> Known {
    let mut keys = Known::new();
    for (at, changes) in store.written.range(..=revision) {
        for (key, value) in changes.iter().filter(|(key, _)| key.starts_with("/registry/")) {
            let Some(value) = value else {
                keys.remove(key);
                continue;
            };
            let (created, version) = keys.get(key).map_or((*at, 0), |(_, created, _, version)| (*created, *version));
            keys.insert(key.clone(), (value.clone(), created, *at, version + 1));
        }
    }
    keys
}

pub(super) async fn served(server: &Server) -> Known {
    let answer = server.client().await.range(list("/registry/")).await.ok();
    let text = |bytes: &[u8]| String::from_utf8(bytes.to_vec()).expect("the test writes text");
    let of = |kv: &gitcd::proto::mvccpb::KeyValue| {
        (text(&kv.key), (text(&kv.value), kv.create_revision, kv.mod_revision, kv.version))
    };
    answer.kvs.iter().map(of).collect()
}

/// Forks a repository at a moment into `repo.git` of a folder.
fn fork(repository: &Path, at: &str, folder: &Path) -> serde_json::Value {
    gitcd_json(repository, &["fork", "--json", &format!("--at={at}"), &folder.join("repo.git").display().to_string()])
}

async fn serve(folder: &Path) -> Server {
    Launch::new(Kind::Gitcd).folder(folder).argument("--key-prefixes=/registry").start().await
}

#[tokio::test]
async fn a_fork_of_any_revision_has_its_keys_with_their_revisions() {
    let seed = rand::rng().random();
    let mut rng = StdRng::seed_from_u64(seed);
    let mut store = Store::start(&["--commit-granularity=revision"]).await;
    for step in 0..240 {
        let key = KEYS.choose(&mut rng).expect("KEYS is not empty");
        if rng.random_bool(0.25) {
            store.delete(key).await;
        } else {
            store.put(key, &object(&mut rng)).await;
        }
        if step % 60 == 59 {
            store.committed().await;
        }
    }
    let repository = store.committed().await;
    let last = *store.written.keys().next_back().unwrap();
    let some: Vec<i64> = (0..8).map(|_| rng.random_range(2..=last)).chain([last]).collect();
    for revision in some {
        let folder = tempfile::tempdir().unwrap();
        let made = fork(repository.path(), &revision.to_string(), folder.path());
        let server = serve(folder.path()).await;
        assert_eq!(served(&server).await, known(&store, revision), "seed {seed}, revision {revision}");
        let header = server.client().await.range(get("/registry/a")).await.ok().header.unwrap();
        assert_eq!(json!(header.revision), made["revision"], "seed {seed}, revision {revision}");
        assert!(header.revision <= revision, "seed {seed}: {made:#}");
        let verified = gitcd_json(&folder.path().join("repo.git"), &["verify", "--json"]);
        assert_eq!(verified["findings"], json!([]), "seed {seed}, revision {revision}");
    }
}

/// Under load, a commit has several revisions. Each key then has the last revision of its commit, or its own.
#[tokio::test]
async fn a_fork_between_two_flushes_has_the_values_of_its_commit() {
    let mut store = Store::start(&["--commit-granularity=batch"]).await;
    for round in 0..40 {
        for key in ["/registry/pods/n/a", "/registry/pods/n/b"] {
            store.put(key, &format!("{{\"round\":{round}}}\n")).await;
        }
    }
    let repository = store.committed().await;
    let log = gitcd_json(repository.path(), &["log", "--json", "--limit=1000"]);
    for commit in log.as_array().unwrap() {
        let Some(revision) = commit["revision"].as_i64().filter(|revision| *revision > 2) else { continue };
        let folder = tempfile::tempdir().unwrap();
        fork(repository.path(), &revision.to_string(), folder.path());
        let server = serve(folder.path()).await;
        let (found, wanted) = (served(&server).await, known(&store, revision));
        let values = |known: &Known| -> BTreeMap<_, _> {
            known.iter().map(|(key, (value, ..))| (key.clone(), value.clone())).collect()
        };
        assert_eq!(values(&found), values(&wanted), "revision {revision}");
        assert!(found.values().all(|(_, created, changed, _)| created <= changed && *changed <= revision), "{found:?}");
    }
}

/// The commit before a merge has its own values, although the merge wrote the same key in the same flush.
#[tokio::test]
async fn a_fork_before_a_merge_has_nothing_of_the_merge() {
    let (_folder, [mut one, mut other]) = super::merges::pair().await;
    let key = "/registry/configmaps/shop/prices";
    let value = |round: u32, side: &str| {
        format!(
            "{{\"kind\":\"ConfigMap\",\"apiVersion\":\"v1\",\"metadata\":{{\"name\":\"prices\",\"namespace\":\"shop\",\"uid\":\"u\"}},\"data\":{{\"{side}\":\"{round}\"}}}}\n"
        )
    };
    for round in 0..12 {
        one.put(key, &value(round, "one")).await;
        other.put(key, &value(round, "other")).await;
    }
    let repository = one.committed().await;
    let log = gitcd_json(repository.path(), &["log", "--json", "--limit=1000", key]);
    for version in log.as_array().unwrap() {
        let Some(revision) = version["revision"].as_i64() else { continue };
        let at = format!("--at={revision}");
        let shown = gitcd(repository.path(), &["show", &at, key]);
        let folder = tempfile::tempdir().unwrap();
        let made = fork(repository.path(), &revision.to_string(), folder.path());
        let found = served(&serve(folder.path()).await).await;
        let (found, _, changed, _) = &found[key];
        assert_eq!(found.as_bytes(), &shown.stdout, "revision {revision}: {made:#}");
        assert!(*changed <= made["revision"].as_i64().unwrap(), "revision {revision}: {changed}");
    }
}

#[tokio::test]
async fn a_fork_and_its_origin_go_their_own_ways() {
    let mut store = Store::start(&["--commit-granularity=revision"]).await;
    let key = "/registry/configmaps/shop/prices";
    let first = store.put(key, "1").await;
    store.put(key, "2").await;
    let repository = store.committed().await;
    let folder = tempfile::tempdir().unwrap();
    fork(repository.path(), &first.to_string(), folder.path());
    let mut server = serve(folder.path()).await;
    let client = server.client().await;
    let answer = client.put(put(key, "mine")).await.ok();
    assert_eq!(answer.header.unwrap().revision, first + 1);
    store.put(key, "3").await;
    // Earlier revisions are compacted, as after a start on another machine.
    let old = gitcd::proto::etcdserverpb::RangeRequest { revision: first - 1, ..get(key) };
    let refused = client.range(old).await.refused(tonic::Code::OutOfRange);
    assert!(refused.contains("compacted"), "{refused}");
    server.kill();
    server.restart().await;
    assert_eq!(&served(&server).await[key].0, "mine");
    server.terminate().await;
    let own = gitcd_json(&folder.path().join("repo.git"), &["log", "--json", "-p", key]);
    let revisions: Vec<_> = own.as_array().unwrap().iter().map(|one| one["revision"].as_i64().unwrap()).collect();
    assert_eq!(revisions, [first + 1, first], "{own:#}");
    let repository = store.committed().await;
    let theirs = gitcd(repository.path(), &["show", key]);
    assert_eq!(theirs.stdout, b"3");
    let plain = repository.git(&["fsck", "--strict"]);
    assert!(!plain.contains("missing"), "{plain}");
    // A fork of a fork.
    let next = tempfile::tempdir().unwrap();
    fork(&folder.path().join("repo.git"), "now", next.path());
    assert_eq!(&served(&serve(next.path()).await).await[key].0, "mine");
}

#[tokio::test]
async fn a_fork_that_cannot_be_made_is_refused_with_the_reason() {
    let mut store = Store::start(&[]).await;
    store.put("/registry/a", "1").await;
    let repository = store.committed().await;
    let full = tempfile::tempdir().unwrap();
    std::fs::write(full.path().join("thesis.tex"), "x").unwrap();
    let full = full.path().display().to_string();
    let there = repository.path().display().to_string();
    for (arguments, words) in [
        (&["fork", &*full][..], "is not empty: a fork is made in a new folder"),
        (&["fork", &there], "is not empty: a fork is made in a new folder"),
        (&["fork", "--at=4711", "unused"], "revision 4711 is not in Git; the last one is 2"),
        (&["fork", "--branch=other", "unused"], "refs/gitcd/metadata/other is not in"),
    ] {
        let output = gitcd(repository.path(), arguments);
        let complaint = String::from_utf8_lossy(&output.stderr);
        assert!(!output.status.success() && complaint.contains(words), "{arguments:?}: {complaint}");
    }
    assert!(!Path::new("unused").exists());
}
