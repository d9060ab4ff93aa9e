//! Shallow clones.

use std::path::Path;
use std::process::Command;

use gitcd::pull::status::Condition;

use crate::support::build::put;
use crate::support::{DATA, METADATA, Repository, eventually};
use crate::world::{Following, ONE, OTHER, bare, has, holds, is};

/// Waits until a remote's metadata describes its data.
async fn described(remote: &Repository) {
    eventually("the metadata of the last commit", async || {
        (remote.git(&["rev-parse", &format!("{METADATA}^2")]).trim() == remote.reference(DATA)).then_some(())
    })
    .await;
}

/// Makes a shallow clone with the last commit of a branch and of its metadata.
fn shallow(of: &Repository, place: &Path) -> Repository {
    std::fs::create_dir(place).expect("the temporary folder is writable");
    let path = place.join("repo.git");
    let url = format!("file://{}", of.path().display());
    let cloned = Command::new("git").args(["clone", "--quiet", "--bare", "--depth=1", &url]).arg(&path).status();
    assert!(cloned.expect("git is installed").success());
    let clone = Repository::at(&path);
    clone.git(&["fetch", "--quiet", "--depth=1", &url, &format!("+{METADATA}:{METADATA}")]);
    clone.git(&["remote", "remove", "origin"]);
    assert!(clone.path().join("shallow").exists());
    clone
}

/// As if cloned between the push of a commit and the push of its metadata.
#[tokio::test]
async fn a_shallow_clone_with_older_metadata_says_what_to_fetch_and_starts_then() {
    let folder = tempfile::tempdir().expect("the temporary folder is writable");
    let upstream = bare(&folder);
    let first = Following::of(upstream.path()).start().await;
    for number in 0..10 {
        first.put(ONE, &number.to_string()).await;
        holds(&upstream, ONE, &number.to_string()).await;
    }
    described(&upstream).await;
    drop(first);
    upstream.git(&["update-ref", METADATA, &format!("{METADATA}~3")]);
    let place = folder.path().join("clone");
    let clone = shallow(&upstream, &place);
    let following = Following::of(upstream.path());
    following.prepare(&clone);
    let refused = following.launch(&place).spawn().exit().await.output;
    assert!(refused.contains("git fetch --deepen=1000 REMOTE"), "{refused}");
    clone.git(&["fetch", "--quiet", "--deepen=1000", "up", DATA, METADATA]);
    let server = following.launch(&place).start().await;
    has(&server.client().await, ONE, "9").await;
}

/// The clone has only the branch's last commit, and must merge a branch that forked from an earlier one.
#[tokio::test]
async fn a_shallow_clone_is_deepened_until_a_merge_has_its_base() {
    let folder = tempfile::tempdir().expect("the temporary folder is writable");
    let upstream = bare(&folder);
    let first = Following::of(upstream.path()).start().await;
    first.put(OTHER, "0").await;
    holds(&upstream, OTHER, "0").await;
    let old = upstream.reference(DATA);
    for number in 0..100 {
        first.put(ONE, &number.to_string()).await;
    }
    holds(&upstream, ONE, "99").await;
    described(&upstream).await;
    drop(first);
    let place = folder.path().join("clone");
    let clone = shallow(&upstream, &place);
    // A branch that forks from a commit missing in the clone.
    let tree = format!("{old}^{{tree}}");
    let theirs = upstream.git(&["commit-tree", &tree, "-p", &old, "-m", "by hand"]);
    let merged = upstream.reference(DATA);
    upstream.git(&["update-ref", "refs/heads/side", theirs.trim()]);

    let following = Following::of(upstream.path());
    following.prepare(&clone);
    let server =
        following.launch(&place).argument("--remote-data-reference-names=default=refs/heads/side").start().await;
    let client = server.client().await;
    has(&client, ONE, "99").await;
    is(&server, Condition::Synced).await;
    client.put(put(OTHER, "1")).await.ok();
    holds(&upstream, OTHER, "1").await;
    for commit in [theirs.trim(), &merged] {
        upstream.git(&["merge-base", "--is-ancestor", commit, DATA]);
    }
    has(&client, ONE, "99").await;
    assert!(server.output().contains("deepened the shallow repository"), "{}", server.output());
    upstream.fsck();
    clone.fsck();
}
