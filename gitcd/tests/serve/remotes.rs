//! Servers that follow one another, over folders and over a Git host with tokens.

use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use tempfile::TempDir;

use crate::support::build::{get, put};
use crate::support::{Client, Kind, Launch, Repository, Server, eventually, free_port};

const ONE: &str = "/registry/configmaps/n/one";
const OTHER: &str = "/registry/configmaps/n/other";

/// A running `gitcd host`, killed on drop.
struct Host(Child);

impl Drop for Host {
    fn drop(&mut self) {
        let _ended = self.0.kill();
        let _waited = self.0.wait();
    }
}

fn host(root: &Path, tokens: &Path, port: u16) -> Host {
    let mut command = Command::new(env!("CARGO_BIN_EXE_gitcd"));
    command.arg("host").arg(format!("--root={}", root.display())).arg(format!("--tokens={}", tokens.display()));
    command.args(["--create-on-push", &format!("--listen-urls=http://127.0.0.1:{port}")]);
    Host(command.stderr(Stdio::null()).spawn().expect("gitcd can be started"))
}

fn write(path: &Path, text: &str) {
    let new = path.with_extension("new");
    std::fs::write(&new, text).expect("the folder is writable");
    std::fs::rename(&new, path).expect("the folder is writable");
}

/// Starts a server that follows `url`, with further arguments.
pub(super) async fn follower(url: &str, more: &[String]) -> (Server, Client, TempDir) {
    let folder = tempfile::tempdir().expect("the temporary folder is writable");
    let repository = folder.path().join("repo.git");
    Repository::init(&repository).git(&["remote", "add", "up", url]);
    let mut launch = Launch::new(Kind::Gitcd)
        .folder(folder.path())
        .argument("--remote-names=up")
        .argument("--push-after-merges=true")
        .argument("--pull-ticker-duration=200ms");
    for argument in more {
        launch = launch.argument(argument);
    }
    let server = launch.start().await;
    let client = server.client().await;
    (server, client, folder)
}

async fn arrives(client: &Client, key: &str, value: &str) {
    eventually("the value on the other branch", async || {
        let found = client.range(get(key)).await.ok();
        (found.kvs.first()?.value == value.as_bytes()).then_some(())
    })
    .await;
}

pub(super) fn bare(folder: &TempDir) -> PathBuf {
    let path = folder.path().join("up.git");
    let made = Command::new("git").args(["init", "-q", "--bare", "-b", "main"]).arg(&path).status();
    assert!(made.expect("git is installed").success());
    path
}

#[tokio::test]
async fn two_servers_share_a_branch_of_a_folder() {
    let folder = tempfile::tempdir().expect("the temporary folder is writable");
    let upstream = bare(&folder);
    let url = upstream.to_str().expect("the path is UTF-8");
    let (_one, first, _kept) = follower(url, &[]).await;
    let (_other, second, _too) = follower(url, &[]).await;
    first.put(put(ONE, "1")).await.ok();
    second.put(put(OTHER, "2")).await.ok();
    arrives(&first, OTHER, "2").await;
    arrives(&second, ONE, "1").await;
    // The remote is unreachable for a while.
    let away = folder.path().join("away.git");
    std::fs::rename(&upstream, &away).expect("the temporary folder is writable");
    first.put(put(ONE, "3")).await.ok();
    second.put(put(OTHER, "4")).await.ok();
    std::fs::rename(&away, &upstream).expect("the temporary folder is writable");
    arrives(&first, OTHER, "4").await;
    arrives(&second, ONE, "3").await;
    Repository::at(&upstream).fsck();
}

#[tokio::test]
async fn a_server_may_push_to_a_branch_that_another_one_serves() {
    let mut store = Server::start(Kind::Gitcd).await;
    let first = store.client().await;
    first.put(put(ONE, "1")).await.ok();
    let url = store.repository().path().to_str().expect("the path is UTF-8").to_owned();
    let (_desk, second, _kept) = follower(&url, &[]).await;
    arrives(&second, ONE, "1").await;
    second.put(put(OTHER, "2")).await.ok();
    arrives(&first, OTHER, "2").await;
    first.put(put(ONE, "3")).await.ok();
    arrives(&second, ONE, "3").await;
    // Each server has its own metadata: the store resumes from its own.
    let revision = first.range(get(ONE)).await.ok().header.expect("a response has a header").revision;
    store.terminate().await;
    store.restart().await;
    let found = store.client().await.range(get(OTHER)).await.ok();
    assert_eq!(found.kvs[0].value, "2");
    assert_eq!(found.header.expect("a response has a header").revision, revision);
    store.repository().fsck();
}

#[tokio::test]
async fn credentials_are_read_again_and_shown_to_nobody() {
    let folder = tempfile::tempdir().expect("the temporary folder is writable");
    let (tokens, store, port) = (folder.path().join("tokens"), folder.path().join("credentials"), free_port());
    let rights =
        |token: &str| format!("- user: both\n  token: {token}\n  rights:\n  - repository: '*'\n    access: own\n");
    let line = |token: &str| format!("http://both:{token}@127.0.0.1:{port}\n");
    write(&tokens, &rights("first-secret"));
    write(&store, &line("first-secret"));
    let root = folder.path().join("root");
    std::fs::create_dir(&root).expect("the folder is writable");
    let _host = host(&root, &tokens, port);
    let url = format!("http://127.0.0.1:{port}/up.git");
    let credentials = format!("--credentials-file={}", store.display());
    // The first push creates the repository.
    let more = [credentials, "--push-on-pull-failures=true".to_owned()];
    let (one, first, _kept) = follower(&url, &more).await;
    let (_other, second, _too) = follower(&url, &more).await;
    first.put(put(ONE, "1")).await.ok();
    arrives(&second, ONE, "1").await;

    write(&tokens, &rights("other-secret"));
    first.put(put(ONE, "2")).await.ok();
    eventually("the refusal to be logged", async || one.output().contains("Authentication failed").then_some(())).await;
    write(&store, &line("other-secret"));
    arrives(&second, ONE, "2").await;
    let output = one.output();
    assert!(!output.contains("secret"), "{output}");
}

#[tokio::test]
async fn what_was_acknowledged_before_a_server_stops_is_at_its_remote() {
    let folder = tempfile::tempdir().expect("the temporary folder is writable");
    let upstream = bare(&folder);
    let url = upstream.to_str().expect("the path is UTF-8");
    let (mut server, client, _kept) = follower(url, &[]).await;
    client.put(put(ONE, "first")).await.ok();
    let there = |value: &str| {
        let found = Repository::at(&upstream).run(&["grep", "-h", value, "main", "--"]);
        found.status.success()
    };
    eventually("the first push", async || there("first").then_some(())).await;
    for number in 0..20 {
        client.put(put(ONE, &format!("last {number}"))).await.ok();
    }
    assert!(server.terminate().await.status.success());
    assert!(there("last 19"), "the last write must be pushed before the process exits");
}
