//! Shared code of the integration tests.
//!
//! [`Server`] runs the real `gitcd`, or a real etcd, as a separate process. [`Client`] calls the etcd API of either,
//! [`Transcript`] records the calls, [`same`] runs one case on both and compares them. [`Repository`] inspects gitcd's
//! repository with stock `git`.
//!
//! `GITCD_TEST_SERVER=etcd` replaces gitcd by a second etcd. This validates the checks themselves: all that do not depend on
//! Git must then pass, too.

pub(crate) mod assets;
mod client;
pub(crate) mod http;
mod pair;
mod repository;
mod server;
mod transcript;
mod watching;

pub(crate) use client::{Client, Reply, build};
pub(crate) use pair::{same, same_with};
pub(crate) use repository::{DATA, METADATA, Repository};
pub(crate) use server::{Exit, Kind, Launch, Server, free_port};
pub(crate) use watching::Watching;

pub(crate) use transcript::Transcript;

use std::time::{Duration, Instant};

/// An upper bound for any wait, even on a busy machine.
pub(crate) const PATIENCE: Duration = Duration::from_secs(90);

/// Waits until `condition` returns a value, polling it every 20 ms.
///
/// # Panics
/// After [`PATIENCE`]; the message names `what`.
pub(crate) async fn eventually<T>(what: &str, mut condition: impl AsyncFnMut() -> Option<T>) -> T {
    let start = Instant::now();
    loop {
        if let Some(value) = condition().await {
            return value;
        }
        assert!(start.elapsed() < PATIENCE, "timed out after {PATIENCE:?} waiting for {what}");
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}
