//! Maintenance and Cluster: what a single member reports about itself.

use gitcd::proto::etcdserverpb::{DefragmentRequest, HashKvRequest, MemberListRequest, StatusRequest};
use tonic::Code;

use crate::support::build::{compact, put};
use crate::support::same;

#[tokio::test]
async fn status_reports_a_leader_with_a_database() {
    same(async |client| {
        client.put(put("/registry/a", "1")).await.ok();
        let answer = client.aside().status(StatusRequest {}).await.ok();
        let version: Vec<u32> = answer.version.split('.').map(|part| part.parse().unwrap()).collect();
        assert!(version >= vec![3, 6, 0], "kube-apiserver requires 3.5.13: {version:?}");
        assert!(answer.db_size > 0);
        let header = answer.header.unwrap();
        assert_eq!(answer.leader, header.member_id);
        client.note("status", (header.revision, answer.is_learner, answer.errors, answer.raft_term > 0));
    })
    .await;
}

#[tokio::test]
async fn there_is_one_member() {
    same(async |client| {
        let answer = client.member_list(MemberListRequest { linearizable: true }).await.ok();
        assert_eq!(answer.members.len(), 1);
        client.member_list(MemberListRequest { linearizable: false }).await.ok();
    })
    .await;
}

#[tokio::test]
async fn defragmentation_changes_nothing() {
    same(async |client| {
        client.put(put("/registry/a", "1")).await.ok();
        client.defragment(DefragmentRequest {}).await.ok();
        client.put(put("/registry/a", "2")).await.ok();
    })
    .await;
}

#[tokio::test]
async fn hashes_of_the_keys_follow_revisions_and_compactions() {
    same(async |client| {
        for i in 0..4 {
            client.put(put("/registry/a", &i.to_string())).await.ok();
        }
        for revision in [0, 2, 5] {
            client.hash_kv(HashKvRequest { revision }).await.ok();
        }
        client.hash_kv(HashKvRequest { revision: 6 }).await.refused(Code::OutOfRange);
        client.hash_kv(HashKvRequest { revision: i64::MAX }).await.refused(Code::OutOfRange);
        client.compact(compact(4)).await.ok();
        client.hash_kv(HashKvRequest { revision: 3 }).await.refused(Code::OutOfRange);
        for revision in [0, -1] {
            client.hash_kv(HashKvRequest { revision }).await.ok();
        }
        // For the compact revision itself etcd returns a stored hash, which it uses to compare members.
        client.hash_kv(HashKvRequest { revision: 5 }).await.ok();
    })
    .await;
}
