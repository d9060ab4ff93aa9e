//! The server's answers, from its client's view.

use std::net::Ipv4Addr;

use bytes::Bytes;
use futures::future::join_all;
use gitcd::proto::etcdserverpb::kv_client::KvClient;
use gitcd::proto::etcdserverpb::response_op::Response as Answered;
use gitcd::proto::etcdserverpb::watch_request::RequestUnion;
use gitcd::proto::etcdserverpb::{
    CompactionRequest, DeleteRangeRequest, PutRequest, RangeRequest, WatchCreateRequest, WatchRequest, WatchResponse,
};
use tempfile::TempDir;
use tokio::sync::mpsc;
use tokio_stream::wrappers::ReceiverStream;
use tonic::transport::Channel;
use tonic::{Code, Streaming};

use super::BareServer;
use crate::client::{self, Client, revision_in};

async fn serve() -> (BareServer, TempDir, Client) {
    let folder = tempfile::tempdir().unwrap();
    let server = BareServer::start((Ipv4Addr::LOCALHOST, 0).into(), folder.path()).await.unwrap();
    let client = Client::connect(&format!("http://{}", server.address()), 2).await.unwrap();
    (server, folder, client)
}

async fn put(kv: &mut KvClient<Channel>, key: &str, value: &str) -> i64 {
    let put = client::put(Bytes::from(key.to_owned()), Bytes::from(value.to_owned()));
    revision_in(kv.put(put).await.unwrap().into_inner().header.as_ref())
}

fn all(revision: i64, limit: i64) -> RangeRequest {
    let (key, range_end) = (Bytes::from_static(b"k"), Bytes::from_static(b"l"));
    RangeRequest { key, range_end, revision, limit, ..RangeRequest::default() }
}

#[tokio::test]
async fn writes_have_revisions_and_can_be_read_at_each_of_them() {
    let (server, folder, client) = serve().await;
    let mut kv = client.kv(0);
    assert_eq!(put(&mut kv, "k1", "one").await, 2);
    assert_eq!(put(&mut kv, "k2", "two").await, 3);
    assert_eq!(put(&mut kv, "k1", "newer").await, 4);
    let newest = kv.range(client::get("k1".into())).await.unwrap().into_inner();
    let pair = &newest.kvs[0];
    assert_eq!((pair.create_revision, pair.mod_revision, pair.version, &pair.value[..]), (2, 4, 2, &b"newer"[..]));
    assert_eq!((newest.count, revision_in(newest.header.as_ref())), (1, 4));

    let page = kv.range(all(3, 1)).await.unwrap().into_inner();
    assert_eq!((page.count, page.more, page.kvs.len(), &page.kvs[0].value[..]), (2, true, 1, &b"one"[..]));
    let missing = kv.range(client::get("k3".into())).await.unwrap().into_inner();
    assert_eq!((missing.count, missing.kvs.len()), (0, 0));

    // What was acknowledged is in the log.
    let log = std::fs::read(folder.path().join("log")).unwrap();
    assert!(log.windows(7).any(|bytes| bytes == b"k1newer"));
    server.stop().await.unwrap();
}

#[tokio::test]
async fn transactions_are_those_of_kube_apiserver() {
    let (server, _folder, client) = serve().await;
    let mut kv = client.kv(0);
    let created = kv.txn(client::create("k1".into(), "a".into())).await.unwrap().into_inner();
    assert!(created.succeeded && revision_in(created.header.as_ref()) == 2);
    let again = kv.txn(client::create("k1".into(), "b".into())).await.unwrap().into_inner();
    assert!(!again.succeeded && revision_in(again.header.as_ref()) == 2);
    let updated = kv.txn(client::update("k1".into(), 2, "b".into())).await.unwrap().into_inner();
    assert!(updated.succeeded && revision_in(updated.header.as_ref()) == 3);
    let late = kv.txn(client::update("k1".into(), 2, "c".into())).await.unwrap().into_inner();
    let Some(Answered::ResponseRange(found)) = &late.responses[0].response else { panic!("{late:?}") };
    assert!(!late.succeeded && found.kvs[0].value == "b" && found.kvs[0].mod_revision == 3);
    server.stop().await.unwrap();
}

