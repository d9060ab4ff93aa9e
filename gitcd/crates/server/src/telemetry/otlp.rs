//! Exports spans to a collector over OTLP (gRPC).

use std::time::Duration;

use opentelemetry::trace::TracerProvider;
use opentelemetry::{Key, KeyValue};
use opentelemetry_otlp::{SpanExporter, WithExportConfig, WithTonicConfig};
use opentelemetry_sdk::Resource;
use opentelemetry_sdk::trace::{Sampler, SdkTracerProvider};
use tonic::transport::{Certificate, ClientTlsConfig, Identity};
use tracing_subscriber::Layer as _;
use tracing_subscriber::filter::filter_fn;

use super::exporter::Patient;
use super::settings::{Plan, environment};
use super::{Layer, Settings, SetupError, TARGET};

/// How long the end waits for the collector to accept the last spans.
const LAST_WORDS: Duration = Duration::from_secs(3);

/// The export of spans to a collector.
#[derive(Debug)]
pub struct Traces(SdkTracerProvider);

/// Starts tracing if the flags or the environment enable it. Call it inside the runtime, before any server is started.
///
/// While the collector is unreachable, spans are lost, with a warning at most once a minute; nothing waits for it.
///
/// # Errors
/// [`SetupError`] if the settings are invalid or not supported.
pub fn start(settings: &Settings) -> Result<Option<Traces>, SetupError> {
    let Some(plan) = settings.plan(&environment)? else { return Ok(None) };
    let mut builder = SdkTracerProvider::builder()
        .with_resource(resource(&plan))
        .with_batch_exporter(Patient::new(exporter(&plan)?, plan.endpoint.clone()));
    if let Some(share) = plan.share {
        builder = builder.with_sampler(Sampler::ParentBased(Box::new(Sampler::TraceIdRatioBased(share))));
    }
    gitcd_core::trace::set(true);
    Ok(Some(Traces(builder.build())))
}

impl Traces {
    /// Returns the layer of the subscriber that receives the spans.
    pub fn layer(&self) -> Layer {
        tracing_opentelemetry::layer()
            .with_tracer(self.0.tracer("gitcd"))
            .with_location(false)
            .with_threads(false)
            .with_target(false)
            .with_level(false)
            .with_tracked_inactivity(false)
            .with_context_activation(false)
            .with_filter(filter_fn(|metadata| metadata.is_span() && metadata.target() == TARGET))
            .boxed()
    }

    /// Exports the remaining spans; gives up after three seconds.
    pub async fn end(self) {
        gitcd_core::trace::set(false);
        let ended = tokio::task::spawn_blocking(move || self.0.shutdown_with_timeout(LAST_WORDS)).await;
        if let Ok(Err(error)) = ended {
            tracing::warn!(%error, "the last traces may be lost");
        }
    }
}

fn exporter(plan: &Plan) -> Result<SpanExporter, SetupError> {
    let mut builder = SpanExporter::builder().with_tonic().with_endpoint(&plan.endpoint);
    if plan.endpoint.starts_with("https:") {
        builder = builder.with_tls_config(tls()?);
    }
    builder.build().map_err(|error| SetupError(error.to_string()))
}

/// Returns the TLS settings: the system's CAs, or the one in `OTEL_EXPORTER_OTLP_CERTIFICATE`, and a client certificate if set.
fn tls() -> Result<ClientTlsConfig, SetupError> {
    let read = |name: &str| {
        let variable = format!("OTEL_EXPORTER_OTLP_{name}");
        let path = environment(&format!("OTEL_EXPORTER_OTLP_TRACES_{name}")).or_else(|| environment(&variable));
        let read =
            |path: String| std::fs::read(&path).map_err(|error| SetupError(format!("{variable}={path}: {error}")));
        path.map(read).transpose()
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

fn resource(plan: &Plan) -> Resource {
    let version = KeyValue::new("service.version", env!("CARGO_PKG_VERSION"));
    let instance = plan.instance_id.clone().map(|id| KeyValue::new("service.instance.id", id));
    // Both builders read the environment.
    let found = Resource::builder().build();
    let builder = Resource::builder().with_attribute(version).with_attributes(instance);
    let named = found.get(&Key::from_static_str("service.name")).map(|name| name.to_string());
    match (&plan.service_name, named) {
        (Some(name), _) => builder.with_service_name(name.clone()),
        (None, Some(name)) if !name.starts_with("unknown_service") => builder,
        (None, _) => builder.with_service_name("gitcd"),
    }
    .build()
}
