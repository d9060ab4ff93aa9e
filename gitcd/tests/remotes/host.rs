//! A `gitcd host` process, killed on drop.

use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use tempfile::TempDir;

use crate::support::{Repository, eventually, free_port};

/// A host that can be stopped and restarted on the same port.
pub(crate) struct Host {
    child: Option<Child>,
    port: u16,
    scheme: &'static str,
    arguments: Vec<String>,
    folder: TempDir,
}

impl Host {
    /// Starts a host with anonymous access.
    pub(crate) async fn open() -> Self {
        Self::prepare("http").running(&["--anonymous=own"]).await
    }

    pub(crate) fn prepare(scheme: &'static str) -> Self {
        let folder = tempfile::tempdir().expect("the temporary folder is writable");
        std::fs::create_dir(folder.path().join("root")).expect("the folder does not exist yet");
        Self { child: None, port: free_port(), scheme, arguments: Vec::new(), folder }
    }

    pub(crate) async fn running(mut self, arguments: &[&str]) -> Self {
        self.arguments = arguments.iter().map(ToString::to_string).collect();
        self.start().await;
        self
    }

    pub(crate) async fn start(&mut self) {
        assert!(self.child.is_none(), "the host is already running");
        let mut command = Command::new(env!("CARGO_BIN_EXE_gitcd"));
        command.arg("host").arg(format!("--root={}", self.root().display())).arg("--create-on-push");
        command.arg(format!("--listen-urls={}://127.0.0.1:{}", self.scheme, self.port)).args(&self.arguments);
        self.child = Some(command.stderr(Stdio::null()).spawn().expect("gitcd can be started"));
        let connect = async || tokio::net::TcpStream::connect(("127.0.0.1", self.port)).await.ok();
        drop(eventually("the host to listen", connect).await);
    }

    pub(crate) fn kill(&mut self) {
        if let Some(mut child) = self.child.take() {
            let _ended = child.kill();
            let _waited = child.wait();
        }
    }

    pub(crate) fn port(&self) -> u16 {
        self.port
    }

    pub(crate) fn folder(&self) -> &Path {
        self.folder.path()
    }

    fn root(&self) -> PathBuf {
        self.folder.path().join("root")
    }

    pub(crate) fn url(&self) -> String {
        format!("{}://127.0.0.1:{}/up.git", self.scheme, self.port)
    }

    /// The repository that followers use.
    pub(crate) fn repository(&self) -> Repository {
        Repository::at(&self.root().join("up.git"))
    }

    /// Creates the repository, before any push.
    pub(crate) fn make(&self) -> Repository {
        let path = self.root().join("up.git");
        let made = Command::new("git").args(["init", "-q", "--bare", "-b", "main"]).arg(path).status();
        assert!(made.expect("git is installed").success());
        self.repository()
    }
}

impl Drop for Host {
    fn drop(&mut self) {
        self.kill();
    }
}
