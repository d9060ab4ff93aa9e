//! `kill -9` while branches fetch, merge and push: no acknowledged write is lost, and all branches converge.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use gitcd::proto::etcdserverpb::kv_client::KvClient;
use rand::Rng as _;
use tonic::transport::{Channel, Endpoint};

use super::remotes::{bare, follower};
use crate::support::build::{get, list, put};
use crate::support::{Repository, Server, eventually};

const SHARED: &str = "/registry/configmaps/n/shared";
const CYCLES: usize = 8;

/// A writer's acknowledged values: its own keys, and its own field of the shared object.
#[derive(Debug, Default)]
struct AcknowledgedValues {
    keys: BTreeMap<String, String>,
    field: Option<i64>,
}

fn shared(fields: &serde_json::Map<String, serde_json::Value>) -> String {
    serde_json::json!({"kind": "ConfigMap", "apiVersion": "v1",
        "metadata": {"name": "shared", "namespace": "n", "uid": "s"}, "data": fields})
    .to_string()
        + "\n"
}

/// Writes until `stop` is set, also while the server is down; counts acknowledged writes.
async fn write_on(
    number: usize,
    channel: Channel,
    stop: Arc<AtomicBool>,
    acknowledged: Arc<AtomicU64>,
) -> AcknowledgedValues {
    let (mut client, mut values) = (KvClient::new(channel), AcknowledgedValues::default());
    let mut round = 0_i64;
    while !stop.load(Ordering::Relaxed) {
        round += 1;
        let name = format!("w{number}k{}", round % 40);
        let key = format!("/registry/configmaps/n/{name}");
        let value = format!(
            "{{\"kind\":\"ConfigMap\",\"apiVersion\":\"v1\",\"metadata\":{{\"name\":\"{name}\",\"namespace\":\"n\",\"uid\":\"{name}\"}},\"data\":{{\"n\":\"{round}\"}}}}\n"
        );
        if client.put(put(&key, &value)).await.is_ok() {
            values.keys.insert(key, value);
            acknowledged.fetch_add(1, Ordering::Relaxed);
        } else {
            // The outcome is unknown, so the key is not checked until its next acknowledged write.
            values.keys.remove(&key);
            // While the server is down, writes fail at once.
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
        if round % 5 == 0 {
            match set_field(&mut client, number, round).await {
                Some(true) => values.field = Some(round),
                Some(false) => {}
                None => values.field = None,
            }
        }
    }
    values
}

/// Sets the writer's field of the shared object. `Some(false)`: it changed concurrently. `None`: the outcome is unknown.
async fn set_field(client: &mut KvClient<Channel>, number: usize, round: i64) -> Option<bool> {
    use crate::support::build::{all, unchanged_since};
    let Ok(found) = client.range(get(SHARED)).await else { return Some(false) };
    let found = found.into_inner().kvs.into_iter().next();
    let since = found.as_ref().map_or(0, |pair| pair.mod_revision);
    let mut fields = found.map_or_else(serde_json::Map::new, |pair| {
        let json: serde_json::Value =
            serde_json::from_slice(&pair.value).expect("stored values are objects, never conflict markers");
        json["data"].as_object().cloned().unwrap_or_default()
    });
    fields.insert(format!("of{number}"), round.to_string().into());
    let mut request = all([put(SHARED, &shared(&fields))]);
    request.compare = vec![unchanged_since(SHARED, since)];
    client.txn(request).await.ok().map(|answer| answer.into_inner().succeeded)
}

async fn content(server: &Server) -> BTreeMap<String, String> {
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    let found = server.client().await.range(list("/registry/")).await.ok();
    found.kvs.iter().map(|pair| (text(&pair.key), text(&pair.value))).collect()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn kills_in_the_middle_of_merges_lose_nothing() {
    let folder = tempfile::tempdir().expect("the temporary folder is writable");
    let upstream = bare(&folder);
    let url = upstream.to_str().expect("the path is UTF-8");
    let (mut servers, mut kept) = (Vec::new(), Vec::new());
    for _ in 0..3 {
        let (server, _client, temporary) = follower(url, &[]).await;
        servers.push(server);
        kept.push(temporary);
    }
    let (stop, acknowledged) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicU64::new(0)));
    let writers: Vec<_> = servers
        .iter()
        .enumerate()
        .map(|(number, server)| {
            let address = format!("http://{}", server.address());
            let channel = Endpoint::from_shared(address).expect("an address is a valid URL").connect_lazy();
            tokio::spawn(write_on(number, channel, stop.clone(), acknowledged.clone()))
        })
        .collect();
    for _ in 0..CYCLES {
        let (more, victim) = (rand::rng().random_range(20..200), rand::rng().random_range(0..servers.len()));
        // A random moment under load.
        let until = acknowledged.load(Ordering::Relaxed) + more;
        eventually("more writes", async || (acknowledged.load(Ordering::Relaxed) >= until).then_some(())).await;
        servers[victim].kill();
        servers[victim].restart().await;
    }
    stop.store(true, Ordering::Relaxed);
    let mut all_values = Vec::new();
    for writer in writers {
        all_values.push(writer.await.expect("a writer does not panic"));
    }

    let agreed = eventually("all branches to converge", async || {
        let first = content(&servers[0]).await;
        for server in &servers[1..] {
            if content(server).await != first {
                return None;
            }
        }
        let has_all =
            |values: &AcknowledgedValues| values.keys.iter().all(|(key, value)| first.get(key) == Some(value));
        all_values.iter().all(has_all).then_some(first)
    })
    .await;
    let json: serde_json::Value = serde_json::from_str(&agreed[SHARED]).expect("the shared object is JSON");
    for (number, values) in all_values.iter().enumerate() {
        if let Some(round) = values.field {
            assert_eq!(
                json["data"][format!("of{number}")],
                round.to_string(),
                "field that only writer {number} sets: {json}"
            );
        }
    }
    for server in &mut servers {
        server.terminate().await;
        server.repository().fsck();
    }
    Repository::at(&upstream).fsck();
}
