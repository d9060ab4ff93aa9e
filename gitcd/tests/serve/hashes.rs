//! Hashes of the keys: the same for the same data, on any server at any time.

use gitcd::proto::etcdserverpb::{HashKvRequest, HashRequest, PutRequest};
use tonic::Code;

use super::support::build::{all, compact, delete, delete_prefix, grant, put, revoke};
use super::support::{Client, Kind, Server};

/// Writes revisions 2 to 15: puts, deletions, transactions and a revoked lease.
async fn fill(client: &Client) {
    client.put(put("/registry/a", "1")).await.ok();
    client.put(put("/registry/b", "1")).await.ok();
    client.put(put("/registry/a", "2")).await.ok();
    client.txn(all([put("/registry/c", "1"), put("/registry/b", "2")])).await.ok();
    client.delete_range(delete("/registry/a")).await.ok();
    client.put(put("/registry/a", "3")).await.ok();
    client.lease_grant(grant(7, 6000)).await.ok();
    client.lease_grant(grant(8, 6000)).await.ok();
    client.put(PutRequest { lease: 7, ..put("/registry/leased", "1") }).await.ok();
    client.put(PutRequest { lease: 8, ..put("/registry/kept", "1") }).await.ok();
    client.lease_revoke(revoke(7)).await.ok();
    client.put(put("/registry/d/1", "1")).await.ok();
    client.put(put("/registry/d/2", "")).await.ok();
    client.delete_range(delete_prefix("/registry/d/")).await.ok();
    client.put(put("/elsewhere", "\0\u{1}")).await.ok();
    client.put(put("/registry/big", &"x".repeat(100_000))).await.ok();
}

const LAST: i64 = 15;
const COMPACTED: i64 = 8;

/// Returns, for each revision, the hash, its compact revision and its revision.
async fn sums(client: &Client, revisions: std::ops::RangeInclusive<i64>) -> Vec<(u32, i64, i64)> {
    let mut sums = Vec::new();
    for revision in revisions.chain([0]) {
        let answer = client.hash_kv(HashKvRequest { revision }).await.ok();
        sums.push((answer.hash, answer.compact_revision, answer.hash_revision));
    }
    sums
}

#[tokio::test]
async fn two_servers_with_the_same_data_have_the_same_hashes_also_after_restarts() {
    let mut servers = [Server::start(Kind::Gitcd).await, Server::start(Kind::Gitcd).await];
    let clients = [servers[0].client().await, servers[1].client().await];
    for client in &clients {
        fill(client).await;
    }
    let whole = sums(&clients[0], 1..=LAST).await;
    assert_eq!(whole, sums(&clients[1], 1..=LAST).await);
    // Every revision changes the hash.
    assert!(whole[..LAST as usize].windows(2).all(|pair| pair[0].0 != pair[1].0), "{whole:?}");
    assert_eq!(whole[1].1, -1, "nothing is compacted yet");
    let revisions: Vec<_> = whole.iter().map(|sum| sum.2).collect();
    assert_eq!(revisions, (1..=LAST).chain([LAST]).collect::<Vec<_>>());

    for client in &clients {
        client.compact(compact(COMPACTED)).await.ok();
    }
    let rest = sums(&clients[0], COMPACTED..=LAST).await;
    assert_eq!(rest, sums(&clients[1], COMPACTED..=LAST).await);
    // The remaining revisions keep their hashes.
    let hashes = |sums: &[(u32, i64, i64)]| sums.iter().map(|sum| sum.0).collect::<Vec<_>>();
    assert_eq!(hashes(&rest), hashes(&whole[COMPACTED as usize - 1..]));
    assert!(rest.iter().all(|sum| sum.1 == COMPACTED), "{rest:?}");

    servers[0].kill();
    servers[0].restart().await;
    assert_eq!(rest, sums(&servers[0].client().await, COMPACTED..=LAST).await);
    servers[0].terminate().await;
    servers[0].restart().await;
    let restarted = servers[0].client().await;
    assert_eq!(rest, sums(&restarted, COMPACTED..=LAST).await);
    restarted.hash_kv(HashKvRequest { revision: COMPACTED - 1 }).await.refused(Code::OutOfRange);
    let hash = async |client: &Client| client.hash(HashRequest {}).await.ok().hash;
    assert_eq!(hash(&restarted).await, hash(&clients[1]).await);

    // Both continue with equal hashes.
    for client in [&restarted, &clients[1]] {
        client.put(put("/registry/a", "4")).await.ok();
        client.delete_range(delete("/registry/b")).await.ok();
    }
    assert_eq!(sums(&restarted, COMPACTED..=LAST + 2).await, sums(&clients[1], COMPACTED..=LAST + 2).await);
}

#[tokio::test]
async fn other_data_has_another_hash() {
    let servers = [Server::start(Kind::Gitcd).await, Server::start(Kind::Gitcd).await];
    let clients = [servers[0].client().await, servers[1].client().await];
    let hash = async |client: &Client| client.hash_kv(HashKvRequest { revision: 0 }).await.ok().hash;
    for client in &clients {
        client.lease_grant(grant(7, 6000)).await.ok();
        client.put(put("/registry/a", "1")).await.ok();
    }
    assert_eq!(hash(&clients[0]).await, hash(&clients[1]).await);
    let leased = PutRequest { lease: 7, ..put("/registry/a", "1") };
    for (name, one, other) in [
        ("values", put("/registry/a", "2"), put("/registry/a", "3")),
        ("keys", put("/registry/b", "1"), put("/registry/c", "1")),
        ("where a key ends", put("/registry/x", "yz"), put("/registry/xy", "z")),
        ("leases", put("/registry/a", "1"), leased),
        ("versions", put("/registry/a", "1"), put("/registry/new", "1")),
    ] {
        clients[0].put(one).await.ok();
        clients[1].put(other).await.ok();
        assert_ne!(hash(&clients[0]).await, hash(&clients[1]).await, "{name}");
        // With all keys deleted, the hashes are equal again.
        for client in &clients {
            client.txn(all([delete_prefix("/registry/")])).await.ok();
        }
        assert_eq!(hash(&clients[0]).await, hash(&clients[1]).await, "{name}");
        for client in &clients {
            client.put(put("/registry/a", "1")).await.ok();
        }
        assert_eq!(hash(&clients[0]).await, hash(&clients[1]).await, "{name}");
    }
    // The same keys and values, with other revisions and versions.
    clients[0].put(put("/registry/a", "1")).await.ok();
    clients[1].delete_range(delete("/registry/a")).await.ok();
    clients[0].put(put("/registry/b", "1")).await.ok();
    clients[1].txn(all([put("/registry/a", "1"), put("/registry/b", "1")])).await.ok();
    assert_ne!(hash(&clients[0]).await, hash(&clients[1]).await);
}
