//! Metrics of the connections of a branch's listeners, and their part of `/status`.

use std::fmt::Error;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use gitcd_net::listener::Network;
use prometheus_client::collector::Collector;
use prometheus_client::encoding::{DescriptorEncoder, EncodeMetric};
use prometheus_client::metrics::counter::ConstCounter;
use prometheus_client::metrics::gauge::ConstGauge;
use serde::{Deserialize, Serialize};

/// Status of the connections of a branch's listeners.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ConnectionStatus {
    /// Open connections.
    pub open: u64,
    /// The sum of the listeners' limits.
    pub limit: u64,
    /// Connections closed because their address had reached its limit.
    pub refused: u64,
    /// How often a listener reached its limit.
    pub limit_reached: u64,
    /// Connections closed because their client was silent.
    pub timed_out: u64,
}

impl ConnectionStatus {
    /// Returns the current numbers.
    pub(crate) fn of(network: &Network) -> Self {
        let load = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        let counted = &network.connections;
        Self {
            open: load(&counted.open),
            limit: load(&counted.limit),
            refused: load(&counted.refused),
            limit_reached: load(&counted.stalls),
            timed_out: load(&counted.timed_out),
        }
    }
}

/// Collects the metrics of connections at every scrape.
#[derive(Debug)]
pub(crate) struct ConnectionMetrics(pub(crate) Arc<Network>);

impl Collector for ConnectionMetrics {
    fn encode(&self, mut encoder: DescriptorEncoder) -> Result<(), Error> {
        let ConnectionStatus { open, limit, refused, limit_reached, timed_out } = ConnectionStatus::of(&self.0);
        for (name, help, value) in [
            ("gitcd_connections", "Open connections of clients", open),
            ("gitcd_connections_limit", "Limit of open connections, of all listeners of the branch together", limit),
        ] {
            let gauge = ConstGauge::new(value as f64);
            gauge.encode(encoder.encode_descriptor(name, help, None, gauge.metric_type())?)?;
        }
        for (name, help, value) in [
            ("gitcd_connections_refused", "Connections closed because their address had reached its limit", refused),
            (
                "gitcd_connections_limit_reached",
                "How often a listener had as many connections as allowed",
                limit_reached,
            ),
            ("gitcd_connections_timed_out", "Connections closed because their client was silent", timed_out),
        ] {
            let counter = ConstCounter::new(value as f64);
            counter.encode(encoder.encode_descriptor(name, help, None, counter.metric_type())?)?;
        }
        Ok(())
    }
}
