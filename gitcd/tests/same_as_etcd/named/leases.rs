//! Leases with all kinds of IDs.

use gitcd::proto::etcdserverpb::{LeaseLeasesRequest, LeaseTimeToLiveRequest, PutRequest};

use super::states::in_every_state;
use crate::support::build::{delete, grant, list, put, revoke};
use crate::support::{Client, same};

const IDS: [(&str, i64); 12] = [
    ("with keys", 1),
    ("without keys", 2),
    ("whose key was deleted", 3),
    ("whose key another lease has", 4),
    ("which took that key", 5),
    ("with a negative id", -5),
    ("with the last id", i64::MAX),
    ("that was revoked", 6),
    ("that was never granted", 99),
    ("without id", 0),
    ("with a negative id that was never granted", -99),
    ("with the lowest id", i64::MIN),
];

async fn prepare(client: &Client) {
    for id in [1, 2, 3, 4, 5, 6, -5, i64::MAX] {
        client.lease_grant(grant(id, 600)).await.ok();
    }
    for (key, lease) in [("a", 1), ("b", 1), ("c", 3), ("d", 4), ("d", 5), ("e", -5), ("f", i64::MAX), ("g", 6)] {
        client.put(PutRequest { lease, ..put(&format!("/registry/{key}"), "1") }).await.ok();
    }
    client.delete_range(delete("/registry/c")).await.ok();
    client.lease_revoke(revoke(6)).await.ok();
}

#[tokio::test]
async fn revoking() {
    same(async |client| {
        prepare(&client).await;
        for (name, id) in IDS {
            client.note("a lease", name);
            client.lease_revoke(revoke(id)).await;
            client.range(list("/registry/")).await.ok();
        }
    })
    .await;
}

#[tokio::test]
async fn keeping_alive() {
    same(async |client| {
        prepare(&client).await;
        for (name, id) in IDS {
            client.note("a lease", name);
            client.keep_alive(id).await;
        }
    })
    .await;
}

#[tokio::test]
async fn asking_for_the_time_to_live() {
    same(async |client| {
        prepare(&client).await;
        for (name, id) in IDS {
            client.note("a lease", name);
            for keys in [true, false] {
                client.lease_time_to_live(LeaseTimeToLiveRequest { id, keys }).await;
            }
        }
    })
    .await;
}

#[tokio::test]
async fn granting_by_all_kinds_of_ids_and_times() {
    same(async |client| {
        prepare(&client).await;
        for (name, id) in IDS.into_iter().filter(|(_, id)| *id != 0) {
            client.note("a lease", name);
            client.lease_grant(grant(id, 600)).await;
        }
        client.lease_leases(LeaseLeasesRequest {}).await.ok();
    })
    .await;
}

#[tokio::test]
async fn listing_in_every_state() {
    same(async |client| {
        in_every_state(&client, async |client| drop(client.lease_leases(LeaseLeasesRequest {}).await.ok())).await;
    })
    .await;
}
