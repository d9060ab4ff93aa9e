//! Some branches, each in a repository of its own, and who pulls from whom.

use std::collections::BTreeMap;
use std::net::{Ipv4Addr, SocketAddr, TcpListener};
use std::path::PathBuf;
use std::time::Duration;

use bytes::Bytes;
use gitcd::api;
use gitcd::committer;
use gitcd::config::Listen;
use gitcd::gateway::Origins;
use gitcd::git::branch;
use gitcd::keyspace::KeySpace;
use gitcd::pull;
use gitcd::pull::remote::Remote;
use gitcd::recovery::{self, Beginning};
use gitcd::server::{Config, Server, Transport};
use gitcd::store;
use gitcd::store::index::KeyRange;
use gitcd::store::revision::Revision;
use gitcd::store::txn::{Delete, Op, Put};

/// A branch and what serves it.
pub(crate) struct Branch {
    pub(crate) config: Config,
    pub(crate) server: Option<Server>,
    _folder: tempfile::TempDir,
}

/// The same after a restart.
fn free_address() -> SocketAddr {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).expect("there is a free port");
    listener.local_addr().expect("it is bound")
}

pub(crate) fn remote(name: &str) -> Remote {
    Remote::named(name, "refs/heads/main")
}

impl Branch {
    /// An empty branch with its server.
    pub(crate) async fn new(name: &str) -> Self {
        Self::at(name, "main").await
    }

    /// The same with a name of its own for Git.
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
        recovery::init(&branch, Beginning { revision: Revision::INITIAL, version: 1, depth: None, force: false })
            .unwrap();
        let config = Config {
            branch,
            listen: vec![Listen { flag: "listen-urls", address: free_address(), tls: false }],
            listen_pages: Vec::new(),
            advertise: Vec::new(),
            advertise_peer: Vec::new(),
            cluster_id: None,
            member_id: None,
            limits: api::Limits { max_request_bytes: 1 << 20, max_txn_ops: 128, quota_backend_bytes: 0 },
            journal_segment_bytes: 1 << 20,
            prune_expire: None,
            store: store::Limits::default(),
            committer: committer::Settings::default(),
            progress_interval: Duration::from_mins(10),
            retention: None,
            origins: Origins::default(),
            transport: Transport::default(),
            tls: None,
            pull: pull::Config::default(),
            lease: None,
            served: pull::owner::Served::default(),
        };
        let mut branch = Self { config, server: None, _folder: folder };
        branch.start().await;
        branch
    }

    /// Makes the repository one that no gitcd has written to.
    pub(crate) fn empty(&self) {
        std::fs::remove_dir_all(self.path()).unwrap();
        git2::Repository::init_bare(self.path()).unwrap();
    }

    /// A clone of everything that another repository has, not served yet.
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

    /// Makes another one a remote; takes effect with the next start.
    pub(crate) fn follow(&mut self, other: &Branch, remote: Remote) {
        self.follow_url(other.path().to_str().unwrap(), remote);
    }

    /// The same for whatever a URL names.
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

    /// Every key that others see.
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

    /// Puts everything into Git.
    pub(crate) async fn commit(&self) -> git2::Oid {
        self.server().puller().joiner().commit().await.unwrap().data
    }

    /// The tree of the last commit.
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
