//! What the integration tests share.
//!
//! [`Server`] runs the real `gitcd`, or a real etcd, as a process of its own. [`Client`] speaks the etcd
//! API to either, [`Transcript`] writes down what was said, [`same`] runs one case on both and compares.
//! [`Repository`] looks at gitcd's store with the stock `git`.
//!
//! `GITCD_TEST_SERVER=etcd` puts a second etcd where gitcd would be. It proves the checks themselves: whatever
//! does not depend on Git must pass then too.

pub(crate) mod assets;
mod client;
mod http;
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

/// Nothing that a test waits for takes longer than this on a busy machine.
pub(crate) const PATIENCE: Duration = Duration::from_secs(30);

/// Waits until `condition` gives a value; asks every 20 ms.
///
/// # Panics
/// After [`PATIENCE`], naming `what`.
pub(crate) async fn eventually<T>(what: &str, mut condition: impl AsyncFnMut() -> Option<T>) -> T {
    let start = Instant::now();
    loop {
        if let Some(value) = condition().await {
            return value;
        }
        assert!(start.elapsed() < PATIENCE, "waited {PATIENCE:?} in vain for {what}");
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}
