//! A fresh clone takes over after the disk was lost: clients relist, and no revision is assigned twice.

use std::collections::BTreeMap;
use std::time::Duration;

use gitcd::proto::etcdserverpb::WatchCreateRequest;

use crate::node::{Node, Upstream, arrives, key, object, pushed, within, write};
use crate::support::build::{get, list, put, watch_prefix};
use crate::support::{Repository, eventually};

/// The writes acknowledged to clients, by revision.
#[derive(Default)]
struct AcknowledgedWrites(BTreeMap<i64, (String, String)>);

impl AcknowledgedWrites {
    fn record(&mut self, revision: i64, name: &str, data: &str) {
        let meaning = (name.to_owned(), data.to_owned());
        let before = self.0.insert(revision, meaning.clone());
        assert!(before.is_none_or(|before| before == meaning), "revision {revision} was assigned twice");
        assert_eq!(self.0.keys().last(), Some(&revision), "revisions must increase");
    }
}

/// Asserts that a client that has seen up to `seen` must relist, and can watch from there.
async fn lists_again(node: &Node, seen: i64) {
    let client = node.server.client().await;
    let mut watching = client.watch();
    let resumed = WatchCreateRequest { start_revision: seen + 1, ..watch_prefix("/registry/") };
    watching.create(resumed).await;
    let refused = watching.control().await;
    assert!(refused.canceled && refused.compact_revision > seen, "{refused:?}");
    let old = gitcd::proto::etcdserverpb::RangeRequest { revision: seen, ..get(&key("a")) };
    let refused = client.range(old).await.refused(tonic::Code::OutOfRange);
    assert!(refused.contains("required revision has been compacted"), "{refused}");
    let listed = client.range(list("/registry/")).await.ok().header.expect("a response has a header").revision;
    assert!(listed > seen);
    let mut watching = client.watch();
    let fresh = WatchCreateRequest { start_revision: listed + 1, ..watch_prefix("/registry/") };
    watching.create(fresh).await;
    client.put(put(&key("seen"), &object("seen", "{}"))).await.ok();
    watching.events(1).await;
}

/// Starts a node whose repository is a mirror clone of the upstream.
fn cloned(upstream: &Upstream, arguments: &[&str]) -> Node {
    let from = upstream.path().display().to_string();
    Node::spawn(upstream, arguments, |path| {
        let to = path.display().to_string();
        Repository::at(path.parent().expect("the path has a parent")).git(&["clone", "-q", "--mirror", &from, &to]);
    })
}

async fn lose_disks(with_lease: bool) {
    let upstream = Upstream::new();
    let arguments: &[&str] =
        if with_lease { &["--writer-lease=2s"] } else { &["--remote-names=origin", "--push-after-merges=true"] };
    let mut acknowledged = AcknowledgedWrites::default();
    let mut node = Node::first(&upstream, arguments);
    node.serves().await;
    for life in 0..2 {
        let client = node.server.client().await;
        let name = format!("kept-{life}");
        acknowledged.record(write(&client, &name, "{}").await, &name, "{}");
        acknowledged.record(write(&client, "a", "{}").await, "a", "{}");
        pushed(&node).await;
        node.cut_off();
        // Acknowledged to clients, then lost with the disk.
        let mut last = 0;
        for number in 0..5 {
            let data = format!(r#"{{"life":"{life}","number":"{number}"}}"#);
            last = write(&client, "lost", &data).await;
            acknowledged.record(last, "lost", &data);
        }
        node.server.kill();
        let mut next = if with_lease { Node::fresh(&upstream, arguments) } else { cloned(&upstream, arguments) };
        within("a takeover", next.serves().await, Duration::from_secs(5));
        let client = next.server.client().await;
        for former in 0..=life {
            arrives(&client, &format!("kept-{former}"), "{}").await;
        }
        assert!(client.range(get(&key("lost"))).await.ok().kvs.is_empty(), "the disk with this key is lost");
        lists_again(&next, last).await;
        let revision = eventually("a revision", async || {
            Some(client.range(get(&key("a"))).await.ok().header.expect("a response has a header").revision)
        })
        .await;
        assert!(revision > last);
        node = next;
    }
}

#[tokio::test]
async fn a_jump_is_on_the_remote_before_anything_is_written() {
    let upstream = Upstream::new();
    let arguments = ["--remote-names=origin", "--push-after-merges=true"];
    let mut node = Node::first(&upstream, &arguments);
    node.serves().await;
    write(&node.server.client().await, "a", "{}").await;
    pushed(&node).await;
    node.server.kill();
    let mut former = 0;
    for _ in 0..3 {
        let mut next = cloned(&upstream, &arguments);
        next.serves().await;
        let found = next.server.client().await.range(get(&key("a"))).await.ok();
        let revision = found.header.expect("a response has a header").revision;
        assert!(revision > former, "{revision} after {former}");
        former = revision;
        eventually("the jump on the remote", async || {
            (upstream.repository().committed_revision() >= revision).then_some(())
        })
        .await;
        next.server.kill();
    }
}

#[tokio::test]
async fn clients_of_a_lost_disk_list_again_under_a_lease() {
    lose_disks(true).await;
}

#[tokio::test]
async fn clients_of_a_lost_disk_list_again_without_one() {
    lose_disks(false).await;
}

#[tokio::test]
async fn a_takeover_that_was_cut_short_goes_on_at_the_next_start() {
    tokio::join!(cut_short(true), cut_short(false));
}

/// The old server had moved its data reference forward or back when it was killed.
async fn cut_short(ahead: bool) {
    let upstream = Upstream::new();
    let lease = ["--writer-lease=1s"];
    let mut old = Node::first(&upstream, &lease);
    old.serves().await;
    write(&old.server.client().await, "a", "{}").await;
    pushed(&old).await;
    let mut new = Node::fresh(&upstream, &lease);
    new.waits().await;
    old.server.terminate().await;
    new.serves().await;
    let revision = write(&new.server.client().await, "b", "{}").await;
    new.server.terminate().await;
    // As if it had been killed after it moved the first of the two references.
    let repository = old.server.repository();
    if ahead {
        repository.git(&["fetch", "-q", "origin", "+refs/heads/main:refs/heads/main"]);
    } else {
        repository.git(&["update-ref", "refs/heads/main", "refs/heads/main~1"]);
    }
    let state = repository.path().join("gitcd/default");
    for part in ["journal", "snapshot", "pair"] {
        std::fs::rename(state.join(part), state.join(format!("{part}.old"))).expect("the file exists");
    }
    old.server.begin_restart();
    old.serves().await;
    let client = old.server.client().await;
    arrives(&client, "a", "{}").await;
    arrives(&client, "b", "{}").await;
    assert!(write(&client, "c", "{}").await > revision);
    assert!(upstream.references("refs/heads/main-side-*").is_empty());
    old.server.repository().fsck();
}
