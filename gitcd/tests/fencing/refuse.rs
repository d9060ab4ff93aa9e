//! Setups that cannot work are refused with a useful error.

use std::process::Command;

use crate::node::{Node, Upstream, bare};
use crate::support::Repository;

fn refused(node: &str, words: &[&str]) {
    for word in words {
        assert!(node.contains(word), "the output lacks {word:?}:\n{node}");
    }
}

#[tokio::test]
async fn a_reference_that_is_no_lease_is_refused() {
    let upstream = Upstream::new();
    let there = upstream.repository();
    let tree = there.git(&["hash-object", "-t", "tree", "-w", "/dev/null"]);
    let commit = there.git(&["commit-tree", "-m", "by hand", tree.trim()]);
    there.git(&["update-ref", "refs/gitcd/lease/main", commit.trim()]);
    let mut node = Node::first(&upstream, &["--writer-lease=1s"]);
    let exit = node.server.exit().await;
    assert_eq!(exit.status.code(), Some(1));
    let remedy = "git push origin :refs/gitcd/lease/main";
    refused(
        &exit.output,
        &["refs/gitcd/lease/main of remote \"origin\" is not a lease", "no line \"Lease-Format\"", remedy],
    );

    there.git(&["update-ref", "refs/gitcd/lease/main", there.blob("text").as_str()]);
    let mut node = Node::first(&upstream, &["--writer-lease=1s"]);
    refused(&node.server.exit().await.output, &["is not a lease", remedy]);
}

#[tokio::test]
async fn a_remote_that_somebody_serves_is_refused() {
    let store = crate::support::Server::start(crate::support::Kind::Gitcd).await;
    let folder = tempfile::tempdir().expect("the temporary folder is writable");
    let repository = bare(&folder.path().join("repo.git"));
    repository.git(&["remote", "add", "origin", &store.repository().path().display().to_string()]);
    let mut server = crate::node::launch(folder.path(), &["--writer-lease=1s"]).spawn();
    let exit = server.exit().await;
    refused(&exit.output, &["another gitcd serves refs/heads/main", "a remote that no gitcd serves"]);
    assert_eq!(store.page("/health").await, r#"{"health":"true","reason":""}"#);
}

#[test]
fn flags_that_do_not_fit_are_refused() {
    let folder = tempfile::tempdir().expect("the temporary folder is writable");
    let serve = |repository: &Repository, more: &[&str]| {
        let mut command = Command::new(env!("CARGO_BIN_EXE_gitcd"));
        command.arg("serve").arg(format!("--repo={}", repository.path().display())).args(more);
        let output = command.output().expect("gitcd can be started");
        assert!(!output.status.success(), "{output:?}");
        String::from_utf8_lossy(&output.stderr).into_owned()
    };
    let repository = bare(&folder.path().join("repo.git"));
    let lease = "--writer-lease=3s";
    refused(&serve(&repository, &[lease]), &["needs a remote", "remote add origin URL"]);
    refused(&serve(&repository, &["--writer-lease=3ms"]), &["--writer-lease", "1s at least"]);
    refused(&serve(&repository, &["--writer-lease-remote=up"]), &["--writer-lease-remote needs --writer-lease"]);
    refused(&serve(&repository, &[lease, "--writer-lease-remote=up"]), &["no such remote", "remote add up URL"]);
    for name in ["one", "two"] {
        repository.git(&["remote", "add", name, "/nowhere"]);
    }
    refused(&serve(&repository, &[lease]), &["remotes one, two", "--writer-lease-remote=default=NAME"]);
}
