//! The workloads. A new one is a file with a [`Workload`], usually a [`closed::Closed`], and one line in [`all`].

use std::time::Duration;

use anyhow::Result;
use futures::future::BoxFuture;

use crate::load::Tally;
use crate::target::Target;

mod closed;
mod get;
mod list;
mod put;
mod txn;
mod watch;

/// A load for both servers.
pub(crate) trait Workload: Send + Sync {
    /// The description of the workload.
    fn spec(&self) -> Spec;

    /// Brings the server into the state that the load needs; not measured.
    fn prepare<'a>(&'a self, target: &'a Target) -> BoxFuture<'a, Result<()>>;

    /// Puts one server under load for about `length`.
    fn slice<'a>(&'a self, target: &'a Target, length: Duration) -> BoxFuture<'a, Result<Tally>>;
}

/// The description of a workload.
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
    /// The goal for the ratio to etcd, if any.
    pub(crate) goal: Option<f64>,
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
        Box::new(watch::FanOut),
    ]
}
