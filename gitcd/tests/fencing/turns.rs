//! Which server gets the lease.

use std::time::Duration;

use gitcd::pull::status::Condition;

use crate::node::{Node, Upstream, arrives, pushed, within, write};
use crate::support::build::{get, put};
use crate::support::{Kind, eventually};
use gitcd::proto::etcdserverpb::RangeRequest;
use tonic::Code;

const LEASE: &[&str] = &["--writer-lease=2s"];

#[tokio::test]
async fn of_two_that_wait_one_takes_over() {
    let upstream = Upstream::new();
    let mut first = Node::first(&upstream, LEASE);
    first.serves().await;
    write(&first.server.client().await, "a", "{}").await;
    pushed(&first).await;
    let mut others = [Node::fresh(&upstream, LEASE), Node::fresh(&upstream, LEASE)];
    for other in &others {
        other.waits().await;
    }
    first.server.kill();
    let taken = eventually("a new writer", async || {
        others.iter().position(|other| other.server.output().contains("acquired the writer lease"))
    })
    .await;
    let [one, other] = &mut others;
    let (winner, loser) = if taken == 0 { (one, other) } else { (other, one) };
    winner.serves().await;
    arrives(&winner.server.client().await, "a", "{}").await;
    let lease = winner.status().await.lease.expect("the branch has a lease");
    assert_eq!((lease.epoch, &*lease.reference), (2, "refs/gitcd/lease/main"));
    loser.says("in epoch 2").await;
    assert!(!loser.server.output().contains("acquired the writer lease"));
    // It keeps waiting, and takes over when the winner leaves.
    winner.server.terminate().await;
    within("a hand-over", loser.serves().await, Duration::from_secs(2));
    arrives(&loser.server.client().await, "a", "{}").await;
}

#[tokio::test]
async fn who_crashes_and_comes_back_waits_for_nobody_and_loses_nothing() {
    let upstream = Upstream::new();
    let mut node = Node::first(&upstream, &["--writer-lease=20s"]);
    node.serves().await;
    let before = write(&node.server.client().await, "a", "{}").await;
    node.server.kill();
    node.server.begin_restart();
    within("restart under its own lease", node.serves().await, Duration::from_secs(5));
    let client = node.server.client().await;
    arrives(&client, "a", "{}").await;
    let after = write(&client, "b", "{}").await;
    assert_eq!(after, before + 1, "the branch continues without a jump");
    assert_eq!(node.status().await.lease.expect("the branch has a lease").epoch, 2);
}

#[tokio::test]
async fn without_its_remote_a_writer_stops_in_time_and_goes_on_when_it_is_back() {
    let upstream = Upstream::new();
    let mut node = Node::first(&upstream, &["--writer-lease=2s"]);
    node.serves().await;
    let client = node.server.client().await;
    let grant = client.lease_grant(crate::support::build::grant(7, 2)).await.ok();
    assert_eq!(grant.id, 7);
    let bound = gitcd::proto::etcdserverpb::PutRequest { lease: 7, ..put("/registry/bound", "x") };
    client.put(bound).await.ok();
    write(&client, "a", "{}").await;
    node.cut_off();
    eventually("the end of the lease", async || {
        let (code, ready) = node.server.try_answer("/readyz").await?;
        (code == 503).then(|| assert!(ready.contains("[-]linearizable_read failed"), "{ready}"))
    })
    .await;
    // New connections get an error; older ones are cut, as an acknowledgement may be in flight on them.
    let fresh = node.server.client().await;
    assert_eq!(fresh.put(put("/registry/x", "1")).await.refused(Code::Unavailable), "etcdserver: no leader");
    assert_eq!(fresh.range(get("/registry/bound")).await.refused(Code::Unavailable), "etcdserver: no leader");
    assert_eq!(fresh.keep_alive(7).await.refused(Code::Unavailable), "etcdserver: no leader");
    let serializable = RangeRequest { serializable: true, ..get("/registry/bound") };
    assert_eq!(fresh.range(serializable).await.ok().kvs.len(), 1);
    let cut = client.put(put("/registry/x", "1")).await.result();
    assert!(cut.is_err(), "{cut:?}");
    let member = fresh.status(gitcd::proto::etcdserverpb::StatusRequest {}).await.ok();
    assert_eq!((member.leader, &*member.errors), (0, &["etcdserver: no leader".to_owned()][..]));
    let branch = node.status().await;
    assert_eq!(branch.role, "suspended");
    let lease = branch.lease.expect("the branch has a lease");
    assert!(lease.remaining_seconds == 0.0 && lease.error.is_some(), "{lease:?}");
    assert!(branch.writes_refused.is_some_and(|why| why.contains("lease")));
    let figures = node.server.page("/metrics").await;
    assert!(figures.contains("gitcd_writer_epoch 1.0") && figures.contains("gitcd_writer_lease_remaining_seconds 0.0"));

    node.reconnect();
    node.says("the writer lease is held again").await;
    let client = node.server.client().await;
    write(&client, "b", "{}").await;
    let found = client.range(get("/registry/bound")).await.ok();
    assert_eq!(found.kvs.len(), 1, "a lease must not expire while it could not be kept alive");
    assert!(client.range(get("/registry/x")).await.ok().kvs.is_empty(), "the put was refused");
    eventually("a healthy remote", async || {
        let branch = node.status().await;
        (branch.role == "writer" && branch.remotes[0].known.condition == Condition::Synced).then_some(())
    })
    .await;
    assert_eq!(node.server.kind(), Kind::Gitcd);
}
