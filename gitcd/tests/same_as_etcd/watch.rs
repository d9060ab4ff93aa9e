//! Watches on one stream: creation, events and cancellation.

use gitcd::proto::etcdserverpb::WatchCreateRequest;
use gitcd::proto::etcdserverpb::watch_create_request::FilterType;

use crate::support::build::{all, compact, delete, delete_prefix, put, to_the_end, watch, watch_prefix};
use crate::support::same;

#[tokio::test]
async fn a_watch_is_announced_and_gets_what_happens_from_now_on() {
    same(async |client| {
        client.put(put("/registry/a", "1")).await.ok();
        let mut watching = client.watch();
        assert!(watching.create(watch("/registry/a")).await.created);
        client.put(put("/registry/a", "2")).await.ok();
        client.put(put("/registry/b", "1")).await.ok();
        client.delete_range(delete("/registry/a")).await.ok();
        client.put(put("/registry/a", "3")).await.ok();
        watching.events(3).await;
        let (revision, rest) = watching.progress().await;
        assert_eq!((revision, rest.len()), (6, 0));
    })
    .await;
}

#[tokio::test]
async fn a_watch_from_now_on_gets_the_revision_though_nothing_happens() {
    same(async |client| {
        client.put(put("/registry/a", "1")).await.ok();
        let mut watching = client.watch();
        watching.create(watch("/registry/a")).await;
        assert_eq!(watching.progress().await, (2, vec![]));
    })
    .await;
}

#[tokio::test]
async fn ranges_are_watched_as_they_are_read() {
    same(async |client| {
        let mut watching = client.watch();
        for (key, end) in [
            ("/registry/a", ""),
            ("/registry/a", "/registry/c"),
            ("/registry/", "/registry0"),
            ("/registry/b", "\0"),
            ("", "\0"),
            ("", ""),
            ("\0", ""),
        ] {
            watching.create(WatchCreateRequest { range_end: end.into(), ..watch(key) }).await;
        }
        for key in ["/registry/a", "/registry/b", "/registry/c", "/registry/a/b", "/a", "/z", "\0"] {
            client.put(put(key, "1")).await.ok();
        }
        client.delete_range(delete_prefix("/registry/")).await.ok();
        watching.progress().await;
    })
    .await;
}

#[tokio::test]
async fn an_empty_or_reversed_range_is_refused() {
    same(async |client| {
        let mut watching = client.watch();
        let reversed = WatchCreateRequest { range_end: "/registry/a".into(), ..watch("/registry/b") };
        assert!(watching.create(reversed).await.canceled);
        let empty = WatchCreateRequest { range_end: "/registry/b".into(), ..watch("/registry/b") };
        assert!(watching.create(empty).await.canceled);
        watching.create(watch("/registry/b")).await;
        client.put(put("/registry/b", "1")).await.ok();
        watching.events(1).await;
    })
    .await;
}

#[tokio::test]
async fn filters_hold_back_puts_or_deletes() {
    same(async |client| {
        let mut watching = client.watch();
        for filters in
            [vec![], vec![FilterType::Noput], vec![FilterType::Nodelete], vec![FilterType::Noput, FilterType::Nodelete]]
        {
            let filters = filters.into_iter().map(i32::from).collect();
            watching.create(WatchCreateRequest { filters, ..watch_prefix("/registry/") }).await;
        }
        watching.create(WatchCreateRequest { filters: vec![7], ..watch_prefix("/registry/") }).await;
        client.put(put("/registry/a", "1")).await.ok();
        client.delete_range(delete("/registry/a")).await.ok();
        client.txn(all([put("/registry/a", "2"), put("/registry/b", "2")])).await.ok();
        client.delete_range(delete_prefix("/registry/")).await.ok();
        watching.progress().await;
        let past = WatchCreateRequest {
            start_revision: 2,
            filters: vec![FilterType::Noput.into()],
            ..watch_prefix("/registry/")
        };
        watching.create(past).await;
        watching.progress().await;
    })
    .await;
}

#[tokio::test]
async fn previous_pairs_come_with_changes_and_deletes() {
    same(async |client| {
        let mut watching = client.watch();
        let previous = WatchCreateRequest { prev_kv: true, ..watch_prefix("/registry/") };
        watching.create(previous.clone()).await;
        watching.create(watch_prefix("/registry/")).await;
        client.put(put("/registry/a", "1")).await.ok();
        client.put(put("/registry/a", "2")).await.ok();
        client.delete_range(delete("/registry/a")).await.ok();
        client.put(put("/registry/a", "3")).await.ok();
        client.txn(all([put("/registry/a", "4"), put("/registry/b", "4")])).await.ok();
        client.delete_range(delete_prefix("/registry/")).await.ok();
        watching.progress().await;
        watching.create(WatchCreateRequest { start_revision: 3, ..previous }).await;
        watching.progress().await;
    })
    .await;
}

