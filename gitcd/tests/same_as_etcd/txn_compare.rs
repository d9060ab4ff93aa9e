//! The compares of a transaction.

use gitcd::proto::etcdserverpb::compare::{CompareResult, CompareTarget, TargetUnion};
use gitcd::proto::etcdserverpb::{Compare, PutRequest, TxnRequest};

use crate::support::build::{compact, compare, delete, get, grant, ops, prefix_end, put, to_the_end, unchanged_since};
use crate::support::{Client, same};

const RESULTS: [CompareResult; 4] =
    [CompareResult::Equal, CompareResult::NotEqual, CompareResult::Greater, CompareResult::Less];

/// Evaluates compares without changing anything.
async fn ask(client: &Client, compares: Vec<Compare>) -> bool {
    let request =
        TxnRequest { compare: compares, success: ops([get("/registry/yes")]), failure: ops([get("/registry/no")]) };
    client.txn(request).await.ok().succeeded
}

#[tokio::test]
async fn every_target_compares_with_every_operator() {
    same(async |client| {
        client.lease_grant(grant(5, 600)).await.ok();
        client.put(put("/registry/other", "x")).await.ok();
        client.put(put("/registry/a", "k")).await.ok();
        client.put(PutRequest { lease: 5, ..put("/registry/a", "m") }).await.ok();
        for result in RESULTS {
            for number in [-1, 0, 1, 2, 3, 4, 5, 6] {
                for operand in [
                    TargetUnion::Version(number),
                    TargetUnion::CreateRevision(number),
                    TargetUnion::ModRevision(number),
                    TargetUnion::Lease(number),
                ] {
                    for key in ["/registry/a", "/registry/absent"] {
                        ask(&client, vec![compare(key, result, operand.clone())]).await;
                    }
                }
            }
            for value in ["", "k", "m", "ma", "z"] {
                for key in ["/registry/a", "/registry/absent"] {
                    ask(&client, vec![compare(key, result, TargetUnion::Value(value.into()))]).await;
                }
            }
        }
    })
    .await;
}

#[tokio::test]
async fn all_compares_must_hold_and_none_always_holds() {
    same(async |client| {
        client.put(put("/registry/a", "1")).await.ok();
        let holds = || unchanged_since("/registry/a", 2);
        let fails = || unchanged_since("/registry/a", 3);
        assert!(ask(&client, vec![]).await);
        assert!(ask(&client, vec![holds(), holds()]).await);
        assert!(!ask(&client, vec![holds(), fails()]).await);
        assert!(!ask(&client, vec![fails(), holds()]).await);
        assert!(ask(&client, vec![unchanged_since("/registry/absent", 0)]).await);
    })
    .await;
}

#[tokio::test]
async fn a_range_compare_must_hold_for_every_key_in_it() {
    same(async |client| {
        for (key, value) in [("/registry/a", "1"), ("/registry/b", "1"), ("/registry/c", "2")] {
            client.put(put(key, value)).await.ok();
        }
        let over = |end: bytes::Bytes, compare: Compare| Compare { range_end: end, ..compare };
        let value = |result, value: &'static str| compare("/registry/a", result, TargetUnion::Value(value.into()));
        for end in [
            "/registry/b".into(),
            "/registry/c".into(),
            prefix_end("/registry/"),
            to_the_end(),
            "/registry/a".into(),
            "/".into(),
        ] {
            for result in RESULTS {
                ask(&client, vec![over(end.clone(), value(result, "1"))]).await;
                for operand in [
                    TargetUnion::ModRevision(3),
                    TargetUnion::Version(1),
                    TargetUnion::CreateRevision(0),
                    TargetUnion::Lease(0),
                ] {
                    ask(&client, vec![over(end.clone(), compare("/registry/a", result, operand))]).await;
                }
            }
        }
    })
    .await;
}

