//! `RangeStream` returns the same as `Range`, in several messages.

use gitcd::proto::etcdserverpb::kv_client::KvClient;
use gitcd::proto::etcdserverpb::{RangeRequest, RangeResponse};
use tonic::transport::Channel;
use tonic::{Code, Status};

use super::support::build::{all, compact, delete_prefix, get, list, put};
use super::support::{Client, Kind, Launch, Server};

/// Enough keys for several messages.
const KEYS: usize = 2500;

async fn fill(client: &Client) {
    let keys: Vec<_> = (0..KEYS).collect();
    for keys in keys.chunks(100) {
        client.txn(all(keys.iter().map(|key| put(&format!("/registry/{key:05}"), &format!("value {key}"))))).await.ok();
    }
}

/// Reads all parts of a response.
async fn parts(client: &mut KvClient<Channel>, request: &RangeRequest) -> Result<Vec<RangeResponse>, Status> {
    let mut answers = client.range_stream(request.clone()).await?.into_inner();
    let mut parts = Vec::new();
    while let Some(answer) = answers.message().await? {
        parts.push(answer.range_response.expect("each message has a response"));
    }
    Ok(parts)
}

/// Joins the parts into one response; header, count and `more` are in the last one.
fn joined(mut parts: Vec<RangeResponse>) -> RangeResponse {
    let mut whole = parts.pop().expect("a response has at least one part");
    assert!(
        parts.iter().all(|part| part.header.is_none() && !part.more && part.count == 0),
        "only the last part has them"
    );
    assert!(parts.iter().all(|part| !part.kvs.is_empty()), "only the last part may be empty");
    let last = std::mem::take(&mut whole.kvs);
    whole.kvs = parts.into_iter().flat_map(|part| part.kvs).chain(last).collect();
    whole
}

#[tokio::test]
async fn all_keys_come_in_order_over_several_messages() {
    let server = Server::start(Kind::Gitcd).await;
    let client = server.client().await;
    fill(&client).await;
    let mut stream = KvClient::new(server.channel().await);
    let parts = parts(&mut stream, &list("/registry/")).await.expect("the range succeeds");
    assert!(parts.len() > 1, "all {KEYS} keys came in one part");
    let whole = joined(parts);
    assert_eq!(whole, client.range(list("/registry/")).await.ok());
    assert_eq!((whole.kvs.len(), whole.count, whole.more), (KEYS, KEYS as i64, false));
    assert!(whole.kvs.is_sorted_by(|one, next| one.key < next.key));
    assert!(whole.kvs.iter().enumerate().all(|(number, pair)| pair.value == format!("value {number}")));
}

#[tokio::test]
async fn limits_revisions_and_keys_without_values_are_as_in_a_range() {
    let server = Server::start(Kind::Gitcd).await;
    let client = server.client().await;
    fill(&client).await;
    client.delete_range(delete_prefix("/registry/01")).await.ok();
    client.put(put("/registry/00007", "later")).await.ok();
    let newest = client.range(get("/registry/00007")).await.ok().kvs[0].mod_revision;
    let mut stream = KvClient::new(server.channel().await);
    let everything = list("/registry/");
    let table = [
        ("a key", get("/registry/00007")),
        ("a missing key", get("/registry/none")),
        ("a prefix without keys", list("/none/")),
        ("after a deletion", everything.clone()),
        ("a small limit", RangeRequest { limit: 3, ..everything.clone() }),
        ("a limit of one part", RangeRequest { limit: 1000, ..everything.clone() }),
        ("a limit of a little more", RangeRequest { limit: 1001, ..everything.clone() }),
        ("a limit of all", RangeRequest { limit: 1500, ..everything.clone() }),
        ("a larger limit", RangeRequest { limit: 9999, ..everything.clone() }),
        ("before the deletion", RangeRequest { revision: newest - 2, ..everything.clone() }),
        ("amidst the writes", RangeRequest { revision: 12, ..everything.clone() }),
        ("before the first write", RangeRequest { revision: 1, ..everything.clone() }),
        ("the past with a limit", RangeRequest { revision: newest - 2, limit: 1200, ..everything.clone() }),
        ("keys only", RangeRequest { keys_only: true, ..everything.clone() }),
        ("some keys only", RangeRequest { keys_only: true, limit: 1100, ..everything.clone() }),
        ("their number", RangeRequest { count_only: true, ..everything.clone() }),
        ("not the newest", RangeRequest { serializable: true, ..everything.clone() }),
        ("a target without an order", RangeRequest { sort_target: 3, limit: 1100, ..everything.clone() }),
    ];
    for (name, request) in table {
        let whole = joined(parts(&mut stream, &request).await.unwrap_or_else(|status| panic!("{name}: {status}")));
        // As in etcd, a target without an order is ignored.
        assert_eq!(whole, client.range(RangeRequest { sort_target: 0, ..request }).await.ok(), "{name}");
    }
}

