//! Credentials and plain HTTP: they are sent over it only on this machine, unless it is allowed.

use std::path::Path;
use std::process::Command;
use std::sync::Arc;

use axum::http::{StatusCode, header};
use axum::response::IntoResponse as _;
use gitcd::pull::status::Condition;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio_rustls::TlsAcceptor;
use tokio_rustls::rustls::ServerConfig;
use tokio_rustls::rustls::crypto::ring::default_provider;
use tokio_rustls::rustls::pki_types::pem::PemObject as _;
use tokio_rustls::rustls::pki_types::{CertificateDer, PrivateKeyDer};

use crate::authority::Authority;
use crate::secrets::{ReceivedCredentials, listener, noting_git};
use crate::support::eventually;
use crate::world::{Following, ONE, remote};

/// An address that is not one of loopback, though it leads to this machine.
const OTHER_MACHINE: &str = "0.0.0.0";
const ALLOWED: &str = "--allow-plain-http-credentials";

/// A server without TLS that asks for credentials, and rejects all.
async fn rejecting() -> (u16, ReceivedCredentials) {
    listener(|| (StatusCode::UNAUTHORIZED, [(header::WWW_AUTHENTICATE, "Basic realm=x")]).into_response()).await
}

fn sent(received: &ReceivedCredentials) -> usize {
    received.lock().expect("no thread panics while holding the lock").iter().flatten().count()
}

/// Ways to give credentials for a URL, with the URL.
fn ways(folder: &Path, port: u16) -> Vec<(String, Option<String>)> {
    let write = |name: &str, text: &str| {
        let path = folder.join(name);
        std::fs::create_dir_all(path.parent().expect("it is below the folder")).expect("the folder is writable");
        std::fs::write(&path, text).expect("the folder is writable");
        path.display().to_string()
    };
    let url = format!("http://{OTHER_MACHINE}:{port}/up.git");
    let line = format!("http://ann:s3cret@{OTHER_MACHINE}:{port}\n");
    write("secret/password", "s3cret");
    write("list/.git-credentials", &line);
    let flag = |name: &str, value: String| Some(format!("--{name}={value}"));
    vec![
        (url.clone(), flag("token-file", write("token", "s3cret"))),
        (url.clone(), flag("credentials-file", write("credentials", &line))),
        (url.clone(), flag("credentials-folder", folder.join("secret").display().to_string())),
        (url.clone(), flag("credentials-folder", folder.join("list").display().to_string())),
        (url.replace("://", "://ann:s3cret@"), None),
    ]
}

#[tokio::test]
async fn credentials_are_not_sent_over_plain_http_to_another_machine_unless_it_is_allowed() {
    let folder = tempfile::tempdir().expect("the temporary folder is writable");
    for is_program in [false, true] {
        for is_allowed in [false, true] {
            let (port, received) = rejecting().await;
            for (url, flag) in ways(folder.path(), port) {
                let before = sent(&received);
                let following = flag.iter().fold(Following::new(&url), Following::argument);
                let following = if is_allowed { following.argument(ALLOWED) } else { following };
                let following = if is_program { following.setting("http.userAgent", "special") } else { following };
                let follower = following.start().await;
                follower.put(ONE, "1").await;
                if is_allowed {
                    follower.fails_with(Condition::Denied, &[OTHER_MACHINE]).await;
                    assert!(sent(&received) > before, "{flag:?} {is_program}");
                } else {
                    let shown = format!("not sent to http://{OTHER_MACHINE}:{port}/up.git");
                    follower.fails_with(Condition::Failed, &[&shown, "https://", ALLOWED]).await;
                    assert_eq!(sent(&received), 0, "{flag:?} {is_program}");
                }
                let error = remote(&follower.server).await.error.unwrap_or_default();
                assert!(!error.contains("s3cret"), "{error}");
            }
        }
    }
}

#[tokio::test]
async fn credential_helpers_of_git_are_not_asked_for_plain_http_to_another_machine() {
    let (port, received) = rejecting().await;
    let folder = tempfile::tempdir().expect("the temporary folder is writable");
    let asked = folder.path().join("asked");
    let helper = format!("!f() {{ touch '{}'; echo username=ann; echo password=s3cret; }}; f", asked.display());
    let url = format!("http://{OTHER_MACHINE}:{port}/up.git");
    let follower = Following::new(&url).setting("credential.helper", &helper).start().await;
    follower.put(ONE, "1").await;
    follower.fails_with(Condition::Denied, &["plain HTTP", "https://", ALLOWED]).await;
    assert!(!asked.exists() && sent(&received) == 0);
    drop(follower);
    let follower = Following::new(&url).setting("credential.helper", &helper).argument(ALLOWED).start().await;
    follower.put(ONE, "1").await;
    eventually("the helper's password", async || (sent(&received) > 0).then_some(())).await;
    assert!(asked.exists());
}

