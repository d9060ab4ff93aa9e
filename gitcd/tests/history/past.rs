//! `gitcd serve --at`: a server that shows a moment of the past, and only reads.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::time::SystemTime;

use gitcd::proto::etcdserverpb::alarm_request::AlarmAction;
use gitcd::proto::etcdserverpb::{
    AlarmRequest, AlarmType, DefragmentRequest, PutRequest, RangeRequest, SnapshotRequest, StatusRequest,
};
use rand::rngs::StdRng;
use rand::seq::IndexedRandom as _;
use rand::{Rng as _, SeedableRng as _};
use rustix::process::Signal;
use tonic::Code;

use super::fork::{known, served};
use super::{KEYS, Store, gitcd, object};
use crate::support::build::{all, compact, delete, get, grant, put, revoke, time_to_live, to_the_end, watch_prefix};
use crate::support::{Client, Kind, Launch};

/// Prepares a server on the repository in `folder` that shows a moment, with temporary files in a folder of the test.
fn past(folder: &Path, at: &str, temporary: &Path) -> Launch {
    let temporary = format!("TMPDIR={}", temporary.display());
    Launch::new(Kind::Gitcd).folder(folder).wrapper(&["env", &temporary]).argument(format!("--at={at}"))
}

/// Returns the temporary folders of servers of the past.
fn temporary(folder: &Path) -> Vec<PathBuf> {
    fs::read_dir(folder).expect("the folder exists").map(|entry| entry.expect("it is readable").path()).collect()
}

async fn value(client: &Client, key: &str) -> String {
    let answer = client.range(get(key)).await.ok();
    String::from_utf8(answer.kvs[0].value.to_vec()).expect("the test writes text")
}

/// Writes a key, and writes it again in a later commit; returns the first revision.
async fn written_twice(store: &mut Store) -> i64 {
    let first = store.put("/registry/a", "old").await;
    store.committed().await;
    store.put("/registry/a", "new").await;
    store.committed().await;
    first
}

#[tokio::test]
async fn each_revision_is_served_as_it_was_while_the_branch_is_written() {
    let seed = rand::rng().random();
    let mut rng = StdRng::seed_from_u64(seed);
    let mut store = Store::start(&["--commit-granularity=revision"]).await;
    for step in 0..120 {
        let key = KEYS.choose(&mut rng).expect("KEYS is not empty");
        if rng.random_bool(0.25) {
            store.delete(key).await;
        } else {
            store.put(key, &object(&mut rng)).await;
        }
        if step % 40 == 39 {
            store.committed().await;
        }
    }
    store.committed().await;
    let last = *store.written.keys().next_back().unwrap();
    let folder = tempfile::tempdir().unwrap();
    for revision in [2, rng.random_range(2..=last), rng.random_range(2..=last), last] {
        let server = past(store.server.folder(), &revision.to_string(), folder.path()).start().await;
        assert_eq!(served(&server).await, known(&store, revision), "seed {seed}, revision {revision}");
        // The branch has a writer meanwhile.
        store.put("/registry/configmaps/n/a", "later").await;
        assert_eq!(served(&server).await, known(&store, revision), "seed {seed}, revision {revision}");
    }
}

#[tokio::test]
async fn reads_and_watches_are_answered_and_everything_else_is_refused_with_the_moment() {
    let mut store = Store::start(&["--commit-granularity=revision"]).await;
    let client = store.server.client().await;
    client.lease_grant(grant(77, 600)).await.ok();
    let leased = PutRequest { lease: 77, ..put("/registry/leased", "1") };
    client.put(leased).await.ok();
    let first = written_twice(&mut store).await;
    let folder = tempfile::tempdir().unwrap();
    let server = past(store.server.folder(), &first.to_string(), folder.path()).start().await;
    let client = server.client().await;

    assert_eq!(value(&client, "/registry/a").await, "old");
    let everything = RangeRequest { key: "\0".into(), range_end: to_the_end(), ..RangeRequest::default() };
    let everything = client.range(everything).await.ok();
    assert_eq!((everything.header.unwrap().revision, everything.count), (first, 2));
    assert!(client.txn(all([get("/registry/a")])).await.ok().succeeded);
    let future = RangeRequest { revision: first + 1, ..get("/registry/a") };
    client.range(future).await.refused(Code::OutOfRange);
    let status = client.status(StatusRequest {}).await.ok();
    assert_eq!((status.header.unwrap().revision, status.errors), (first, Vec::<String>::new()));
    let lease = client.lease_time_to_live(time_to_live(77)).await.ok();
    assert_eq!((lease.granted_ttl, lease.keys.len()), (600, 1));
    let mut watching = client.watch();
    assert!(watching.create(watch_prefix("/registry/")).await.created);
    assert_eq!(watching.progress().await, (first, Vec::new()));
    for page in ["/health", "/readyz", "/livez", "/startupz"] {
        assert_eq!(server.answer(page).await.0, 200, "{page}");
    }
    assert!(server.page("/status").await.contains("\"role\":\"past\""));

    let refused = [
        client.put(put("/registry/a", "x")).await.refused(Code::FailedPrecondition),
        client.delete_range(delete("/registry/a")).await.refused(Code::FailedPrecondition),
        client.txn(all([put("/registry/a", "x")])).await.refused(Code::FailedPrecondition),
        client.lease_grant(grant(0, 60)).await.refused(Code::FailedPrecondition),
        client.lease_revoke(revoke(77)).await.refused(Code::FailedPrecondition),
        client.keep_alive(77).await.refused(Code::FailedPrecondition),
        client.compact(compact(first)).await.refused(Code::FailedPrecondition),
        client.defragment(DefragmentRequest {}).await.refused(Code::FailedPrecondition),
        client.alarm(raise()).await.refused(Code::FailedPrecondition),
    ];
    for text in refused {
        let moment = format!("gitcd: this server shows the past (revision {first}, 20");
        assert!(text.starts_with(&moment) && text.ends_with("and is read only"), "{text}");
    }
    assert!(client.range(get("/registry/leased")).await.ok().kvs[0].lease == 77, "no key expires in the past");
}

