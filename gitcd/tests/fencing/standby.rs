//! A standby that serves the writer's changes while it waits for the lease.

use std::process::Command;
use std::time::Duration;

use gitcd::proto::etcdserverpb::maintenance_client::MaintenanceClient;
use gitcd::proto::etcdserverpb::{LeaseGrantRequest, SnapshotRequest};
use gitcd::proto::mvccpb::event::EventType;
use rustix::process::Signal;
use tonic::Code;

use crate::node::{Node, Upstream, arrives, key, object, pushed, within, write};
use crate::support::build::{compact, delete, get, list, put, watch_prefix};
use crate::support::{Client, eventually};

const LEASE: &[&str] = &["--writer-lease=2s"];
const HOT: &[&str] = &["--writer-lease=2s", "--hot-standby"];
const EVERYTHING: &str = "/registry/configmaps/";

/// All keys with their revisions and values.
async fn all(client: &Client) -> Vec<gitcd::proto::mvccpb::KeyValue> {
    client.range(list(EVERYTHING)).await.ok().kvs
}

async fn same(one: &Client, other: &Client) {
    let wanted = all(one).await;
    eventually("the same keys with the same revisions", async || (all(other).await == wanted).then_some(())).await;
}

#[tokio::test]
async fn a_hot_standby_shows_what_was_pushed_with_the_writers_revisions_and_takes_nothing() {
    let upstream = Upstream::new();
    let mut first = Node::first(&upstream, LEASE);
    first.serves().await;
    let writer = first.server.client().await;
    write(&writer, "a", "{}").await;
    let b = write(&writer, "b", "{}").await;
    pushed(&first).await;
    let mut second = Node::fresh(&upstream, HOT);
    second.says("hot standby: serving reads and watches").await;
    let reader = second.server.client().await;
    same(&writer, &reader).await;

    let mut watching = reader.watch();
    let created = watching.create(watch_prefix(EVERYTHING)).await;
    assert!(created.created && created.header.expect("a response has a header").revision >= b);
    let c = write(&writer, "c", "{\"x\":\"1\"}").await;
    let gone = writer.delete_range(delete(&key("a"))).await.ok().header.expect("a response has a header").revision;
    let events = watching.events(2).await;
    let events: Vec<_> =
        events.iter().map(|(_, event)| (event.r#type(), event.kv.as_ref().map(|kv| kv.mod_revision))).collect();
    assert_eq!(events, [(EventType::Put, Some(c)), (EventType::Delete, Some(gone))]);
    same(&writer, &reader).await;

    for refused in [
        reader.put(put(&key("d"), "{}")).await.refused(Code::Unavailable),
        reader.delete_range(delete(&key("b"))).await.refused(Code::Unavailable),
        reader.compact(compact(b)).await.refused(Code::Unavailable),
        reader.lease_grant(LeaseGrantRequest { ttl: 5, id: 0 }).await.refused(Code::Unavailable),
        // kube-apiserver's health check of its store.
        reader.range(get("/registry/health")).await.refused(Code::Unavailable),
    ] {
        assert!(refused.contains("this one is its hot standby"), "{refused}");
    }
    let mut maintenance = MaintenanceClient::new(second.server.channel().await);
    let refused = maintenance.snapshot(SnapshotRequest {}).await.expect_err("a standby does not know the leases");
    assert_eq!(refused.code(), Code::Unavailable);
    let pages = ["/health", "/readyz", "/livez", "/startupz"];
    let mut answers = Vec::new();
    for page in pages {
        answers.push(second.server.answer(page).await.0);
    }
    assert_eq!(answers, [503, 503, 200, 200]);
    let status = second.status().await;
    assert_eq!((&*status.role, status.revision), ("standby", gone));
    assert!(second.server.page("/metrics").await.contains("\ngitcd_writes_refused 1"));
    let asked = format!("--endpoint=http://{}", second.server.address());
    let said =
        Command::new(env!("CARGO_BIN_EXE_gitcd")).args(["status", &asked]).output().expect("gitcd can be started");
    assert!(said.status.success(), "a healthy standby is no failure: {said:?}");

    // It takes over: watchers must relist, and find everything at later revisions.
    first.server.terminate().await;
    within("a hand-over", second.serves().await, Duration::from_secs(5));
    let ended = watching.end().await;
    assert!(ended.is_some(), "a watch from before the takeover must end");
    let reader = second.server.client().await;
    arrives(&reader, "c", "{\"x\":\"1\"}").await;
    let newest = reader.range(get(&key("c"))).await.ok().header.expect("a response has a header").revision;
    assert!(newest > gone + (1 << 31), "revision {newest} must be far beyond {gone}");
    let mut late = reader.watch();
    late.create(gitcd::proto::etcdserverpb::WatchCreateRequest {
        start_revision: gone + 1,
        ..watch_prefix(EVERYTHING)
    })
    .await;
    let cancelled = late.control().await;
    assert!(cancelled.canceled && cancelled.compact_revision > gone, "{cancelled:?}");
    assert!(write(&reader, "e", "{}").await > newest);
    assert_eq!(second.server.answer("/startupz").await.0, 200);
}

#[tokio::test]
async fn a_standby_follows_the_next_writer_and_no_revision_is_seen_twice() {
    let upstream = Upstream::new();
    let mut first = Node::first(&upstream, LEASE);
    first.serves().await;
    write(&first.server.client().await, "a", "{}").await;
    pushed(&first).await;
    let mut second = Node::fresh(&upstream, LEASE);
    second.waits().await;
    let third = Node::fresh(&upstream, HOT);
    third.says("hot standby: serving reads and watches").await;
    let before = third.status().await.revision;
    // Keeps the third server from taking over before the second.
    third.server.signal(Signal::STOP);
    first.server.kill();
    second.serves().await;
    third.server.signal(Signal::CONT);
    let writer = second.server.client().await;
    let b = write(&writer, "b", "{}").await;
    third.says("another writer has started").await;
    eventually("the next writer's push", async || {
        let status = third.server.try_answer("/status").await?;
        status.1.contains(&format!("\"revision\":{b}")).then_some(())
    })
    .await;
    let reader = third.server.client().await;
    arrives(&reader, "a", "{}").await;
    arrives(&reader, "b", "{}").await;
    let found = reader.range(get(&key("b"))).await.ok();
    assert_eq!((found.kvs[0].mod_revision, &found.kvs[0].value[..]), (b, object("b", "{}").as_bytes()));
    assert!(b > before + (1 << 31));
}

#[tokio::test]
async fn who_has_written_last_shows_nothing_while_it_waits() {
    // Clients may have seen writes that it has not pushed.
    let upstream = Upstream::new();
    // Long enough to check it before it takes over again.
    let mut node = Node::first(&upstream, &["--writer-lease=8s", "--hot-standby"]);
    node.serves().await;
    write(&node.server.client().await, "a", "{}").await;
    pushed(&node).await;
    node.server.kill();
    // Like after a reboot: it cannot know that the previous process's lease was its own.
    let mark = node.server.repository().path().join("gitcd/default/lease");
    std::fs::remove_file(mark).expect("the file exists");
    node.server.begin_restart();
    node.waits().await;
    assert!(node.server.try_answer("/livez").await.is_none(), "the former writer must not listen");
    node.serves().await;
    assert!(!node.server.output().contains("hot standby:"));
}

#[tokio::test]
async fn a_standby_needs_a_lease() {
    let upstream = Upstream::new();
    let mut node = Node::first(&upstream, &["--hot-standby"]);
    let exit = node.server.exit().await;
    assert_eq!(exit.status.code(), Some(1), "{}", exit.output);
    assert!(exit.output.contains("--hot-standby needs --writer-lease"), "{}", exit.output);
}
