//! What compaction, a full journal or the loss of a disk removes, and what remains.

use gitcd::proto::etcdserverpb::{LeaseLeasesRequest, PutRequest, RangeRequest, WatchCreateRequest};
use gitcd::proto::mvccpb::Event;
use tonic::Code;

use crate::support::build::{compact, delete, get, grant, list, put, revoke, time_to_live, watch_prefix};
use crate::support::{Client, DATA, Kind, Launch, METADATA, Repository, Server, eventually};

const SEGMENT_BYTES: u64 = 32 << 10;
const VALUE_BYTES: usize = 1 << 10;

fn launch() -> Launch {
    Launch::new(Kind::Gitcd)
        .argument(format!("--journal-segment-bytes={SEGMENT_BYTES}"))
        .argument("--ephemeral-prefixes=default=/registry/events")
        // Superseded values are not kept in memory, so they have to be read from the journal.
        .argument("--max-old-value-bytes=0")
}

fn value(text: &str) -> String {
    format!("{text} {}", "x".repeat(VALUE_BYTES))
}

fn first_segment(repository: &Repository) -> String {
    repository.journal()[0].display().to_string()
}

async fn revision(client: &Client) -> i64 {
    client.range(get("/none")).await.ok().header.expect("a response has a header").revision
}

/// Writes to keys of every kind and returns the revision afterwards.
async fn write(client: &Client, rounds: std::ops::Range<usize>) -> i64 {
    for round in rounds {
        for key in ["/registry/pods/a", "/registry/events/a", "/elsewhere/a"] {
            client.put(put(key, &value(&format!("{key} {round}")))).await.ok();
        }
        let once = format!("/registry/events/e{round}");
        client.put(put(&once, &value(&once))).await.ok();
        let leased = PutRequest { lease: 7, ..put(&format!("/registry/events/l{}", round % 5), &value("leased")) };
        client.put(leased).await.ok();
        if round % 3 == 0 {
            client.delete_range(delete(&once)).await.ok();
        }
    }
    revision(client).await
}

async fn compact_revision(server: &Server) -> i64 {
    let page = server.page("/metrics").await;
    let figure = page.lines().find_map(|line| line.strip_prefix("gitcd_compact_revision "));
    // Metrics are floating-point numbers.
    figure.and_then(|figure| figure.parse::<f64>().ok()).expect("the metric exists") as i64
}

async fn is_in_git(server: &Server, revision: i64) {
    eventually("the commits", async || (server.repository().committed_revision() >= revision).then_some(())).await;
}

/// Everything that a client can see from a revision on.
#[derive(Debug, PartialEq)]
struct Seen {
    reads: Vec<String>,
    events: Vec<Event>,
    leases: String,
}

impl Seen {
    async fn of(client: &Client, start: i64, end: i64) -> Self {
        let mut reads = Vec::new();
        for revision in start..=end {
            reads.push(format!("{:?}", client.range(RangeRequest { revision, ..list("/") }).await.ok().kvs));
        }
        reads.push(format!("{:?}", client.range(list("/")).await.ok().kvs));
        let mut watching = client.watch();
        let create = WatchCreateRequest { start_revision: start, prev_kv: true, ..watch_prefix("/") };
        assert!(!watching.create(create).await.canceled);
        let (_, events) = watching.progress().await;
        let mut events: Vec<_> = events.into_iter().map(|(_, event)| event).collect();
        // As in etcd, previous pairs from before the compact revision may be unknown.
        let at_start = |event: &Event| event.kv.as_ref().is_some_and(|pair| pair.mod_revision == start);
        for event in events.iter_mut().filter(|event| at_start(event)) {
            event.prev_kv = None;
        }
        let leases = format!(
            "{:?} {:?}",
            client.lease_leases(LeaseLeasesRequest::default()).await.ok().leases,
            client.lease_time_to_live(time_to_live(7)).await.ok().keys
        );
        Self { reads, events, leases }
    }
}

