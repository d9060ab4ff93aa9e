//! Unusable certificates and keys.

use std::path::{Path, PathBuf};

use super::explains;
use crate::support::{Kind, Launch, Server, eventually};

/// A folder with a branch and PEM files.
struct Files {
    folder: tempfile::TempDir,
}

impl Files {
    fn new() -> Self {
        let folder = tempfile::tempdir().expect("the temporary folder is writable");
        crate::support::Repository::init(&folder.path().join("repo.git"));
        let files = Self { folder };
        for name in ["one", "other"] {
            let pair = rcgen::generate_simple_self_signed(["localhost".to_owned()]).expect("a host name is enough");
            files.write(&format!("{name}.crt"), &pair.cert.pem());
            files.write(&format!("{name}.key"), &pair.signing_key.serialize_pem());
        }
        files.write("text.pem", "not a certificate\n");
        files.write("empty.pem", "");
        files.write("broken.pem", "-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n");
        files.write("broken.key", "-----BEGIN PRIVATE KEY-----\nAAAA\n-----END PRIVATE KEY-----\n");
        files
    }

    fn write(&self, name: &str, content: &str) {
        std::fs::write(self.path(name), content).expect("the temporary folder is writable");
    }

    fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    /// Starts a server over TLS with these files.
    fn launch(&self, cert: &str, key: &str, authority: Option<&str>) -> Server {
        let argument = |flag: &str, path: &Path| format!("--{flag}=default={}", path.display());
        let mut launch = Launch::new(Kind::Gitcd)
            .folder(self.folder.path())
            .argument("--listen-urls=default=https://127.0.0.1:0")
            .argument(argument("tls-cert", &self.path(cert)))
            .argument(argument("tls-key", &self.path(key)));
        if let Some(authority) = authority {
            launch = launch.argument(argument("tls-trusted-ca-certs", &self.path(authority)));
        }
        launch.spawn()
    }
}

#[tokio::test]
async fn a_file_that_cannot_be_used_is_named() {
    let files = Files::new();
    for (cert, key, authority, culprit) in [
        ("none.crt", "one.key", None, "none.crt"),
        ("text.pem", "one.key", None, "text.pem"),
        ("empty.pem", "one.key", None, "empty.pem"),
        ("broken.pem", "one.key", None, "broken.pem"),
        ("one.key", "one.key", None, "one.key"),
        ("one.crt", "none.key", None, "none.key"),
        ("one.crt", "text.pem", None, "text.pem"),
        ("one.crt", "broken.key", None, "broken.key"),
        ("one.crt", "one.crt", None, "one.crt"),
        ("one.crt", "other.key", None, "other.key"),
        ("one.crt", "one.key", Some("none.crt"), "none.crt"),
        ("one.crt", "one.key", Some("text.pem"), "text.pem"),
        ("one.crt", "one.key", Some("broken.pem"), "broken.pem"),
        ("one.crt", "one.key", Some("one.key"), "one.key"),
    ] {
        let exit = files.launch(cert, key, authority).exit().await;
        let case = format!("{cert}, {key}, {authority:?}");
        explains(&exit, &["TLS", files.path(culprit).to_str().expect("the path is UTF-8")]);
        for innocent in [cert, key, authority.unwrap_or(cert)].iter().filter(|name| **name != culprit) {
            let together = culprit == "other.key" && *innocent == "one.crt";
            let named = exit.output.contains(files.path(innocent).to_str().expect("the path is UTF-8"));
            assert!(!named || together, "{case}: {}", exit.output);
        }
    }
}

#[tokio::test]
async fn good_files_are_served_with() {
    let files = Files::new();
    for authority in [None, Some("other.crt")] {
        let server = files.launch("one.crt", "one.key", authority);
        eventually("the listener", async || server.output().contains("serving").then_some(())).await;
    }
}