#[tokio::test]
async fn old_future_and_unsupported_requests_are_refused() {
    let (server, _folder, client) = serve().await;
    let mut kv = client.kv(0);
    for value in ["a", "b", "c"] {
        put(&mut kv, "k1", value).await;
    }
    kv.compact(CompactionRequest { revision: 3, physical: false }).await.unwrap();
    let twice = kv.compact(CompactionRequest { revision: 3, physical: false }).await.unwrap_err();
    assert!(twice.code() == Code::OutOfRange && twice.message().ends_with("has been compacted"), "{twice}");
    let old = kv.range(all(2, 0)).await.unwrap_err();
    assert!(old.code() == Code::OutOfRange && old.message().ends_with("has been compacted"), "{old}");
    assert_eq!(kv.range(all(3, 0)).await.unwrap().into_inner().kvs[0].value, "b");
    let future = kv.range(all(5, 0)).await.unwrap_err();
    assert!(future.code() == Code::OutOfRange && future.message().ends_with("future revision"), "{future}");

    let deleted = kv.delete_range(DeleteRangeRequest { key: "k1".into(), ..DeleteRangeRequest::default() }).await;
    assert_eq!(deleted.unwrap_err().code(), Code::Unimplemented);
    let leased = PutRequest { lease: 7, ..client::put("k1".into(), "d".into()) };
    assert_eq!(kv.put(leased).await.unwrap_err().code(), Code::Unimplemented);
    assert_eq!(kv.put(client::put(Bytes::new(), "d".into())).await.unwrap_err().code(), Code::InvalidArgument);
    assert_eq!(client.revision().await.unwrap(), 4);
    server.stop().await.unwrap();
}

async fn watch(
    client: &Client,
    start_revision: i64,
    prev_kv: bool,
) -> (mpsc::Sender<WatchRequest>, Streaming<WatchResponse>) {
    let (requests, outgoing) = mpsc::channel(1);
    let create = WatchCreateRequest {
        key: "k".into(),
        range_end: "l".into(),
        start_revision,
        prev_kv,
        ..WatchCreateRequest::default()
    };
    let request = WatchRequest { request_union: Some(RequestUnion::CreateRequest(create)) };
    requests.send(request).await.unwrap();
    let mut answers = client.watch(1).watch(ReceiverStream::new(outgoing)).await.unwrap().into_inner();
    assert!(answers.message().await.unwrap().unwrap().created);
    (requests, answers)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn watchers_receive_concurrent_writes_in_order_with_previous_values_if_asked() {
    const WRITES: usize = 400;
    let (server, _folder, client) = serve().await;
    put(&mut client.kv(0), "k00", "before").await;
    let mut watchers = [(watch(&client, 0, true).await, true), (watch(&client, 3, false).await, false)];
    let writes = (0..WRITES).map(|number| {
        let mut kv = client.kv(number);
        async move { put(&mut kv, &format!("k{:02}", number % 20), &number.to_string()).await }
    });
    let mut revisions = join_all(writes).await;
    revisions.sort_unstable();
    assert!(revisions.into_iter().eq(3..3 + WRITES as i64));
    for ((_requests, answers), prev_kv) in &mut watchers {
        let mut next = 3;
        while next < 3 + WRITES as i64 {
            let answer = answers.message().await.unwrap().unwrap();
            for event in &answer.events {
                let kv = event.kv.as_ref().unwrap();
                assert_eq!(kv.mod_revision, next);
                assert_eq!(event.prev_kv.is_some(), *prev_kv && kv.version > 1, "{event:?}");
                next += 1;
            }
        }
    }
    client.kv(0).compact(CompactionRequest { revision: 10, physical: false }).await.unwrap();
    let (_requests, mut late) = watch(&client, 5, false).await;
    let canceled = late.message().await.unwrap().unwrap();
    assert!(canceled.canceled && canceled.compact_revision == 10, "{canceled:?}");
    server.stop().await.unwrap();
}
