//! `gitcd restore` recreates a branch exactly from a snapshot that stock `etcdctl` took of gitcd or of etcd.

use std::path::Path;
use std::process::{Command, Output};

use crate::support::build::{all, compact, delete, get, grant, list, put, time_to_live, to_the_end, watch_prefix};
use crate::support::{Client, Kind, Launch, Repository, Server, Transcript, assets, eventually};
use gitcd::proto::etcdserverpb::{HashKvRequest, LeaseLeasesRequest, PutRequest, RangeRequest, WatchCreateRequest};

const EPHEMERAL: &str = "--ephemeral-prefixes=/registry/events";

fn gitcd(arguments: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_gitcd")).args(arguments).output().expect("gitcd can be started")
}

fn text(path: &Path) -> &str {
    path.to_str().expect("the path is UTF-8")
}

fn restore(file: &Path, folder: &Path, arguments: &[&str]) -> Output {
    let repo = format!("--repo={}", folder.join("repo.git").display());
    let fixed = ["restore", text(file), &repo, "--key-prefixes=/registry", EPHEMERAL];
    gitcd(&[&fixed, arguments].concat())
}

fn succeeds(output: &Output) {
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
}

fn refused(output: &Output, reason: &str) {
    let text = String::from_utf8_lossy(&output.stderr);
    assert!(!output.status.success() && text.contains(reason), "{text}");
}

fn launch() -> Launch {
    Launch::new(Kind::Gitcd).argument(EPHEMERAL)
}

/// Runs `etcdctl snapshot save`.
async fn save(server: &Server, file: &Path) {
    let endpoint = format!("--endpoints={}", server.address());
    let mut command = tokio::process::Command::new(assets::program("etcdctl"));
    let saved = command.args([&endpoint, "snapshot", "save", text(file)]).output().await.expect("etcdctl is installed");
    assert!(saved.status.success(), "{}", String::from_utf8_lossy(&saved.stderr));
}

/// Records everything that a client can see: keys at every revision, events, leases, and a hash.
async fn look(client: &Client, revisions: std::ops::RangeInclusive<i64>) -> Transcript {
    let everything = |revision| RangeRequest { range_end: to_the_end(), revision, ..get("\0") };
    for revision in revisions.clone() {
        client.range(everything(revision)).await;
        client.hash_kv(HashKvRequest { revision }).await;
    }
    let mut watching = client.watch();
    let create = WatchCreateRequest { range_end: to_the_end(), key: "\0".into(), ..watch_prefix("/") };
    watching.create(WatchCreateRequest { start_revision: *revisions.start(), prev_kv: true, ..create }).await;
    let (_, events) = watching.progress().await;
    client.note("events", events);
    look_at_leases(client).await;
    client.take_transcript()
}

async fn look_at_leases(client: &Client) {
    for lease in client.lease_leases(LeaseLeasesRequest {}).await.ok().leases {
        let aside = client.aside();
        let lease = aside.lease_time_to_live(time_to_live(lease.id)).await.ok();
        let mut keys = lease.keys;
        keys.sort();
        client.note("lease", (lease.id, lease.granted_ttl, keys));
    }
}

/// Writes keys of every kind; returns the last revision.
async fn fill(client: &Client) -> i64 {
    client.lease_grant(grant(7, 600)).await.ok();
    client.lease_grant(grant(8, 900)).await.ok();
    for round in 0..3 {
        for name in ["a", "b", "c"] {
            let value = format!("{{\"name\":\"{name}\",\"round\":{round}}}");
            client.put(put(&format!("/registry/pods/default/{name}"), &value)).await.ok();
        }
        client.put(PutRequest { lease: 7, ..put("/registry/leased", &round.to_string()) }).await.ok();
        client.put(PutRequest { lease: 8, ..put("/registry/events/e", &round.to_string()) }).await.ok();
        client.put(put("compact_rev_key", &round.to_string())).await.ok();
    }
    client.delete_range(delete("/registry/pods/default/b")).await.ok();
    let both = [put("/registry/pods/default/d", "\u{1}raw\u{0}"), put("/registry/pods/default/c", "{}")];
    client.txn(all(both)).await.ok().header.expect("a response has a header").revision
}