#[tokio::test]
async fn a_range_compare_over_no_keys_is_decided_as_in_etcd() {
    same(async |client| {
        client.put(put("/registry/a", "1")).await.ok();
        for result in RESULTS {
            for operand in [
                TargetUnion::ModRevision(0),
                TargetUnion::ModRevision(1),
                TargetUnion::Version(0),
                TargetUnion::CreateRevision(0),
                TargetUnion::Lease(0),
                TargetUnion::Value("".into()),
            ] {
                let range =
                    Compare { range_end: prefix_end("/registry/none/"), ..compare("/registry/none/", result, operand) };
                ask(&client, vec![range]).await;
            }
        }
    })
    .await;
}

#[tokio::test]
async fn malformed_compares_are_taken_as_etcd_takes_them() {
    same(async |client| {
        client.put(put("/registry/a", "1")).await.ok();
        for target in [
            CompareTarget::Version,
            CompareTarget::Create,
            CompareTarget::Mod,
            CompareTarget::Value,
            CompareTarget::Lease,
        ] {
            for operand in [None, Some(TargetUnion::Version(1)), Some(TargetUnion::ModRevision(2))] {
                for key in ["/registry/a", "/registry/absent"] {
                    let request = TxnRequest {
                        compare: vec![Compare {
                            target: target.into(),
                            target_union: operand.clone(),
                            ..unchanged_since(key, 0)
                        }],
                        success: ops([get("/registry/a")]),
                        failure: vec![],
                    };
                    client.txn(request).await;
                }
            }
        }
        for (result, target) in [(9, 0), (0, 9), (-1, -1)] {
            let strange = Compare { result, target, ..unchanged_since("/registry/a", 2) };
            client.txn(TxnRequest { compare: vec![strange], ..TxnRequest::default() }).await;
        }
        let empty = TxnRequest { compare: vec![unchanged_since("", 0)], ..TxnRequest::default() };
        client.txn(empty).await.refused(tonic::Code::InvalidArgument);
    })
    .await;
}

#[tokio::test]
async fn kubernetes_creates_updates_and_deletes_only_what_it_has_seen() {
    same(async |client| {
        let create = |value| TxnRequest {
            compare: vec![unchanged_since("/registry/pods/a", 0)],
            success: ops([put("/registry/pods/a", value)]),
            failure: vec![],
        };
        assert!(client.txn(create("1")).await.ok().succeeded); // 2
        assert!(!client.txn(create("2")).await.ok().succeeded);
        let update = |revision, value| TxnRequest {
            compare: vec![unchanged_since("/registry/pods/a", revision)],
            success: ops([put("/registry/pods/a", value)]),
            failure: ops([get("/registry/pods/a")]),
        };
        assert!(client.txn(update(2, "3")).await.ok().succeeded); // 3
        assert!(!client.txn(update(2, "4")).await.ok().succeeded);
        let remove = |revision| TxnRequest {
            compare: vec![unchanged_since("/registry/pods/a", revision)],
            success: ops([delete("/registry/pods/a")]),
            failure: ops([get("/registry/pods/a")]),
        };
        assert!(!client.txn(remove(2)).await.ok().succeeded);
        assert!(client.txn(remove(3)).await.ok().succeeded); // 4
        assert!(!client.txn(remove(3)).await.ok().succeeded);
        assert!(client.txn(create("5")).await.ok().succeeded); // 5
    })
    .await;
}

#[tokio::test]
async fn kubernetes_agrees_on_compactions_by_the_version_of_a_key() {
    same(async |client| {
        for i in 0..5 {
            client.put(put("/registry/a", &i.to_string())).await.ok();
        }
        let turn = |version, revision: i64| TxnRequest {
            compare: vec![compare("compact_rev_key", CompareResult::Equal, TargetUnion::Version(version))],
            success: ops([put("compact_rev_key", &revision.to_string())]),
            failure: ops([get("compact_rev_key")]),
        };
        assert!(client.txn(turn(0, 0)).await.ok().succeeded);
        assert!(!client.txn(turn(0, 0)).await.ok().succeeded);
        assert!(client.txn(turn(1, 6)).await.ok().succeeded);
        client.compact(compact(6)).await.ok();
        assert!(client.txn(turn(2, 8)).await.ok().succeeded);
        client.range(get("compact_rev_key")).await.ok();
    })
    .await;
}
