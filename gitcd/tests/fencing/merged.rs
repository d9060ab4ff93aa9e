//! No acknowledged write is lost: with a lease it is merged from a side branch; without one, both servers write and both
//! histories are merged.

use crate::node::{Node, Upstream, arrives, pushed, write};
use crate::support::{Repository, eventually};

#[tokio::test]
async fn what_was_not_pushed_when_the_lease_was_lost_is_merged_by_the_next_writer() {
    let upstream = Upstream::new();
    let lease = ["--writer-lease=2s"];
    let mut old = Node::first(&upstream, &lease);
    old.serves().await;
    let client = old.server.client().await;
    write(&client, "both", r#"{"x":"1","y":"1"}"#).await;
    pushed(&old).await;
    let mut new = Node::fresh(&upstream, &lease);
    new.waits().await;
    old.cut_off();
    // Acknowledged: the lease has not expired yet.
    write(&client, "late", "{}").await;
    write(&client, "both", r#"{"x":"2","y":"1"}"#).await;
    new.serves().await;
    let second = new.server.client().await;
    write(&second, "both", r#"{"x":"1","y":"2"}"#).await;
    old.reconnect();
    let exit = old.server.exit().await;
    assert!(exit.output.contains("this server stops writing"), "{}", exit.output);
    arrives(&second, "late", "{}").await;
    arrives(&second, "both", r#"{"x":"2","y":"2"}"#).await;
    let sides = upstream.references("refs/heads/main-side-*");
    assert_eq!(sides.len(), 1, "{sides:?}");
    pushed(&new).await;
    assert_eq!(upstream.repository().run(&["merge-base", "--is-ancestor", &sides[0], "main"]).status.code(), Some(0));

    // The old writer is the next to write, and starts from what the new one has pushed.
    old.server.begin_restart();
    old.waits().await;
    new.server.terminate().await;
    old.serves().await;
    let third = old.server.client().await;
    arrives(&third, "both", r#"{"x":"2","y":"2"}"#).await;
    arrives(&third, "late", "{}").await;
    assert_eq!(upstream.references("refs/heads/main-side-*").len(), 1, "there must be no further side branch");
    old.server.repository().fsck();
}

#[tokio::test]
async fn a_branch_of_a_person_with_such_a_name_is_left_alone() {
    let upstream = Upstream::new();
    let mut node = Node::first(&upstream, &["--writer-lease=1s"]);
    node.serves().await;
    let client = node.server.client().await;
    write(&client, "a", "{}").await;
    pushed(&node).await;
    let there = upstream.repository();
    let tree = there.git(&["rev-parse", "main^{tree}"]);
    let commit = there.git(&["commit-tree", "-p", "main", "-m", "by hand", tree.trim()]);
    there.git(&["update-ref", "refs/heads/main-side-project", commit.trim()]);
    there.git(&["update-ref", "refs/heads/main-side-0123456789ab", commit.trim()]);
    let right = format!("refs/heads/main-side-{}", &commit[..12]);
    write(&client, "b", "{}").await;
    pushed(&node).await;
    let merged = |name: &str| there.run(&["merge-base", "--is-ancestor", name, "main"]).status.success();
    assert!(!merged("refs/heads/main-side-project"));
    // Under a name that matches it, the same commit is merged.
    there.git(&["update-ref", &right, commit.trim()]);
    eventually("the merge", async || merged(&right).then_some(())).await;
}

#[tokio::test]
async fn without_a_lease_both_write_and_both_histories_are_merged() {
    let upstream = Upstream::new();
    let follow = ["--remote-names=origin", "--push-after-merges=true"];
    let mut old = Node::first(&upstream, &follow);
    old.serves().await;
    let first = old.server.client().await;
    write(&first, "both", r#"{"x":"1","y":"1"}"#).await;
    pushed(&old).await;
    let from = upstream.path().display().to_string();
    let mut new = Node::spawn(&upstream, &follow, |path| {
        let to = path.display().to_string();
        Repository::at(path.parent().expect("the path has a parent")).git(&["clone", "-q", "--mirror", &from, &to]);
    });
    new.serves().await;
    let second = new.server.client().await;
    for round in 0..2 {
        old.cut_off();
        new.cut_off();
        for number in 0..10 {
            write(&first, &format!("old-{round}-{number}"), "{}").await;
            write(&second, &format!("new-{round}-{number}"), "{}").await;
        }
        write(&first, "both", &format!(r#"{{"x":"old-{round}","y":"{round}"}}"#)).await;
        write(&second, "other", &format!(r#"{{"round":"{round}"}}"#)).await;
        new.reconnect();
        old.reconnect();
        for number in 0..10 {
            arrives(&second, &format!("old-{round}-{number}"), "{}").await;
            arrives(&first, &format!("new-{round}-{number}"), "{}").await;
        }
        arrives(&second, "both", &format!(r#"{{"x":"old-{round}","y":"{round}"}}"#)).await;
        arrives(&first, "other", &format!(r#"{{"round":"{round}"}}"#)).await;
    }
    eventually("one history", async || {
        let (one, other) = (old.status().await, new.status().await);
        (one.head == other.head).then_some(())
    })
    .await;
    assert!(upstream.references("refs/heads/main-side-*").is_empty());
    upstream.repository().fsck();
}