#[tokio::test]
async fn a_restored_branch_is_what_the_snapshot_saw_and_goes_on() {
    // The compact revision is that of an update, a creation, a deletion, or no change at all.
    for compacted in [0, 2, 8, 19, 20, 21] {
        let server = launch().start().await;
        let client = server.client().await;
        let last = fill(&client).await;
        assert_eq!(last, 21);
        if compacted > 0 {
            client.compact(compact(compacted)).await.ok();
        }
        client.take_transcript();
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("snapshot");
        save(&server, &file).await;
        assert!(std::fs::read(&file).unwrap().starts_with(b"gitcd snapshot 1\n"));

        succeeds(&restore(&file, folder.path(), &[]));
        // Git has everything before the branch is served.
        let path = folder.path().join("repo.git");
        assert_eq!(Repository::at(&path).committed_revision(), last);
        let restored = launch().folder(folder.path()).start().await;
        let revisions = compacted.max(1)..=last;
        let expected = look(&client, revisions.clone()).await;
        let found = look(&restored.client().await, revisions).await;
        if let Some(difference) = Transcript::difference(&expected, &found) {
            panic!("compacted at {compacted}: {difference}");
        }
        let next = restored.client().await.put(put("/registry/new", "1")).await.ok();
        assert_eq!(next.header.unwrap().revision, last + 1);
        let repository = restored.repository();
        eventually("the commits", async || (repository.committed_revision() == last + 1).then_some(())).await;
        repository.fsck();
    }
}

#[tokio::test]
async fn a_snapshot_of_etcd_becomes_a_branch_with_its_revisions_since_the_compaction() {
    for compacted in [0, 2, 8, 19, 20, 21] {
        let etcd = Server::start(Kind::Etcd).await;
        let client = etcd.client().await;
        let last = fill(&client).await;
        if compacted > 0 {
            client.compact(compact(compacted)).await.ok();
        }
        client.take_transcript();
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("snapshot");
        save(&etcd, &file).await;

        let output = restore(&file, folder.path(), &[]);
        succeeds(&output);
        let printed = String::from_utf8_lossy(&output.stdout).into_owned();
        assert!(printed.contains("revision 21, 2 leases"), "{printed}");
        assert_eq!(Repository::at(&folder.path().join("repo.git")).committed_revision(), last);
        let restored = launch().folder(folder.path()).start().await;
        let other = restored.client().await;
        let expected = look_at_both(&client, compacted.max(1)..=last).await;
        let found = look_at_both(&other, compacted.max(1)..=last).await;
        if let Some(difference) = Transcript::difference(&expected, &found) {
            panic!("compacted at {compacted}: {difference}");
        }
        let next = other.put(put("/registry/new", "1")).await.ok();
        assert_eq!(next.header.unwrap().revision, last + 1);
        // Clients of the etcd that have seen an older revision list again.
        if compacted > 2 {
            let mut watching = other.watch();
            watching.send_create(WatchCreateRequest { start_revision: compacted - 1, ..watch_prefix("/") }).await;
            assert_eq!(watching.control().await.compact_revision, 0, "created");
            assert_eq!(watching.control().await.compact_revision, compacted, "cancelled");
        }
        let repository = restored.repository();
        eventually("the commits", async || (repository.committed_revision() == last + 1).then_some(())).await;
        repository.fsck();
    }
}

/// Records what clients of etcd and of gitcd see alike: keys at every revision since the compaction, events, leases.
async fn look_at_both(client: &Client, revisions: std::ops::RangeInclusive<i64>) -> Transcript {
    let compacted = *revisions.start();
    for revision in revisions {
        client.range(RangeRequest { range_end: to_the_end(), revision, ..get("\0") }).await;
    }
    // A watch may start at the compact revision itself.
    let mut watching = client.watch();
    let create = WatchCreateRequest { range_end: to_the_end(), key: "\0".into(), ..watch_prefix("/") };
    watching.create(WatchCreateRequest { start_revision: compacted, prev_kv: true, ..create }).await;
    let (_, events) = watching.progress().await;
    client.note("events", events);
    look_at_leases(client).await;
    client.take_transcript()
}

