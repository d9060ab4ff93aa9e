//! Brings spans to a collector over OTLP (gRPC).

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

/// The end waits this long for a collector to take the last spans.
const LAST_WORDS: Duration = Duration::from_secs(3);

/// Spans on their way to a collector.
#[derive(Debug)]
pub struct Traces(SdkTracerProvider);

/// Starts to trace if the flags or the environment ask for it. Call it inside the runtime, before any server is started.
///
/// A collector that cannot be reached is warned of, now and then; spans are lost and nothing waits for it.
///
/// # Errors
/// [`SetupError`] if what was asked for cannot be done.
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
    /// The part of the subscriber that takes the spans.
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

    /// Tells the collector what it does not know yet; gives up after three seconds.
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

/// The machine's authorities, or the one in `OTEL_EXPORTER_OTLP_CERTIFICATE`; and a certificate of our own if there is to be one.
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
    // Both have what the environment says.
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
