//! Metrics of what the status reports.

use std::fmt::Error;
use std::sync::Arc;

use prometheus_client::collector::Collector;
use prometheus_client::encoding::{DescriptorEncoder, EncodeMetric};
use prometheus_client::metrics::gauge::ConstGauge;

use super::Reporter;

/// Collects whether external commits are merged, at every scrape.
#[derive(Debug)]
pub(crate) struct ExternalMetrics(pub(crate) Arc<Reporter>);

impl Collector for ExternalMetrics {
    fn encode(&self, mut encoder: DescriptorEncoder) -> Result<(), Error> {
        let gauge = ConstGauge::new(i64::from(self.0.has_external_error()));
        let help = "1 while external commits cannot be noticed or merged";
        gauge.encode(encoder.encode_descriptor("gitcd_external_failing", help, None, gauge.metric_type())?)
    }
}
