//! Graceful shutdown: every request is answered, and every acknowledged write is in Git.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use gitcd::proto::etcdserverpb::kv_client::KvClient;
use tokio::task::JoinSet;
use tonic::transport::Channel;
use tonic::{Code, Status};

use super::{holds, key, value, write};
use crate::support::build::{put, watch_prefix};
use crate::support::{DATA, Kind, Server, eventually, free_port};

#[tokio::test]
async fn everything_acknowledged_before_the_end_is_in_the_branch() {
    let mut server = Server::start(Kind::Gitcd).await;
    let next = Arc::new(AtomicUsize::new(0));
    let mut writers = JoinSet::new();
    for _ in 0..32 {
        writers.spawn(write_on(server.channel().await, Arc::clone(&next)));
    }
    eventually("some writes", async || (next.load(Ordering::Relaxed) > 300).then_some(())).await;
    server.terminate().await;

    let mut acknowledged = Vec::new();
    let mut refused = Vec::new();
    for written in writers.join_all().await {
        acknowledged.extend(written.acknowledged);
        refused.push(written.refused);
    }
    acknowledged.sort_unstable();
    let repository = server.repository();
    repository.fsck();
    let files = repository.files(DATA);
    for (number, _) in &acknowledged {
        let path = key(*number)["/registry/".len()..].to_owned();
        let file = files.get(&path).unwrap_or_else(|| panic!("{path} was acknowledged, but is not in the branch"));
        let printed: serde_json::Value = serde_json::from_slice(file).unwrap();
        assert_eq!(printed["number"], *number, "{path}");
    }
    for number in refused {
        let path = key(number)["/registry/".len()..].to_owned();
        assert!(!files.contains_key(&path), "{path} was committed, but its client got an error");
    }
    let last = acknowledged.iter().map(|(_, revision)| *revision).max().unwrap();
    assert!(repository.committed_revision() >= last);

    // The branch alone must be enough to restart from.
    server.restart().await;
    let client = server.client().await;
    for (number, revision) in acknowledged.iter().step_by(7) {
        let pair = client.range(crate::support::build::get(&key(*number))).await.ok().kvs.remove(0);
        assert_eq!(pair.mod_revision, *revision);
    }
}

#[tokio::test]
async fn an_end_in_the_moment_of_the_start_is_one_in_peace() {
    let mut server = Server::start(Kind::Gitcd).await;
    for number in 0..8 {
        server.terminate().await;
        server.begin_restart();
        let connected =
            eventually("an open port", async || tokio::net::TcpStream::connect(server.address()).await.ok().map(drop));
        connected.await;
        let client = server.client().await;
        let written = client.put(put(&key(number), &value(number))).await.ok();
        server.terminate().await;
        let revision = written.header.expect("a response has a header").revision;
        assert!(server.repository().committed_revision() >= revision, "acknowledged writes must be committed at exit");
        server.restart().await;
    }
}

struct Written {
    /// Numbers and revisions of the acknowledged writes.
    acknowledged: Vec<(usize, i64)>,
    /// The number of the write that failed because the server was gone.
    refused: usize,
}

/// Writes until the server is gone. A request that arrived is answered; one that met a closed listener or crossed a GOAWAY (RFC
/// 9113, section 6.8) was never processed. Clients report these in several ways.
async fn write_on(channel: Channel, next: Arc<AtomicUsize>) -> Written {
    let mut client = KvClient::new(channel);
    let mut acknowledged = Vec::new();
    loop {
        let number = next.fetch_add(1, Ordering::Relaxed);
        match client.put(put(&key(number), &value(number))).await {
            Ok(answer) => {
                let header = answer.into_inner().header.expect("a response has a header");
                acknowledged.push((number, header.revision));
            }
            Err(status) => {
                let refused = matches!(status.code(), Code::Unavailable | Code::Cancelled);
                assert!(refused || is_of_the_connection(&status), "{status:?}");
                return Written { acknowledged, refused: number };
            }
        }
    }
}

fn is_of_the_connection(status: &Status) -> bool {
    let mut cause = std::error::Error::source(status);
    while let Some(error) = cause {
        if let Some(h2) = error.downcast_ref::<h2::Error>() {
            return h2.is_io() || h2.is_go_away() && h2.reason() == Some(h2::Reason::NO_ERROR);
        }
        if error.is::<std::io::Error>() {
            return true;
        }
        cause = error.source();
    }
    false
}

#[tokio::test]
async fn open_watches_do_not_hold_up_the_end() {
    let mut server = Server::start(Kind::Gitcd).await;
    let client = server.client().await;
    let mut watching = client.watch();
    watching.create(watch_prefix("/registry/")).await;
    write(&client, 0..1).await;
    watching.events(1).await;

    let start = Instant::now();
    server.terminate().await;
    assert!(start.elapsed() < Duration::from_secs(10), "{:?}", start.elapsed());
    watching.end().await;
}

