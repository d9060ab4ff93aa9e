//! A backup of etcd or gitcd that is written as a snapshot of etcd: `etcdutl` restores it, and a real etcd serves the same content.

use std::path::Path;
use std::process::Command;

use crate::support::build::{
    all, compact, delete, delete_prefix, get, grant, put, time_to_live, to_the_end, watch_prefix,
};
use crate::support::{Client, Kind, Launch, Server, Transcript, assets};
use gitcd::proto::etcdserverpb::{
    DefragmentRequest, HashKvRequest, LeaseLeasesRequest, PutRequest, RangeRequest, WatchCreateRequest,
};
use gitcd_engine::backup::{Backup, Header, write_etcd};
use tonic::Code;

fn run(program: &str, arguments: &[&str]) -> String {
    let output = Command::new(assets::program(program)).args(arguments).output().expect("the program can be started");
    assert!(output.status.success(), "{arguments:?}: {}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8_lossy(&output.stdout).into_owned()
}

pub(crate) fn text(path: &Path) -> &str {
    path.to_str().expect("the path is UTF-8")
}

async fn save(server: &Server, file: &Path) {
    let (address, file) = (server.address().to_string(), text(file).to_owned());
    let saving = move || run("etcdctl", &["--endpoints", &address, "snapshot", "save", &file]);
    tokio::task::spawn_blocking(saving).await.expect("etcdctl saves a snapshot");
}

/// Writes a backup and starts an etcd that `etcdutl` restored from it.
async fn restored(backup: &Backup, folder: &Path) -> Server {
    let file = folder.join("exported");
    write_etcd(backup, std::fs::File::create(&file).expect("the folder is writable")).expect("a valid backup");
    // This runs `bbolt check`.
    let status = run("etcdutl", &["snapshot", "status", text(&file), "--write-out=json"]);
    let revision = backup.header.revision;
    assert!(revision == 1 || status.contains(&format!("\"revision\":{revision},")), "{status}");
    assert!(status.contains("\"version\":\"3.6.0\""), "{status}");
    restore(&file, folder).await
}

/// Starts an etcd that `etcdutl` restored from a snapshot.
pub(crate) async fn restore(file: &Path, folder: &Path) -> Server {
    let data = format!("--data-dir={}", folder.join("etcd").display());
    let peer = "http://127.0.0.1:1";
    let (cluster, peer) = (format!("--initial-cluster=test={peer}"), format!("--initial-advertise-peer-urls={peer}"));
    run("etcdutl", &["snapshot", "restore", text(file), &data, "--name=test", &cluster, &peer]);
    Launch::new(Kind::Etcd).folder(folder).start().await
}

/// Writes keys of every kind; returns the last revision.
pub(crate) async fn fill(client: &Client) -> i64 {
    client.lease_grant(grant(7, 600)).await.ok();
    client.lease_grant(grant(8, 900)).await.ok();
    for size in [0, 1, 1000, 4000, 4096, 9000, 300 << 10] {
        client.put(put(&format!("/registry/sizes/{size:06}"), &"x".repeat(size))).await.ok();
    }
    client.put(put("/registry/sizes/000000", "")).await.ok();
    client.put(PutRequest { lease: 7, ..put("/registry/leased", "1") }).await.ok();
    client.put(PutRequest { lease: 8, ..put("/registry/released", "1") }).await.ok();
    // Enough for branch pages above branch pages. Keys are in order, as the positions of compacted transactions are not kept.
    for transaction in 0..60 {
        let puts =
            (0..100).map(|index| put(&format!("/registry/pods/{transaction:02}-{index:02}"), "a value of a pod"));
        client.txn(all(puts)).await.ok();
    }
    client.put(put("/registry/released", "2")).await.ok();
    client.delete_range(delete("/registry/pods/07-99")).await.ok();
    client.delete_range(delete_prefix("/registry/pods/08-")).await.ok();
    let puts = [put("/registry/pods/08-08", "again"), put("/registry/a", "1"), put("/registry/pods/01-01", "2")];
    client.txn(all(puts)).await.ok();
    client.put(put("/registry/sizes/307200", &"y".repeat(200 << 10))).await.ok().header.expect("a header").revision
}

/// Records what a client sees at the first and last revision, and between.
async fn look(client: &Client, first: i64, last: i64) -> Transcript {
    client.take_transcript();
    let everything = |revision| RangeRequest { range_end: to_the_end(), revision, ..get("\0") };
    for revision in [first, i64::midpoint(first, last), last, 0] {
        client.range(everything(revision)).await.ok();
    }
    let mut watching = client.watch();
    let create = WatchCreateRequest { range_end: to_the_end(), key: "\0".into(), ..watch_prefix("/") };
    watching.create(WatchCreateRequest { start_revision: first, prev_kv: true, ..create }).await;
    let (_, events) = watching.progress().await;
    client.note("events", events);
    // The order is that in which they expire.
    let mut leases = client.aside().lease_leases(LeaseLeasesRequest {}).await.ok().leases;
    leases.sort_by_key(|lease| lease.id);
    for lease in leases {
        let mut lease = client.aside().lease_time_to_live(time_to_live(lease.id)).await.ok();
        lease.keys.sort();
        client.note("lease", (lease.id, lease.granted_ttl, lease.keys));
    }
    client.take_transcript()
}

pub(crate) async fn same(expected: &Client, found: &Client, first: i64, last: i64) {
    let (expected, found) = (look(expected, first, last).await, look(found, first, last).await);
    if let Some(difference) = Transcript::difference(&expected, &found) {
        panic!("since {first}: {difference}");
    }
}

async fn hash(client: &Client, revision: i64) -> (u32, i64) {
    let found = client.hash_kv(HashKvRequest { revision }).await.ok();
    (found.hash, found.compact_revision)
}

#[tokio::test]
async fn an_etcd_restored_from_a_written_snapshot_serves_the_same() {
    for compacted in [0, 9, 40, 74, 76] {
        let etcd = Server::start(Kind::Etcd).await;
        let client = etcd.client().await;
        let last = fill(&client).await;
        assert_eq!(last, 76);
        if compacted > 0 {
            client.compact(compact(compacted)).await.ok();
        }
        let folder = tempfile::tempdir().expect("the temporary folder is writable");
        let file = folder.path().join("snapshot");
        save(&etcd, &file).await;
        let backup = Backup::read(&file).expect("a snapshot of etcd");
        assert_eq!(backup.header.compact_revision, compacted);
        let restored = restored(&backup, folder.path()).await;
        let other = restored.client().await;
        same(&client, &other, compacted.max(1), last).await;
        // The transaction at 75 is not in key order, and is compacted only in the last case.
        if compacted <= 75 {
            assert_eq!(hash(&client, 0).await, hash(&other, 0).await, "compacted at {compacted}");
        }
        if compacted > 1 {
            let old = RangeRequest { revision: compacted - 1, ..get("/registry/a") };
            other.range(old).await.refused(Code::OutOfRange);
        }

        // Both work on, over all pages.
        for client in [&client, &other] {
            client.delete_range(delete_prefix("/registry/pods/")).await.ok();
            client.put(put("/registry/new", "1")).await.ok();
            client.compact(compact(last + 1)).await.ok();
            client.defragment(DefragmentRequest {}).await.ok();
        }
        same(&client, &other, last + 1, last + 2).await;
        assert_eq!(hash(&client, 0).await.1, hash(&other, 0).await.1);
        save(&restored, &folder.path().join("again")).await;
        run("etcdutl", &["snapshot", "status", text(&folder.path().join("again"))]);
    }
}

#[tokio::test]
async fn a_backup_of_gitcd_becomes_an_etcd() {
    for compacted in [0, 40, 76] {
        let gitcd = Server::start(Kind::Gitcd).await;
        let client = gitcd.client().await;
        let last = fill(&client).await;
        if compacted > 0 {
            client.compact(compact(compacted)).await.ok();
        }
        let folder = tempfile::tempdir().expect("the temporary folder is writable");
        let file = folder.path().join("snapshot");
        save(&gitcd, &file).await;
        let restored = restored(&Backup::read(&file).expect("a backup of gitcd"), folder.path()).await;
        same(&client, &restored.client().await, compacted.max(1), last).await;
    }
}

#[tokio::test]
async fn an_etcd_continues_from_a_newest_revision_without_a_write() {
    let header = Header { revision: 1000, base: 1000, compact_revision: 1000, pairs: 0, gitcd: String::new() };
    let fresh = Header { revision: 1, base: 1, compact_revision: 0, ..header.clone() };
    for header in [header, fresh] {
        let folder = tempfile::tempdir().expect("the temporary folder is writable");
        let (revision, compacted) = (header.revision, header.compact_revision);
        let backup = Backup { header, leases: Vec::new(), pairs: Vec::new(), writes: Vec::new() };
        let restored = restored(&backup, folder.path()).await;
        let client = restored.client().await;
        let everything = RangeRequest { range_end: to_the_end(), ..get("\0") };
        let found = client.range(everything).await.ok();
        assert_eq!((found.count, found.header.expect("a header").revision), (0, revision));
        let put = client.put(put("/registry/a", "1")).await.ok();
        assert_eq!(put.header.expect("a header").revision, revision + 1);
        if compacted > 0 {
            client
                .range(RangeRequest { revision: compacted - 1, ..get("/registry/a") })
                .await
                .refused(Code::OutOfRange);
        }
        client.compact(compact(revision + 1)).await.ok();
    }
}
