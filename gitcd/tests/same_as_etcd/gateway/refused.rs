//! Requests that the gateway refuses, and its errors.

use http::{Method, Request};
use serde_json::{Value, json};

use super::exchange::{Way, post, send};
use super::{compared_parts, pair, same, text};
use crate::support::{Kind, Launch, Server, eventually};

#[tokio::test]
async fn errors_have_grpcs_code_and_the_status_that_belongs_to_it() {
    let servers = pair().await;
    let with = |method: Method, path: &str| Request::builder().method(method).uri(path).body("{}".to_owned()).unwrap();
    let timed = |timeout: &str| {
        let request = Request::builder().method(Method::POST).uri("/v3/kv/range").header("grpc-timeout", timeout);
        request.body(json!({ "key": "eA==" }).to_string()).unwrap()
    };
    for (request, status) in [
        (post("/v3/kv/range", "{}"), 400),
        (post("/v3/kv/range", ""), 400),
        (post("/v3/kv/range", json!({ "key": "eA==", "revision": 100 })), 400),
        (post("/v3/kv/range", json!({ "key": "eA==", "sort_target": 77 })), 400),
        (post("/v3/kv/put", json!({ "key": "eA==", "lease": 9 })), 404),
        (post("/v3/lease/revoke", json!({ "ID": 9 })), 404),
        (post("/v3/election/leader", json!({ "name": text("/registry/none") })), 500),
        (post("/v3/kv/none", "{}"), 404),
        (post("/v3/kv/range/", "{}"), 404),
        (post("/v3/", "{}"), 404),
        (with(Method::GET, "/v3/kv/range"), 501),
        (with(Method::PUT, "/v3/kv/range"), 501),
        (with(Method::GET, "/v3/watch"), 501),
        (timed("x"), 400),
        (timed("0n"), 200),
        (timed("1H"), 200),
    ] {
        let (answered, _, _, answer) = same(&servers, request.clone()).await;
        assert_eq!(answered, status, "{request:?}: {answer}");
    }
}

#[tokio::test]
async fn bad_json_is_refused_and_changes_nothing() {
    let servers = pair().await;
    for body in [
        "null",
        "[]",
        "x",
        "\"x\"",
        r#"{"key":"#,
        r#"{"key":"eA=="#,
        r#"{"key":"!!","value":"eA=="}"#,
        r#"{"key":5}"#,
        r#"{"key":"eA==","lease":"x"}"#,
        r#"{"key":"eA==","lease":1.5}"#,
        r#"{"key":"eA==","lease":99999999999999999999}"#,
        r#"{"key":"eA==","prev_kv":"true"}"#,
        r#"{"key":"eA==","key":"eA=="}"#,
        r#"{"key":"eA==","prev_kv":true,"prevKv":true}"#,
        r#"{"key":{}}"#,
        r#"{"key" "eA=="}"#,
    ] {
        // The messages differ.
        let answers = async |server| {
            let (status, kind, metadata, answer) =
                compared_parts(send(server, Way::Plain, post("/v3/kv/put", body)).await).await;
            assert!(answer["message"].as_str().is_some_and(|message| !message.is_empty()), "{body}: {answer}");
            (status, kind, metadata, answer["code"].clone())
        };
        let (etcd, other) = (answers(&servers[0]).await, answers(&servers[1]).await);
        assert_eq!(etcd, other, "{body}");
        assert_eq!((etcd.0, etcd.3), (400, json!(3)), "{body}");
    }
    let (.., answer) = same(&servers, post("/v3/kv/range", json!({ "key": "eA==" }))).await;
    assert_eq!((&answer["header"]["revision"], &answer["kvs"]), (&json!("1"), &Value::Null));
}

#[tokio::test]
async fn limits_are_those_of_grpc() {
    let servers = pair().await;
    let large =
        |bytes: usize| post("/v3/kv/put", json!({ "key": text("/registry/a"), "value": text(&"x".repeat(bytes)) }));
    let (status, ..) = same(&servers, large(1_400_000)).await;
    assert_eq!(status, 200);
    let (status, .., answer) = same(&servers, large(1_600_000)).await;
    assert_eq!((status, &answer["message"]), (400, &json!("etcdserver: request is too large")));
    // Sent to gitcd alone, which refuses to read that much.
    let (status, .., answer) = compared_parts(send(&servers[1], Way::Plain, large(30_000_000)).await).await;
    assert_eq!((status, &answer["code"]), (429, &json!(8)));
    let ops = |number: usize| json!({ "success": vec![json!({ "request_range": { "key": "eA==" } }); number] });
    assert_eq!(same(&servers, post("/v3/kv/txn", ops(128))).await.0, 200);
    assert_eq!(same(&servers, post("/v3/kv/txn", ops(129))).await.0, 400);
}

#[tokio::test]
async fn requests_are_counted_as_those_of_grpc() {
    let server = Server::start(Kind::Gitcd).await;
    for body in ["{}", r#"{"key":"eA=="}"#] {
        send(&server, Way::Plain, post("/v3/kv/put", body)).await.text().await;
    }
    let counted = async |code: &str| {
        let page = server.page("/metrics").await;
        let wanted = ["grpc_server_handled_total{", "grpc_service=\"etcdserverpb.KV\"", "grpc_method=\"Put\"", code];
        let line = page.lines().find(|line| wanted.iter().all(|part| line.contains(part)));
        line.and_then(|line| line.rsplit(' ').next()?.parse::<u64>().ok())
    };
    for code in ["grpc_code=\"OK\"", "grpc_code=\"InvalidArgument\""] {
        eventually("the count", async || counted(code).await.filter(|count| *count == 1)).await;
    }
}

#[tokio::test]
async fn web_pages_may_send_requests_only_if_that_is_allowed() {
    let from = |origin: &str| {
        let request = Request::builder().method(Method::POST).uri("/v3/kv/range").header("origin", origin);
        request.body(r#"{"key":"eA=="}"#.to_owned()).unwrap()
    };
    let server = Server::start(Kind::Gitcd).await;
    let answer = send(&server, Way::Plain, from("http://page.example")).await;
    assert_eq!((answer.status, answer.header("access-control-allow-origin")), (403, None));
    assert!(answer.text().await.contains("--cors=http://page.example"));

    let allowing = Launch::new(Kind::Gitcd).argument("--cors=http://page.example").start().await;
    let answer = send(&allowing, Way::Plain, from("http://page.example")).await;
    let allowed = answer.header("access-control-allow-origin");
    assert_eq!((answer.status, allowed.as_deref()), (200, Some("http://page.example")));
    assert_eq!(send(&allowing, Way::Plain, from("http://other.example")).await.status, 403);

    // etcd allows all origins by default.
    let (etcd, all) = tokio::join!(Server::start(Kind::Etcd), Launch::new(Kind::Gitcd).argument("--cors=*").start());
    for request in [from("http://page.example"), post("/v3/kv/range", "{}"), asked("/v3/kv/range"), asked("/health")] {
        let mut heads = Vec::new();
        for server in [&etcd, &all] {
            let answer = send(server, Way::Plain, request.clone()).await;
            let names = ["allow-origin", "allow-methods", "allow-headers"];
            let headers = names.map(|name| answer.header(&format!("access-control-{name}")));
            assert!(headers.iter().all(Option::is_some), "{request:?}: {headers:?}");
            heads.push((answer.status, headers));
        }
        assert_eq!(heads[0], heads[1], "{request:?}");
    }
}

/// A browser's preflight request for a cross-origin request.
fn asked(path: &str) -> Request<String> {
    Request::builder().method(Method::OPTIONS).uri(path).body(String::new()).expect("the path is valid")
}
