//! Snapshot streams: the contents differ between the servers, but not how they are sent.

use gitcd::proto::etcdserverpb::{SnapshotRequest, StatusRequest};
use sha2::{Digest, Sha256};

use super::states::in_every_state;
use crate::support::build::put;
use crate::support::{Client, eventually, same};

/// The length of the SHA-256 sum at the end of a snapshot.
const SUM_BYTES: usize = 32;

/// Notes the properties of a snapshot that both servers share.
async fn look(client: &Client) {
    let mut answers = client.snapshot(SnapshotRequest {}).await.expect("a snapshot is sent").into_inner();
    let (mut bytes, mut rest, mut versions, mut headers) = (Vec::new(), Vec::new(), Vec::new(), 0);
    while let Some(answer) = answers.message().await.expect("the snapshot is complete") {
        bytes.extend_from_slice(&answer.blob);
        rest.push(answer.remaining_bytes);
        versions.push(answer.version);
        headers += usize::from(answer.header.is_some());
    }
    versions.dedup();
    let (data, sum) = bytes.split_at(bytes.len() - SUM_BYTES);
    assert_eq!(Sha256::digest(data)[..], *sum, "a snapshot ends with its hash");
    client.note("headers", headers);
    client.note("versions", versions);
    client.note("remaining bytes at the end", rest.last());
    client.note("remaining bytes decrease", rest.is_sorted_by(|one, next| one >= next));
    // By this length etcdctl detects the hash.
    client.note("bytes behind the last full block", bytes.len() % 512);
}

/// Waits until snapshots name a version. etcd serves before its cluster version is set; until then snapshots name none, and its
/// status reports the previous version (`UnsafeDetectSchemaVersion` in `server/storage/schema/schema.go`).
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
        // A client that stops reading must not disturb others.
        let mut begun = client.snapshot(SnapshotRequest {}).await.expect("a snapshot is sent").into_inner();
        assert!(!begun.message().await.expect("the stream is open").expect("a message follows").blob.is_empty());
        drop(begun);
        client.put(put("/registry/a", "1")).await.ok();
        look(&client).await;
    })
    .await;
}
