//! TLS: client authentication, protocols, client names in commits, and certificate reloads.

#[path = "../support/mod.rs"]
#[allow(dead_code, unused_imports, reason = "each test program uses a part of it")]
mod support;

mod authority;
mod client;
mod identity;
mod protocol;
mod reload;
mod start;

use std::path::{Path, PathBuf};

use tempfile::TempDir;

use authority::{Authority, Pair};
use support::{Kind, Launch};

/// The files of a server that authenticates clients by certificate.
struct Files {
    folder: TempDir,
    /// Signs the server's certificate.
    servers: Authority,
    /// Signs the clients' certificates.
    clients: Authority,
}

impl Files {
    fn new() -> Self {
        let files = Self {
            folder: tempfile::tempdir().expect("the temporary folder is writable"),
            servers: Authority::new("servers"),
            clients: Authority::new("clients"),
        };
        files.install(&files.servers.issue("gitcd"));
        std::fs::write(files.authority(), files.clients.pem()).expect("the temporary folder is writable");
        files
    }

    /// Replaces the server's certificate and key.
    fn install(&self, pair: &Pair) {
        std::fs::write(self.cert(), &pair.cert).expect("the temporary folder is writable");
        std::fs::write(self.key(), &pair.key).expect("the temporary folder is writable");
    }

    fn cert(&self) -> PathBuf {
        self.folder.path().join("server.crt")
    }

    fn key(&self) -> PathBuf {
        self.folder.path().join("server.key")
    }

    fn authority(&self) -> PathBuf {
        self.folder.path().join("clients.crt")
    }

    /// TLS without client authentication, at debug level.
    fn launch(&self) -> Launch {
        self.launch_quiet().argument("--debug")
    }

    /// Like [`Files::launch`], at the default log level.
    fn launch_quiet(&self) -> Launch {
        let flag = |name: &str, path: &Path| format!("--{name}=default={}", path.display());
        let launch = Launch::new(Kind::Gitcd).secure();
        launch.argument(flag("tls-cert", &self.cert())).argument(flag("tls-key", &self.key()))
    }

    /// TLS with client authentication.
    fn launch_mutual(&self) -> Launch {
        self.launch().argument(format!("--tls-trusted-ca-certs=default={}", self.authority().display()))
    }
}