#[tokio::test]
async fn a_copy_of_the_database_of_etcd_is_no_snapshot() {
    let mut etcd = Server::start(Kind::Etcd).await;
    fill(&etcd.client().await).await;
    etcd.terminate().await;
    let folder = tempfile::tempdir().unwrap();
    let database = etcd.folder().join("etcd/member/snap/db");
    refused(&restore(&database, folder.path(), &[]), "save one with `etcdctl snapshot save`");
    assert!(!folder.path().join("repo.git/HEAD").exists(), "nothing must be created");
}

#[tokio::test]
async fn a_bumped_revision_makes_clients_list_again() {
    let server = launch().start().await;
    let client = server.client().await;
    let last = fill(&client).await;
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("snapshot");
    save(&server, &file).await;
    let refusal = "too few would be left for writes";
    refused(&restore(&file, folder.path(), &["--bump-revision=9223372036854775807"]), refusal);
    succeeds(&restore(&file, folder.path(), &["--bump-revision=1000"]));
    let mut restored = launch().folder(folder.path()).start().await;
    for _ in 0..2 {
        let other = restored.client().await;
        let (before, after) = (client.range(list("/")).await.ok(), other.range(list("/")).await.ok());
        assert_eq!((before.kvs, last + 1000), (after.kvs, after.header.unwrap().revision));
        let mut watching = other.watch();
        watching.send_create(WatchCreateRequest { start_revision: last + 1, ..watch_prefix("/") }).await;
        assert_eq!(watching.control().await.compact_revision, 0, "created");
        assert_eq!(watching.control().await.compact_revision, last + 1000, "cancelled");
        restored.terminate().await;
        restored.restart().await;
    }
}

#[tokio::test]
async fn a_snapshot_under_load_is_of_one_moment() {
    let server = launch().start().await;
    let client = server.client().await;
    let load = async {
        for number in 0..3000 {
            // Both keys always have the same value.
            let both = [put("/registry/x", &number.to_string()), put("/registry/y", &number.to_string())];
            client.txn(all(both)).await.ok();
        }
    };
    let folder = tempfile::tempdir().unwrap();
    let files: Vec<_> = (0..4).map(|number| folder.path().join(number.to_string())).collect();
    let saves = async {
        for file in &files {
            save(&server, file).await;
        }
    };
    tokio::join!(load, saves);
    for (number, file) in files.iter().enumerate() {
        let folder = folder.path().join(format!("restored-{number}"));
        std::fs::create_dir(&folder).unwrap();
        succeeds(&restore(file, &folder, &[]));
        let restored = launch().folder(&folder).start().await;
        let other = restored.client().await;
        let answer = other.range(list("/registry/")).await.ok();
        let [x, y] = &answer.kvs[..] else { panic!("{answer:?}") };
        assert_eq!((&x.value, x.mod_revision, x.version), (&y.value, answer.header.unwrap().revision, y.version));
        assert_eq!(x.value, (x.mod_revision - 2).to_string());
        client.take_transcript();
    }
}

#[tokio::test]
async fn restoring_needs_room_for_a_branch_and_a_file_that_is_whole() {
    let server = launch().start().await;
    fill(&server.client().await).await;
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("snapshot");
    save(&server, &file).await;
    refused(&restore(&folder.path().join("none"), folder.path(), &[]), "none");
    refused(&restore(&file, folder.path(), &["--bump-revision=-1"]), "--bump-revision");
    refused(&restore(&file, server.folder(), &[]), "is served by another gitcd");
    let bytes = std::fs::read(&file).unwrap();
    let cut = folder.path().join("cut");
    std::fs::write(&cut, &bytes[..bytes.len() - 100]).unwrap();
    refused(&restore(&cut, folder.path(), &[]), "damaged");
    assert!(!folder.path().join("repo.git/HEAD").exists(), "nothing must be created");

    succeeds(&restore(&file, folder.path(), &[]));
    refused(
        &restore(&file, folder.path(), &[]),
        "exists already; name another repository with --repo, or another branch",
    );
    // As left by a crash in the middle of a restore.
    let repository = Repository::at(&folder.path().join("repo.git"));
    std::fs::write(repository.path().join("gitcd/default/restoring"), "").unwrap();
    let repo = format!("--repo={}", repository.path().display());
    refused(
        &gitcd(&["serve", &repo, "--key-prefixes=/registry", EPHEMERAL, "--listen-urls=http://127.0.0.1:0"]),
        "restore",
    );
}
