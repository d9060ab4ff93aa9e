//! An exporter that logs when spans are lost, which the library does not.

use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use opentelemetry_otlp::{SpanExporter, WithExportConfig, WithTonicConfig};
use opentelemetry_sdk::Resource;
use opentelemetry_sdk::error::OTelSdkResult;
use opentelemetry_sdk::trace::{SpanData, SpanExporter as Export};
use tonic::transport::{Certificate, ClientTlsConfig, Identity};

use super::{Collector, OtlpError, environment};
use crate::throttle::LogThrottle;

const WARN_EVERY: Duration = Duration::from_mins(1);

/// An exporter of spans that warns when they are lost, at most once a minute.
#[derive(Debug)]
pub struct Exporter {
    inner: SpanExporter,
    endpoint: String,
    warnings: Mutex<LogThrottle>,
}

impl Collector {
    /// Returns an exporter of spans to the collector, with the TLS files, headers and timeout of the environment. Must be called
    /// in the runtime.
    ///
    /// # Errors
    /// [`OtlpError::Unencrypted`], [`OtlpError::File`], [`OtlpError::Exporter`].
    pub fn exporter(&self) -> Result<Exporter, OtlpError> {
        self.check_encryption(&environment)?;
        let endpoint = self.endpoint().to_owned();
        let mut builder = SpanExporter::builder().with_tonic().with_endpoint(&endpoint);
        if endpoint.starts_with("https:") {
            builder = builder.with_tls_config(tls()?);
        }
        match builder.build() {
            Ok(inner) => Ok(Exporter { inner, endpoint, warnings: Mutex::new(LogThrottle::every(WARN_EVERY)) }),
            Err(error) => Err(OtlpError::Exporter { endpoint, source: error.into() }),
        }
    }
}

/// Returns the TLS settings: the system's certificate authorities or that of `OTEL_EXPORTER_OTLP_CERTIFICATE`, and the client
/// certificate of the environment.
fn tls() -> Result<ClientTlsConfig, OtlpError> {
    let read = |name: &str| {
        let variables = [format!("OTEL_EXPORTER_OTLP_TRACES_{name}"), format!("OTEL_EXPORTER_OTLP_{name}")];
        let found = variables.into_iter().find_map(|variable| Some((environment(&variable)?, variable)));
        let read = |(path, variable): (String, String)| {
            std::fs::read(&path).map_err(|source| OtlpError::File { variable, path, source })
        };
        found.map(read).transpose()
    };
    let mut tls = match read("CERTIFICATE")? {
        Some(pem) => ClientTlsConfig::new().ca_certificate(Certificate::from_pem(pem)),
        None => ClientTlsConfig::new().with_enabled_roots(),
    };
    if let (Some(cert), Some(key)) = (read("CLIENT_CERTIFICATE")?, read("CLIENT_KEY")?) {
        tls = tls.identity(Identity::from_pem(cert, key));
    }
    Ok(tls)
}

impl Export for Exporter {
    async fn export(&self, batch: Vec<SpanData>) -> OTelSdkResult {
        let spans = batch.len();
        let exported = self.inner.export(batch).await;
        if let Err(error) = &exported
            && self.warnings.lock().unwrap_or_else(PoisonError::into_inner).admits(Instant::now())
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
