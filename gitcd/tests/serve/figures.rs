//! Metrics that follow the state.

use gitcd::proto::etcdserverpb::watch_client::WatchClient;
use gitcd::proto::etcdserverpb::watch_request::RequestUnion;
use gitcd::proto::etcdserverpb::{WatchCreateRequest, WatchRequest, WatchResponse};
use tonic::Streaming;

use super::support::build::{compact, put, watch, watch_prefix};
use super::support::{Kind, Server, eventually};

/// Returns the value of a counter or gauge.
async fn figure(server: &Server, name: &str) -> usize {
    let page = server.page("/metrics").await;
    let figure = page.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(' ')?.parse::<f64>().ok());
    figure.unwrap_or_else(|| panic!("no metric {name}")) as usize
}

/// Waits until a metric has a value.
async fn becomes(server: &Server, name: &str, value: usize) {
    eventually(&format!("{name} {value}"), async || (figure(server, name).await == value).then_some(())).await;
}

#[tokio::test]
async fn watchers_are_counted_as_they_come_and_go() {
    let server = Server::start(Kind::Gitcd).await;
    assert_eq!(figure(&server, "gitcd_watchers").await, 0);
    let client = server.client().await;
    let mut watching = client.watch();
    for number in 1..=5 {
        watching.create(WatchCreateRequest { watch_id: number, ..watch_prefix("/registry/") }).await;
        assert_eq!(figure(&server, "gitcd_watchers").await, number as usize);
    }
    let other = server.client().await;
    let mut others = other.watch();
    others.create(watch("/registry/a")).await;
    assert_eq!(figure(&server, "gitcd_watchers").await, 6);
    // A rejected watch is not counted.
    watching.send_create(WatchCreateRequest { watch_id: 3, ..watch("/registry/a") }).await;
    assert!(watching.control().await.canceled);
    assert_eq!(figure(&server, "gitcd_watchers").await, 6);
    for (number, left) in [(2, 5), (4, 4)] {
        watching.cancel(number).await;
        assert!(watching.control().await.canceled);
        assert_eq!(figure(&server, "gitcd_watchers").await, left);
    }
    // A watch cancelled because its revision was compacted is no longer counted.
    for value in ["1", "2", "3"] {
        client.put(put("/elsewhere", value)).await.ok();
    }
    client.compact(compact(4)).await.ok();
    watching.send_create(WatchCreateRequest { watch_id: 9, start_revision: 2, ..watch("/elsewhere") }).await;
    while !watching.control().await.canceled {}
    becomes(&server, "gitcd_watchers", 4).await;
    drop(watching);
    becomes(&server, "gitcd_watchers", 1).await;
    drop((others, other));
    becomes(&server, "gitcd_watchers", 0).await;
}

/// The number of files that end in `.pack`.
fn packs(server: &Server) -> usize {
    let folder = server.repository().path().join("objects/pack");
    let files = std::fs::read_dir(folder).into_iter().flatten().flatten();
    files.filter(|entry| entry.path().extension().is_some_and(|extension| extension == "pack")).count()
}

#[tokio::test]
async fn packs_are_counted_as_commits_bring_them() {
    let server = Server::start(Kind::Gitcd).await;
    let client = server.client().await;
    becomes(&server, "gitcd_pack_files", packs(&server)).await;
    let first = packs(&server);
    let mut bytes = figure(&server, "gitcd_pack_files_bytes").await;
    for round in 1..=3 {
        let written = figure(&server, "gitcd_packs_total").await;
        // More than would be kept as loose objects, and hardly compressible.
        for number in 0..40 {
            let value = (0..100).map(|_| rand::random::<u64>().to_string()).collect::<String>();
            client.put(put(&format!("/registry/{round}/{number}"), &value)).await.ok();
        }
        let revision = figure(&server, "gitcd_revision").await;
        becomes(&server, "gitcd_committed_revision", revision).await;
        assert!(figure(&server, "gitcd_packs_total").await > written);
        eventually("gitcd_pack_files to match the folder", async || {
            (figure(&server, "gitcd_pack_files").await == packs(&server)).then_some(())
        })
        .await;
        let now = figure(&server, "gitcd_pack_files_bytes").await;
        assert!(now > bytes, "{now} of {bytes} bytes after round {round}");
        bytes = now;
    }
    assert!(packs(&server) > first);
}

/// Opens a stream with one watch on a connection of its own, and reads only the creation response.
async fn unread(server: &Server, create: WatchCreateRequest) -> Streaming<WatchResponse> {
    let request = WatchRequest { request_union: Some(RequestUnion::CreateRequest(create)) };
    let requests = futures::StreamExt::chain(futures::stream::iter([request]), futures::stream::pending());
    let mut client = WatchClient::new(server.channel().await).max_decoding_message_size(64 << 20);
    let mut answers = client.watch(requests).await.expect("the server accepts the stream").into_inner();
    assert!(answers.message().await.expect("the stream is open").expect("a message follows").created);
    answers
}

/// Puts large values, 50 at a time.
async fn write(server: &Server, count: usize, bytes: usize) {
    let client = server.client().await;
    let value = "x".repeat(bytes);
    for number in 0..count / 50 {
        let puts = (0..50).map(|key| client.put(put(&format!("/registry/{key}"), &format!("{number}{value}"))));
        for done in futures::future::join_all(puts).await {
            done.ok();
        }
    }
}

/// Reads until `count` events have arrived; they must be those of the first revisions, in order.
async fn read(answers: &mut Streaming<WatchResponse>, count: usize) {
    let mut revisions = Vec::new();
    while revisions.len() < count {
        let answer = answers.message().await.expect("the stream is open").expect("a message follows");
        assert!(!answer.canceled, "{answer:?}");
        revisions.extend(answer.events.iter().filter_map(|event| Some(event.kv.as_ref()?.mod_revision)));
    }
    assert_eq!(revisions, (2..2 + count as i64).collect::<Vec<_>>());
}

#[tokio::test]
async fn a_watcher_that_does_not_read_is_slow_until_it_does() {
    let server = Server::start(Kind::Gitcd).await;
    let mut answers = unread(&server, watch_prefix("/registry/")).await;
    let quick = server.client().await;
    let mut watching = quick.watch();
    watching.create(watch("/registry/none")).await;
    assert_eq!(figure(&server, "gitcd_slow_watchers").await, 0);
    write(&server, 4000, 4096).await;
    becomes(&server, "gitcd_slow_watchers", 1).await;
    assert_eq!(figure(&server, "gitcd_watchers").await, 2);
    read(&mut answers, 4000).await;
    becomes(&server, "gitcd_slow_watchers", 0).await;
}

#[tokio::test]
async fn a_watcher_that_does_not_read_what_was_before_it_is_slow_too() {
    let server = Server::start(Kind::Gitcd).await;
    // More than fits into the buffers between server and client.
    write(&server, 4000, 16 << 10).await;
    let from_the_start = WatchCreateRequest { start_revision: 2, ..watch_prefix("/registry/") };
    let mut answers = unread(&server, from_the_start).await;
    becomes(&server, "gitcd_slow_watchers", 1).await;
    // Newer events are for the same watcher.
    write(&server, 2000, 1).await;
    assert_eq!(figure(&server, "gitcd_slow_watchers").await, 1);
    read(&mut answers, 6000).await;
    becomes(&server, "gitcd_slow_watchers", 0).await;
}