#[tokio::test]
async fn without_credentials_plain_http_is_used_as_before() {
    let (port, received) = rejecting().await;
    let follower = Following::new(&format!("http://{OTHER_MACHINE}:{port}/up.git")).start().await;
    follower.put(ONE, "1").await;
    follower.fails_with(Condition::Denied, &[OTHER_MACHINE]).await;
    assert!(!received.lock().expect("no thread panics while holding the lock").is_empty() && sent(&received) == 0);
}

#[test]
fn a_preparation_fails_at_once_and_says_what_to_do() {
    let folder = tempfile::tempdir().expect("the temporary folder is writable");
    std::fs::write(folder.path().join("token"), "s3cret").expect("the temporary folder is writable");
    // Nothing is listening there: the error must precede any connection.
    let url = "http://ann@192.0.2.1/up.git";
    let prepared = Command::new(env!("CARGO_BIN_EXE_gitcd"))
        .arg("prepare")
        .arg(format!("--repo={}", folder.path().join("repo.git").display()))
        .arg(format!("--token-file={}", folder.path().join("token").display()))
        .args([&format!("--remote-url={url}"), "--wait=10m"])
        .output()
        .expect("gitcd can be started");
    let said = String::from_utf8_lossy(&prepared.stderr);
    assert!(!prepared.status.success() && said.contains("not sent to http://192.0.2.1/up.git"), "{said}");
    assert!(said.contains(ALLOWED) && !said.contains("s3cret"), "{said}");
}

/// Starts a server with TLS that redirects every request to another base URL.
async fn redirecting(authority: &Authority, to: String) -> u16 {
    let pair = authority.issue("host");
    let chain = vec![CertificateDer::from_pem_slice(pair.cert.as_bytes()).expect("a generated certificate is valid")];
    let key = PrivateKeyDer::from_pem_slice(pair.key.as_bytes()).expect("a generated key is valid");
    let config = ServerConfig::builder_with_provider(default_provider().into())
        .with_safe_default_protocol_versions()
        .expect("cipher suites exist for these versions")
        .with_no_client_auth()
        .with_single_cert(chain, key)
        .expect("key and certificate match");
    let (acceptor, listener) =
        (TlsAcceptor::from(Arc::new(config)), tokio::net::TcpListener::bind("127.0.0.1:0").await);
    let listener = listener.expect("a free port exists");
    let port = listener.local_addr().expect("the listener is bound").port();
    tokio::spawn(async move {
        while let Ok((stream, _)) = listener.accept().await {
            let (acceptor, to) = (acceptor.clone(), to.clone());
            tokio::spawn(async move {
                let mut stream = acceptor.accept(stream).await?;
                let mut request = Vec::new();
                while !request.windows(4).any(|bytes| bytes == b"\r\n\r\n") && stream.read_buf(&mut request).await? > 0
                {
                }
                let request = String::from_utf8_lossy(&request).into_owned();
                let path = request.split(' ').nth(1).unwrap_or_default();
                let answer = format!(
                    "HTTP/1.1 302 Found\r\nLocation: {to}{path}\r\nContent-Length: 0\r\nConnection: close\r\n\r\n"
                );
                stream.write_all(answer.as_bytes()).await?;
                stream.shutdown().await
            });
        }
    });
    port
}

#[tokio::test]
async fn a_redirection_from_https_to_plain_http_is_not_followed() {
    let (plain, received) = rejecting().await;
    let authority = Authority::new("trusted");
    let port = redirecting(&authority, format!("http://localhost:{plain}")).await;
    let folder = tempfile::tempdir().expect("the temporary folder is writable");
    let trusted = folder.path().join("trusted.pem");
    std::fs::write(&trusted, authority.pem()).expect("the temporary folder is writable");
    let lines = format!("https://ann:s3cret@127.0.0.1:{port}\nhttp://ann:s3cret@localhost:{plain}\n");
    std::fs::write(folder.path().join("credentials"), lines).expect("the temporary folder is writable");
    let (log, path) = noting_git(folder.path());
    let following = || {
        Following::new(&format!("https://127.0.0.1:{port}/up.git"))
            .argument(format!("--credentials-file={}", folder.path().join("credentials").display()))
            .argument(format!("--remote-cacert={}", trusted.display()))
            .variable("PATH", &path)
    };
    let follower = following().start().await;
    follower.put(ONE, "1").await;
    follower.fails_with(Condition::Unreachable, &["redirects from https:// to http://", ALLOWED]).await;
    assert!(std::fs::read_to_string(&log).unwrap().contains("ls-remote"), "git must have been run");
    assert!(received.lock().unwrap().is_empty(), "no request must arrive over plain HTTP");
    drop(follower);
    // Allowed, it is followed, with the credentials that are for the other server.
    let follower = following().argument(ALLOWED).start().await;
    follower.put(ONE, "1").await;
    eventually("credentials over plain HTTP", async || (sent(&received) > 0).then_some(())).await;
}