#[tokio::test]
async fn a_trimmed_journal_gives_back_everything_from_the_compact_revision_on() {
    let mut server = launch().start().await;
    let client = server.client().await;
    client.lease_grant(grant(7, 600)).await.ok();
    client.lease_grant(grant(8, 600)).await.ok();
    client.put(PutRequest { lease: 8, ..put("/registry/events/revoked", "1") }).await.ok();
    // Never written again, so they must come from Git and from the snapshot.
    client.put(put("/registry/pods/early", &value("early"))).await.ok();
    client.put(put("/registry/events/early", &value("early"))).await.ok();
    let mut written = write(&client, 0..20).await;
    client.lease_revoke(revoke(8)).await.ok();

    for (turn, offset) in [(1, 12), (2, 13), (3, 14)] {
        // The replay starts from a commit below the compact revision.
        is_in_git(&server, written - 5).await;
        let trimmed = first_segment(&server.repository());
        let client = server.client().await;
        // Each turn compacts at another kind of write: an ephemeral key, a deletion, a key with a lease.
        let compacted = write(&client, turn * 20..turn * 20 + 8).await - offset;
        client.compact(compact(compacted)).await.ok();
        written = write(&client, turn * 20 + 8..turn * 20 + 12).await;
        eventually("the oldest journal segment to be removed", async || {
            (first_segment(&server.repository()) > trimmed).then_some(())
        })
        .await;

        let before = Seen::of(&client, compacted, written).await;
        assert!(before.events.len() as i64 >= written - compacted);
        for round in 0..2 {
            server.kill();
            server.restart().await;
            let client = server.client().await;
            let after = Seen::of(&client, compacted, written).await;
            assert!(before == after, "turn {turn}, restart {round}: {before:?}\nnow: {after:?}");
            let old = RangeRequest { revision: compacted - 1, ..list("/") };
            client.range(old).await.refused(Code::OutOfRange);
        }
    }
    server.repository().fsck();
}

#[tokio::test]
async fn a_journal_at_its_bound_raises_the_compact_revision() {
    let bound = 8 * SEGMENT_BYTES;
    let mut server = launch().argument(format!("--max-journal-bytes={bound}")).start().await;
    let client = server.client().await;
    let repository = server.repository();
    client.lease_grant(grant(7, 600)).await.ok();
    let first = first_segment(&repository);
    let mut round = 0;
    eventually("the oldest journal segment to be removed", async || {
        // No faster than commits follow: at twice the bound, writes are refused.
        let written = write(&client, round..round + 5).await;
        round += 5;
        is_in_git(&server, written - 1).await;
        // The first segment is empty, as `init` creates it: it is removed without a compaction.
        (compact_revision(&server).await > 0 && first_segment(&repository) > first).then_some(())
    })
    .await;
    let now = revision(&client).await;
    let raised = compact_revision(&server).await;
    assert!(raised > 2 && raised < now, "{raised} of {now}");

    let old = RangeRequest { revision: raised - 1, ..list("/") };
    client.range(old).await.refused(Code::OutOfRange);
    let before = Seen::of(&client, raised, now).await;
    server.kill();
    server.restart().await;
    assert!(before == Seen::of(&server.client().await, raised, now).await);
}

#[tokio::test]
async fn a_journal_far_above_a_lowered_bound_makes_room_without_a_write() {
    let mut server = launch().start().await;
    let client = server.client().await;
    client.lease_grant(grant(7, 600)).await.ok();
    let last = write(&client, 0..120).await;
    is_in_git(&server, last - 1).await;
    server.terminate().await;
    let bound = SEGMENT_BYTES * 4;
    let server = launch().folder(server.folder()).argument(format!("--max-journal-bytes={bound}")).start().await;
    let client = server.client().await;
    eventually("writes to succeed again", async || {
        client.put(put("/registry/pods/after", "1")).await.result().is_ok().then_some(())
    })
    .await;
}

#[tokio::test]
async fn a_branch_that_is_begun_anew_keeps_its_files_and_its_history_in_git() {
    let mut server = launch().start().await;
    let client = server.client().await;
    client.put(put("/registry/pods/a", "1")).await.ok();
    client.put(put("/registry/pods/a", "2")).await.ok();
    server.terminate().await;
    let repository = server.repository();
    let (data, metadata) = (repository.reference(DATA), repository.reference(METADATA));

    begin_anew(&repository, 100);
    assert_eq!(repository.reference(DATA), data);
    assert_eq!(repository.reference(&format!("{METADATA}^1")), metadata);

    for _ in 0..2 {
        server.restart().await;
        let answer = server.client().await.range(list("/")).await.ok();
        // As if all commits had been converted into revisions up to this one.
        assert_eq!(answer.header.unwrap().revision, 101);
        assert_eq!((answer.kvs.len(), answer.kvs[0].create_revision, answer.kvs[0].version), (1, 100, 2));
        server.terminate().await;
    }
    repository.fsck();
}

