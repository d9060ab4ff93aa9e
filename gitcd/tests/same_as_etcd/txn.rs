//! The operations of a transaction.

use gitcd::proto::etcdserverpb::{
    Compare, DeleteRangeRequest, PutRequest, RangeRequest, RequestOp, TxnRequest, request_op,
};
use tonic::Code;

use crate::support::build::{
    Op, all, compact, delete, delete_prefix, get, list, ops, put, unchanged_since, watch_prefix,
};
use crate::support::same;

#[tokio::test]
async fn several_changes_take_one_revision() {
    same(async |client| {
        let changes: [Op; 3] =
            [put("/registry/b", "1").into(), put("/registry/a", "1").into(), put("/registry/c", "1").into()];
        assert_eq!(client.txn(all(changes)).await.ok().header.unwrap().revision, 2);
        let changes: [Op; 3] =
            [delete("/registry/b").into(), put("/registry/a", "2").into(), put("/registry/d", "1").into()];
        assert_eq!(client.txn(all(changes)).await.ok().header.unwrap().revision, 3);
        client.range(list("/registry/")).await.ok();
        client.range(RangeRequest { revision: 2, ..list("/registry/") }).await.ok();
    })
    .await;
}

#[tokio::test]
async fn reads_alone_take_no_revision() {
    same(async |client| {
        client.put(put("/registry/a", "1")).await.ok();
        let reads: [Op; 3] = [get("/registry/a").into(), list("/registry/").into(), delete("/registry/absent").into()];
        client.txn(all(reads)).await.ok();
        client.txn(TxnRequest::default()).await.ok();
        client.put(put("/registry/a", "2")).await.ok();
    })
    .await;
}

#[tokio::test]
async fn reads_see_the_writes_before_them_in_the_same_transaction() {
    same(async |client| {
        client.put(put("/registry/a", "1")).await.ok();
        let previous = PutRequest { prev_kv: true, ..put("/registry/b", "2") };
        let steps: [Op; 10] = [
            list("/registry/").into(),
            put("/registry/a", "2").into(),
            get("/registry/a").into(),
            previous.into(),
            list("/registry/").into(),
            delete("/registry/c").into(),
            DeleteRangeRequest { prev_kv: true, ..delete_prefix("/registry/d") }.into(),
            RangeRequest { count_only: true, ..list("/registry/") }.into(),
            RangeRequest { revision: 2, ..list("/registry/") }.into(),
            list("/registry/").into(),
        ];
        client.txn(all(steps)).await.ok();
        let steps: [Op; 3] = [
            delete("/registry/a").into(),
            get("/registry/a").into(),
            RangeRequest { limit: 1, ..list("/registry/") }.into(),
        ];
        client.txn(all(steps)).await.ok();
    })
    .await;
}

#[tokio::test]
async fn a_nested_transaction_compares_before_anything_is_written() {
    same(async |client| {
        client.put(put("/registry/a", "1")).await.ok();
        let inner = |revision| TxnRequest {
            compare: vec![unchanged_since("/registry/a", revision)],
            success: ops([Op::from(put("/registry/yes", "1")), get("/registry/a").into()]),
            failure: ops([Op::from(put("/registry/no", "1")), get("/registry/a").into()]),
        };
        let deep = TxnRequest {
            success: ops([Op::from(inner(2)), get("/registry/yes").into(), get("/registry/no").into()]),
            ..TxnRequest::default()
        };
        let outer: [Op; 3] = [put("/registry/a", "2").into(), deep.into(), list("/registry/").into()];
        client.txn(all(outer)).await.ok();
        client.range(list("/registry/")).await.ok();
    })
    .await;
}

#[tokio::test]
async fn events_of_a_transaction_come_together_and_in_order() {
    same(async |client| {
        client.put(put("/registry/b", "1")).await.ok();
        client.put(put("/registry/z", "1")).await.ok();
        let mut watching = client.watch();
        watching.create(watch_prefix("/registry/")).await;
        let inner = all([put("/registry/n", "1"), put("/registry/m", "1")]);
        let changes: [Op; 5] = [
            put("/registry/c", "1").into(),
            inner.into(),
            delete_prefix("/registry/z").into(),
            put("/registry/a", "1").into(),
            delete("/registry/b").into(),
        ];
        client.txn(all(changes)).await.ok();
        let events = watching.events(6).await;
        assert!(events.iter().all(|(_, event)| event.kv.as_ref().unwrap().mod_revision == 4));
        let mut late = client.watch();
        late.create(gitcd::proto::etcdserverpb::WatchCreateRequest {
            start_revision: 2,
            prev_kv: true,
            ..watch_prefix("/registry/")
        })
        .await;
        late.events(8).await;
    })
    .await;
}