#[tokio::test]
async fn refusals_are_those_of_a_range() {
    let server = Server::start(Kind::Gitcd).await;
    let client = server.client().await;
    fill(&client).await;
    client.compact(compact(9)).await.ok();
    let mut stream = KvClient::new(server.channel().await);
    let everything = list("/registry/");
    for (request, code) in [
        (RangeRequest { revision: 1000, ..everything.clone() }, Code::OutOfRange),
        (RangeRequest { revision: i64::MAX, ..everything.clone() }, Code::OutOfRange),
        (RangeRequest { revision: 8, ..everything.clone() }, Code::OutOfRange),
        (RangeRequest { revision: 1, limit: 5, keys_only: true, ..everything.clone() }, Code::OutOfRange),
        (get(""), Code::InvalidArgument),
        (RangeRequest { sort_order: 9, ..everything.clone() }, Code::InvalidArgument),
        (RangeRequest { sort_target: 9, ..everything.clone() }, Code::InvalidArgument),
    ] {
        let refused = parts(&mut stream, &request).await.expect_err("the range is invalid");
        assert_eq!(refused.code(), code, "{request:?}: {refused}");
        assert_eq!(refused.message(), client.range(request).await.refused(code));
    }
    // As in etcd, results in another order than that of the keys are not streamed, nor those of a filter.
    for (request, reason) in [
        (RangeRequest { sort_order: 2, sort_target: 3, ..everything.clone() }, "custom sort orders"),
        (RangeRequest { min_mod_revision: 10, ..everything.clone() }, "revision filters"),
        (RangeRequest { max_create_revision: 9, ..everything }, "revision filters"),
    ] {
        let refused = parts(&mut stream, &request).await.expect_err("the range is refused");
        assert_eq!(refused.code(), Code::Unimplemented, "{request:?}");
        assert_eq!(refused.message(), format!("RangeStream does not support {reason}"));
    }
}

#[tokio::test]
async fn large_values_come_in_messages_that_any_client_takes() {
    let server = Server::start(Kind::Gitcd).await;
    let client = server.client().await;
    let value = "x".repeat(8192);
    for key in 0..1200 {
        client.put(put(&format!("/registry/{key:05}"), &value)).await.ok();
    }
    // The client's limit is gRPC's default, 4 MiB.
    let mut stream = KvClient::new(server.channel().await);
    let whole = joined(parts(&mut stream, &list("/registry/")).await.expect("no part exceeds the limit"));
    assert_eq!(whole, client.range(list("/registry/")).await.ok());
}

/// Writes `count` values of 1 MiB.
async fn fill_large(client: &Client, count: usize) {
    for key in 0..count {
        // No two values are equal.
        let value = format!("{key:04}").repeat(1 << 18);
        client.put(put(&format!("/registry/{key:05}"), &value)).await.ok();
    }
}

/// The most memory that a process has, as it is now.
fn resident(pid: u32) -> u64 {
    let status = std::fs::read_to_string(format!("/proc/{pid}/status")).expect("the process runs");
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:")).expect("it has memory");
    line.split_whitespace().next().and_then(|kib| kib.parse::<u64>().ok()).expect("it is a number") * 1024
}

