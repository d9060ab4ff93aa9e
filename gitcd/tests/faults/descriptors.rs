//! More connections than the process may open files.

use rustix::process::{Pid, Resource, Rlimit, prlimit};
use tokio::net::TcpStream;

use super::support::build::{get, put};
use super::support::{Kind, Launch, Server, eventually};

/// Sets the limit of the server's open files; returns the former limit.
fn limit(server: &Server, limit: Rlimit) -> Rlimit {
    let id = Pid::from_raw(server.id().cast_signed()).expect("a process has an ID");
    prlimit(Some(id), Resource::Nofile, limit).expect("the process is ours")
}

/// Returns the value of a metric, which is a whole number.
async fn metric(server: &Server, name: &str) -> u64 {
    let page = server.page("/metrics").await;
    let value = page.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(' ')?.parse::<f64>().ok());
    value.unwrap_or_else(|| panic!("no metric {name}:\n{page}")) as u64
}

#[tokio::test]
async fn a_crowd_from_one_address_leaves_descriptors_for_everything_else() {
    let server = Launch::new(Kind::Gitcd).wrapper(&["prlimit", "--nofile=128"]).start().await;
    let client = server.client().await;
    let mut crowd = Vec::new();
    eventually("the server to refuse connections", async || {
        crowd.push(TcpStream::connect(server.address()).await.ok()?);
        server.output().contains("its address has reached the limit of connections").then_some(())
    })
    .await;
    client.put(put("/registry/tests/default/a", "1")).await.ok();
    drop(crowd);
    let client = eventually("another client to be served", async || {
        let client = server.client().await;
        client.put(put("/registry/tests/default/a", "2")).await.result().is_ok().then_some(client)
    })
    .await;
    assert_eq!(client.range(get("/registry/tests/default/a")).await.ok().count, 1);
    assert!(metric(&server, "gitcd_connections_refused_total").await >= 1);
    assert!(!server.output().contains("cannot accept connections"), "{}", server.output());
}

#[tokio::test]
async fn the_limit_of_open_files_is_raised_at_the_start() {
    let server = Launch::new(Kind::Gitcd).wrapper(&["prlimit", "--nofile=64:4096"]).start().await;
    let mut crowd = Vec::new();
    for _ in 0..600 {
        crowd.push(TcpStream::connect(server.address()).await.expect("the server is listening"));
    }
    eventually("all connections to be accepted", async || {
        (metric(&server, "gitcd_connections").await > 600).then_some(())
    })
    .await;
    let status: serde_json::Value = serde_json::from_str(&server.page("/status").await).expect("the status is JSON");
    let connections = &status["branches"][0]["connections"];
    assert!(connections["open"].as_u64() > Some(600) && connections["limit"] == 2048, "{status}");
    assert_eq!(metric(&server, "process_max_fds").await, 4096);
    server.client().await.put(put("/registry/tests/default/a", "1")).await.ok();
}

#[tokio::test]
async fn external_commits_are_merged_after_a_shortage_of_descriptors() {
    let server = Server::start(Kind::Gitcd).await;
    let client = server.client().await;
    client.put(put("/registry/tests/default/a", "{}\n")).await.ok();
    let repository = server.repository();
    eventually("the write to be committed", async || (repository.committed_revision() >= 2).then_some(())).await;
    let blob = repository.blob("{\"by\":\"hand\"}\n");
    let head = repository.reference("refs/heads/main");
    let tree = {
        // `git mktree` reads its input: keep the first file, and add another beside it.
        let inner = repository.git(&["rev-parse", "refs/heads/main:tests/default"]);
        let script = format!(
            "set -e; default=$( (git ls-tree {inner}; printf '100644 blob {blob}\\tb\\n') | git mktree); \
             tests=$(printf '040000 tree %s\\tdefault\\n' $default | git mktree); \
             printf '040000 tree %s\\ttests\\n' $tests | git mktree",
            inner = inner.trim()
        );
        let output = std::process::Command::new("sh").args(["-c", &script]).current_dir(repository.path()).output();
        let output = output.expect("a shell is installed");
        assert!(output.status.success(), "{output:?}");
        String::from_utf8(output.stdout).expect("an ID is text").trim().to_owned()
    };
    let commit = repository.git(&["commit-tree", &tree, "-p", &head, "-m", "by hand"]);

    let maximum = rustix::process::getrlimit(Resource::Nofile).maximum;
    let before = limit(&server, Rlimit { current: Some(1), maximum });
    repository.git(&["update-ref", "refs/heads/main", commit.trim()]);
    eventually("the shortage to be noticed", async || {
        server.output().contains("cannot read references; retrying").then_some(())
    })
    .await;
    limit(&server, before);
    eventually("the commit to be merged", async || {
        (client.range(get("/registry/tests/default/b")).await.ok().count == 1).then_some(())
    })
    .await;
    assert!(server.output().contains("references can be read again"), "{}", server.output());
}

#[tokio::test]
async fn a_reference_that_cannot_be_read_is_reported_until_it_can() {
    let server = Server::start(Kind::Gitcd).await;
    server.client().await.put(put("/registry/tests/default/a", "{}\n")).await.ok();
    let repository = server.repository();
    eventually("the write to be committed", async || (repository.committed_revision() >= 2).then_some(())).await;
    let file = repository.path().join("refs/heads/main");
    let good = std::fs::read(&file).expect("the reference is a file");
    for (content, failing) in [(&b"nothing\n"[..], 1), (&good, 0)] {
        std::fs::write(&file, content).expect("the repository is writable");
        eventually("the metric", async || (metric(&server, "gitcd_external_failing").await == failing).then_some(()))
            .await;
        let status: serde_json::Value = serde_json::from_str(&server.page("/status").await).expect("it is JSON");
        assert_eq!(status["branches"][0]["error"].is_string(), failing == 1, "{status}");
    }
}

#[tokio::test]
async fn flags_limit_the_connections_of_a_listener_and_of_an_address() {
    let server = Launch::new(Kind::Gitcd).argument("--max-connections-per-address=4").start().await;
    let mut crowd = Vec::new();
    eventually("the server to refuse connections", async || {
        crowd.push(TcpStream::connect(server.address()).await.ok()?);
        server.output().contains("its address has reached the limit of connections").then_some(())
    })
    .await;
    assert!(crowd.len() <= 10, "{}", crowd.len());
    drop(crowd);
    let server = Launch::new(Kind::Gitcd).argument("--max-connections=7").start().await;
    let status: serde_json::Value = serde_json::from_str(&server.page("/status").await).expect("the status is JSON");
    assert_eq!(status["branches"][0]["connections"]["limit"], 7, "{status}");
    for (flag, words) in [
        ("--max-connections=0", "--max-connections: \"0\": no client could connect"),
        ("--max-connections=97", "may open 128 files, of which 96 for connections"),
        ("--host-max-push-memory-bytes=5", "--host-max-push-memory-bytes: \"5\": it must be at least 67108864"),
    ] {
        let launch = Launch::new(Kind::Gitcd).wrapper(&["prlimit", "--nofile=128"]).argument(flag);
        let launch = launch.argument("--host-listen-urls=http://127.0.0.1:0");
        let exit = launch.spawn().exit().await;
        super::explains(&exit, &[words]);
    }
}
