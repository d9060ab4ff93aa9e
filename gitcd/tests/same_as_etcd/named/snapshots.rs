//! Snapshots as streams: what is in them is each server's own, how they are sent is not.

use gitcd::proto::etcdserverpb::{SnapshotRequest, StatusRequest};
use sha2::{Digest, Sha256};

use super::states::in_every_state;
use crate::support::build::put;
use crate::support::{Client, eventually, same};

/// What is at the end of a snapshot, for whoever saves it.
const SUM_BYTES: usize = 32;

/// Whatever two servers have in common.
async fn look(client: &Client) {
    let mut answers = client.snapshot(SnapshotRequest {}).await.expect("a snapshot is sent").into_inner();
    let (mut bytes, mut rest, mut versions, mut headers) = (Vec::new(), Vec::new(), Vec::new(), 0);
    while let Some(answer) = answers.message().await.expect("the snapshot comes whole") {
        bytes.extend_from_slice(&answer.blob);
        rest.push(answer.remaining_bytes);
        versions.push(answer.version);
        headers += usize::from(answer.header.is_some());
    }
    versions.dedup();
    let (data, sum) = bytes.split_at(bytes.len() - SUM_BYTES);
    assert_eq!(Sha256::digest(data)[..], *sum, "a sum is at the end");
    client.note("headers", headers);
    client.note("versions", versions);
    client.note("ends with nothing to come", rest.last());
    client.note("less and less is to come", rest.is_sorted_by(|one, next| one >= next));
    // By this etcdctl knows that there is a sum.
    client.note("bytes behind the last full block", bytes.len() % 512);
}

/// Waits until snapshots name a version. etcd serves before its cluster has agreed on one; until then snapshots name none, and its
/// status reports the version before (`UnsafeDetectSchemaVersion` in `server/storage/schema/schema.go`).
async fn version(client: &Client) {
    eventually("the version of the storage", async || {
        let status = client.aside().status(StatusRequest {}).await.ok();
        let minor = |version: &str| version.split('.').take(2).map(ToOwned::to_owned).collect::<Vec<_>>();
        (minor(&status.storage_version) == minor(&status.version)).then_some(())
    })
    .await;
}

#[tokio::test]
async fn a_snapshot_in_every_state() {
    same(async |client| {
        version(&client).await;
        in_every_state(&client, look).await;
    })
    .await;
}

#[tokio::test]
async fn snapshots_one_after_the_other_and_at_once() {
    same(async |client| {
        version(&client).await;
        for number in 0..8 {
            client.put(put(&format!("/registry/{number}"), &"x".repeat(100_000 * number))).await.ok();
            look(&client).await;
        }
        let asides = [client.aside(), client.aside(), client.aside()];
        futures::future::join_all(asides.iter().map(look)).await;
        // Whoever does not read on disturbs nobody.
        let mut begun = client.snapshot(SnapshotRequest {}).await.expect("a snapshot is sent").into_inner();
        assert!(!begun.message().await.expect("it comes").expect("it comes").blob.is_empty());
        drop(begun);
        client.put(put("/registry/a", "1")).await.ok();
        look(&client).await;
    })
    .await;
}
