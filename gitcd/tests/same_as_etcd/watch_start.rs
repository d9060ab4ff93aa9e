//! Start revisions of watches: past, current, future, or compacted.

use gitcd::proto::etcdserverpb::WatchCreateRequest;

use crate::support::build::{all, compact, delete, put, watch, watch_prefix};
use crate::support::{Client, same};

fn from(revision: i64) -> WatchCreateRequest {
    WatchCreateRequest { start_revision: revision, ..watch_prefix("/registry/") }
}

/// Writes revisions 2 to 7.
async fn fill(client: &Client) {
    client.put(put("/registry/a", "1")).await.ok();
    client.put(put("/registry/b", "1")).await.ok();
    client.txn(all([put("/registry/b", "2"), put("/registry/a", "2")])).await.ok();
    client.delete_range(delete("/registry/a")).await.ok();
    client.put(put("/registry/a", "3")).await.ok();
    client.put(put("/elsewhere", "1")).await.ok();
}

#[tokio::test]
async fn the_past_is_replayed_from_any_revision() {
    same(async |client| {
        fill(&client).await;
        for revision in 1..=7 {
            let mut watching = client.watch();
            watching.create(from(revision)).await;
            watching.progress().await;
            client.put(put("/registry/later", "1")).await.ok();
            watching.progress().await;
        }
    })
    .await;
}

#[tokio::test]
async fn the_past_and_the_present_meet_without_gap_or_repetition() {
    same(async |client| {
        for i in 0..200 {
            client.put(put("/registry/a", &i.to_string())).await.ok();
        }
        let mut watching = client.watch();
        watching.send_create(from(2)).await;
        for i in 0..200 {
            client.put(put("/registry/b", &i.to_string())).await.ok();
        }
        let events = watching.events(400).await;
        let revisions = events.iter().map(|(_, event)| event.kv.as_ref().unwrap().mod_revision);
        assert!(revisions.eq(2..=401));
    })
    .await;
}

#[tokio::test]
async fn the_next_revision_and_zero_mean_from_now_on() {
    same(async |client| {
        fill(&client).await;
        let mut watching = client.watch();
        watching.create(from(8)).await;
        watching.create(from(0)).await;
        client.put(put("/registry/a", "8")).await.ok();
        watching.events(2).await;
    })
    .await;
}

#[tokio::test]
async fn a_future_start_waits_for_its_revision() {
    same(async |client| {
        fill(&client).await;
        let mut watching = client.watch();
        watching.create(from(10)).await;
        for i in 8..=12 {
            client.put(put("/registry/a", &i.to_string())).await.ok();
        }
        let events = watching.events(3).await;
        assert_eq!(events[0].1.kv.as_ref().unwrap().mod_revision, 10);
        watching.progress().await;
    })
    .await;
}

#[tokio::test]
async fn a_compacted_start_is_cancelled_with_the_revision_to_continue_from() {
    same(async |client| {
        fill(&client).await;
        client.compact(compact(5)).await.ok();
        for revision in [3, 5, 4, 1] {
            let mut watching = client.watch();
            watching.create(from(revision)).await;
            if revision < 5 {
                let cancelled = watching.control().await;
                assert!(cancelled.canceled);
                assert_eq!(cancelled.compact_revision, 5);
                // The stream continues. (etcd does not answer further progress requests on it, so none is sent.)
                watching.create(from(6)).await;
                watching.events(1).await;
            } else {
                watching.progress().await;
            }
        }
    })
    .await;
}

#[tokio::test]
async fn a_negative_start_is_refused() {
    same(async |client| {
        fill(&client).await;
        let mut watching = client.watch();
        watching.create(from(-1)).await;
        watching.create(watch("/registry/a")).await;
        client.put(put("/registry/a", "8")).await.ok();
        watching.events(1).await;
    })
    .await;
}

#[tokio::test]
async fn compaction_does_not_touch_a_watch_that_is_up_to_date() {
    same(async |client| {
        fill(&client).await;
        let mut watching = client.watch();
        watching.create(from(0)).await;
        client.compact(compact(7)).await.ok();
        client.put(put("/registry/a", "8")).await.ok();
        watching.events(1).await;
        client.compact(compact(8)).await.ok();
        client.delete_range(delete("/registry/a")).await.ok();
        let (revision, events) = watching.progress().await;
        assert_eq!((revision, events.len()), (9, 1));
    })
    .await;
}

#[tokio::test]
async fn what_was_before_the_compact_revision_is_not_sent_any_more() {
    same(async |client| {
        for value in ["1", "2", "3"] {
            client.put(put("/registry/a", value)).await.ok();
        }
        client.delete_range(delete("/registry/a")).await.ok();
        for revision in [4, 5] {
            client.compact(compact(revision)).await.ok();
            let mut watching = client.watch();
            let create = WatchCreateRequest { start_revision: revision, prev_kv: true, ..watch_prefix("/registry/") };
            watching.create(create).await;
            watching.events(6 - usize::try_from(revision).unwrap()).await;
        }
    })
    .await;
}
