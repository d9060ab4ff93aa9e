//! Followers and their remotes.

use std::path::{Path, PathBuf};
use std::process::Command;

use gitcd::pull::status::{Condition, RemoteStatus};
use gitcd::status::Status;
use tempfile::TempDir;

use crate::support::build::{get, put};
use crate::support::{Client, DATA, Kind, Launch, Repository, Server, eventually};

pub(crate) const ONE: &str = "/registry/configmaps/n/one";
pub(crate) const OTHER: &str = "/registry/configmaps/n/other";

/// A branch that follows the remote `up`.
pub(crate) struct Follower {
    pub(crate) server: Server,
    pub(crate) client: Client,
    _folder: TempDir,
}

/// The configuration of a follower.
pub(crate) struct Following {
    url: String,
    arguments: Vec<String>,
    wrapper: Vec<String>,
    config: Vec<(String, String)>,
}

impl Following {
    /// A follower that also pushes after merges.
    pub(crate) fn new(url: &str) -> Self {
        let arguments = vec!["--push-after-merges=true".to_owned()];
        Self { url: url.to_owned(), arguments, wrapper: Vec::new(), config: Vec::new() }
    }

    pub(crate) fn of(folder: &Path) -> Self {
        Self::new(&folder.display().to_string())
    }

    pub(crate) fn without_pushes(mut self) -> Self {
        self.arguments.clear();
        self
    }

    pub(crate) fn argument(mut self, argument: impl Into<String>) -> Self {
        self.arguments.push(argument.into());
        self
    }

    /// Sets an environment variable.
    pub(crate) fn variable(mut self, name: &str, value: &str) -> Self {
        if self.wrapper.is_empty() {
            self.wrapper.push("env".to_owned());
        }
        self.wrapper.push(format!("{name}={value}"));
        self
    }

    /// Sets a Git configuration option of its repository.
    pub(crate) fn setting(mut self, name: &str, value: &str) -> Self {
        self.config.push((name.to_owned(), value.to_owned()));
        self
    }

    pub(crate) async fn start(self) -> Follower {
        let folder = tempfile::tempdir().expect("the temporary folder is writable");
        let repository = Repository::init(&folder.path().join("repo.git"));
        self.prepare(&repository);
        let wrapper: Vec<_> = self.wrapper.iter().map(String::as_str).collect();
        let server = self.launch(folder.path()).wrapper(&wrapper).start().await;
        Follower { client: server.client().await, server, _folder: folder }
    }

    /// Adds the remote to a repository.
    pub(crate) fn prepare(&self, repository: &Repository) {
        repository.git(&["remote", "add", "up", &self.url]);
        for (name, value) in &self.config {
            repository.git(&["config", name, value]);
        }
    }

    pub(crate) fn launch(&self, folder: &Path) -> Launch {
        let launch = Launch::new(Kind::Gitcd).folder(folder).argument("--remote-names=up");
        let is_other = self.arguments.iter().any(|argument| argument.starts_with("--pull-ticker-duration="));
        let launch = if is_other { launch } else { launch.argument("--pull-ticker-duration=200ms") };
        self.arguments.iter().fold(launch, Launch::argument)
    }
}

impl Follower {
    pub(crate) async fn put(&self, key: &str, value: &str) {
        self.client.put(put(key, value)).await.ok();
    }

    /// Waits until a key has this value on this follower.
    pub(crate) async fn has(&self, key: &str, value: &str) {
        has(&self.client, key, value).await;
    }

    /// Waits until the remote is in this condition, and returns its status.
    pub(crate) async fn is(&self, wanted: Condition) -> RemoteStatus {
        is(&self.server, wanted).await
    }

    /// Waits until the remote is in this condition, with these words in its error.
    pub(crate) async fn fails_with(&self, wanted: Condition, words: &[&str]) {
        let what = format!("{wanted:?} with {words:?}");
        let known = eventually(&what, async || {
            let known = remote(&self.server).await;
            let error = known.error.clone().unwrap_or_default();
            (known.condition == wanted && words.iter().all(|word| error.contains(word))).then_some(known)
        });
        assert!(known.await.failures > 0);
    }
}

pub(crate) async fn has(client: &Client, key: &str, value: &str) {
    eventually(&format!("{value} at {key}"), async || {
        let found = client.range(get(key)).await.ok();
        (found.kvs.first()?.value == value.as_bytes()).then_some(())
    })
    .await;
}

/// The status of the server's only remote.
pub(crate) async fn remote(server: &Server) -> RemoteStatus {
    let page = server.page("/status").await;
    let status: Status = serde_json::from_str(&page).unwrap_or_else(|error| panic!("{error}: {page}"));
    let remotes = &status.branches[0].remotes;
    assert_eq!((remotes.len(), &*remotes[0].name), (1, "up"), "{page}");
    remotes[0].known.clone()
}

pub(crate) async fn is(server: &Server, wanted: Condition) -> RemoteStatus {
    eventually(&format!("the condition {wanted:?}"), async || {
        let known = remote(server).await;
        (known.condition == wanted).then_some(known)
    })
    .await
}

/// Creates an empty bare repository, to be a remote.
pub(crate) fn bare(folder: &TempDir) -> Repository {
    let path: PathBuf = folder.path().join("up.git");
    let made = Command::new("git").args(["init", "-q", "--bare", "-b", "main"]).arg(&path).status();
    assert!(made.expect("git is installed").success());
    Repository::at(&path)
}

/// Waits until a file of a remote has this content.
pub(crate) async fn holds(remote: &Repository, key: &str, value: &str) {
    let path = key.strip_prefix("/registry/").expect("the key has the prefix");
    eventually(&format!("{value} at {path} of the remote"), async || {
        let found = remote.run(&["cat-file", "blob", &format!("{DATA}:{path}")]);
        (found.status.success() && found.stdout == value.as_bytes()).then_some(())
    })
    .await;
}

/// Creates an unreferenced commit on top of `parents` with one file changed.
pub(crate) fn commit(repository: &Repository, file: &str, blob: &str, parents: &[&str]) -> String {
    let index = repository.path().join("index-of-the-test").display().to_string();
    let _none = std::fs::remove_file(&index);
    let git = |arguments: &[&str]| {
        let mut command = Command::new("git");
        command.arg("-C").arg(repository.path()).args(arguments).env("GIT_INDEX_FILE", &index);
        for name in ["AUTHOR", "COMMITTER"] {
            command.env(format!("GIT_{name}_NAME"), "operator").env(format!("GIT_{name}_EMAIL"), "operator@localhost");
        }
        let output = command.output().expect("git is installed");
        assert!(output.status.success(), "{output:?}");
        String::from_utf8(output.stdout).expect("git's output is UTF-8").trim().to_owned()
    };
    if let Some(parent) = parents.first() {
        git(&["read-tree", parent]);
    }
    git(&["update-index", "--add", "--cacheinfo", &format!("100644,{blob},{file}")]);
    let tree = git(&["write-tree"]);
    let mut words = vec!["commit-tree", "-m", "by hand", &tree];
    for parent in parents {
        words.extend(["-p", parent]);
    }
    git(&words)
}
