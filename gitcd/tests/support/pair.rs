//! Runs one case on etcd and on gitcd and compares what they said.

use std::panic::AssertUnwindSafe;

use futures::FutureExt;

use super::{Client, Kind, Server, Transcript};

/// Runs `case` on a fresh etcd, then on a fresh gitcd; every answer must be the same.
///
/// A case may also assert what matters to it: so that it is known to show what its name claims, and not
/// just two equal errors.
///
/// # Panics
/// With the first step that differs.
pub(crate) async fn same(case: impl AsyncFn(Client)) {
    let (etcd, other) = tokio::join!(Server::start(Kind::Etcd), Server::start(Kind::under_test()));

    let client = etcd.client().await;
    case(client.clone()).await;
    let expected = client.take_transcript();

    let client = other.client().await;
    let ended = AssertUnwindSafe(case(client.clone())).catch_unwind().await;
    let answered = client.take_transcript();
    // The first difference says more than the assertion that fails because of it.
    if let Some(difference) = Transcript::difference(&expected, &answered) {
        panic!("{difference}");
    }
    if let Err(panic) = ended {
        std::panic::resume_unwind(panic);
    }
}
