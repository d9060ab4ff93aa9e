//! How a contestant is started: the same flags for all of them. Whom it talks to, and as whom, is in the file that `KUBECONFIG` names.

use std::net::SocketAddr;
use std::time::Duration;

use clap::Parser;

/// Keeps pairs as they should be.
#[derive(Clone, Debug, Parser)]
pub struct Options {
    /// Where `/metrics` is
    #[arg(long, value_name = "ADDRESS")]
    pub metrics_bind_address: SocketAddr,

    /// Objects at a time
    #[arg(long, value_name = "N", default_value_t = 10)]
    pub concurrency: u16,

    /// Seconds between two times at which everything is reconciled without a reason
    #[arg(long, value_name = "SECONDS", default_value_t = 36_000)]
    pub resync: u64,
}

impl Options {
    /// The time between two resyncs.
    pub fn resync(&self) -> Duration {
        Duration::from_secs(self.resync)
    }
}
