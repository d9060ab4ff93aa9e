//! Certificates that change while the server runs.

use std::path::Path;

use super::Files;
use super::authority::Authority;
use super::client::{connect, shown};
use super::support::build::{get, put};

fn replace(path: &Path, content: &str) {
    // Replaced atomically, as certificate rotation does.
    let next = path.with_extension("next");
    std::fs::write(&next, content).expect("the temporary folder is writable");
    std::fs::rename(next, path).expect("the temporary folder is writable");
}

#[tokio::test]
async fn new_connections_get_new_certificates_and_old_connections_live_on() {
    let files = Files::new();
    let server = files.launch_mutual().start().await;
    let address = server.secure_address();
    let identity = files.clients.issue("before");
    let mut before = connect(address, &files, Some(&identity)).await.unwrap();
    before.put(put("/a", "1")).await.unwrap();
    let first = shown(address, &files).await;
    assert_eq!(shown(address, &files).await, first);

    files.install(&files.servers.issue("renewed"));
    assert_ne!(shown(address, &files).await, first);
    before.put(put("/a", "2")).await.expect("an open connection keeps its certificate");

    // Another CA for clients, too.
    let others = Authority::new("others");
    replace(&files.authority(), others.pem());
    if let Ok(mut client) = connect(address, &files, Some(&identity)).await {
        client.range(get("/a")).await.expect_err("the old CA is no longer trusted");
    }
    let newcomer = others.issue("after");
    let mut after = connect(address, &files, Some(&newcomer)).await.unwrap();
    after.put(put("/a", "3")).await.unwrap();
    before.put(put("/a", "4")).await.expect("an open connection keeps its certificate");
    assert_eq!(server.output().matches("reloaded certificates").count(), 2, "{}", server.output());
}

#[tokio::test]
async fn unusable_new_files_leave_the_old_certificates_and_one_warning() {
    let files = Files::new();
    let server = files.launch().start().await;
    let address = server.secure_address();
    let first = shown(address, &files).await;
    let next = files.servers.issue("next");

    replace(&files.cert(), "-----BEGIN CERTIFICATE-----\nnonsense\n-----END CERTIFICATE-----\n");
    for _ in 0..5 {
        assert_eq!(shown(address, &files).await, first);
    }
    // Skip the startup warning about the listener without TLS.
    let warnings = |log: &str| {
        let since = log.lines().skip_while(|line| !line.contains("serving"));
        since.filter(|line| line.contains("WARN")).map(ToOwned::to_owned).collect::<Vec<_>>()
    };
    let log = server.output();
    assert_eq!(warnings(&log).len(), 1, "{log}");
    assert!(warnings(&log)[0].contains(&files.cert().display().to_string()), "{log}");

    // A certificate must not be used before its key has been replaced, too.
    replace(&files.cert(), &next.cert);
    assert_eq!(shown(address, &files).await, first);
    std::fs::remove_file(files.key()).unwrap();
    assert_eq!(shown(address, &files).await, first);
    replace(&files.key(), &next.key);
    assert_ne!(shown(address, &files).await, first);
    assert_eq!(warnings(&server.output()).len(), 1, "{}", server.output());
}