/// Runs `gitcd init --force`.
fn begin_anew(repository: &Repository, revision: i64) {
    let path = format!("--repo={}", repository.path().display());
    let start = format!("--start-revisions={revision}");
    let init = std::process::Command::new(env!("CARGO_BIN_EXE_gitcd"))
        .args(["init", &path, "--key-prefixes=default=/registry", &start, "--force"])
        .output()
        .expect("gitcd can be started");
    assert!(init.status.success(), "{init:?}");
}

#[tokio::test]
async fn beginning_anew_again_and_again_keeps_every_local_state() {
    let mut server = launch().start().await;
    server.client().await.put(put("/registry/pods/a", "1")).await.ok();
    server.terminate().await;
    let repository = server.repository();
    // Some of these happen within the same second.
    let revisions = [100, 200, 300, 400];
    for revision in revisions {
        begin_anew(&repository, revision);
    }
    for part in ["journal", "snapshot"] {
        let entries = repository.path().join("gitcd/default").read_dir().unwrap();
        let names = entries.map(|entry| entry.unwrap().file_name().into_string().unwrap());
        let kept = names.filter(|name| name.starts_with(&format!("{part}."))).count();
        assert_eq!(kept, revisions.len(), "{part}");
    }
    server.restart().await;
    assert_eq!(revision(&server.client().await).await, 400);
}

#[tokio::test]
async fn without_its_local_state_a_branch_goes_on_from_git_at_revisions_that_nobody_has_seen() {
    let mut server = launch().start().await;
    let client = server.client().await;
    client.lease_grant(grant(7, 600)).await.ok();
    let written = write(&client, 0..3).await;
    let pods = client.range(list("/registry/pods/")).await.ok().kvs;
    server.terminate().await;
    let repository = server.repository();
    let head = repository.reference(DATA);

    let mut last = written;
    for loss in 0..3 {
        std::fs::remove_dir_all(repository.path().join("gitcd")).unwrap();
        server.restart().await;
        let client = server.client().await;
        let now = revision(&client).await;
        assert!(now > last + (1 << 31), "{now} after {last}");
        assert_eq!(client.range(list("/registry/pods/")).await.ok().kvs, pods, "keys in Git must be unchanged");
        assert_eq!(client.range(list("/elsewhere/")).await.ok().kvs.len(), 1);
        assert_eq!(client.range(list("/registry/events/")).await.ok().kvs, [], "keys outside Git are lost");
        assert_eq!(client.lease_leases(LeaseLeasesRequest::default()).await.ok().leases[0].id, 7);

        client.range(RangeRequest { revision: last, ..list("/") }).await.refused(Code::OutOfRange);
        let mut watching = client.watch();
        watching.create(WatchCreateRequest { start_revision: last + 1, ..watch_prefix("/") }).await;
        let cancelled = watching.control().await;
        assert!(cancelled.canceled);
        assert_eq!(cancelled.compact_revision, now);

        assert_eq!(repository.reference(DATA), head, "a start must not change the data");
        if loss == 0 {
            // Killed before a write and lost again: no revision that was reported may be assigned again.
            last = now;
        } else {
            client.put(put("/registry/pods/a", &value("after"))).await.ok();
            client.put(put("/registry/pods/a", &value("/registry/pods/a 2"))).await.ok();
            assert_eq!(revision(&client).await, now + 2);
            break;
        }
        server.kill();
    }
    server.kill();
    server.restart().await;
    assert_eq!(server.client().await.range(list("/registry/pods/")).await.ok().count, 1);
    server.terminate().await;
    repository.fsck();
    let history = repository.git(&["rev-list", DATA]);
    assert!(history.lines().any(|commit| commit == head), "the history must continue");
}

#[tokio::test]
async fn a_store_compacted_at_its_beginning_can_be_watched_from_there_after_a_restart() {
    let mut server = launch().start().await;
    let client = server.client().await;
    client.compact(compact(1)).await.ok();
    client.put(put("/registry/a", "1")).await.ok();
    for _ in 0..2 {
        server.terminate().await;
        server.restart().await;
        let mut watching = server.client().await.watch();
        watching.create(WatchCreateRequest { start_revision: 1, ..watch_prefix("/registry/") }).await;
        assert_eq!(watching.events(1).await.len(), 1);
    }
}