fn raise() -> AlarmRequest {
    AlarmRequest { action: AlarmAction::Activate as i32, member_id: 0, alarm: AlarmType::Nospace as i32 }
}

#[tokio::test]
async fn a_snapshot_of_the_past_restores_the_past() {
    let mut store = Store::start(&["--commit-granularity=revision"]).await;
    let first = written_twice(&mut store).await;
    let folder = tempfile::tempdir().unwrap();
    let server = past(store.server.folder(), &first.to_string(), folder.path()).start().await;
    let mut parts = server.client().await.snapshot(SnapshotRequest {}).await.expect("there is room").into_inner();
    let mut bytes = Vec::new();
    while let Some(part) = parts.message().await.expect("the snapshot is complete") {
        bytes.extend_from_slice(&part.blob);
    }
    let (saved, restored) = (folder.path().join("saved"), folder.path().join("restored"));
    fs::write(&saved, bytes).unwrap();
    let repository = restored.join("repo.git").display().to_string();
    let done = gitcd(
        Path::new("/"),
        &["restore", "--key-prefixes=/registry", "--repo", &repository, &saved.display().to_string()],
    );
    assert!(done.status.success(), "{done:?}");
    let server = Launch::new(Kind::Gitcd).folder(&restored).start().await;
    assert_eq!(value(&server.client().await, "/registry/a").await, "old");
}

/// The time and size of every file of a repository.
fn files(folder: &Path, found: &mut BTreeMap<PathBuf, (u64, SystemTime)>) {
    for entry in fs::read_dir(folder).expect("the folder exists") {
        let path = entry.expect("it is readable").path();
        let of = fs::symlink_metadata(&path).expect("the file exists");
        found.insert(path.clone(), (of.len(), of.modified().expect("files have a time")));
        if of.is_dir() {
            files(&path, found);
        }
    }
}

#[tokio::test]
async fn nothing_is_written_into_the_repository_and_nothing_stays_in_the_temporary_folder() {
    let mut store = Store::start(&["--commit-granularity=revision"]).await;
    let first = store.put("/registry/a", "old").await.to_string();
    store.put("/registry/a", "new").await;
    store.committed().await;
    store.server.terminate().await;
    let origin = store.server.folder().to_owned();
    let all = || {
        let mut found = BTreeMap::new();
        files(&origin, &mut found);
        found
    };
    let (before, folder) = (all(), tempfile::tempdir().unwrap());
    for signal in [Signal::TERM, Signal::INT] {
        let mut server = past(&origin, &first, folder.path()).start().await;
        assert_eq!(temporary(folder.path()).len(), 1);
        let client = server.client().await;
        let mut watching = client.watch();
        watching.create(watch_prefix("/")).await;
        server.signal(signal);
        let exit = server.exit().await;
        assert!(exit.status.success(), "{exit:?}");
        assert_eq!(temporary(folder.path()), Vec::<PathBuf>::new());
    }
    let mut killed = past(&origin, &first, folder.path()).start().await;
    let running = past(&origin, &first, folder.path()).start().await;
    assert_eq!(temporary(folder.path()).len(), 2);
    killed.kill();
    let next = past(&origin, "now", folder.path()).start().await;
    assert_eq!(
        temporary(folder.path()).len(),
        2,
        "the folder of the killed server is removed, not that of the running one"
    );
    assert_eq!(value(&running.client().await, "/registry/a").await, "old");
    assert_eq!(value(&next.client().await, "/registry/a").await, "new");
    drop((running, next));
    assert_eq!(all(), before);
}

#[tokio::test]
async fn a_moment_that_cannot_be_served_is_refused_with_the_reason() {
    let mut store = Store::start(&[]).await;
    store.put("/registry/a", "1").await;
    store.committed().await;
    let origin = store.server.folder();
    for (arguments, words) in [
        (&["--at=4711"][..], "revision 4711 is not in Git; the last one is 2"),
        (&["--at=1999-12-31"], "1999-12-31T23:59:59Z is before the first revision in Git"),
        (&["--at=yesterday"], "is not a moment: give a revision"),
        (
            &["--at=2", "--remote-names=origin"],
            "--at serves the past, read only, and cannot be combined with --remote-names",
        ),
        (&["--at=2", "--writer-lease=30s"], "cannot be combined with --writer-lease"),
        (
            &["--at=2", "--auto-compaction-retention=1h", "--host-listen-urls=http://127.0.0.1:0"],
            "cannot be combined with --auto-compaction-retention, --host-listen-urls; remove --at, or these flags",
        ),
    ] {
        let launch = Launch::new(Kind::Gitcd).folder(origin);
        let mut server = arguments.iter().fold(launch, |launch, argument| launch.argument(*argument)).spawn();
        let exit = server.exit().await;
        assert!(!exit.status.success() && exit.output.contains(words), "{arguments:?}: {}", exit.output);
    }
    assert!(store.put("/registry/a", "2").await > 2, "the branch is served all the time");
}
