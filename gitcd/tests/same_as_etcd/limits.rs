//! Requests that are too large.

use tonic::Code;

use crate::support::build::{all, get, put};
use crate::support::same;

const MIB: usize = 1 << 20;

#[tokio::test]
async fn a_request_above_one_and_a_half_mebibytes_is_too_large() {
    same(async |client| {
        // In the transcript of its own: the requests are long.
        let aside = client.aside();
        let value = "x".repeat(2 * MIB);
        for (bytes, fits) in [(MIB, true), (3 * MIB / 2 - 100, true), (3 * MIB / 2, false), (2 * MIB - 200, false)] {
            let answer = aside.put(put("/registry/a", &value[..bytes])).await;
            if fits {
                client.note("put", (bytes, answer.ok().header.unwrap().revision));
            } else {
                client.note("put", (bytes, answer.refused(Code::InvalidArgument)));
            }
        }
        let halves = all([put("/registry/b", &value[..MIB]), put("/registry/c", &value[..MIB * 3 / 4])]);
        client.note("txn", aside.txn(halves).await.refused(Code::InvalidArgument));
        client.note("length", aside.range(get("/registry/a")).await.ok().kvs[0].value.len());
    })
    .await;
}

#[tokio::test]
async fn a_message_above_the_limit_of_the_transport_is_refused() {
    same(async |client| {
        let value = "x".repeat(4 * MIB);
        let aside = client.aside();
        // The words are the transport's own and name sizes in its own way.
        aside.put(put("/registry/a", &value)).await.refused(Code::ResourceExhausted);
        client.range(get("/registry/a")).await.ok();
        client.put(put("/registry/a", "1")).await.ok();
    })
    .await;
}
