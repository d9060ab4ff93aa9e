//! Branches, each in its own repository, and their remotes.

use std::collections::BTreeMap;
use std::net::{Ipv4Addr, SocketAddr, TcpListener};
use std::path::PathBuf;

use bytes::Bytes;
use gitcd::api;
use gitcd::config::Listen;
use gitcd::git::branch;
use gitcd::keyspace::KeySpace;
use gitcd::pull::remote::Remote;
use gitcd::recovery::{self, Beginning};
use gitcd::server::{Config, Server};
use gitcd::store::index::KeyRange;
use gitcd::store::revision::Revision;
use gitcd::store::txn::{Delete, Op, Put};

/// A branch, its repository and its server.
pub(crate) struct Branch {
    pub(crate) config: Config,
    pub(crate) server: Option<Server>,
    _folder: tempfile::TempDir,
}

/// A free port of localhost, chosen once so that the address survives a restart.
fn free_address() -> SocketAddr {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).expect("a free port exists");
    listener.local_addr().expect("the listener is bound")
}

pub(crate) fn remote(name: &str) -> Remote {
    Remote::named(name, "refs/heads/main")
}

impl Branch {
    /// Creates an empty branch and starts its server.
    pub(crate) async fn new(name: &str) -> Self {
        Self::at(name, "main").await
    }

    /// Like [`Branch::new`], with another name for the Git branch.
    pub(crate) async fn at(name: &str, branch: &str) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let branch = branch::Config {
            repository: folder.path().join("repo.git"),
            name: name.into(),
            data_reference: format!("refs/heads/{branch}"),
            metadata_reference: format!("refs/gitcd/metadata/{branch}"),
            keys: KeySpace::new("/registry", ["/registry/events"]),
            committer_name: name.into(),
            committer_email: format!("{name}@localhost"),
        };
        recovery::init(&branch, Beginning::default()).unwrap();
        let config = Config {
            listen: vec![Listen { flag: "listen-urls", address: free_address(), tls: false }],
            limits: api::Limits { max_request_bytes: 1 << 20, max_txn_ops: 128, quota_backend_bytes: 0 },
            journal_segment_bytes: 1 << 20,
            ..Config::new(branch)
        };
        let mut branch = Self { config, server: None, _folder: folder };
        branch.start().await;
        branch
    }

    /// Replaces the repository with an empty one that gitcd has never written to.
    pub(crate) fn empty(&self) {
        std::fs::remove_dir_all(self.path()).unwrap();
        git2::Repository::init_bare(self.path()).unwrap();
    }

    /// Mirrors another branch's repository; the new branch has no server yet.
    pub(crate) async fn clone_of(other: &Branch, name: &str) -> Self {
        let mut branch = Self::new(name).await;
        branch.stop().await;
        std::fs::remove_dir_all(branch.path()).unwrap();
        let cloned = std::process::Command::new("git")
            .args(["clone", "--quiet", "--mirror"])
            .args([other.path(), branch.path()])
            .status();
        assert!(cloned.unwrap().success());
        branch
    }

    pub(crate) fn path(&self) -> PathBuf {
        self.config.branch.repository.clone()
    }

    /// Adds another branch as a remote, effective at the next start.
    pub(crate) fn follow(&mut self, other: &Branch, remote: Remote) {
        self.follow_url(other.path().to_str().unwrap(), remote);
    }

    /// Like [`Branch::follow`], for any URL.
    pub(crate) fn follow_url(&mut self, url: &str, remote: Remote) {
        let repository = git2::Repository::open(self.path()).unwrap();
        repository.remote(&remote.name, url).unwrap();
        self.config.pull.remotes.push(remote);
    }

    pub(crate) async fn start(&mut self) {
        assert!(self.server.is_none());
        self.server = Some(Server::start(self.config.clone()).await.unwrap());
    }

    pub(crate) async fn stop(&mut self) {
        if let Some(server) = self.server.take() {
            server.stop().await.unwrap();
        }
    }

    pub(crate) async fn restart(&mut self) {
        self.stop().await;
        self.start().await;
    }

    pub(crate) fn server(&self) -> &Server {
        self.server.as_ref().unwrap()
    }

    pub(crate) async fn put(&self, key: &str, value: &str) -> Revision {
        let put = Put {
            key: Bytes::copy_from_slice(key.as_bytes()),
            value: Some(Bytes::copy_from_slice(value.as_bytes())),
            lease: Some(0),
            previous: false,
        };
        self.server().store().execute(Op::Put(put), None).await.unwrap().revision()
    }

    pub(crate) async fn delete(&self, key: &str) {
        let keys = KeyRange::One(Bytes::copy_from_slice(key.as_bytes()));
        self.server().store().execute(Op::Delete(Delete { keys, previous: false }), None).await.unwrap();
    }

    pub(crate) fn address(&self) -> SocketAddr {
        self.config.listen[0].address
    }

    /// All keys and values that clients can read.
    pub(crate) fn content(&self) -> BTreeMap<String, String> {
        let store = self.server().store();
        store.with_index(|index, durable| {
            let everything = KeyRange::From(Bytes::new());
            let all = index.range(&everything, durable);
            let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
            all.map(|version| (text(&version.key), text(&version.value_in_memory()))).collect()
        })
    }

    pub(crate) fn get(&self, key: &str) -> Option<String> {
        self.content().remove(key)
    }

    /// Commits, then pulls once from each remote.
    pub(crate) async fn pull(&self) {
        let puller = self.server().puller().clone();
        self.commit().await;
        for remote in puller.remotes() {
            puller.pull(remote).await.unwrap();
        }
    }

    /// Commits everything to Git and returns the head.
    pub(crate) async fn commit(&self) -> git2::Oid {
        self.server().puller().merger().commit().await.unwrap().data
    }

    /// The tree of the head commit.
    pub(crate) fn tree(&self) -> git2::Oid {
        let repository = git2::Repository::open(self.path()).unwrap();
        let head = repository.find_reference("refs/heads/main").unwrap().peel_to_commit().unwrap();
        head.tree_id()
    }

    pub(crate) fn head(&self) -> git2::Oid {
        let repository = git2::Repository::open(self.path()).unwrap();
        repository.refname_to_id(&self.config.branch.data_reference).unwrap()
    }

    pub(crate) fn message(&self) -> String {
        let repository = git2::Repository::open(self.path()).unwrap();
        repository.find_commit(self.head()).unwrap().message().unwrap().to_owned()
    }
}
