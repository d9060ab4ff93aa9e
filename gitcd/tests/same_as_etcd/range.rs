//! Range.

use gitcd::proto::etcdserverpb::RangeRequest;
use gitcd::proto::etcdserverpb::range_request::{SortOrder, SortTarget};
use tonic::Code;

use crate::support::build::{all, compact, delete, delete_prefix, get, list, put, to_the_end};
use crate::support::{Client, same};

/// Keys whose orders by key, value, version, creation and change all differ, and some history.
async fn fill(client: &Client) {
    for (key, value) in [
        ("/registry/c", "5"),  // 2
        ("/registry/a", "9"),  // 3
        ("/registry/b", "1"),  // 4
        ("/registry/a", "3"),  // 5
        ("/registry/e", "4"),  // 6
        ("/registry/b", "7"),  // 7
        ("/registry/a", "2"),  // 8
        ("/registry/d", "8"),  // 9
        ("/registry/ab", "6"), // 10
    ] {
        client.put(put(key, value)).await.ok();
    }
    client.delete_range(delete("/registry/d")).await.ok(); // 11
    client.txn(all([put("/registry/f", "0"), put("/registry/g", "0")])).await.ok(); // 12
}

#[tokio::test]
async fn range_ends_mean_one_key_a_half_open_range_a_prefix_or_all_behind() {
    same(async |client| {
        fill(&client).await;
        for (key, end) in [
            ("/registry/a", ""),
            ("/registry/a", "/registry/c"),
            ("/registry/a", "/registry/a"),
            ("/registry/c", "/registry/a"),
            ("/registry/a", "/registry/b"),
            ("/registry/aa", "/registry/ac"),
            ("/registry/b", "\0"),
            ("\0", "\0"),
            ("\0", ""),
            ("/registry/zzz", "\0"),
            ("/registry/", "/registry0"),
            ("/registry/absent", ""),
        ] {
            let request = RangeRequest { range_end: end.into(), ..get(key) };
            client.range(request.clone()).await.ok();
            client.range(RangeRequest { serializable: true, ..request }).await.ok();
        }
    })
    .await;
}

#[tokio::test]
async fn a_limit_cuts_off_but_count_and_more_report_the_rest() {
    same(async |client| {
        fill(&client).await;
        for limit in [-1, 0, 1, 2, 5, 6, 7, 100] {
            for (keys_only, count_only) in [(false, false), (true, false), (false, true), (true, true)] {
                let request = RangeRequest { limit, keys_only, count_only, ..list("/registry/") };
                client.range(request).await.ok();
            }
        }
        let one = RangeRequest { limit: 1, ..get("/registry/a") };
        client.range(one).await.ok();
    })
    .await;
}

#[tokio::test]
async fn pages_continue_behind_the_last_key_at_one_revision() {
    same(async |client| {
        fill(&client).await;
        let mut page = RangeRequest { limit: 2, ..list("/registry/") };
        loop {
            let answer = client.range(page.clone()).await.ok();
            page.revision = 12;
            let mut next = answer.kvs.last().unwrap().key.to_vec();
            next.push(0);
            page.key = next.into();
            client.put(put("/registry/b0", "between the pages")).await;
            if !answer.more {
                break;
            }
        }
    })
    .await;
}

#[tokio::test]
async fn every_sort_target_and_order_sorts_alike() {
    same(async |client| {
        fill(&client).await;
        for target in 0..6 {
            for order in 0..4 {
                for limit in [0, 3] {
                    let request = RangeRequest { sort_target: target, sort_order: order, limit, ..list("/registry/") };
                    client.range(request).await;
                }
            }
        }
        let sorted = RangeRequest {
            sort_target: SortTarget::Value.into(),
            sort_order: SortOrder::Descend.into(),
            keys_only: true,
            revision: 10,
            ..list("/registry/")
        };
        client.range(sorted.clone()).await.ok();
        client.range(RangeRequest { count_only: true, ..sorted }).await.ok();
    })
    .await;
}

