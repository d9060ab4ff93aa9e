//! Web pages and probes: methods, headers, and paths that do not exist.

use http::{Method, Request};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

use super::exchange::{Way, send};
use super::pair;
use crate::support::{Kind, PATIENCE, Server, eventually};

const HEADERS: [&str; 3] = ["content-type", "allow", "x-content-type-options"];

#[tokio::test]
async fn pages_take_the_methods_and_have_the_heads_that_etcds_have() {
    let servers = pair().await;
    for path in [
        "/health",
        "/version",
        "/livez",
        "/livez?verbose",
        "/livez/serializable_read",
        "/readyz",
        "/readyz?exclude=non_learner&verbose",
        "/readyz/data_corruption?exclude=data_corruption&verbose",
        "/readyz/",
        "/readyz/none",
        "/debug/vars",
        "/debug/pprof/",
        "/metrics",
        "/none",
        "/",
        "/v3alpha/kv/range",
        "/etcdserverpb.KV/Range",
    ] {
        for method in [Method::GET, Method::HEAD, Method::POST, Method::PUT, Method::OPTIONS] {
            let request = Request::builder().method(method).uri(path).body(String::new()).unwrap();
            let mut said = Vec::new();
            for server in &servers {
                let answer = send(server, Way::Plain, request.clone()).await;
                let head = (answer.status, HEADERS.map(|name| answer.header(name)));
                let text = answer.text().await;
                // The order of checks is random in etcd, and variables and metrics have each server's own values.
                let mut lines: Vec<_> = text.lines().map(ToOwned::to_owned).collect();
                lines.sort();
                if ["/debug/vars", "/metrics", "/version"].contains(&path) && head.0 == 200 {
                    lines.clear();
                }
                said.push((head, lines));
            }
            assert_eq!(said[0], said[1], "{request:?}");
        }
    }
}

#[tokio::test]
async fn variables_are_json() {
    let servers = pair().await;
    for server in &servers {
        let variables: serde_json::Value = serde_json::from_str(&server.page("/debug/vars").await).unwrap();
        assert!(variables["cmdline"].as_array().is_some_and(|words| words.len() > 1), "{variables}");
        assert!(variables["file_descriptor_limit"].as_u64().is_some_and(|limit| limit > 10), "{variables}");
        assert_eq!(variables["raft.status"]["raftState"], "StateLeader");
        assert_eq!(variables["raft.status"]["id"], variables["raft.status"]["lead"]);
        // etcd serves before its cluster version is set.
        let versions = eventually("the version of the cluster", async || {
            let versions: serde_json::Value = serde_json::from_str(&server.page("/version").await).unwrap();
            (versions["etcdcluster"] == "3.6.0").then_some(versions)
        })
        .await;
        assert!(versions["etcdserver"].is_string() && versions["storage"].is_string(), "{versions}");
    }
}

/// Sends these bytes and returns the status and body of the response, once the server closes the connection.
async fn said(server: &Server, request: &str) -> (String, Option<String>) {
    let mut stream = TcpStream::connect(server.address()).await.expect("the server is listening");
    stream.write_all(request.as_bytes()).await.expect("the server reads its input");
    let mut answer = String::new();
    tokio::time::timeout(PATIENCE, stream.read_to_string(&mut answer))
        .await
        .expect("the server closes the connection")
        .expect("the response is UTF-8");
    let status = answer.split_whitespace().nth(1).unwrap_or_default().to_owned();
    (status, answer.split_once("\r\n\r\n").map(|(_, body)| body.to_owned()))
}

#[tokio::test]
async fn a_request_has_one_host() {
    let servers = pair().await;
    for head in ["", "Host: a\r\nHost: b\r\n", "Host: a\r\n"] {
        for path in ["/health", "/v3/kv/range"] {
            let request = format!("GET {path} HTTP/1.1\r\n{head}Connection: close\r\n\r\n");
            let answers = [said(&servers[0], &request).await, said(&servers[1], &request).await];
            assert_eq!(answers[0], answers[1], "{request}");
            assert_eq!(answers[0].0 == "400", head != "Host: a\r\n", "{request}");
        }
    }
    let old = "GET /health HTTP/1.0\r\n\r\n";
    assert_eq!(said(&servers[0], old).await, said(&servers[1], old).await);
}

#[tokio::test]
async fn grpc_needs_http_2() {
    let servers = pair().await;
    let mut answers = Vec::new();
    for server in &servers {
        let request = Request::builder().method(Method::POST).uri("/etcdserverpb.KV/Range");
        let request = request.header("content-type", "application/grpc").body("\0\0\0\0\0".to_owned()).unwrap();
        let answer = send(server, Way::Plain, request).await;
        answers.push((answer.status, HEADERS.map(|name| answer.header(name)), answer.text().await));
    }
    assert_eq!(answers[0], answers[1]);
    assert_eq!(answers[0].0, 404);
}

#[tokio::test]
async fn figures_come_in_the_format_that_is_asked_for() {
    let server = Server::start(Kind::Gitcd).await;
    for (accept, kind) in [
        ("*/*", "text/plain; version=0.0.4"),
        ("text/plain", "text/plain; version=0.0.4"),
        ("application/openmetrics-text;version=1.0.0,text/plain;q=0.5", "application/openmetrics-text; version=1.0.0"),
    ] {
        let request = Request::builder().uri("/metrics").header("accept", accept).body(String::new()).unwrap();
        let answer = send(&server, Way::Plain, request).await;
        assert!(answer.header("content-type").is_some_and(|given| given.starts_with(kind)), "{accept}");
        let text = answer.text().await;
        let open = kind.starts_with("application");
        assert_eq!(text.ends_with("# EOF\n"), open, "{accept}");
        assert_eq!(text.contains("\n# TYPE etcd_mvcc_put counter"), open, "{accept}");
        assert_eq!(text.contains("\n# TYPE etcd_mvcc_put_total counter"), !open, "{accept}");
    }
}