#[tokio::test(flavor = "multi_thread")]
async fn a_slow_client_does_not_make_the_server_hold_the_range() {
    const MIB: u64 = 1 << 20;
    let server = Launch::new(Kind::Gitcd)
        .argument("--max-old-value-bytes=1048576")
        .argument("--max-journal-bytes=2147483648")
        .start()
        .await;
    let client = server.client().await;
    fill_large(&client, 200).await;
    let revision = client.range(get("/registry/00199")).await.ok().header.expect("every response has one").revision;
    // The large values are only in the journal from now on, and only as long as history is not compacted.
    for key in 0..200 {
        client.put(put(&format!("/registry/{key:05}"), "small")).await.ok();
    }
    let before = resident(server.id());
    let mut stream = KvClient::new(server.channel().await);
    let request = RangeRequest { revision, ..list("/registry/") };
    let mut answers = stream.range_stream(request).await.expect("the range succeeds").into_inner();
    let (mut pairs, mut most, mut messages) = (0, 0, 0_u32);
    while let Some(answer) = answers.message().await.expect("history was not compacted") {
        for pair in answer.range_response.expect("each message has a response").kvs {
            assert_eq!((pair.value.len() as u64, &pair.value[..4]), (MIB, format!("{pairs:04}").as_bytes()));
            pairs += 1;
        }
        messages += 1;
        if messages.is_multiple_of(20) {
            // Time for the server to read ahead, if it did.
            tokio::time::sleep(std::time::Duration::from_millis(200)).await;
        }
        most = most.max(resident(server.id()).saturating_sub(before));
    }
    assert_eq!(pairs, 200);
    eprintln!("the server took {} MiB for a range of 200 MiB", most / MIB);
    assert!(most < 40 * MIB, "the server took {} MiB for a range of 200 MiB", most / MIB);
}

#[tokio::test(flavor = "multi_thread")]
async fn all_pages_are_of_one_revision_and_a_compaction_beyond_it_ends_the_stream() {
    let server = Server::start(Kind::Gitcd).await;
    let client = server.client().await;
    fill_large(&client, 40).await;
    let request = RangeRequest { limit: 30, ..list("/registry/") };
    let expected = client.range(request.clone()).await.ok();
    let mut stream = KvClient::new(server.channel().await);
    let mut answers = stream.range_stream(request.clone()).await.expect("the range succeeds").into_inner();
    let first = answers.message().await.expect("nothing was compacted").and_then(|answer| answer.range_response);
    let mut parts = vec![first.expect("there is a first part")];
    // Later writes are not seen.
    client.delete_range(delete_prefix("/registry/0002")).await.ok();
    client.put(put("/registry/00001", "later")).await.ok();
    client.put(put("/registry/00038a", "later")).await.ok();
    while let Some(answer) = answers.message().await.expect("nothing was compacted") {
        parts.push(answer.range_response.expect("each message has a response"));
    }
    assert!(parts.len() > 10, "{} parts", parts.len());
    assert_eq!(joined(parts), expected);
    // A compaction ends a stream that still needs what it removes.
    let mut answers = stream.range_stream(list("/registry/")).await.expect("the range succeeds").into_inner();
    assert!(answers.message().await.expect("nothing was compacted").is_some());
    let newest = client.put(put("/registry/00001", "later still")).await.ok().header.expect("it has one").revision;
    client.compact(compact(newest)).await.ok();
    let ended = loop {
        match answers.message().await {
            Ok(Some(_)) => {}
            Ok(None) => panic!("the stream ended without an error"),
            Err(error) => break error,
        }
    };
    assert_eq!(ended.code(), Code::OutOfRange, "{ended}");
    assert_eq!(ended.message(), "etcdserver: mvcc: required revision has been compacted");
}

#[tokio::test(flavor = "multi_thread")]
async fn writes_continue_while_a_client_does_not_read_its_stream() {
    let server = Server::start(Kind::Gitcd).await;
    let client = server.client().await;
    fill_large(&client, 40).await;
    let mut unread = Vec::new();
    for _ in 0..8 {
        // On connections of their own: unread responses on one connection use up its window.
        let mut stream = KvClient::new(server.channel().await);
        unread.push(stream.range_stream(list("/registry/")).await.expect("the range succeeds").into_inner());
    }
    let before = resident(server.id());
    for number in 0..50 {
        client.put(put("/registry/new", &number.to_string())).await.ok();
    }
    let taken = resident(server.id()).saturating_sub(before);
    assert!(taken < 64 << 20, "{} MiB for eight unread streams", taken >> 20);
    for mut answers in unread {
        let mut pairs = 0;
        while let Some(answer) = answers.message().await.expect("nothing was compacted") {
            pairs += answer.range_response.expect("each message has a response").kvs.len();
        }
        assert_eq!(pairs, 40, "the write came later");
    }
}