#[tokio::test]
async fn revision_filters_choose_pairs_but_not_the_count() {
    same(async |client| {
        fill(&client).await;
        for (min_mod, max_mod, min_create, max_create) in [
            (7, 0, 0, 0),
            (0, 8, 0, 0),
            (7, 8, 0, 0),
            (8, 7, 0, 0),
            (0, 0, 4, 0),
            (0, 0, 0, 4),
            (0, 0, 3, 6),
            (7, 12, 3, 9),
            (100, 0, 0, 0),
            (-1, -1, -1, -1),
        ] {
            for limit in [0, 1] {
                let request = RangeRequest {
                    min_mod_revision: min_mod,
                    max_mod_revision: max_mod,
                    min_create_revision: min_create,
                    max_create_revision: max_create,
                    limit,
                    ..list("/registry/")
                };
                client.range(request.clone()).await.ok();
                client.range(RangeRequest { keys_only: true, ..request.clone() }).await.ok();
                client.range(RangeRequest { count_only: true, ..request }).await.ok();
            }
        }
    })
    .await;
}

#[tokio::test]
async fn every_old_revision_reads_as_it_was() {
    same(async |client| {
        fill(&client).await;
        client.delete_range(delete_prefix("/registry/")).await.ok();
        for revision in 0..=13 {
            let then = RangeRequest { revision, ..list("/registry/") };
            client.range(then.clone()).await.ok();
            client.range(RangeRequest { limit: 2, ..then.clone() }).await.ok();
            client.range(RangeRequest { count_only: true, ..then }).await.ok();
            client.range(RangeRequest { revision, ..get("/registry/a") }).await.ok();
        }
    })
    .await;
}

#[tokio::test]
async fn compacted_and_future_revisions_are_refused() {
    same(async |client| {
        fill(&client).await;
        let at = |revision| RangeRequest { revision, ..list("/registry/") };
        client.range(at(13)).await.refused(Code::OutOfRange);
        client.range(at(i64::MAX)).await.refused(Code::OutOfRange);
        client.compact(compact(9)).await.ok();
        for revision in [-1, 0, 1, 2, 8, 9, 10, 12, 13] {
            client.range(at(revision)).await;
            client.range(RangeRequest { count_only: true, ..at(revision) }).await;
        }
        client.range(at(8)).await.refused(Code::OutOfRange);
        client.range(at(9)).await.ok();
        let absent = RangeRequest { revision: 3, ..get("/registry/absent") };
        client.range(absent).await.refused(Code::OutOfRange);
    })
    .await;
}

#[tokio::test]
async fn an_empty_store_has_nothing_to_say() {
    same(async |client| {
        let everything = RangeRequest { range_end: to_the_end(), ..get("\0") };
        client.range(everything.clone()).await.ok();
        client.range(RangeRequest { revision: 1, ..everything.clone() }).await;
        client.range(RangeRequest { revision: 2, ..everything.clone() }).await;
        client.range(RangeRequest { count_only: true, ..everything.clone() }).await;
        client.range(RangeRequest { limit: 1, keys_only: true, ..everything }).await;
    })
    .await;
}

#[tokio::test]
async fn ten_thousand_keys_come_in_order_and_in_full() {
    same(async |client| {
        for chunk in 0..100 {
            let puts = (0..100).map(|i| put(&format!("/registry/pods/{:05}", (chunk * 100 + i) * 7 % 10_000), "v"));
            client.txn(all(puts)).await.ok();
        }
        let pods = list("/registry/pods/");
        let answer = client.range(RangeRequest { limit: 500, ..pods.clone() }).await.ok();
        assert_eq!((answer.count, answer.kvs.len(), answer.more), (10_000, 500, true));
        client.range(RangeRequest { keys_only: true, ..pods.clone() }).await.ok();
        client.range(RangeRequest { count_only: true, revision: 50, ..pods }).await.ok();
    })
    .await;
}
