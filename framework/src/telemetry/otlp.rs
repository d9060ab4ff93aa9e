//! Exports spans to a collector over OTLP (gRPC).

use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use opentelemetry::trace::TracerProvider;
use opentelemetry::{Key, KeyValue};
use opentelemetry_otlp::{SpanExporter, WithExportConfig, WithTonicConfig};
use opentelemetry_sdk::Resource;
use opentelemetry_sdk::error::OTelSdkResult;
use opentelemetry_sdk::trace::{SdkTracerProvider, SpanData, SpanExporter as Export};
use tonic::transport::{Certificate, ClientTlsConfig, Identity};
use tracing_subscriber::filter::{LevelFilter, filter_fn};
use tracing_subscriber::{Layer, Registry};

use super::plan::{Plan, environment};
use super::{RECONCILE, SetupError, TARGET};

const WARN_EVERY: Duration = Duration::from_mins(1);

/// Creates the provider that makes and exports spans. Call it inside the runtime.
pub(super) fn provider(plan: Plan, service: &str) -> Result<SdkTracerProvider, SetupError> {
    let exporter = ThrottledExporter { inner: exporter(&plan)?, endpoint: plan.endpoint, complained: Mutex::default() };
    Ok(SdkTracerProvider::builder().with_resource(resource(service)).with_batch_exporter(exporter).build())
}

/// Returns the layer of a subscriber that accepts our spans, and those of other `targets`.
pub(super) fn layer(provider: &SdkTracerProvider, targets: Vec<String>) -> Box<dyn Layer<Registry> + Send + Sync> {
    // Without a hint, all spans of all crates would be checked.
    let most = if targets.is_empty() { LevelFilter::INFO } else { LevelFilter::TRACE };
    let taken = move |target: &str| {
        let of =
            |prefix: &String| target.strip_prefix(prefix).is_some_and(|rest| rest.is_empty() || rest.starts_with("::"));
        target == RECONCILE || target == TARGET || targets.iter().any(of)
    };
    let ours = filter_fn(move |metadata| metadata.is_span() && taken(metadata.target())).with_max_level_hint(most);
    tracing_opentelemetry::layer()
        .with_tracer(provider.tracer("trishanku-framework"))
        .with_location(false)
        .with_threads(false)
        .with_target(false)
        .with_level(false)
        .with_tracked_inactivity(false)
        .with_context_activation(false)
        .with_filter(ours)
        .boxed()
}

fn exporter(plan: &Plan) -> Result<SpanExporter, SetupError> {
    let mut builder = SpanExporter::builder().with_tonic().with_endpoint(&plan.endpoint);
    if plan.endpoint.starts_with("https:") {
        builder = builder.with_tls_config(tls()?);
    }
    builder.build().map_err(|error| SetupError::Exporter { endpoint: plan.endpoint.clone(), source: error.into() })
}

/// Returns the TLS settings: the machine's certificate authorities or that of `OTEL_EXPORTER_OTLP_CERTIFICATE`, and the
/// client certificate of the environment.
fn tls() -> Result<ClientTlsConfig, SetupError> {
    let read = |name: &str| {
        let variables = [format!("OTEL_EXPORTER_OTLP_TRACES_{name}"), format!("OTEL_EXPORTER_OTLP_{name}")];
        let found = variables.into_iter().find_map(|variable| Some((environment(&variable)?, variable)));
        let read = |(path, variable): (String, String)| {
            std::fs::read(&path).map_err(|source| SetupError::File { variable, path, source })
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

/// Returns the resource that the environment describes, named `service` if it has no name there.
fn resource(service: &str) -> Resource {
    let found = Resource::builder().build();
    let named = found.get(&Key::from_static_str("service.name")).map(|name| name.to_string());
    let builder = Resource::builder();
    match named {
        Some(name) if !name.starts_with("unknown_service") => builder,
        _ => builder.with_attribute(KeyValue::new("service.name", service.to_owned())),
    }
    .build()
}

/// An exporter that logs when spans are lost, at most once a minute: the library does not.
#[derive(Debug)]
struct ThrottledExporter {
    inner: SpanExporter,
    endpoint: String,
    complained: Mutex<Option<Instant>>,
}

impl ThrottledExporter {
    fn may_warn(&self) -> bool {
        let mut complained = self.complained.lock().unwrap_or_else(PoisonError::into_inner);
        let may = complained.is_none_or(|last| last.elapsed() >= WARN_EVERY);
        if may {
            *complained = Some(Instant::now());
        }
        may
    }
}

impl Export for ThrottledExporter {
    async fn export(&self, batch: Vec<SpanData>) -> OTelSdkResult {
        let spans = batch.len();
        let exported = self.inner.export(batch).await;
        if let Err(error) = &exported
            && self.may_warn()
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
