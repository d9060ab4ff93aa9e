//! Data and metadata references that hold anything but gitcd's own commits.

use tonic::Code;

use super::{explains, holds, key, recovers, value, write};
use crate::support::build::put;
use crate::support::{DATA, Kind, METADATA, Repository, Server, eventually};

const WRITES: usize = 10;

/// Starts a server, writes, and stops it gracefully; returns the server and its repository.
async fn stopped() -> (Server, Repository) {
    let mut server = Server::start(Kind::Gitcd).await;
    write(&server.client().await, 0..WRITES).await;
    server.terminate().await;
    let repository = server.repository();
    (server, repository)
}

/// Writes a reference's file directly: `git update-ref` would refuse the content.
fn force(repository: &Repository, reference: &str, content: &str) {
    let path = repository.path().join(reference);
    std::fs::create_dir_all(path.parent().expect("a reference has a folder")).expect("the repository is writable");
    std::fs::write(path, content).expect("the repository is writable");
}

/// Asserts that gitcd refuses to start while `reference` holds `content`, and recovers once it is restored.
async fn refused_until_put_right(reference: &str, content: impl FnOnce(&Repository) -> String, words: &[&str]) {
    let (mut server, repository) = stopped().await;
    let right = repository.reference(reference);
    let content = content(&repository);
    force(&repository, reference, &content);
    for _ in 0..2 {
        let exit = server.restart_in_vain().await;
        explains(&exit, &[&[reference], words].concat());
        let kept = std::fs::read_to_string(repository.path().join(reference));
        let kept = kept.expect("the reference is a file");
        assert_eq!(kept, content, "a refused start must change nothing");
    }
    force(&repository, reference, &format!("{right}\n"));
    recovers(&mut server, 0..WRITES).await;
}

#[tokio::test]
async fn a_blob_in_the_data_reference_is_refused() {
    let blob = |repository: &Repository| format!("{}\n", repository.blob("not a commit"));
    refused_until_put_right(DATA, blob, &[]).await;
}

#[tokio::test]
async fn a_missing_object_in_the_data_reference_is_refused() {
    let missing = |_: &Repository| format!("{}\n", "12".repeat(20));
    refused_until_put_right(DATA, missing, &["1212121212"]).await;
}

#[tokio::test]
async fn text_in_the_data_reference_is_refused() {
    refused_until_put_right(DATA, |_: &Repository| "hello\n".to_owned(), &[]).await;
}

#[tokio::test]
async fn an_empty_data_reference_is_refused() {
    refused_until_put_right(DATA, |_: &Repository| String::new(), &[]).await;
}

/// Creates an external commit with the current tree.
fn by_hand(repository: &Repository) -> String {
    let tree = repository.reference(&format!("{DATA}^{{tree}}"));
    let commit = repository.git(&["commit-tree", &tree, "-p", &repository.reference(DATA), "-m", "by hand"]);
    commit.trim().to_owned()
}

async fn is_merged(repository: &Repository, commit: &str) {
    eventually("the commit to be in the branch", async || {
        let found = repository.git(&["merge-base", DATA, commit]);
        let ours = repository.git(&["log", "-1", "--format=%H", "refs/gitcd/metadata/main^2"]);
        (found.trim() == commit && ours.trim() == repository.reference(DATA)).then_some(())
    })
    .await;
}

#[tokio::test]
async fn somebody_elses_commit_is_merged_while_gitcd_serves_and_at_its_start() {
    let mut server = Server::start(Kind::Gitcd).await;
    let client = server.client().await;
    write(&client, 0..WRITES).await;
    let repository = server.repository();
    let last = WRITES as i64 + 1;
    eventually("the first commits", async || (repository.committed_revision() == last).then_some(())).await;
    for round in 0..2 {
        let commit = by_hand(&repository);
        repository.git(&["update-ref", DATA, &commit]);
        is_merged(&repository, &commit).await;
        write(&client, WRITES + round..WRITES + round + 1).await;
    }
    let last = last + 2;
    eventually("the last commits", async || (repository.committed_revision() == last).then_some(())).await;
    server.terminate().await;
    let commit = by_hand(&repository);
    repository.git(&["update-ref", DATA, &commit]);
    server.restart().await;
    is_merged(&repository, &commit).await;
    holds(&server.client().await, 0..WRITES + 2).await;
    repository.git(&["fsck", "--full", "--strict"]);
}

