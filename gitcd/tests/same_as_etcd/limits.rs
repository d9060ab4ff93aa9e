//! Oversized requests.

use gitcd::proto::etcdserverpb::{AuthUserAddRequest, DowngradeRequest, MemberAddRequest};
use gitcd::proto::v3electionpb::LeaderRequest;
use gitcd::proto::v3lockpb::LockRequest;
use tonic::Code;

use crate::support::build::{all, delete, get, put, unchanged_since, watch};
use crate::support::{Reply, same, same_with};

const MIB: usize = 1 << 20;

#[tokio::test]
async fn a_request_above_one_and_a_half_mebibytes_is_too_large() {
    same(async |client| {
        // A client with a transcript of its own, as the requests are long.
        let aside = client.aside();
        let value = "x".repeat(2 * MIB);
        for (bytes, fits) in [(MIB, true), (3 * MIB / 2 - 100, true), (3 * MIB / 2, false), (2 * MIB - 200, false)] {
            let answer = aside.put(put("/registry/a", &value[..bytes])).await;
            if fits {
                client.note("put", (bytes, answer.ok().header.unwrap().revision));
            } else {
                client.note("put", (bytes, answer.refused(Code::InvalidArgument)));
            }
        }
        let halves = all([put("/registry/b", &value[..MIB]), put("/registry/c", &value[..MIB * 3 / 4])]);
        client.note("txn", aside.txn(halves).await.refused(Code::InvalidArgument));
        client.note("length", aside.range(get("/registry/a")).await.ok().kvs[0].value.len());
    })
    .await;
}

#[tokio::test]
async fn a_message_above_the_limit_of_the_transport_is_refused() {
    same(async |client| {
        let value = "x".repeat(4 * MIB);
        let aside = client.aside();
        // The message is the transport's own, and so are the sizes in it.
        aside.put(put("/registry/a", &value)).await.refused(Code::ResourceExhausted);
        client.range(get("/registry/a")).await.ok();
        client.put(put("/registry/a", "1")).await.ok();
    })
    .await;
}

/// Returns the code and, unless the transport refused the request, the message.
fn refusal<T: std::fmt::Debug>(reply: Reply<T>) -> Option<(Code, String)> {
    let status = reply.result().err()?;
    let words = if status.code() == Code::ResourceExhausted { "" } else { status.message() };
    Some((status.code(), words.to_owned()))
}

#[tokio::test]
async fn reads_are_bounded_by_the_transport_and_deletions_as_writes_are() {
    same(async |client| {
        let aside = client.aside();
        aside.put(put("/registry/a", "1")).await.ok();
        for bytes in [MIB * 3 / 2 - 100, MIB * 3 / 2, MIB * 2 - 200, MIB * 2 + 1, MIB * 3] {
            client.note("bytes", bytes);
            let key = "x/".repeat(bytes / 2);
            client.note("range", refusal(aside.range(get(&key)).await));
            client.note("delete", refusal(aside.delete_range(delete(&key)).await));
            client.note("txn that reads", refusal(aside.txn(all([get(&key)])).await));
            let mut txn = all([put("/registry/a", "2")]);
            txn.compare = vec![unchanged_since(&key, 0)];
            client.note("txn that writes", refusal(aside.txn(txn).await));
        }
        client.range(get("/registry/a")).await.ok();
    })
    .await;
}

#[tokio::test]
async fn the_transport_has_one_bound_for_all_services() {
    same_with(&["--max-request-bytes=1000000"], async |client| {
        let aside = client.aside();
        let refused = async |bytes: usize| {
            let long = "x".repeat(bytes);
            let member = MemberAddRequest { peer_ur_ls: vec![long.clone()], is_learner: false };
            let lock = LockRequest { name: long.clone().into(), lease: 99 };
            let user = AuthUserAddRequest { password: long.clone(), ..AuthUserAddRequest::default() };
            let downgrade = DowngradeRequest { version: long.clone(), ..DowngradeRequest::default() };
            let replies = [
                refusal(aside.member_add(member).await),
                refusal(aside.lock(lock).await),
                refusal(aside.leader(LeaderRequest { name: long.clone().into() }).await),
                refusal(aside.user_add(user).await),
                refusal(aside.downgrade(downgrade).await),
            ];
            replies.map(|refused| refused.is_some_and(|(code, _)| code == Code::ResourceExhausted))
        };
        let limit = 1_000_000 + MIB / 2;
        assert_eq!(refused(limit - 100).await, [false; 5]);
        assert_eq!(refused(limit + 1).await, [true; 5]);
    })
    .await;
}

#[tokio::test]
async fn a_message_of_a_stream_above_the_limit_ends_it() {
    same(async |client| {
        let mut watching = client.watch();
        watching.create(watch("/registry/a")).await;
        // A client with a transcript of its own, as the request is long.
        let aside = client.aside();
        let mut other = aside.watch();
        other.create(watch("/registry/a")).await;
        other.send_create(watch(&"x".repeat(3 * MIB))).await;
        client.note("end", other.end().await.map(|status| status.code()));
        client.put(put("/registry/a", "1")).await.ok();
        watching.events(1).await;
    })
    .await;
}
