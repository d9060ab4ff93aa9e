//! The workloads. A new one is a file with a [`Workload`], usually a [`closed::Closed`], and one line in [`all`].

use std::time::Duration;

use anyhow::Result;
use futures::future::BoxFuture;
use serde::Serialize;

use crate::data::{KeySpace, Layout};
use crate::load::Tally;
use crate::target::Target;

mod closed;
mod get;
mod list;
mod put;
mod txn;
mod watch;

/// A load for all servers.
pub(crate) trait Workload: Send + Sync {
    /// The definition of the workload.
    fn spec(&self) -> Spec;

    /// Puts one server, which has all keys, under load from the Rust client for about `length`.
    fn slice<'a>(&'a self, target: &'a Target, length: Duration) -> BoxFuture<'a, Result<Tally>>;
}

/// The definition of a workload, for all clients.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Spec {
    /// Short name, for `--only` and the tables.
    pub(crate) name: &'static str,
    /// The description for the report.
    pub(crate) what: &'static str,
    /// The counted unit.
    pub(crate) unit: &'static str,
    /// Number of concurrent clients.
    pub(crate) clients: usize,
    /// Share of the total time.
    pub(crate) weight: f64,
    /// Whether the load must not be cut into slices.
    pub(crate) whole: bool,
    /// The goal for the ratio to etcd with the Rust client, if any.
    pub(crate) goal: Option<f64>,
    /// What the clients do.
    pub(crate) load: Load,
    /// The keys that exist before.
    pub(crate) keys: KeySpace,
}

/// What the clients of a workload repeat.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
#[serde(tag = "kind", rename_all = "kebab-case")]
pub(crate) enum Load {
    /// A put to a random key.
    Put,
    /// A transaction that puts a new key.
    Create,
    /// A get, and a transaction that puts the key if it is unchanged.
    Update,
    /// A get of a random key.
    Get,
    /// One of the pages of a list of all keys.
    Pages {
        /// Keys of a page.
        limit: i64,
    },
    /// A list of all keys.
    List,
    /// A put to a random key, while others watch all keys.
    Watch(Watch),
}

/// The watchers of a workload, and how far they may be behind the writers.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub(crate) struct Watch {
    /// Streams, each on a connection of its own.
    pub(crate) streams: usize,
    /// Watchers of each stream.
    pub(crate) watchers_per_stream: usize,
    /// Writers wait while the slowest stream is this many events per watcher behind.
    pub(crate) window: usize,
    /// Whether events have the previous value, as kube-apiserver requests it.
    pub(crate) prev_kv: bool,
    /// Limit in seconds for every watcher to receive all events after the last write.
    pub(crate) catch_up_seconds: u64,
}

/// Generations of written values are random, at least 1 and less than this.
const GENERATIONS: u64 = 10_000;

/// A workload as another program reads it.
#[derive(Debug, Serialize)]
pub(crate) struct Parameters {
    name: &'static str,
    clients: usize,
    load: Load,
    keys: Layout,
    generations: u64,
}

impl Spec {
    /// The definition for a client that is another program.
    pub(crate) fn parameters(&self) -> Parameters {
        let &Self { name, clients, load, keys, .. } = self;
        Parameters { name, clients, load, keys: keys.layout(), generations: GENERATIONS }
    }
}

/// All workloads, in the order in which they run: later ones find what earlier ones wrote.
pub(crate) fn all() -> Vec<Box<dyn Workload>> {
    vec![
        Box::new(put::SEQUENTIAL),
        Box::new(put::CONCURRENT),
        Box::new(put::SUSTAINED),
        Box::new(txn::CREATE),
        Box::new(txn::UPDATE),
        Box::new(get::GET),
        Box::new(list::PAGED),
        Box::new(list::WHOLE),
        Box::new(watch::WITH_PREVIOUS),
        Box::new(watch::WITHOUT_PREVIOUS),
    ]
}
