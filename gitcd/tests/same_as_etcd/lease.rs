//! Leases.

use std::time::Duration;

use gitcd::proto::etcdserverpb::{LeaseLeasesRequest, LeaseTimeToLiveRequest, PutRequest, TxnRequest};
use tonic::Code;

use crate::support::build::{all, delete, get, grant, list, put, revoke, time_to_live, watch_prefix};
use crate::support::{eventually, same};

fn leased(key: &str, lease: i64) -> PutRequest {
    PutRequest { lease, ..put(key, "1") }
}

#[tokio::test]
async fn a_lease_without_id_gets_a_positive_one() {
    same(async |client| {
        let aside = client.aside();
        let first = aside.lease_grant(grant(0, 600)).await.ok();
        let second = aside.lease_grant(grant(0, 600)).await.ok();
        assert!(first.id > 0 && second.id > 0 && first.id != second.id);
        client.note("granted", (first.ttl, first.error, second.ttl));
        assert_eq!(aside.lease_leases(LeaseLeasesRequest {}).await.ok().leases.len(), 2);
        assert_eq!(aside.lease_time_to_live(time_to_live(first.id)).await.ok().granted_ttl, 600);
    })
    .await;
}

#[tokio::test]
async fn ids_and_times_to_live_are_limited_as_in_etcd() {
    same(async |client| {
        client.lease_grant(grant(7, 600)).await.ok();
        client.lease_grant(grant(7, 600)).await.refused(Code::FailedPrecondition);
        client.lease_grant(grant(8, 9_000_000_000)).await.ok();
        client.lease_grant(grant(9, 9_000_000_001)).await.refused(Code::OutOfRange);
        client.lease_grant(grant(10, i64::MAX)).await.refused(Code::OutOfRange);
        client.lease_grant(grant(11, 0)).await;
        client.lease_grant(grant(12, -1)).await;
        client.lease_grant(grant(13, 1)).await;
        client.lease_grant(grant(-5, 600)).await;
        client.lease_grant(grant(0x7fff_ffff_ffff_ffff, 600)).await;
    })
    .await;
}

#[tokio::test]
async fn revoking_deletes_the_keys_at_one_revision() {
    same(async |client| {
        client.lease_grant(grant(7, 600)).await.ok();
        client.lease_grant(grant(8, 600)).await.ok();
        for (key, lease) in [("/registry/c", 7), ("/registry/a", 7), ("/registry/b", 8), ("/registry/d", 7)] {
            client.put(leased(key, lease)).await.ok();
        }
        let mut watching = client.watch();
        watching.create(watch_prefix("/registry/")).await;
        assert_eq!(client.lease_revoke(revoke(7)).await.ok().header.unwrap().revision, 6);
        watching.events(3).await;
        client.range(list("/registry/")).await.ok();
        client.lease_revoke(revoke(7)).await.refused(Code::NotFound);
        client.lease_revoke(revoke(0)).await.refused(Code::NotFound);
        client.lease_time_to_live(time_to_live(7)).await.ok();
        client.lease_leases(LeaseLeasesRequest {}).await.ok();
    })
    .await;
}

#[tokio::test]
async fn revoking_a_lease_without_keys_takes_no_revision() {
    same(async |client| {
        client.lease_grant(grant(7, 600)).await.ok();
        client.put(leased("/registry/a", 7)).await.ok();
        client.delete_range(delete("/registry/a")).await.ok();
        client.lease_revoke(revoke(7)).await.ok();
        assert_eq!(client.put(put("/registry/a", "1")).await.ok().header.unwrap().revision, 4);
    })
    .await;
}

#[tokio::test]
async fn a_key_belongs_to_the_lease_of_its_last_put() {
    same(async |client| {
        client.lease_grant(grant(7, 600)).await.ok();
        client.lease_grant(grant(8, 600)).await.ok();
        client.put(leased("/registry/a", 7)).await.ok();
        client.put(leased("/registry/b", 7)).await.ok();
        client.put(leased("/registry/c", 7)).await.ok();
        client.lease_time_to_live(time_to_live(7)).await.ok();
        client.put(leased("/registry/a", 8)).await.ok();
        client.put(put("/registry/b", "2")).await.ok();
        client.txn(all([leased("/registry/d", 7)])).await.ok();
        client.lease_time_to_live(time_to_live(7)).await.ok();
        client.lease_time_to_live(time_to_live(8)).await.ok();
        client.lease_revoke(revoke(7)).await.ok();
        client.range(list("/registry/")).await.ok();
        client.range(get("/registry/a")).await.ok();
    })
    .await;
}

