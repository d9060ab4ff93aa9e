//! A full disk.

use gitcd::proto::etcdserverpb::SnapshotRequest;
use tonic::Code;

use super::small_disk::SmallDisk;
use super::{holds, value, write};
use crate::support::build::{get, put};
use crate::support::{Kind, Launch, Repository, eventually};

const DISK_BYTES: u64 = 96 << 20;
const EARLY: usize = 20;

#[tokio::test]
async fn a_full_disk_stops_writes_but_not_reads_and_loses_nothing() {
    let Some(disk) = SmallDisk::new(DISK_BYTES) else { return };
    let wrapper = disk.wrapper();
    let wrapper: Vec<_> = wrapper.iter().map(String::as_str).collect();
    let repository = Repository::init_through(&wrapper, &disk.path().join("repo.git"));
    let mut server = Launch::new(Kind::Gitcd).folder(disk.path()).wrapper(&wrapper).start().await;
    let client = server.client().await;
    write(&client, 0..EARLY).await;

    disk.fill();
    // The journal has preallocated some space.
    let large = "x".repeat(256 << 10);
    let mut acknowledged = Vec::new();
    let refusal = loop {
        let key = format!("/registry/large/l{:04}", acknowledged.len());
        match client.put(put(&key, &large)).await.result() {
            Ok(answer) => acknowledged.push((key, answer.header.unwrap().revision)),
            Err(status) => break status,
        }
        assert!(
            (acknowledged.len() as u64) < DISK_BYTES / large.len() as u64,
            "the disk is full, but writes still succeed"
        );
    };
    assert_eq!(refusal.code(), Code::ResourceExhausted);
    assert_eq!(refusal.message(), "etcdserver: mvcc: database space exceeded");

    holds(&client, 0..EARLY).await;
    let revision = client.range(get("/registry/none")).await.ok().header.unwrap().revision;
    assert_eq!(revision, 1 + (EARLY + acknowledged.len()) as i64, "a refused write must not use a revision");
    let again = client.put(put("/registry/none", &large)).await.refused(Code::ResourceExhausted);
    assert_eq!(again, refusal.message());
    assert_eq!(client.range(get("/registry/none")).await.ok().count, 0);

    disk.make_room();
    let written = eventually("writes to succeed again", async || {
        client.put(put("/registry/tests/after", &value(0))).await.result().ok()
    })
    .await;
    let written = written.header.unwrap().revision;
    for round in ["before the kill", "after the kill"] {
        let client = server.client().await;
        holds(&client, 0..EARLY).await;
        for (key, revision) in &acknowledged {
            let pair = client.range(get(key)).await.ok().kvs.pop().unwrap_or_else(|| panic!("{key} is lost {round}"));
            assert_eq!((pair.mod_revision, pair.value.len()), (*revision, large.len()), "{key}, {round}");
        }
        assert_eq!(client.range(get("/registry/tests/after")).await.ok().kvs[0].mod_revision, written);
        if round == "before" {
            server.kill();
            server.restart().await;
        }
    }
    // The committer, too, resumes after ENOSPC.
    server.terminate().await;
    repository.fsck();
    assert_eq!(repository.committed_revision(), written);
    assert_eq!(repository.files(crate::support::DATA).len(), EARLY + acknowledged.len() + 1);
}

#[tokio::test]
async fn a_start_on_a_full_disk_serves_reads_or_explains_itself() {
    let Some(disk) = SmallDisk::new(DISK_BYTES) else { return };
    let wrapper = disk.wrapper();
    let wrapper: Vec<_> = wrapper.iter().map(String::as_str).collect();
    Repository::init_through(&wrapper, &disk.path().join("repo.git"));
    let mut server = Launch::new(Kind::Gitcd).folder(disk.path()).wrapper(&wrapper).start().await;
    write(&server.client().await, 0..EARLY).await;
    server.kill();

    disk.fill();
    // The space preallocated for the last journal segment may be just enough to start.
    if let Some(exit) = server.restart_or_end().await {
        super::explains(&exit, &["repo.git", "space"]);
    } else {
        holds(&server.client().await, 0..EARLY).await;
        server.kill();
    }

    disk.make_room();
    server.restart().await;
    let client = server.client().await;
    holds(&client, 0..EARLY).await;
    write(&client, EARLY..EARLY + 1).await;
}

#[tokio::test]
async fn a_snapshot_without_room_is_refused_and_takes_none() {
    let Some(disk) = SmallDisk::new(DISK_BYTES) else { return };
    let wrapper = disk.wrapper();
    let wrapper: Vec<_> = wrapper.iter().map(String::as_str).collect();
    Repository::init_through(&wrapper, &disk.path().join("repo.git"));
    let server = Launch::new(Kind::Gitcd).folder(disk.path()).wrapper(&wrapper).start().await;
    let client = server.client().await;
    write(&client, 0..EARLY).await;
    disk.fill();
    let refused = client.snapshot(SnapshotRequest {}).await.expect_err("there is no room");
    assert_eq!(refused.code(), Code::ResourceExhausted, "{refused}");
    for words in ["a snapshot of about 1 MiB needs 1 MiB of free space in", "repo.git, which has 0 MiB", "clone"] {
        assert!(refused.message().contains(words), "{refused}");
    }
    holds(&client, 0..EARLY).await;
    disk.make_room();
    let mut parts = client.snapshot(SnapshotRequest {}).await.expect("there is room").into_inner();
    let mut last = None;
    while let Some(part) = parts.message().await.expect("the file is readable") {
        last = Some(part.remaining_bytes);
    }
    assert_eq!(last, Some(0));
}
