//! Remotes that are temporarily unreachable.

use gitcd::pull::status::Condition;

use crate::host::Host;
use crate::world::{Follower, Following, ONE, OTHER, bare};

/// Writes through both followers while the remote is unreachable; both must report it with `word`.
async fn write(first: &Follower, second: &Follower, word: &str) {
    for value in ["2", "3", "4"] {
        first.put(ONE, value).await;
        second.put(OTHER, value).await;
    }
    first.fails_with(Condition::Unreachable, &[word]).await;
    second.fails_with(Condition::Unreachable, &[word]).await;
}

/// Checks that both followers get each other's writes once the remote is back.
async fn converge(first: &Follower, second: &Follower) {
    first.has(OTHER, "4").await;
    second.has(ONE, "4").await;
    for follower in [first, second] {
        let known = follower.is(Condition::Synced).await;
        assert_eq!((known.error, known.failures), (None, 0));
    }
}

#[tokio::test]
async fn followers_of_a_folder_write_on_while_it_is_away() {
    let folder = tempfile::tempdir().unwrap();
    let upstream = bare(&folder);
    let away = folder.path().join("away.git");
    let (first, second) = (Following::of(upstream.path()).start().await, Following::of(upstream.path()).start().await);
    first.put(ONE, "1").await;
    second.has(ONE, "1").await;
    std::fs::rename(upstream.path(), &away).unwrap();
    write(&first, &second, "up.git cannot be opened").await;
    std::fs::rename(&away, upstream.path()).unwrap();
    converge(&first, &second).await;
    upstream.fsck();
}

#[tokio::test]
async fn followers_of_a_host_write_on_while_it_is_away() {
    let mut host = Host::open().await;
    let upstream = host.make();
    let (first, second) = (Following::new(&host.url()).start().await, Following::new(&host.url()).start().await);
    first.put(ONE, "1").await;
    second.has(ONE, "1").await;
    host.kill();
    write(&first, &second, &format!("127.0.0.1:{}", host.port())).await;
    host.start().await;
    converge(&first, &second).await;
    upstream.fsck();
}

/// Only the host's change notifications trigger a pull: the poll interval is an hour, and this follower has no writes.
#[tokio::test]
async fn who_only_follows_a_host_is_notified_again_when_it_is_back() {
    let mut host = Host::open().await;
    let upstream = host.make();
    let first = Following::new(&host.url()).start().await;
    let second = Following::new(&host.url()).without_pushes().argument("--pull-ticker-duration=1h").start().await;
    first.put(ONE, "1").await;
    second.has(ONE, "1").await;
    host.kill();
    second.fails_with(Condition::Unreachable, &[&format!("127.0.0.1:{}", host.port())]).await;
    host.start().await;
    second.is(Condition::Synced).await;
    first.put(ONE, "2").await;
    second.has(ONE, "2").await;
    upstream.fsck();
}

#[tokio::test]
async fn the_first_push_of_a_follower_makes_the_repository() {
    let host = Host::open().await;
    let second = Following::new(&host.url()).without_pushes().start().await;
    let first = Following::new(&host.url()).start().await;
    first.put(ONE, "1").await;
    second.has(ONE, "1").await;
    first.put(ONE, "2").await;
    second.has(ONE, "2").await;
    host.repository().fsck();
}