#[tokio::test]
async fn a_second_signal_ends_at_once_and_loses_nothing() {
    let mut server = Server::start(Kind::Gitcd).await;
    write(&server.client().await, 0..10).await;
    server.ask_to_stop();
    server.ask_to_stop();
    server.exit().await;
    server.restart().await;
    holds(&server.client().await, 0..10).await;
}

#[tokio::test]
async fn the_commit_lag_goes_to_zero_once_the_load_is_over() {
    let server = Server::start(Kind::Gitcd).await;
    let next = Arc::new(AtomicUsize::new(0));
    let mut writers = JoinSet::new();
    for _ in 0..16 {
        let channel = server.channel().await;
        let next = Arc::clone(&next);
        writers.spawn(async move {
            let mut client = KvClient::new(channel);
            while let number = next.fetch_add(1, Ordering::Relaxed)
                && number < 2000
            {
                client.put(put(&key(number), &value(number))).await.expect("the server is up");
            }
        });
    }
    writers.join_all().await;
    eventually("the commits to catch up", async || {
        let metrics = server.page("/metrics").await;
        let lags: Vec<f64> = metrics
            .lines()
            .filter(|line| line.starts_with("gitcd_commit_lag"))
            .map(|line| line.rsplit(' ').next().and_then(|number| number.parse().ok()).expect("a number"))
            .collect();
        assert!(!lags.is_empty(), "the metrics lack the commit lag:\n{metrics}");
        lags.iter().all(|lag| *lag == 0.0).then_some(())
    })
    .await;
    assert_eq!(server.repository().committed_revision(), 2001);
    server.repository().fsck();
}

/// Makes the next recovery of a branch wait for ever: the file with the committed heads becomes a pipe without a writer.
/// Returns the file's content.
fn block_recovery(repository: &Path) -> (PathBuf, Vec<u8>) {
    let file = repository.join("gitcd/default/pair");
    let content = std::fs::read(&file).expect("the branch has been served");
    std::fs::remove_file(&file).expect("the folder is writable");
    let made = Command::new("mkfifo").arg(&file).status().expect("coreutils are installed");
    assert!(made.success());
    (file, content)
}

#[tokio::test]
async fn a_stop_while_a_branch_opens_ends_the_process_at_once_and_does_no_damage() {
    let mut server = Server::start(Kind::Gitcd).await;
    write(&server.client().await, 0..10).await;
    server.kill();
    let (file, content) = block_recovery(server.repository().path());
    server.begin_restart();
    // The port is bound before the branch is opened.
    let connected =
        eventually("an open port", async || tokio::net::TcpStream::connect(server.address()).await.ok().map(drop));
    connected.await;
    let start = Instant::now();
    let exit = server.terminate().await;
    assert!(start.elapsed() < Duration::from_secs(5), "{:?}: {}", start.elapsed(), exit.output);
    std::fs::remove_file(&file).unwrap();
    std::fs::write(&file, content).unwrap();
    server.restart().await;
    holds(&server.client().await, 0..10).await;
    server.repository().fsck();
}

#[tokio::test]
async fn a_stop_while_a_branch_opens_ends_a_pull_at_once() {
    let mut server = Server::start(Kind::Gitcd).await;
    write(&server.client().await, 0..1).await;
    server.terminate().await;
    let repository = server.repository();
    repository.git(&["remote", "add", "up", "/nonexistent/up.git"]);
    let (_file, _) = block_recovery(repository.path());
    for (interval, is_success) in [("1s", true), ("0", false)] {
        let port = free_port();
        let mut pull = Command::new(env!("CARGO_BIN_EXE_gitcd"))
            .args(["pull", "--key-prefixes=/registry", "--remote-names=up"])
            .args([format!("--repo={}", repository.path().display()), format!("--pull-ticker-duration={interval}")])
            .arg(format!("--listen-metrics-urls=http://127.0.0.1:{port}"))
            .spawn()
            .expect("gitcd can be started");
        let address = (std::net::Ipv4Addr::LOCALHOST, port);
        eventually("an open port", async || tokio::net::TcpStream::connect(address).await.ok().map(drop)).await;
        rustix::process::kill_process(rustix::process::Pid::from_child(&pull), rustix::process::Signal::TERM).unwrap();
        let start = Instant::now();
        let exit = eventually("the exit", async || pull.try_wait().expect("the child is ours")).await;
        assert!(start.elapsed() < Duration::from_secs(5), "{:?}", start.elapsed());
        assert_eq!(exit.success(), is_success, "a single pull that was stopped has failed: {exit}");
    }
}
