//! Starts that fail: the lease is free again at once, and not when it expires.

use std::net::TcpListener;
use std::os::unix::fs::MetadataExt as _;
use std::path::Path;
use std::time::Duration;

use gitcd::git::branch;
use gitcd::pull::lease::{self, Settings};
use gitcd::pull::remote::Remote;
use gitcd::server::{Config, ServeError, Server};
use tokio::sync::watch;

use crate::node::{Node, Upstream, arrives, bare, launch, pushed, within, write};
use crate::support::{DATA, eventually, free_port};

/// Long: a server that waits until such a lease expires fails its test.
const LEASE: &str = "--writer-lease=2m";
/// Enough to take over a lease that is free, on a busy machine.
const SOON: Duration = Duration::from_secs(25);

/// A remote with a branch, and its writer.
async fn written() -> (Upstream, Node) {
    let upstream = Upstream::new();
    let mut first = Node::first(&upstream, &[LEASE]);
    first.serves().await;
    write(&first.server.client().await, "a", "{}").await;
    pushed(&first).await;
    (upstream, first)
}

/// Asserts that another server can take the lease without waiting; returns its epoch.
async fn is_free(upstream: &Upstream) -> u64 {
    let mut next = Node::fresh(upstream, &[LEASE]);
    within("a takeover", next.serves().await, SOON);
    arrives(&next.server.client().await, "a", "{}").await;
    next.status().await.lease.expect("the branch has a lease").epoch
}

#[tokio::test]
async fn a_server_whose_port_is_in_use_when_its_turn_comes_releases_the_lease_at_once() {
    let (upstream, mut first) = written().await;
    let mut second = Node::fresh(&upstream, &[LEASE]);
    second.waits().await;
    let taken = TcpListener::bind(second.server.address()).expect("a waiting server does not listen");
    first.server.terminate().await;
    let exit = second.server.exit().await;
    assert_eq!(exit.status.code(), Some(1), "{}", exit.output);
    for words in ["acquired the writer lease", "the writer lease is handed over", "in use", "--listen-urls"] {
        assert!(exit.output.contains(words), "the output lacks {words:?}:\n{}", exit.output);
    }
    assert_eq!(is_free(&upstream).await, 3);
    drop(taken);
}

#[tokio::test]
async fn a_server_whose_git_host_cannot_start_releases_the_lease_at_once() {
    let (upstream, mut first) = written().await;
    first.server.terminate().await;
    let url = format!("--host-listen-urls=http://127.0.0.1:{}", free_port());
    let mut second = Node::fresh(&upstream, &[LEASE, &url, "--host-tokens=/nonexistent/tokens.yaml"]);
    let exit = second.server.exit().await;
    assert_eq!(exit.status.code(), Some(1), "{}", exit.output);
    assert!(exit.output.contains("/nonexistent/tokens.yaml"), "{}", exit.output);
    // Whether the host or the lease was faster.
    assert!([2, 3].contains(&is_free(&upstream).await));
}

#[tokio::test]
async fn a_server_that_is_stopped_while_it_takes_over_leaves_a_free_lease() {
    let (upstream, mut first) = written().await;
    first.server.terminate().await;
    let mut second = Node::fresh(&upstream, &[LEASE]);
    second.says("acquired the writer lease").await;
    second.server.terminate().await;
    assert_eq!(is_free(&upstream).await, 3);
}

/// Whether a process has locked the branch of a repository. Takes no lock itself, not even for a moment.
fn is_locked(repository: &Path) -> bool {
    let file = repository.join("gitcd/locks").join(DATA.replace('/', "%2F"));
    let Ok(found) = file.metadata() else { return false };
    let locks = std::fs::read_to_string("/proc/locks").expect("this is Linux");
    locks.lines().any(|lock| lock.contains("FLOCK") && lock.contains(&format!(":{} ", found.ino())))
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_embedded_server_that_is_stopped_while_it_waits_releases_its_branch() {
    let (upstream, _first) = written().await;
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("repo.git");
    bare(&path).git(&["remote", "add", "origin", &upstream.path().display().to_string()]);
    let config = || {
        let remote = Remote::named("origin", DATA);
        let lease = Settings { duration: Duration::from_secs(2), remote, hot_standby: false };
        Config { lease: Some(lease), ..Config::new(branch::Config::named(path.clone(), "default")) }
    };
    for _ in 0..2 {
        let (stop, stopped) = watch::channel(false);
        let start = tokio::spawn(Server::start_unless(config(), stopped));
        eventually("a locked branch", async || is_locked(&path).then_some(())).await;
        assert!(!start.is_finished(), "another server has the lease");
        stop.send_replace(true);
        let outcome = start.await.expect("the start does not panic").map(|_| ());
        assert!(matches!(outcome, Err(ServeError::Stopped)), "{outcome:?}");
        eventually("a free branch", async || (!is_locked(&path)).then_some(())).await;
    }
}

/// Returns whether a folder has files, at any depth.
fn has_files(folder: &Path) -> bool {
    let entries = std::fs::read_dir(folder).into_iter().flatten().flatten();
    entries.map(|entry| entry.path()).any(|path| if path.is_dir() { has_files(&path) } else { true })
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_attempt_that_succeeds_after_the_stop_is_withdrawn() {
    let (upstream, mut first) = written().await;
    first.server.terminate().await;
    // Git's lock: the attempt waits for it.
    let lock = upstream.path().join(format!("{}.lock", lease::reference(DATA)));
    std::fs::write(&lock, "").expect("the folder exists");
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("repo.git");
    bare(&path).git(&["remote", "add", "origin", &upstream.path().display().to_string()]);
    let settings =
        Settings { duration: Duration::from_mins(2), remote: Remote::named("origin", DATA), hot_standby: false };
    let config = Config { lease: Some(settings), ..Config::new(branch::Config::named(path, "default")) };
    let (stop, stopped) = watch::channel(false);
    let start = tokio::spawn(Server::start_unless(config, stopped));
    let staged = upstream.path().join("gitcd-refs");
    eventually("an attempt", async || has_files(&staged).then_some(())).await;
    stop.send_replace(true);
    tokio::time::sleep(Duration::from_millis(100)).await;
    assert!(!start.is_finished(), "the outcome of the attempt is not known yet");
    std::fs::remove_file(&lock).expect("it exists");
    let outcome = start.await.expect("the start does not panic").map(|_| ());
    assert!(matches!(outcome, Err(ServeError::Stopped)), "{outcome:?}");
    // The second epoch is that of the attempt.
    assert_eq!(is_free(&upstream).await, 3);
}

#[tokio::test]
async fn a_server_that_panics_after_the_takeover_releases_the_lease_at_once() {
    let (upstream, mut first) = written().await;
    first.server.terminate().await;
    let points = tempfile::tempdir().unwrap();
    std::fs::write(points.path().join("serve the branch"), "").unwrap();
    let folder = tempfile::tempdir().unwrap();
    bare(&folder.path().join("repo.git")).git(&["remote", "add", "origin", &upstream.path().display().to_string()]);
    let variable = format!("GITCD_FAIL_POINTS={}", points.path().display());
    let mut second = launch(folder.path(), &[LEASE]).wrapper(&["env", &variable]).spawn();
    let exit = second.exit().await;
    let words = ["cannot serve the branch: internal error", "the writer lease is handed over"];
    assert!(words.iter().all(|words| exit.output.contains(words)), "{}", exit.output);
    assert_eq!(exit.status.code(), Some(1));
    assert_eq!(is_free(&upstream).await, 3);
}
