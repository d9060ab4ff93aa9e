//! etcd's JSON API: both servers get the same HTTP requests, and must send the same responses.

mod exchange;
mod pages;
mod refused;
mod secure;
mod streams;

use base64::Engine as _;
use base64::prelude::BASE64_STANDARD;
use http::Request;
use serde_json::{Value, json};

use self::exchange::{Answer, Way, post, send};
use crate::support::{Kind, Server};

/// Fields whose values may differ: identities and sizes.
const OWN: [&str; 12] = [
    "cluster_id",
    "member_id",
    "ID",
    "name",
    "peerURLs",
    "clientURLs",
    "leader",
    "dbSize",
    "dbSizeInUse",
    "raftIndex",
    "raftAppliedIndex",
    "hash",
];

/// Replaces the values of these fields, so that only their presence is compared.
fn comparable(mut value: Value) -> Value {
    match &mut value {
        Value::Object(fields) => {
            for (name, field) in fields {
                let own = OWN.contains(&name.as_str()) && field != "7" && field != "8";
                *field = if own { json!("its own") } else { comparable(field.take()) };
            }
        }
        Value::Array(values) => values.iter_mut().for_each(|value| *value = comparable(value.take())),
        _ => {}
    }
    value
}

/// The compared part of a response: status, content type, gRPC content type, JSON.
type ComparedParts = (u16, Option<String>, Option<String>, Value);

async fn compared_parts(answer: Answer) -> ComparedParts {
    let (kind, metadata) = (answer.header("content-type"), answer.header("grpc-metadata-content-type"));
    let status = answer.status;
    let text = answer.text().await;
    let value = serde_json::from_str(&text).unwrap_or_else(|_| panic!("the response must be JSON: {text}"));
    (status, kind, metadata, comparable(value))
}

async fn pair() -> [Server; 2] {
    let (etcd, other) = tokio::join!(Server::start(Kind::Etcd), Server::start(Kind::under_test()));
    [etcd, other]
}

/// Sends a request to both servers, asserts equal responses, and returns one.
async fn same(servers: &[Server; 2], request: Request<String>) -> ComparedParts {
    let etcd = compared_parts(send(&servers[0], Way::Plain, request.clone()).await).await;
    let other = compared_parts(send(&servers[1], Way::Plain, request.clone()).await).await;
    assert_eq!(etcd, other, "{request:?}");
    other
}

fn text(text: &str) -> String {
    BASE64_STANDARD.encode(text)
}

#[tokio::test]
async fn keys_are_written_and_read_in_json() {
    let servers = pair().await;
    let key = text("/registry/a");
    let put = |value: &str| json!({ "key": key, "value": text(value), "prev_kv": true });
    for request in [
        post("/v3/kv/put", put("1")),
        post("/v3/kv/put", put("2")),
        post("/v3beta/kv/put", put("3")),
        post("/v3/kv/range", json!({ "key": key })),
        post("/v3/kv/range", json!({ "key": key, "revision": "2" })),
        post("/v3/kv/range", json!({ "key": text("\0"), "range_end": text("\0"), "keysOnly": true, "limit": 5e0 })),
        post("/v3/kv/range", json!({ "key": key, "countOnly": true, "sort_order": "DESCEND", "sort_target": 1 })),
        post("/v3/kv/range", json!({ "key": key, "sort_order": "NONE", "unknown": { "a": [1, {}] } })),
        post("/v3/kv/range", json!({ "key": text("none"), "limit": null })),
        post(
            "/v3/kv/txn",
            json!({
                "compare": [{ "key": key, "target": "VERSION", "result": "EQUAL", "version": "3" }],
                "success": [
                    { "requestRange": { "key": key } },
                    { "request_put": { "key": key, "value": text("4") } },
                    { "request_txn": { "failure": [{ "request_delete_range": { "key": text("none") } }] } },
                    { "request_delete_range": { "key": text("none") } },
                ],
            }),
        ),
        post("/v3/kv/deleterange", json!({ "key": key, "prev_kv": true })),
        post("/v3/kv/compaction", json!({ "revision": 3, "physical": true })),
        post("/v3/kv/range", json!({ "key": key })),
        // Bytes after the object are not read.
        post("/v3/kv/range", format!("{} and nonsense", json!({ "key": key }))),
    ] {
        let (status, ..) = same(&servers, request.clone()).await;
        assert_eq!(status, 200, "{request:?}");
    }
    let (.., answer) = same(&servers, post("/v3/kv/range", json!({ "key": key, "revision": 4 }))).await;
    assert_eq!(answer["kvs"][0]["value"], text("3"));
}

