//! A lease on a Git host, which may hang.

use std::process::{Child, Command, Stdio};

use gitcd::pull::status::Condition;
use rustix::process::{Pid, Signal, kill_process};

use crate::node::{arrives, bare, launch, status, write};
use crate::support::{Kind, Launch, Repository, Server, eventually, free_port};

/// A running `gitcd host`, killed on drop.
struct Host(Child);

impl Host {
    fn signal(&self, signal: Signal) {
        kill_process(Pid::from_child(&self.0), signal).expect("the child is ours");
    }
}

impl Drop for Host {
    fn drop(&mut self) {
        let _ended = self.0.kill();
        let _waited = self.0.wait();
    }
}

/// A Git host in its own process, which can be suspended and resumed; its user `gitcd` has full access.
struct Shared {
    host: Host,
    root: std::path::PathBuf,
    url: String,
    folder: tempfile::TempDir,
}

impl Shared {
    fn start() -> Self {
        let folder = tempfile::tempdir().expect("the temporary folder is writable");
        let (root, port) = (folder.path().join("root"), free_port());
        std::fs::create_dir(&root).expect("the folder is writable");
        let mut command = Command::new(env!("CARGO_BIN_EXE_gitcd"));
        let (tokens, credentials) = (folder.path().join("tokens"), folder.path().join("credentials"));
        let owner = "- {user: gitcd, token: secret, rights: [{repository: '**', access: own}]}\n";
        std::fs::write(&tokens, owner).expect("the folder is writable");
        std::fs::write(&credentials, format!("http://gitcd:secret@127.0.0.1:{port}\n"))
            .expect("the folder is writable");
        command.arg("host").arg(format!("--root={}", root.display())).arg(format!("--tokens={}", tokens.display()));
        // The first lease creates the repository.
        command.arg("--create-on-push");
        command.arg(format!("--listen-urls=http://127.0.0.1:{port}")).stderr(Stdio::null());
        let host = Host(command.spawn().expect("gitcd can be started"));
        Self { host, root, url: format!("http://127.0.0.1:{port}/up.git"), folder }
    }

    fn repository(&self) -> Repository {
        Repository::at(&self.root.join("up.git"))
    }

    /// Starts a server whose repository has the branch, or only the remote.
    fn server(&self, name: &str, has_branch: bool) -> Server {
        let folder = self.folder.path().join(name);
        std::fs::create_dir(&folder).expect("the folder is writable");
        let path = folder.join("repo.git");
        let repository = if has_branch { Repository::init(&path) } else { bare(&path) };
        repository.git(&["remote", "add", "origin", &self.url]);
        let credentials = format!("--credentials-file={}", self.folder.path().join("credentials").display());
        launch(&folder, &["--writer-lease=2s", &credentials]).spawn()
    }
}

async fn is_pushed(server: &Server) {
    eventually("the push", async || {
        let branch = status(server).await;
        (branch.remotes[0].known.pushed.as_ref() == Some(&branch.head)).then_some(())
    })
    .await;
}

#[tokio::test]
async fn who_was_stopped_over_the_end_of_its_lease_pushes_beside_the_branch() {
    let shared = Shared::start();
    let mut old = shared.server("old", true);
    old.ready().await;
    let client = old.client().await;
    write(&client, "a", "{}").await;
    is_pushed(&old).await;
    let mut new = shared.server("new", false);
    eventually("a waiting standby", async || new.output().contains("ready to take over").then_some(())).await;

    // Acknowledged, and in a push to a host that does not answer.
    shared.host.signal(Signal::STOP);
    write(&client, "late", "{}").await;
    eventually("the commit", async || (status(&old).await.commit_lag_revisions == 0).then_some(())).await;
    let late = status(&old).await.head;
    old.signal(Signal::STOP);
    shared.host.signal(Signal::CONT);
    new.ready().await;
    old.signal(Signal::CONT);
    let exit = old.exit().await;
    for words in ["this server stops writing", "unpushed writes are on a side branch"] {
        assert!(exit.output.contains(words), "{}", exit.output);
    }
    // The new writer merges it from the side branch.
    arrives(&new.client().await, "late", "{}").await;
    let there = shared.repository();
    assert_eq!(there.reference(&format!("refs/heads/main-side-{}", &late[..12])).trim(), late);
    eventually("the merge on the host", async || {
        there.run(&["merge-base", "--is-ancestor", &late, "main"]).status.success().then_some(())
    })
    .await;
    there.fsck();
}

