//! `RangeStream` returns the same as `Range`, in several messages.

use gitcd::proto::etcdserverpb::kv_client::KvClient;
use gitcd::proto::etcdserverpb::{RangeRequest, RangeResponse};
use tonic::transport::Channel;
use tonic::{Code, Status};

use super::support::build::{all, compact, delete_prefix, get, list, put};
use super::support::{Client, Kind, Server};

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
        ("written late", RangeRequest { min_mod_revision: 10, ..everything.clone() }),
        ("written early", RangeRequest { max_mod_revision: 15, ..everything.clone() }),
        ("made late", RangeRequest { min_create_revision: 20, limit: 1100, ..everything.clone() }),
        ("made early", RangeRequest { max_create_revision: 9, ..everything.clone() }),
    ];
    for (name, request) in table {
        let whole = joined(parts(&mut stream, &request).await.unwrap_or_else(|status| panic!("{name}: {status}")));
        assert_eq!(whole, client.range(request).await.ok(), "{name}");
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
    // Results in another order than that of the keys cannot be streamed.
    let sorted = RangeRequest { sort_order: 2, sort_target: 3, ..everything };
    assert_eq!(parts(&mut stream, &sorted).await.expect_err("a sorted range is refused").code(), Code::Unimplemented);
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
