//! `DeleteRange`.

use gitcd::proto::etcdserverpb::{DeleteRangeRequest, RangeRequest};

use crate::support::build::{all, delete, delete_prefix, get, list, put, to_the_end};
use crate::support::{Client, same};

async fn fill(client: &Client) {
    let keys = ["/registry/a", "/registry/a/b", "/registry/b", "/registry/c", "/other"];
    for key in keys {
        client.put(put(key, "1")).await.ok();
    }
}

#[tokio::test]
async fn deleting_what_is_not_there_takes_no_revision() {
    same(async |client| {
        client.delete_range(delete("/registry/a")).await.ok();
        client.delete_range(delete_prefix("/registry/")).await.ok();
        assert_eq!(client.put(put("/registry/a", "1")).await.ok().header.unwrap().revision, 2);
        client.delete_range(delete("/registry/a")).await.ok();
        let again = client.delete_range(delete("/registry/a")).await.ok();
        assert_eq!((again.deleted, again.header.unwrap().revision), (0, 3));
    })
    .await;
}

#[tokio::test]
async fn a_range_goes_at_one_revision_with_its_previous_pairs() {
    same(async |client| {
        fill(&client).await;
        let range = DeleteRangeRequest { range_end: "/registry/b0".into(), prev_kv: true, ..delete("/registry/a") };
        let answer = client.delete_range(range).await.ok();
        assert_eq!((answer.deleted, answer.prev_kvs.len()), (3, 3));
        client.range(list("/registry/")).await.ok();
        client.range(RangeRequest { revision: 6, ..list("/registry/") }).await.ok();
        client.delete_range(DeleteRangeRequest { prev_kv: true, ..delete("/registry/c") }).await.ok();
    })
    .await;
}

#[tokio::test]
async fn range_ends_mean_the_same_as_in_reads() {
    same(async |client| {
        for (key, end) in [
            ("/registry/b", "/registry/b"),
            ("/registry/c", "/registry/a"),
            ("/registry/b", "\0"),
            ("/", "\0"),
            ("\0", "\0"),
        ] {
            fill(&client).await;
            let range = DeleteRangeRequest { range_end: end.into(), ..delete(key) };
            client.delete_range(range).await.ok();
            client.range(RangeRequest { range_end: to_the_end(), ..get("\0") }).await.ok();
        }
    })
    .await;
}

#[tokio::test]
async fn a_range_deleted_in_a_transaction_shares_its_revision() {
    same(async |client| {
        fill(&client).await;
        let range = DeleteRangeRequest { prev_kv: true, ..delete_prefix("/registry/a") };
        client.txn(all([range.clone()])).await.ok();
        client.txn(all([range])).await.ok();
        client.range(list("/registry/")).await.ok();
    })
    .await;
}
