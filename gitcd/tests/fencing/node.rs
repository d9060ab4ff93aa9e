//! Servers that share a remote branch, each with its own path to the remote.

use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use gitcd::status::{Branch, Status};
use tempfile::TempDir;

use crate::support::build::{get, put};
use crate::support::{Client, Kind, Launch, PATIENCE, Repository, Server, eventually};

/// The lease duration, unless a test sets another one.
pub(crate) const LEASE: Duration = Duration::from_secs(3);

/// A bare repository shared by several servers.
pub(crate) struct Upstream {
    folder: TempDir,
}

impl Upstream {
    pub(crate) fn new() -> Self {
        let folder = tempfile::tempdir().expect("the temporary folder is writable");
        bare(&folder.path().join("up.git"));
        Self { folder }
    }

    pub(crate) fn path(&self) -> PathBuf {
        self.folder.path().join("up.git")
    }

    pub(crate) fn repository(&self) -> Repository {
        Repository::at(&self.path())
    }

    /// Returns the names of all references below a prefix.
    pub(crate) fn references(&self, below: &str) -> Vec<String> {
        let names = self.repository().git(&["for-each-ref", "--format=%(refname)", below]);
        names.lines().map(ToOwned::to_owned).collect()
    }
}

pub(crate) fn bare(path: &Path) -> Repository {
    let parent = path.parent().expect("the path has a parent");
    Repository::at(parent).git(&["init", "-q", "--bare", "-b", "main", &path.display().to_string()]);
    Repository::at(path)
}

/// A server with its own repository.
pub(crate) struct Node {
    pub(crate) server: Server,
    /// A symbolic link to the remote, which the test can remove.
    link: PathBuf,
    upstream: PathBuf,
    _folder: TempDir,
}

impl Node {
    /// Starts the first node, which creates the branch.
    pub(crate) fn first(upstream: &Upstream, arguments: &[&str]) -> Self {
        Self::spawn(upstream, arguments, |path| drop(Repository::init(path)))
    }

    /// Starts a node with only a remote.
    pub(crate) fn fresh(upstream: &Upstream, arguments: &[&str]) -> Self {
        Self::spawn(upstream, arguments, |path| drop(bare(path)))
    }

    /// Starts a node whose repository is created by `make`.
    pub(crate) fn spawn(upstream: &Upstream, arguments: &[&str], make: impl FnOnce(&Path)) -> Self {
        let folder = tempfile::tempdir().expect("the temporary folder is writable");
        let (repository, link, upstream) = (folder.path().join("repo.git"), folder.path().join("way"), upstream.path());
        std::os::unix::fs::symlink(&upstream, &link).expect("the folder is writable");
        make(&repository);
        let repository = Repository::at(&repository);
        // A clone already has this remote.
        repository.run(&["remote", "remove", "origin"]);
        repository.git(&["remote", "add", "origin", &link.display().to_string()]);
        let server = launch(folder.path(), arguments).spawn();
        Self { server, link, upstream, _folder: folder }
    }

    /// Makes the remote unreachable for this server only.
    pub(crate) fn cut_off(&self) {
        std::fs::remove_file(&self.link).expect("the link exists");
    }

    pub(crate) fn reconnect(&self) {
        std::os::unix::fs::symlink(&self.upstream, &self.link).expect("the link was removed");
    }

    /// Waits until it is ready; returns how long that took.
    pub(crate) async fn serves(&mut self) -> Duration {
        let start = Instant::now();
        self.server.ready().await;
        start.elapsed()
    }

    /// Waits until it is ready to take over.
    pub(crate) async fn waits(&self) {
        self.says("waiting for the writer lease").await;
        self.says("ready to take over").await;
    }

    /// Waits until its log contains these words.
    pub(crate) async fn says(&self, words: &str) {
        eventually(words, async || self.server.output().contains(words).then_some(())).await;
    }

    pub(crate) async fn status(&self) -> Branch {
        status(&self.server).await
    }
}

pub(crate) fn launch(folder: &Path, arguments: &[&str]) -> Launch {
    let mut launch = Launch::new(Kind::Gitcd).folder(folder).argument("--pull-ticker-duration=300ms");
    for argument in arguments {
        launch = launch.argument(*argument);
    }
    launch
}

pub(crate) async fn status(server: &Server) -> Branch {
    // Connections opened before the lease expired are cut.
    let (_, page) = eventually("the status", async || server.try_answer("/status").await).await;
    let mut status: Status = serde_json::from_str(&page).unwrap_or_else(|error| panic!("{error}: {page}"));
    status.branches.remove(0)
}

pub(crate) fn key(name: &str) -> String {
    format!("/registry/configmaps/n/{name}")
}

pub(crate) fn object(name: &str, data: &str) -> String {
    format!(
        "{{\"kind\":\"ConfigMap\",\"apiVersion\":\"v1\",\"metadata\":{{\"name\":\"{name}\",\"namespace\":\"n\",\"uid\":\"{name}\"}},\"data\":{data}}}\n"
    )
}

/// Writes an object and returns its revision. On a busy machine, the lease may end for a moment.
pub(crate) async fn write(client: &Client, name: &str, data: &str) -> i64 {
    let written = async || client.put(put(&key(name), &object(name, data))).await.result().ok();
    eventually(&format!("{name} to be written"), written).await.header.expect("a response has a header").revision
}

/// Waits until an object has this data.
pub(crate) async fn arrives(client: &Client, name: &str, data: &str) {
    eventually(&format!("{name} to be {data}"), async || {
        let found = client.range(get(&key(name))).await.result().ok()?;
        (found.kvs.first()?.value == object(name, data).as_bytes()).then_some(())
    })
    .await;
}

/// Waits until the remote has everything that the server has.
pub(crate) async fn pushed(node: &Node) {
    eventually("the push", async || {
        let branch = node.status().await;
        let remote = branch.remotes.first()?;
        (branch.commit_lag_revisions == 0 && remote.known.pushed.as_ref() == Some(&branch.head)).then_some(())
    })
    .await;
}

/// Asserts that an operation took no longer than `limit`.
pub(crate) fn within(what: &str, took: Duration, limit: Duration) {
    assert!(took <= limit && limit < PATIENCE, "{what} took {took:?}");
}
