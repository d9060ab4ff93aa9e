//! Transactions that read at a revision that cannot be read.

use gitcd::proto::etcdserverpb::{RangeRequest, TxnRequest};
use tonic::Code;

use crate::support::build::{Op, all, compact, delete, delete_prefix, get, list, ops, put, unchanged_since};
use crate::support::same;

#[tokio::test]
async fn a_read_at_a_compacted_or_future_revision_fails_the_whole_transaction() {
    same(async |client| {
        for number in ["1", "2", "3", "4"] {
            client.put(put("/registry/a", number)).await.ok();
        }
        client.compact(compact(4)).await.ok();
        let reads = |revision| -> [RangeRequest; 4] {
            [
                RangeRequest { revision, ..get("/registry/a") },
                RangeRequest { revision, ..get("/registry/none") },
                RangeRequest { revision, limit: 1, count_only: true, ..list("/registry/") },
                RangeRequest { revision, serializable: true, keys_only: true, ..list("/") },
            ]
        };
        for revision in [-1, 1, 2, 3, 4, 5, 6, 7, i64::MAX] {
            for read in reads(revision) {
                client.range(read.clone()).await;
                let read = Op::from(read);
                let nested = Op::from(all([read.clone()]));
                let either = Op::from(TxnRequest {
                    compare: vec![unchanged_since("/registry/a", 99)],
                    success: vec![],
                    failure: ops([read.clone()]),
                });
                let elsewhere = Op::from(TxnRequest {
                    compare: vec![unchanged_since("/registry/a", 99)],
                    success: ops([read.clone()]),
                    failure: ops([put("/registry/elsewhere", "1")]),
                });
                for read in [read, nested, either] {
                    let alone = all([read.clone()]);
                    let last: [Op; 3] =
                        [put("/registry/b", "1").into(), delete_prefix("/registry/none").into(), read.clone()];
                    let first: [Op; 2] = [read, put("/registry/c", "1").into()];
                    for txn in [alone, all(last), all(first)] {
                        let before = client.range(list("/registry/")).await.ok();
                        let result = client.txn(txn).await.result();
                        let after = client.range(list("/registry/")).await.ok();
                        // Revisions below the compact revision stay unreadable; later ones become readable with each write.
                        if revision < 4 || revision == i64::MAX {
                            assert_eq!(result.as_ref().map_err(tonic::Status::code).err(), Some(Code::OutOfRange));
                        }
                        if result.is_err() {
                            assert_eq!(before, after, "nothing is applied");
                        }
                    }
                }
                // The branch that is not executed is not checked.
                client.txn(all([elsewhere, delete("/registry/elsewhere").into()])).await;
            }
        }
    })
    .await;
}
