//! Runs one case on etcd and on gitcd and compares the responses.

use std::panic::AssertUnwindSafe;

use futures::FutureExt;

use super::{Client, Kind, Launch, Server, Transcript};

/// Runs `case` on a fresh etcd, then on a fresh gitcd; every response must be the same.
///
/// A case should also assert what matters to it: this proves that it shows what its name claims, and not just two equal errors.
///
/// # Panics
/// With the first step that differs.
pub(crate) async fn same(case: impl AsyncFn(Client)) {
    same_with(&[], case).await;
}

/// Like [`same`], on servers started with these arguments.
///
/// # Panics
/// As [`same`].
pub(crate) async fn same_with(arguments: &[&str], case: impl AsyncFn(Client)) {
    let start = async |kind| -> Server {
        arguments.iter().fold(Launch::new(kind), |launch, argument| launch.argument(*argument)).start().await
    };
    let (etcd, other) = tokio::join!(start(Kind::Etcd), start(Kind::under_test()));

    let client = etcd.client().await;
    case(client.clone()).await;
    let expected = client.take_transcript();

    let client = other.client().await;
    let ended = AssertUnwindSafe(case(client.clone())).catch_unwind().await;
    let answered = client.take_transcript();
    // The first difference says more than the failed assertion that it causes.
    if let Some(difference) = Transcript::difference(&expected, &answered) {
        panic!("{difference}");
    }
    if let Err(panic) = ended {
        std::panic::resume_unwind(panic);
    }
}