#[tokio::test]
async fn leases_locks_and_elections_are_had_in_json() {
    let servers = pair().await;
    let name = text("/registry/lock");
    for request in [
        post("/v3/lease/grant", json!({ "TTL": "600", "ID": "7" })),
        post("/v3/lease/grant", json!({ "TTL": 600, "ID": 8 })),
        post("/v3/lease/leases", "{}"),
        post("/v3/kv/lease/leases", ""),
        post("/v3/kv/lease/timetolive", json!({ "ID": 9, "keys": true })),
        post("/v3/lock/lock", json!({ "name": name, "lease": "7" })),
        post("/v3/lock/unlock", json!({ "key": text("/registry/lock/7") })),
        post("/v3/election/campaign", json!({ "name": name, "lease": "7", "value": text("me") })),
        post("/v3/election/leader", json!({ "name": name })),
        post(
            "/v3/election/proclaim",
            json!({ "leader": { "name": name, "key": text("/registry/lock/7"), "rev": "4", "lease": 7 }, "value": "eA==" }),
        ),
        post("/v3/election/leader", json!({ "name": name })),
        post(
            "/v3/election/resign",
            json!({ "leader": { "name": name, "key": text("/registry/lock/7"), "rev": 4, "lease": "7" } }),
        ),
        post("/v3/kv/lease/revoke", json!({ "ID": 7 })),
        post("/v3/lease/revoke", json!({ "ID": 8 })),
        post("/v3/lease/leases", "{}"),
    ] {
        let (status, ..) = same(&servers, request.clone()).await;
        assert_eq!(status, 200, "{request:?}");
    }
    // The remaining time differs between the two.
    for path in ["/v3/lease/grant", "/v3/lease/timetolive"] {
        for server in &servers {
            let request = post(path, json!({ "TTL": 600, "ID": 8 }));
            let (status, _, _, answer) = compared_parts(send(server, Way::Plain, request).await).await;
            let ttl: u64 = answer["TTL"].as_str().unwrap().parse().unwrap();
            assert!(status == 200 && (500..=600).contains(&ttl), "{path}: {answer}");
        }
    }
}

#[tokio::test]
async fn the_other_services_are_had_in_json() {
    let servers = pair().await;
    for (path, body) in [
        ("/v3/kv/put", json!({ "key": text("/registry/a"), "value": text("1") })),
        ("/v3/maintenance/status", json!({})),
        ("/v3/maintenance/hashkv", json!({})),
        ("/v3/maintenance/defragment", json!({})),
        ("/v3/maintenance/alarm", json!({ "action": "ACTIVATE", "alarm": "CORRUPT", "memberID": "7" })),
        ("/v3/maintenance/alarm", json!({ "action": 0 })),
        ("/v3/maintenance/alarm", json!({ "action": "DEACTIVATE", "alarm": 2, "memberID": 7 })),
        ("/v3/maintenance/transfer-leadership", json!({ "targetID": "1" })),
        ("/v3/maintenance/downgrade", json!({ "action": "VALIDATE" })),
        ("/v3/cluster/member/list", json!({ "linearizable": true })),
        ("/v3/cluster/member/add", json!({})),
        ("/v3/cluster/member/remove", json!({ "ID": "1" })),
        ("/v3/cluster/member/update", json!({ "ID": "1", "peerURLs": ["http://127.0.0.1:1"] })),
        ("/v3/cluster/member/promote", json!({ "ID": "1" })),
        ("/v3/auth/status", json!({})),
        ("/v3/auth/enable", json!({})),
        ("/v3/auth/disable", json!({})),
        ("/v3/auth/authenticate", json!({ "name": "root", "password": "x" })),
        ("/v3/auth/user/list", json!({})),
        ("/v3/auth/role/list", json!({})),
        ("/v3/auth/user/get", json!({ "name": "x" })),
        ("/v3/auth/user/delete", json!({ "name": "x" })),
        ("/v3/auth/user/add", json!({})),
        ("/v3/auth/user/changepw", json!({ "name": "x" })),
        ("/v3/auth/user/grant", json!({ "user": "x", "role": "y" })),
        ("/v3/auth/user/revoke", json!({ "name": "x", "role": "y" })),
        ("/v3/auth/role/add", json!({})),
        ("/v3/auth/role/get", json!({ "role": "y" })),
        ("/v3/auth/role/delete", json!({ "role": "y" })),
        ("/v3/auth/role/grant", json!({ "name": "y", "perm": { "permType": "READWRITE", "key": "eA==" } })),
        ("/v3/auth/role/revoke", json!({ "role": "y", "key": "eA==" })),
    ] {
        same(&servers, post(path, body)).await;
    }
    // Each server hashes its own storage format.
    for server in &servers {
        let (status, _, _, answer) =
            compared_parts(send(server, Way::Plain, post("/v3/maintenance/hash", "{}")).await).await;
        assert!(status == 200 && answer["hash"] == "its own", "{answer}");
    }
}