#[tokio::test]
async fn a_data_reference_that_was_moved_back_is_refused() {
    let back = |repository: &Repository| format!("{}\n", repository.reference(&format!("{DATA}~1")));
    refused_until_put_right(DATA, back, &[]).await;
}

#[tokio::test]
async fn a_blob_in_the_metadata_reference_is_refused() {
    let blob = |repository: &Repository| format!("{}\n", repository.blob("not a commit"));
    refused_until_put_right(METADATA, blob, &[]).await;
}

#[tokio::test]
async fn a_missing_object_in_the_metadata_reference_is_refused() {
    let missing = |_: &Repository| format!("{}\n", "12".repeat(20));
    refused_until_put_right(METADATA, missing, &["1212121212"]).await;
}

#[tokio::test]
async fn text_in_the_metadata_reference_is_refused() {
    refused_until_put_right(METADATA, |_: &Repository| "hello\n".to_owned(), &[]).await;
}

#[tokio::test]
async fn a_commit_of_another_format_in_the_metadata_reference_is_refused() {
    let other = |repository: &Repository| {
        let tree = repository.reference(&format!("{DATA}^{{tree}}"));
        repository.git(&["commit-tree", &tree, "-m", "not metadata"])
    };
    refused_until_put_right(METADATA, other, &[]).await;
}

/// Serves while `change` moves a reference. Writes must then be refused with the reason, in the error and in `/health`, and
/// reads must work; once repaired, no acknowledged write may be missing.
async fn refuses_writes_until_put_right(reference: &str, change: impl FnOnce(&Repository)) {
    let mut server = Server::start(Kind::Gitcd).await;
    let client = server.client().await;
    write(&client, 0..WRITES).await;
    let repository = server.repository();
    let last = WRITES as i64 + 1;
    eventually("the first commits", async || (repository.committed_revision() == last).then_some(())).await;
    change(&repository);

    let mut acknowledged = WRITES;
    let refused = eventually("writes to be refused", async || {
        match client.put(put(&key(acknowledged), &value(acknowledged))).await.result() {
            Ok(_) => {
                acknowledged += 1;
                None
            }
            Err(status) => Some(status),
        }
    })
    .await;
    assert_eq!(refused.code(), Code::FailedPrecondition, "{refused}");
    let (status, health) = server.answer("/health").await;
    assert_eq!(status, 503, "{health}");
    for words in [refused.message(), &health] {
        assert!(words.contains(reference), "{words}");
    }
    holds(&client, 0..acknowledged).await;

    // The exit and the next start report it, too.
    server.ask_to_stop();
    explains(&server.exit().await, &[reference]);
    let exit = server.restart_in_vain().await;
    explains(&exit, &["git update-ref"]);
    let command = exit.output.rsplit('`').nth(1).expect("the hint is in backticks").to_owned();
    let words: Vec<_> = command.split(' ').skip(1).collect();
    repository.git(&words);
    recovers(&mut server, 0..acknowledged).await;
}

#[tokio::test]
async fn a_data_reference_that_is_moved_back_while_gitcd_serves_stops_writes_but_not_reads() {
    refuses_writes_until_put_right(DATA, |repository| {
        repository.git(&["update-ref", DATA, &format!("{DATA}~1")]);
    })
    .await;
}

#[tokio::test]
async fn a_data_reference_that_is_deleted_while_gitcd_serves_stops_writes_but_not_reads() {
    refuses_writes_until_put_right(DATA, |repository| {
        repository.git(&["update-ref", "-d", DATA]);
    })
    .await;
}
