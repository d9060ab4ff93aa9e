//! Transactions that delete all keys from one on and put one of them.

use gitcd::proto::etcdserverpb::DeleteRangeRequest;
use tonic::Code;

use crate::support::build::{Op, all, delete, list, put};
use crate::support::{Kind, Server};

/// etcd looks for the put in the range from the key to `\0`, which is empty, and does both (`docs/etcd.md`).
#[tokio::test]
async fn gitcd_refuses_a_put_of_a_deleted_key_although_etcd_does_not_notice_it() {
    let delete_from = || -> Op { DeleteRangeRequest { range_end: vec![0].into(), ..delete("/registry/a") }.into() };
    let (etcd, gitcd) = tokio::join!(Server::start(Kind::Etcd), Server::start(Kind::Gitcd));
    for (server, refuses) in [(etcd, false), (gitcd, true)] {
        let client = server.client().await;
        client.put(put("/registry/b", "1")).await.ok();
        for steps in [[delete_from(), put("/registry/b", "2").into()], [put("/registry/b", "2").into(), delete_from()]]
        {
            let answer = client.txn(all(steps)).await;
            if refuses {
                answer.refused(Code::InvalidArgument);
            } else {
                answer.ok();
            }
        }
        let left = client.range(list("/registry/")).await.ok().count;
        assert_eq!(left, i64::from(refuses), "{:?}", server.kind());
    }
}
