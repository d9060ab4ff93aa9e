//! `--push-on-pull-failures`.

use gitcd::pull::status::Condition;

use crate::host::Host;
use crate::support::{DATA, Repository, eventually};
use crate::world::{Follower, Following, ONE, bare, commit, holds};

fn following(url: &str) -> Following {
    let following = Following::new(url).without_pushes().argument("--push-on-pull-failures=true");
    following.argument("--remote-data-reference-names=theirs")
}

/// Checks that branch and metadata are pushed repeatedly while pulls fail.
async fn pushes(follower: &Follower, upstream: &Repository, condition: Condition, round: &str) {
    for value in [format!("{round} 1"), format!("{round} 2")] {
        follower.put(ONE, &value).await;
        holds(upstream, ONE, &value).await;
        let wanted = follower.server.repository().committed_revision();
        let metadata = async || {
            let is_there = upstream.run(&["rev-parse", "--verify", "--quiet", crate::support::METADATA]);
            (is_there.status.success() && upstream.committed_revision() >= wanted).then_some(())
        };
        eventually("the metadata on the remote", metadata).await;
        follower.fails_with(condition, &[]).await;
    }
}

async fn goes_on(upstream: Repository, url: &str) {
    let follower = following(url).start().await;
    pushes(&follower, &upstream, Condition::NoBranch, "none").await;
    let blob = upstream.blob("theirs");
    let theirs = commit(&upstream, "configmaps/n/new", &blob, &[]);
    let file = upstream.path().join("objects").join(&blob[..2]).join(&blob[2..]);
    let content = std::fs::read(&file).expect("the temporary folder is writable");
    std::fs::remove_file(&file).expect("the temporary folder is writable");
    upstream.git(&["update-ref", "refs/heads/theirs", &theirs]);
    follower.fails_with(Condition::Damaged, &[]).await;
    pushes(&follower, &upstream, Condition::Damaged, "damaged").await;
    std::fs::write(&file, content).expect("the temporary folder is writable");
    follower.has("/registry/configmaps/n/new", "theirs").await;
    follower.is(Condition::Synced).await;
    assert!(upstream.run(&["rev-parse", DATA]).status.success());
}

#[tokio::test]
async fn what_cannot_be_pulled_from_a_folder_does_not_keep_pushes_back() {
    let folder = tempfile::tempdir().unwrap();
    let upstream = bare(&folder);
    let url = upstream.path().display().to_string();
    goes_on(upstream, &url).await;
}

#[tokio::test]
async fn what_cannot_be_pulled_from_a_host_does_not_keep_pushes_back() {
    let host = Host::open().await;
    goes_on(host.make(), &host.url()).await;
}