#[tokio::test]
async fn a_key_may_be_changed_only_once() {
    same(async |client| {
        client.put(put("/registry/a", "1")).await.ok();
        let (put_a, del_a): (Op, Op) = (put("/registry/a", "2").into(), delete("/registry/a").into());
        let nested = |op: &Op| Op::from(all([op.clone()]));
        let refused: [Vec<Op>; 9] = [
            vec![put_a.clone(), put_a.clone()],
            vec![put_a.clone(), del_a.clone()],
            vec![del_a.clone(), put_a.clone()],
            vec![delete_prefix("/registry/").into(), put_a.clone()],
            vec![put_a.clone(), nested(&put_a)],
            vec![put_a.clone(), nested(&del_a)],
            vec![nested(&put_a), nested(&put_a)],
            vec![nested(&put_a), del_a.clone()],
            vec![nested(&nested(&put_a)), put_a.clone()],
        ];
        for steps in refused {
            client.txn(all(steps)).await.refused(Code::InvalidArgument);
        }
        let branches = |success: &Op, failure: &Op| {
            Op::from(TxnRequest { compare: vec![], success: ops([success.clone()]), failure: ops([failure.clone()]) })
        };
        // Only one branch of a nested transaction is executed, so both may change the same key.
        client.txn(all([branches(&put_a, &put_a)])).await;
        client.txn(all([branches(&put_a, &put_a), put_a.clone()])).await;
        client.txn(all([branches(&get("/registry/a").into(), &put_a), put_a.clone()])).await;
        client.txn(all([branches(&del_a, &put_a)])).await;
        client.txn(all([del_a.clone(), del_a.clone()])).await;
        client.txn(all([nested(&del_a), put("/registry/a", "9").into()])).await;
        client.txn(all([Op::from(get("/registry/a")), get("/registry/a").into(), put_a.clone()])).await;
        let elsewhere = TxnRequest {
            compare: vec![],
            success: ops([put("/registry/b", "1")]),
            failure: ops([put_a.clone(), put_a]),
        };
        client.txn(elsewhere).await;
        client.range(list("/registry/")).await.ok();
    })
    .await;
}

#[tokio::test]
async fn more_operations_than_the_limit_are_refused() {
    same(async |client| {
        let gets = |count: usize| ops((0..count).map(|i| get(&format!("/registry/{i}"))));
        let compares = |count: usize| -> Vec<Compare> {
            (0..count).map(|i| unchanged_since(&format!("/registry/{i}"), 0)).collect()
        };
        let txn = |compare: usize, success: usize, failure: usize| TxnRequest {
            compare: compares(compare),
            success: gets(success),
            failure: gets(failure),
        };
        for (compare, success, failure) in [(128, 128, 128), (0, 128, 0)] {
            client.txn(txn(compare, success, failure)).await.ok();
        }
        for (compare, success, failure) in [(129, 0, 0), (0, 129, 0), (0, 0, 129)] {
            client.txn(txn(compare, success, failure)).await.refused(Code::InvalidArgument);
        }
        for inner in [126, 127, 128, 129] {
            client.txn(all([txn(0, inner, 0)])).await;
            client.txn(all([txn(inner, 0, 0), txn(0, 0, inner)])).await;
        }
    })
    .await;
}

#[tokio::test]
async fn one_bad_operation_refuses_the_whole_transaction() {
    same(async |client| {
        client.put(put("/registry/a", "1")).await.ok();
        client.put(put("/registry/a", "2")).await.ok();
        client.compact(compact(3)).await.ok();
        let bad: [Op; 13] = [
            put("", "1").into(),
            get("").into(),
            delete("").into(),
            PutRequest { lease: 404, ..put("/registry/b", "1") }.into(),
            PutRequest { ignore_value: true, ..put("/registry/b", "1") }.into(),
            PutRequest { ignore_value: true, ..put("/registry/b", "") }.into(),
            PutRequest { ignore_lease: true, ..put("/registry/b", "1") }.into(),
            PutRequest { ignore_lease: true, lease: 1, ..put("/registry/b", "1") }.into(),
            RangeRequest { revision: 2, ..get("/registry/a") }.into(),
            RangeRequest { revision: 100, ..get("/registry/a") }.into(),
            RangeRequest { sort_order: 9, ..get("/registry/a") }.into(),
            all([put("", "1")]).into(),
            all([RangeRequest { revision: 100, ..get("/registry/a") }]).into(),
        ];
        for op in bad {
            let steps: [Op; 2] = [put("/registry/good", "1").into(), op.clone()];
            let answer = client.txn(all(steps)).await;
            assert!(answer.result().is_err(), "{op:?}");
            client.range(list("/registry/")).await.ok();
            // Also checked in the branch that is not executed, as far as that needs no data from the store.
            let elsewhere = TxnRequest {
                compare: vec![unchanged_since("/registry/a", 3)],
                success: ops([get("/registry/a")]),
                failure: ops([op]),
            };
            client.txn(elsewhere).await;
        }
        client
            .txn(TxnRequest { success: vec![RequestOp { request: None }], ..TxnRequest::default() })
            .await
            .refused(Code::InvalidArgument);
        let future = request_op::Request::RequestRange(RangeRequest { revision: 4, ..get("/registry/a") });
        client.txn(TxnRequest { success: vec![RequestOp { request: Some(future) }], ..TxnRequest::default() }).await;
    })
    .await;
}

#[tokio::test]
async fn a_failed_compare_takes_the_other_branch_only() {
    same(async |client| {
        client.put(put("/registry/a", "1")).await.ok();
        let request = |revision| TxnRequest {
            compare: vec![unchanged_since("/registry/a", revision)],
            success: ops([Op::from(put("/registry/yes", "1")), get("/registry/a").into()]),
            failure: ops([Op::from(put("/registry/no", "1")), list("/registry/").into()]),
        };
        client.txn(request(99)).await.ok();
        client.range(list("/registry/")).await.ok();
        client.txn(request(2)).await.ok();
        client.range(list("/registry/")).await.ok();
    })
    .await;
}