#[tokio::test]
async fn time_to_live_of_an_unknown_lease_is_minus_one() {
    same(async |client| {
        let answer = client.lease_time_to_live(time_to_live(404)).await.ok();
        assert_eq!(answer.ttl, -1);
        client.lease_grant(grant(7, 600)).await.ok();
        client.put(leased("/registry/a", 7)).await.ok();
        client.lease_time_to_live(LeaseTimeToLiveRequest { id: 7, keys: false }).await.ok();
        client.lease_time_to_live(time_to_live(7)).await.ok();
        client.lease_time_to_live(time_to_live(0)).await.ok();
    })
    .await;
}

#[tokio::test]
async fn a_keep_alive_renews_and_of_an_unknown_lease_gives_zero() {
    same(async |client| {
        client.lease_grant(grant(7, 600)).await.ok();
        assert_eq!(client.keep_alive(7).await.ok().ttl, 600);
        assert_eq!(client.keep_alive(404).await.ok().ttl, 0);
        assert_eq!(client.keep_alive(0).await.ok().ttl, 0);
        client.lease_revoke(revoke(7)).await.ok();
        assert_eq!(client.keep_alive(7).await.ok().ttl, 0);
    })
    .await;
}

#[tokio::test]
async fn leases_are_listed() {
    same(async |client| {
        client.lease_leases(LeaseLeasesRequest {}).await.ok();
        for id in [9, 7, 8] {
            client.lease_grant(grant(id, 600)).await.ok();
        }
        assert_eq!(client.lease_leases(LeaseLeasesRequest {}).await.ok().leases.len(), 3);
    })
    .await;
}

#[tokio::test]
async fn an_expired_lease_takes_its_keys_along() {
    same(async |client| {
        client.lease_grant(grant(7, 2)).await.ok();
        client.lease_grant(grant(8, 600)).await.ok();
        for (key, lease) in [("/registry/b", 7), ("/registry/a", 7), ("/registry/c", 8)] {
            client.put(leased(key, lease)).await.ok();
        }
        let mut watching = client.watch();
        watching.create(watch_prefix("/registry/")).await;
        let granted = std::time::Instant::now();
        watching.events(2).await;
        // Expired not much later than promised.
        assert!(granted.elapsed() < Duration::from_secs(10));
        client.lease_time_to_live(time_to_live(7)).await.ok();
        client.put(leased("/registry/d", 7)).await.refused(Code::NotFound);
        client.range(list("/registry/")).await.ok();
    })
    .await;
}

#[tokio::test]
async fn a_kept_alive_lease_outlives_its_time() {
    same(async |client| {
        client.lease_grant(grant(7, 2)).await.ok();
        client.lease_grant(grant(8, 2)).await.ok();
        client.put(leased("/registry/kept", 7)).await.ok();
        client.put(leased("/registry/left", 8)).await.ok();
        let aside = client.aside();
        eventually("the lease without keep-alives to expire", async || {
            aside.keep_alive(7).await.ok();
            aside.range(get("/registry/left")).await.ok().kvs.is_empty().then_some(())
        })
        .await;
        client.range(list("/registry/")).await.ok();
        client.lease_revoke(revoke(7)).await.ok();
    })
    .await;
}

#[tokio::test]
async fn an_unknown_lease_in_a_transaction_changes_nothing() {
    same(async |client| {
        let request = TxnRequest { ..all([put("/registry/a", "1"), leased("/registry/b", 404)]) };
        client.txn(request).await.refused(Code::NotFound);
        client.range(list("/registry/")).await.ok();
        client.put(put("/registry/a", "1")).await.ok();
    })
    .await;
}
