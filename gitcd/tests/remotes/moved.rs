//! Branches of a remote that are moved back, moved elsewhere, or deleted.

use gitcd::pull::status::Condition;

use crate::host::Host;
use crate::support::{DATA, Repository};
use crate::world::{Follower, Following, ONE, OTHER, bare, commit, holds};

/// Starts two followers, each with a write that the other and the remote have.
async fn two(url: &str) -> [Follower; 2] {
    let both = [Following::new(url).start().await, Following::new(url).start().await];
    both[0].put(ONE, "1").await;
    both[1].has(ONE, "1").await;
    both[1].put(OTHER, "2").await;
    both[0].has(OTHER, "2").await;
    both
}

async fn comes_back(upstream: &Repository, [first, second]: &[Follower; 2]) {
    for (key, value) in [(ONE, "1"), (OTHER, "2")] {
        holds(upstream, key, value).await;
        first.has(key, value).await;
        second.has(key, value).await;
    }
    // Both directions must still work.
    first.put(ONE, "3").await;
    second.has(ONE, "3").await;
    second.put(OTHER, "4").await;
    first.has(OTHER, "4").await;
    holds(upstream, OTHER, "4").await;
    for follower in [first, second] {
        follower.is(Condition::Synced).await;
    }
    upstream.fsck();
}

async fn moved_to_an_older_commit(upstream: Repository, url: &str) {
    let both = two(url).await;
    let oldest = upstream.git(&["rev-list", "--max-parents=0", DATA]);
    upstream.git(&["update-ref", DATA, oldest.lines().next().expect("the history has a root")]);
    comes_back(&upstream, &both).await;
}

async fn moved_to_an_unrelated_commit(upstream: Repository, url: &str) {
    let both = two(url).await;
    let blob = upstream.blob("theirs");
    upstream.git(&["update-ref", DATA, &commit(&upstream, "configmaps/n/new", &blob, &[])]);
    for follower in &both {
        // Its content is merged like that of any other commit.
        follower.has("/registry/configmaps/n/new", "theirs").await;
    }
    comes_back(&upstream, &both).await;
}

async fn deleted(upstream: Repository, url: &str) {
    let both = two(url).await;
    let reader = Following::new(url).without_pushes().start().await;
    reader.has(OTHER, "2").await;
    drop(both);
    upstream.git(&["update-ref", "-d", DATA]);
    reader.fails_with(Condition::NoBranch, &[DATA]).await;
    reader.has(ONE, "1").await;
    // The next push must create the branch again.
    let writer = Following::new(url).start().await;
    writer.put(ONE, "5").await;
    holds(&upstream, ONE, "5").await;
    reader.has(ONE, "5").await;
    assert_eq!(reader.is(Condition::Synced).await.failures, 0);
    reader.has(OTHER, "2").await;
}

async fn deleted_under_writers(upstream: Repository, url: &str) {
    let both = two(url).await;
    upstream.git(&["update-ref", "-d", DATA]);
    comes_back(&upstream, &both).await;
}

#[tokio::test]
async fn a_branch_of_a_folder_that_is_moved_back_gets_everything_again() {
    let folder = tempfile::tempdir().unwrap();
    let upstream = bare(&folder);
    let url = upstream.path().display().to_string();
    moved_to_an_older_commit(upstream, &url).await;
}

#[tokio::test]
async fn a_branch_of_a_host_that_is_moved_back_gets_everything_again() {
    let host = Host::open().await;
    moved_to_an_older_commit(host.make(), &host.url()).await;
}

#[tokio::test]
async fn a_branch_of_a_folder_that_is_moved_elsewhere_gets_everything_again() {
    let folder = tempfile::tempdir().unwrap();
    let upstream = bare(&folder);
    let url = upstream.path().display().to_string();
    moved_to_an_unrelated_commit(upstream, &url).await;
}

#[tokio::test]
async fn a_branch_of_a_host_that_is_moved_elsewhere_gets_everything_again() {
    let host = Host::open().await;
    moved_to_an_unrelated_commit(host.make(), &host.url()).await;
}

#[tokio::test]
async fn a_branch_of_a_folder_that_is_deleted_is_made_again() {
    let folder = tempfile::tempdir().unwrap();
    let upstream = bare(&folder);
    let url = upstream.path().display().to_string();
    deleted_under_writers(upstream, &url).await;
}

#[tokio::test]
async fn a_branch_of_a_host_that_is_deleted_is_made_again() {
    let host = Host::open().await;
    deleted_under_writers(host.make(), &host.url()).await;
}

#[tokio::test]
async fn who_only_reads_a_folder_says_that_its_branch_is_gone() {
    let folder = tempfile::tempdir().unwrap();
    let upstream = bare(&folder);
    let url = upstream.path().display().to_string();
    deleted(upstream, &url).await;
}

#[tokio::test]
async fn who_only_reads_a_host_says_that_its_branch_is_gone() {
    let host = Host::open().await;
    deleted(host.make(), &host.url()).await;
}

/// What was known about the old repository must not be assumed of the new one.
#[tokio::test]
async fn a_host_whose_repository_was_made_anew_gets_everything_again() {
    let host = Host::open().await;
    let upstream = host.make();
    let follower = Following::new(&host.url()).start().await;
    follower.put(ONE, "1").await;
    holds(&upstream, ONE, "1").await;
    std::fs::remove_dir_all(upstream.path()).expect("the temporary folder is writable");
    let upstream = host.make();
    follower.put(OTHER, "2").await;
    holds(&upstream, OTHER, "2").await;
    holds(&upstream, ONE, "1").await;
    follower.is(Condition::Synced).await;
    upstream.fsck();
}
