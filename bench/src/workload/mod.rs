//! What is measured. A new workload is one file with a [`Workload`] in it, most often a [`closed::Closed`], and one line
//! in [`all`].

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

/// A load that both servers are put under.
pub(crate) trait Workload: Send + Sync {
    /// What it is.
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
    /// What is done, for the report.
    pub(crate) what: &'static str,
    /// What is counted.
    pub(crate) unit: &'static str,
    /// Clients that work side by side.
    pub(crate) clients: usize,
    /// Share of the whole time.
    pub(crate) weight: f64,
    /// Whether the load must not be cut into slices.
    pub(crate) whole: bool,
    /// The ratio to etcd that this project wants to reach, if any.
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