#[tokio::test]
async fn a_host_that_hangs_ends_the_lease_and_nothing_else() {
    let shared = Shared::start();
    let mut one = shared.server("one", true);
    one.ready().await;
    let client = one.client().await;
    write(&client, "a", "{}").await;
    is_pushed(&one).await;
    // Renewals reuse commits that the remote already has, so they create no packs. The write itself may take several pushes.
    let packs = || shared.root.join("up.git/objects/pack").read_dir().expect("the pack folder exists").count();
    let renewed = async || {
        let from = shared.repository().reference("refs/gitcd/lease/main");
        eventually("renewals", async || {
            let now = shared.repository().git(&["rev-list", "--count", &format!("refs/gitcd/lease/main..{from}")]);
            (now.trim().parse::<usize>().expect("a number") >= 2).then_some(())
        })
        .await;
    };
    renewed().await;
    let before = packs();
    renewed().await;
    assert_eq!(packs(), before);

    shared.host.signal(Signal::STOP);
    eventually("the end of the lease", async || (status(&one).await.role == "suspended").then_some(())).await;
    let remote = status(&one).await.remotes.remove(0);
    assert!(remote.known.condition == Condition::Unreachable && remote.known.error.is_some(), "{remote:?}");
    shared.host.signal(Signal::CONT);
    eventually("the lease", async || (status(&one).await.role == "writer").then_some(())).await;
    write(&one.client().await, "b", "{}").await;

    let mut other = shared.server("other", false);
    eventually("a waiting standby", async || other.output().contains("waiting for the writer lease").then_some(()))
        .await;
    one.terminate().await;
    other.ready().await;
    arrives(&other.client().await, "b", "{}").await;
    assert_eq!(status(&other).await.lease.expect("the branch has a lease").epoch, 2);
}

#[tokio::test]
async fn a_server_that_may_not_have_the_lease_reports_what_it_takes() {
    let folder = tempfile::tempdir().expect("the temporary folder is writable");
    let (root, port) = (folder.path().join("root"), free_port());
    std::fs::create_dir(&root).expect("the folder is writable");
    bare(&root.join("up.git"));
    let mut command = Command::new(env!("CARGO_BIN_EXE_gitcd"));
    command.arg("host").arg(format!("--root={}", root.display()));
    command.arg(format!("--listen-urls=http://127.0.0.1:{port}")).stderr(Stdio::null());
    let _host = Host(command.spawn().expect("gitcd can be started"));
    let repository = Repository::init(&folder.path().join("repo.git"));
    repository.git(&["remote", "add", "origin", &format!("http://127.0.0.1:{port}/up.git")]);
    let server = launch(folder.path(), &["--writer-lease=1s"]).spawn();
    let line = eventually("the refusal", async || {
        server.output().lines().find(|line| line.contains("the writer lease was not taken")).map(ToOwned::to_owned)
    })
    .await;
    assert!(line.contains("`access: own`") && line.contains("--anonymous=own"), "{line}");
}

#[tokio::test]
async fn a_branch_that_somebody_serves_over_http_has_no_lease() {
    let port = free_port();
    let store = Launch::new(Kind::Gitcd)
        .argument(format!("--host-listen-urls=http://127.0.0.1:{port}"))
        .argument("--host-anonymous=own")
        .start()
        .await;
    let folder = tempfile::tempdir().expect("the temporary folder is writable");
    let repository = bare(&folder.path().join("repo.git"));
    repository.git(&["remote", "add", "origin", &format!("http://127.0.0.1:{port}/repo.git")]);
    let exit = launch(folder.path(), &["--writer-lease=1s"]).spawn().exit().await;
    assert_eq!(exit.status.code(), Some(1));
    assert!(exit.output.contains("another gitcd serves refs/heads/main"), "{}", exit.output);
    assert_eq!(store.page("/health").await, r#"{"health":"true","reason":""}"#);
    let lease = store.repository().git(&["for-each-ref", "refs/gitcd/lease"]);
    assert_eq!(lease, "");
}
