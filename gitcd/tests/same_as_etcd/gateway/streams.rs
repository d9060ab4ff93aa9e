//! Streams: one line of JSON per message.

use std::time::Duration;

use gitcd::proto::etcdserverpb::WatchRequest;
use gitcd::proto::etcdserverpb::watch_client::WatchClient;
use gitcd::proto::etcdserverpb::watch_request::RequestUnion;
use http::{Method, Request};
use serde_json::{Value, json};

use super::exchange::{Answer, Way, post, send};
use super::{comparable, pair, same, text};
use crate::support::build::{put, watch_prefix};
use crate::support::{Kind, Server};

async fn streams(servers: &[Server; 2], request: Request<String>) -> [Answer; 2] {
    let answers =
        [send(&servers[0], Way::Plain, request.clone()).await, send(&servers[1], Way::Plain, request.clone()).await];
    let head = |answer: &Answer| {
        let names = ["content-type", "grpc-metadata-content-type"];
        (answer.status, names.map(|name| answer.header(name)))
    };
    assert_eq!(head(&answers[0]), head(&answers[1]), "{request:?}");
    answers
}

/// Reads the next line of both streams, which must be equal.
async fn next(answers: &mut [Answer; 2]) -> Option<Value> {
    let [etcd, other] = answers;
    let (etcd, other) = (etcd.line().await.map(comparable), other.line().await.map(comparable));
    assert_eq!(etcd, other);
    other
}

#[tokio::test]
async fn watches_send_events_as_they_come() {
    let servers = pair().await;
    let key = text("/registry/a");
    let put = |value: &str| post("/v3/kv/put", json!({ "key": key, "value": text(value) }));
    same(&servers, put("1")).await;
    let create = json!({ "create_request": { "key": key, "start_revision": "2", "prev_kv": true } });
    let mut answers = streams(&servers, post("/v3/watch", &create)).await;
    assert_eq!(next(&mut answers).await.unwrap()["result"]["created"], true);
    assert_eq!(next(&mut answers).await.unwrap()["result"]["events"][0]["kv"]["value"], text("1"));
    same(&servers, put("2")).await;
    assert_eq!(next(&mut answers).await.unwrap()["result"]["events"][0]["prev_kv"]["value"], text("1"));
    same(&servers, post("/v3/kv/deleterange", json!({ "key": key }))).await;
    assert_eq!(next(&mut answers).await.unwrap()["result"]["events"][0]["type"], "DELETE");
}

#[tokio::test]
async fn several_messages_go_into_one_request() {
    let servers = pair().await;
    let create = json!({ "create_request": { "key": text("/registry/a"), "watch_id": "7" } });
    let cancel = json!({ "cancel_request": { "watch_id": 7 } });
    let mut answers = streams(&servers, post("/v3/watch", format!("{create}\n{cancel} "))).await;
    assert_eq!(next(&mut answers).await.unwrap()["result"]["created"], true);
    assert_eq!(next(&mut answers).await.unwrap()["result"]["canceled"], true);
    same(&servers, post("/v3/lease/grant", json!({ "TTL": 600, "ID": 7 }))).await;
    let mut answers = streams(&servers, post("/v3/lease/keepalive", r#"{"ID":7}{"ID":9}"#)).await;
    assert_eq!(next(&mut answers).await.unwrap()["result"]["TTL"], "600");
    assert_eq!(next(&mut answers).await.unwrap()["result"].get("TTL"), None);
    assert_eq!(next(&mut answers).await, None);
    let mut answers = streams(&servers, post("/v3/lease/keepalive", "")).await;
    assert_eq!(next(&mut answers).await, None);
}

#[tokio::test]
async fn a_stream_ends_with_its_deadline_or_its_error() {
    let servers = pair().await;
    let request = Request::builder().method(Method::POST).uri("/v3/watch").header("grpc-timeout", "300m");
    let create = json!({ "create_request": { "key": text("/registry/a") } });
    let mut answers = streams(&servers, request.body(create.to_string()).unwrap()).await;
    assert_eq!(next(&mut answers).await.unwrap()["result"]["created"], true);
    // etcd has two messages for it, depending on which of its halves sees the end first.
    let [etcd, other] = &mut answers;
    let (etcd, other) = (etcd.line().await.unwrap(), other.line().await.unwrap());
    assert_eq!((&etcd["error"]["code"], &other["error"]["code"]), (&json!(4), &json!(4)), "{etcd} {other}");
    assert_eq!(other["error"]["message"], "context deadline exceeded");
    assert_eq!(next(&mut answers).await, None);
    for (path, body) in [("/v3/election/observe", "[]"), ("/v3/maintenance/snapshot", "null")] {
        let mut codes = Vec::new();
        for server in &servers {
            let answer = send(server, Way::Plain, post(path, body)).await;
            let status = answer.status;
            let said: Value = serde_json::from_str(&answer.text().await).unwrap();
            codes.push((status, said["code"].clone()));
        }
        assert_eq!((&codes[0], &codes[1]), (&(400, json!(3)), &(400, json!(3))), "{path}");
    }
    // etcd sends nothing for an invalid message in a stream, and leaves it open.
    for body in ["x", r#"{"create_request":"#, r#"{"create_request":{"key":5}}"#] {
        let mut answer = send(&servers[1], Way::Plain, post("/v3/watch", body)).await;
        assert_eq!(answer.status, 400, "{body}");
        assert_eq!(answer.line().await.unwrap()["error"]["code"], 3, "{body}");
    }
}

#[tokio::test]
async fn elections_are_observed() {
    let servers = pair().await;
    let name = text("/registry/election");
    same(&servers, post("/v3/lease/grant", json!({ "TTL": 600, "ID": 7 }))).await;
    let campaign = json!({ "name": name, "lease": 7, "value": text("me") });
    same(&servers, post("/v3/election/campaign", campaign)).await;
    let mut answers = streams(&servers, post("/v3/election/observe", json!({ "name": name }))).await;
    assert_eq!(next(&mut answers).await.unwrap()["result"]["kv"]["value"], text("me"));
}

#[tokio::test]
async fn snapshots_come_in_lines() {
    let servers = pair().await;
    same(&servers, post("/v3/kv/put", json!({ "key": text("/registry/a"), "value": text("1") }))).await;
    let mut answers = streams(&servers, post("/v3/maintenance/snapshot", "{}")).await;
    for answer in &mut answers {
        let (mut bytes, mut remaining) = (0, None);
        while let Some(line) = answer.line().await {
            bytes += line["result"]["blob"].as_str().map_or(0, str::len);
            remaining = line["result"].get("remaining_bytes").cloned();
        }
        assert!(bytes > 100 && remaining.is_none(), "{bytes} {remaining:?}");
    }
}

#[tokio::test]
async fn a_watch_outlives_the_end_of_its_requests() {
    for kind in [Kind::Etcd, Kind::under_test()] {
        let server = Server::start(kind).await;
        let create = WatchRequest { request_union: Some(RequestUnion::CreateRequest(watch_prefix("/registry/"))) };
        let mut client = WatchClient::new(server.channel().await);
        let mut answers = client.watch(tokio_stream::once(create)).await.unwrap().into_inner();
        assert!(answers.message().await.unwrap().unwrap().created);
        server.client().await.put(put("/registry/a", "1")).await.ok();
        assert_eq!(answers.message().await.unwrap().unwrap().events.len(), 1, "{kind:?}");
        // So does one over HTTP without a request, which gets no response before its first message.
        let asked = send(&server, Way::Plain, post("/v3/watch", ""));
        tokio::time::timeout(Duration::from_millis(300), asked).await.err().expect("the watch is not answered");
    }
}
