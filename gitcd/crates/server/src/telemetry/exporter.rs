//! Warns when spans are lost, which the library that sends them does not report.

use std::time::{Duration, Instant};

use opentelemetry_otlp::SpanExporter;
use opentelemetry_sdk::Resource;
use opentelemetry_sdk::error::OTelSdkResult;
use opentelemetry_sdk::trace::{SpanData, SpanExporter as Export};
use parking_lot::Mutex;

use gitcd_net::throttle::LogThrottle;

const COMPLAIN_EVERY: Duration = Duration::from_mins(1);

/// An exporter that warns of failures, at most once a minute.
#[derive(Debug)]
pub(super) struct Patient {
    inner: SpanExporter,
    endpoint: String,
    complaints: Mutex<LogThrottle>,
}

impl Patient {
    pub(super) fn new(inner: SpanExporter, endpoint: String) -> Self {
        Self { inner, endpoint, complaints: Mutex::new(LogThrottle::every(COMPLAIN_EVERY)) }
    }
}

impl Export for Patient {
    async fn export(&self, batch: Vec<SpanData>) -> OTelSdkResult {
        let spans = batch.len();
        let exported = self.inner.export(batch).await;
        if let Err(error) = &exported
            && self.complaints.lock().admits(Instant::now())
        {
            tracing::warn!(endpoint = self.endpoint, spans, %error, "cannot export traces; they are lost");
        }
        exported
    }

    fn shutdown_with_timeout(&self, timeout: Duration) -> OTelSdkResult {
        self.inner.shutdown_with_timeout(timeout)
    }

    fn force_flush(&self) -> OTelSdkResult {
        self.inner.force_flush()
    }

    fn set_resource(&mut self, resource: &Resource) {
        self.inner.set_resource(resource);
    }
}
