//! The flags of all contestants. `KUBECONFIG` names the cluster and the user.

use std::net::SocketAddr;
use std::time::Duration;

use clap::Parser;

/// Reconciles pairs.
#[derive(Clone, Debug, Parser)]
pub struct Options {
    /// Address of `/metrics`
    #[arg(long, value_name = "ADDRESS")]
    pub metrics_bind_address: SocketAddr,

    /// Objects at a time
    #[arg(long, value_name = "N", default_value_t = 10)]
    pub concurrency: u16,

    /// Seconds between resyncs
    #[arg(long, value_name = "SECONDS", default_value_t = 36_000)]
    pub resync: u64,
}

impl Options {
    /// Returns the time between two resyncs.
    pub fn resync(&self) -> Duration {
        Duration::from_secs(self.resync)
    }
}