#[tokio::test]
async fn watch_ids_are_chosen_or_given_and_unique_on_a_stream() {
    same(async |client| {
        let mut watching = client.watch();
        let with_id = |watch_id| WatchCreateRequest { watch_id, ..watch("/registry/a") };
        assert_eq!(watching.create(with_id(0)).await.watch_id, 0);
        assert_eq!(watching.create(with_id(0)).await.watch_id, 1);
        assert_eq!(watching.create(with_id(2)).await.watch_id, 2);
        assert_eq!(watching.create(with_id(0)).await.watch_id, 3);
        assert!(watching.create(with_id(2)).await.canceled);
        watching.create(with_id(100)).await;
        watching.create(with_id(-1)).await;
        watching.create(with_id(-7)).await;
        watching.create(with_id(0)).await;
        client.put(put("/registry/a", "1")).await.ok();
        watching.progress().await;
        watching.cancel(2).await;
        watching.control().await;
        assert!(!watching.create(with_id(2)).await.canceled, "the ID is free again");
        let mut other = client.watch();
        assert_eq!(other.create(with_id(0)).await.watch_id, 0, "IDs are unique per stream");
    })
    .await;
}

#[tokio::test]
async fn a_cancelled_watch_is_confirmed_and_an_unknown_one_is_not() {
    same(async |client| {
        let mut watching = client.watch();
        watching.create(watch("/registry/a")).await;
        watching.create(watch("/registry/a")).await;
        client.put(put("/registry/a", "1")).await.ok();
        watching.events(2).await;
        watching.cancel(42).await;
        watching.cancel(0).await;
        let confirmed = watching.control().await;
        assert!(confirmed.canceled && confirmed.watch_id == 0);
        watching.cancel(0).await;
        client.put(put("/registry/a", "2")).await.ok();
        let (_, events) = watching.progress().await;
        assert_eq!(events.len(), 1, "only the other watch continues");
        watching.cancel(1).await;
        watching.control().await;
    })
    .await;
}

#[tokio::test]
async fn progress_speaks_for_the_stream_at_the_current_revision() {
    same(async |client| {
        let mut watching = client.watch();
        watching.create(watch("/registry/a")).await;
        watching.create(watch("/registry/b")).await;
        for i in 0..5 {
            client.put(put("/registry/elsewhere", &i.to_string())).await.ok();
            let (revision, events) = watching.progress().await;
            assert_eq!((revision, events.len()), (i + 2, 0));
        }
        client.put(put("/registry/a", "1")).await.ok();
        let (revision, events) = watching.progress().await;
        assert_eq!((revision, events.len()), (7, 1), "progress must not be ahead of the events");
    })
    .await;
}

#[tokio::test]
async fn many_watches_on_many_streams_see_the_same() {
    same(async |client| {
        let mut streams = Vec::new();
        for _ in 0..20 {
            let mut watching = client.watch();
            watching.create(watch_prefix("/registry/")).await;
            watching.create(WatchCreateRequest { range_end: to_the_end(), ..watch("\0") }).await;
            streams.push(watching);
        }
        for i in 0..50 {
            client.put(put(&format!("/registry/{}", i % 7), &i.to_string())).await.ok();
        }
        for watching in &mut streams {
            watching.events(100).await;
        }
    })
    .await;
}

#[tokio::test]
async fn a_client_that_has_nothing_more_to_ask_hears_on() {
    same(async |client| {
        let mut watching = client.watch();
        watching.create(watch_prefix("/registry/")).await;
        watching.create(WatchCreateRequest { start_revision: 3, ..watch("/registry/b") }).await;
        watching.finish_asking();
        client.put(put("/registry/a", "1")).await.ok();
        client.put(put("/registry/b", "1")).await.ok();
        watching.events(3).await;
        client.delete_range(delete("/registry/a")).await.ok();
        watching.events(1).await;
        client.compact(compact(3)).await.ok();
        client.put(put("/registry/b", "2")).await.ok();
        watching.events(2).await;
    })
    .await;
}
