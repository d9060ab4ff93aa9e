//! Compaction.

use gitcd::proto::etcdserverpb::{CompactionRequest, RangeRequest};
use tonic::Code;

use crate::support::build::{compact, delete, get, list, put};
use crate::support::same;

#[tokio::test]
async fn only_revisions_between_the_last_compaction_and_now_can_be_compacted() {
    same(async |client| {
        client.compact(compact(2)).await.refused(Code::OutOfRange);
        for i in 0..6 {
            client.put(put("/registry/a", &i.to_string())).await.ok();
        }
        client.compact(compact(8)).await.refused(Code::OutOfRange);
        client.compact(compact(4)).await.ok();
        client.compact(compact(4)).await.refused(Code::OutOfRange);
        client.compact(compact(3)).await.refused(Code::OutOfRange);
        client.compact(compact(0)).await.refused(Code::OutOfRange);
        client.compact(compact(-1)).await.refused(Code::OutOfRange);
        client.compact(compact(7)).await.ok();
        client.range(get("/registry/a")).await.ok();
        client.put(put("/registry/a", "7")).await.ok();
    })
    .await;
}

#[tokio::test]
async fn an_empty_store_is_compacted_as_in_etcd() {
    same(async |client| {
        for revision in [-1, 0, 1, 1, 2] {
            client.compact(compact(revision)).await;
        }
    })
    .await;
}

#[tokio::test]
async fn compaction_keeps_what_can_still_be_read() {
    same(async |client| {
        for (key, value) in [("a", "1"), ("b", "1"), ("a", "2"), ("c", "1"), ("b", "2")] {
            client.put(put(&format!("/registry/{key}"), value)).await.ok();
        }
        client.delete_range(delete("/registry/c")).await.ok(); // 7
        client.put(put("/registry/c", "2")).await.ok(); // 8
        client.delete_range(delete("/registry/a")).await.ok(); // 9
        for compacted in [4, 7, 8, 9] {
            let request = CompactionRequest { revision: compacted, physical: compacted % 2 == 0 };
            client.compact(request).await.ok();
            for revision in 1..=9 {
                client.range(RangeRequest { revision, ..list("/registry/") }).await;
                client.range(RangeRequest { revision, ..get("/registry/a") }).await;
            }
        }
        client.range(list("/registry/")).await.ok();
    })
    .await;
}
