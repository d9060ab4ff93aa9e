//! Client authentication, and the client's name in commits.

use tokio::io::AsyncReadExt;
use tokio::net::TcpStream;
use tokio_rustls::rustls::version;

use super::Files;
use super::authority::{Authority, Pair};
use super::client::{AGENT, Hello, connect, fetch, handshake};
use super::support::build::{get, put};
use super::support::{DATA, Server, eventually};

/// Returns the error of a client that the server rejects.
async fn refusal(server: &Server, files: &Files, identity: Option<&Pair>, hello: Hello<'_>) -> String {
    let hello = Hello { identity, protocols: &["http/1.1"], ..hello };
    let error =
        fetch(server.secure_address(), &files.servers, hello, "/health").await.expect_err("the client is rejected");
    error.to_string()
}

#[tokio::test]
async fn clients_need_a_certificate_of_a_trusted_authority() {
    let files = Files::new();
    let server = files.launch_mutual().start().await;
    let stranger = Authority::new("clients").issue("kube-apiserver");
    let older = Hello { version: &version::TLS12, ..Hello::default() };
    for hello in [Hello::default(), older] {
        let none = refusal(&server, &files, None, hello).await;
        assert!(none.contains("CertificateRequired") || none.contains("HandshakeFailure"), "{none}");
        let wrong = refusal(&server, &files, Some(&stranger), hello).await;
        assert!(wrong.contains("fatal alert"), "{wrong}");
    }
    for identity in [None, Some(&stranger)] {
        // Rejected during the handshake or at the first request: with TLS 1.3, both are possible.
        if let Ok(mut client) = connect(server.secure_address(), &files, identity).await {
            client.range(get("/a")).await.expect_err("the client is rejected");
        }
    }
    let friend = files.clients.issue("kube-apiserver");
    let mut client = connect(server.secure_address(), &files, Some(&friend)).await.expect("the client is accepted");
    client.put(put("/a", "1")).await.unwrap();

    // Clients that retry are rejected again.
    eventually("all rejections to be logged", async || {
        let log = server.output();
        let refused = |line: &&str| line.contains("TLS handshake failed") && line.contains("address=127.0.0.1:");
        (log.lines().filter(refused).count() >= 6).then_some(())
    })
    .await;
    // No rejected request reached the store.
    assert_eq!(client.range(get("/a")).await.unwrap().into_inner().header.unwrap().revision, 2);
}

#[tokio::test]
async fn a_handshake_that_fails_is_warned_of_with_the_client_and_the_reason_but_not_each_time() {
    let files = Files::new();
    let trusted = format!("--tls-trusted-ca-certs=default={}", files.authority().display());
    let server = files.launch_quiet().argument(trusted).start().await;
    for _ in 0..5 {
        refusal(&server, &files, None, Hello::default()).await;
    }
    // The last, successful handshake shows that the others are over.
    let friend = files.clients.issue("kube-apiserver");
    connect(server.secure_address(), &files, Some(&friend)).await.expect("the client is accepted");
    let log = eventually("a warning", async || Some(server.output()).filter(|log| log.contains("TLS handshake"))).await;
    let warnings: Vec<_> = log.lines().filter(|line| line.contains("TLS handshake failed")).collect();
    let [warning] = &warnings[..] else { panic!("expected one warning: {log}") };
    for part in ["WARN", "address=127.0.0.1:", "peer sent no certificates"] {
        assert!(warning.contains(part), "{part}: {warning}");
    }
}

#[tokio::test]
async fn commits_name_the_certificate_and_the_software_of_a_client() {
    let files = Files::new();
    let server = files.launch_mutual().start().await;
    let named = files.clients.issue("kube-apiserver");
    let mut secure = connect(server.secure_address(), &files, Some(&named)).await.unwrap();
    secure.put(put("/registry/pods/default/a", "1")).await.unwrap();
    let plain = server.client().await;
    plain.put(put("/registry/pods/default/b", "1")).await.ok();

    let log = eventually("both commits", async || {
        let log = server.repository().git(&["log", "--format=%s|%(trailers:key=Client,valueonly,separator=;)", DATA]);
        (log.lines().count() > 2).then_some(log)
    })
    .await;
    let client = |key: &str| log.lines().find_map(|line| line.strip_prefix(&format!("create pods/default/{key}|")));
    let (a, b) = (client("a").unwrap(), client("b").unwrap());
    assert!(a.starts_with(&format!("kube-apiserver ({AGENT} tonic/")) && a.ends_with(')'), "{log}");
    assert!(b.starts_with("tonic/"), "a client without a certificate must have no name: {log}");
}

#[tokio::test]
async fn the_name_in_a_commit_survives_a_crash_before_the_commit() {
    let files = Files::new();
    let mut server = files.launch_mutual().start().await;
    let named = files.clients.issue("crash test\ndummy");
    let mut client = connect(server.secure_address(), &files, Some(&named)).await.unwrap();
    client.put(put("/registry/pods/default/a", "1")).await.unwrap();
    server.kill();
    server.restart().await;
    server.terminate().await;
    let log = server.repository().git(&["log", "--format=%(trailers:key=Client,valueonly)", DATA]);
    assert!(log.contains(&format!("crash test dummy ({AGENT}")), "{log}");
}

#[tokio::test]
async fn clients_that_never_finish_a_handshake_hold_up_nobody() {
    let files = Files::new();
    let server = files.launch().start().await;
    let mut silent = Vec::new();
    for _ in 0..50 {
        silent.push(TcpStream::connect(server.secure_address()).await.unwrap());
    }
    let mut client = connect(server.secure_address(), &files, None).await.unwrap();
    client.put(put("/a", "1")).await.unwrap();
    handshake(server.secure_address(), &files.servers, Hello::default()).await.unwrap();
    // The handshake timeout closes them.
    for mut stream in silent {
        assert_eq!(stream.read(&mut [0; 1]).await.unwrap_or(0), 0);
    }
    eventually("all timeouts to be logged", async || {
        (server.output().matches("timed out").count() == 50).then_some(())
    })
    .await;
}
