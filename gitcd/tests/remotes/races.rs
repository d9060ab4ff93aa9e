//! Many followers that push to one branch at once.

use futures::future::join_all;
use gitcd::pull::status::Condition;

use crate::host::Host;
use crate::support::build::{all, get, list, put, unchanged_since};
use crate::support::{DATA, Repository, eventually};
use crate::world::{Follower, Following, ONE, bare, has, holds, remote};

const WRITERS: usize = 8;
const ROUNDS: usize = 6;
const SHARED: &str = "/registry/configmaps/n/shared";

fn shared(data: &serde_json::Map<String, serde_json::Value>) -> String {
    let metadata = serde_json::json!({"name": "shared", "namespace": "n", "uid": "shared"});
    let object = serde_json::json!({"kind": "ConfigMap", "apiVersion": "v1", "metadata": metadata, "data": data});
    object.to_string() + "\n"
}

fn data(value: &[u8]) -> serde_json::Map<String, serde_json::Value> {
    let object: serde_json::Value = serde_json::from_slice(value).expect("a merge keeps it JSON");
    object["data"].as_object().cloned().unwrap_or_default()
}

fn own(writer: usize, round: usize) -> String {
    format!("/registry/configmaps/n/w{writer}r{round}")
}

/// Writes the writer's own keys, and its own field of the shared object.
async fn write(follower: &Follower, writer: usize) {
    for round in 0..ROUNDS {
        follower.put(&own(writer, round), &format!("{writer} {round}")).await;
        loop {
            let found = follower.client.range(get(SHARED)).await.ok().kvs.remove(0);
            let mut changed = data(&found.value);
            changed.insert(format!("w{writer}"), round.to_string().into());
            let mut request = all([put(SHARED, &shared(&changed))]);
            request.compare = vec![unchanged_since(SHARED, found.mod_revision)];
            if follower.client.txn(request).await.ok().succeeded {
                break;
            }
        }
    }
}

async fn race(upstream: &Repository, url: &str) {
    let followers = join_all((0..WRITERS).map(|_| Following::new(url).start())).await;
    followers[0].put(SHARED, &shared(&serde_json::Map::new())).await;
    let first = shared(&serde_json::Map::new());
    join_all(followers.iter().map(|follower| has(&follower.client, SHARED, &first))).await;

    join_all(followers.iter().enumerate().map(|(writer, follower)| write(follower, writer))).await;
    let last = eventually("equal trees on all followers and the remote", async || {
        let tree = upstream.reference(&format!("{DATA}^{{tree}}"));
        for follower in &followers {
            let own = follower.server.repository();
            let known = remote(&follower.server).await;
            if own.reference(&format!("{DATA}^{{tree}}")) != tree || known.condition != Condition::Synced {
                return None;
            }
        }
        // Equal trees may also be an early state: wait until all writes are in.
        let files = upstream.files(&tree);
        (files.len() == WRITERS * ROUNDS + 1).then_some(files)
    })
    .await;
    for writer in 0..WRITERS {
        for round in 0..ROUNDS {
            let path = own(writer, round);
            let path = path.strip_prefix("/registry/").expect("the key has the prefix");
            assert_eq!(last[path], format!("{writer} {round}").as_bytes(), "{path}");
        }
    }
    let newest: serde_json::Map<_, _> =
        (0..WRITERS).map(|writer| (format!("w{writer}"), (ROUNDS - 1).to_string().into())).collect();
    eventually("all fields on all followers", async || {
        for follower in &followers {
            let found = follower.client.range(list("/registry/")).await.ok().kvs;
            let value = found.iter().find(|pair| pair.key == SHARED.as_bytes())?;
            if found.len() != WRITERS * ROUNDS + 1 || data(&value.value) != newest {
                return None;
            }
        }
        let path = SHARED.strip_prefix("/registry/")?;
        (data(&upstream.files(DATA)[path]) == newest).then_some(())
    })
    .await;
    upstream.fsck();
}

#[tokio::test]
async fn a_lock_that_somebody_left_is_reported_and_waited_for() {
    let folder = tempfile::tempdir().unwrap();
    let upstream = bare(&folder);
    let follower = Following::new(&upstream.path().display().to_string()).start().await;
    follower.put(ONE, "1").await;
    holds(&upstream, ONE, "1").await;
    let lock = upstream.path().join("refs/heads/main.lock");
    std::fs::write(&lock, "").expect("the temporary folder is writable");
    follower.put(ONE, "2").await;
    follower.fails_with(Condition::Raced, &["main.lock"]).await;
    std::fs::remove_file(&lock).expect("the temporary folder is writable");
    holds(&upstream, ONE, "2").await;
    follower.is(Condition::Synced).await;
}

#[tokio::test]
async fn eight_writers_of_a_folder_overwrite_nothing() {
    let folder = tempfile::tempdir().unwrap();
    let upstream = bare(&folder);
    let url = upstream.path().display().to_string();
    race(&upstream, &url).await;
}

#[tokio::test]
async fn eight_writers_of_a_host_overwrite_nothing() {
    let host = Host::open().await;
    race(&host.make(), &host.url()).await;
}
