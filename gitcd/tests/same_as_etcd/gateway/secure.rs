//! The gateway over TLS, with HTTP/1.1 and HTTP/2.

use std::path::Path;

use serde_json::json;

use super::exchange::{Way, post, send};
use super::{comparable, compared_parts, text};
use crate::authority::{Authority, Pair};
use crate::support::{DATA, Kind, Launch, eventually, free_port};

fn file(folder: &Path, name: &str, contents: &str) -> String {
    let path = folder.join(name);
    std::fs::write(&path, contents).expect("the temporary folder is writable");
    path.display().to_string()
}

#[tokio::test]
async fn requests_are_answered_over_tls_by_either_protocol_and_the_client_is_known() {
    let authority = Authority::new("test");
    let Pair { cert, key } = authority.issue("server");
    let folder = tempfile::tempdir().unwrap();
    let [cert, key, trusted] = [("cert", &*cert), ("key", &*key), ("trusted", authority.pem())]
        .map(|(name, contents)| file(folder.path(), name, contents));
    let (port, secure) = (free_port(), free_port());
    let urls = format!("http://127.0.0.1:{port},https://127.0.0.1:{secure}");
    let etcd = Launch::new(Kind::Etcd)
        .port(port)
        .secure_at(secure)
        .argument(format!("--listen-client-urls={urls}"))
        .argument(format!("--advertise-client-urls={urls}"))
        .argument("--client-cert-auth")
        .argument(format!("--cert-file={cert}"))
        .argument(format!("--key-file={key}"))
        .argument(format!("--trusted-ca-file={trusted}"));
    let gitcd = Launch::new(Kind::Gitcd)
        .secure()
        .argument(format!("--tls-cert=default={cert}"))
        .argument(format!("--tls-key=default={key}"))
        .argument(format!("--tls-trusted-ca-certs=default={trusted}"));
    let (etcd, gitcd) = tokio::join!(etcd.start(), gitcd.start());
    let identity = authority.issue("curl user");
    let key = text("/registry/pods/default/a");
    for http2 in [false, true] {
        let way = Way::Secure { authority: authority.pem(), identity: &identity, http2 };
        for request in [
            post("/v3/kv/put", json!({ "key": key, "value": text("1") })),
            post("/v3/kv/range", json!({ "key": key })),
            post("/v3/kv/range", "{}"),
            post("/v3/kv/none", "{}"),
        ] {
            // In etcd, an error sometimes comes with gRPC's headers and sometimes without.
            let response = async |server| {
                let (status, kind, _, answer) = compared_parts(send(server, way, request.clone()).await).await;
                (status, kind, answer)
            };
            let answers = [response(&etcd).await, response(&gitcd).await];
            assert_eq!(answers[0], answers[1], "{http2} {request:?}");
        }
        let watch = json!({ "create_request": { "key": key, "start_revision": "2" } });
        let mut answers =
            [send(&etcd, way, post("/v3/watch", &watch)).await, send(&gitcd, way, post("/v3/watch", &watch)).await];
        for _ in 0..2 {
            let [etcd, gitcd] = &mut answers;
            let lines = [etcd.line().await.map(comparable), gitcd.line().await.map(comparable)];
            assert!(lines[0].is_some());
            assert_eq!(lines[0], lines[1], "{http2}");
        }
    }
    let log = eventually("the commit", async || {
        let log = gitcd.repository().git(&["log", "--format=%s|%(trailers:key=Client,valueonly,separator=;)", DATA]);
        (log.lines().count() > 1).then_some(log)
    })
    .await;
    assert!(log.lines().any(|line| line.starts_with("create pods/default/a|curl user")), "{log}");
}
