//! Exports spans to a collector over OTLP (gRPC).

use std::time::Duration;

use opentelemetry::KeyValue;
use opentelemetry::trace::TracerProvider;
use opentelemetry_sdk::trace::{Sampler, SdkTracerProvider};
use tracing_subscriber::Layer as _;
use tracing_subscriber::filter::filter_fn;
use trishanku_service::otlp::{environment, resource};

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
    let version = KeyValue::new("service.version", env!("CARGO_PKG_VERSION"));
    let instance = plan.instance_id.map(|id| KeyValue::new("service.instance.id", id));
    let attributes = [version].into_iter().chain(instance);
    let mut builder = SdkTracerProvider::builder()
        .with_resource(resource(plan.service_name.as_deref(), "gitcd", attributes))
        .with_batch_exporter(plan.collector.exporter()?);
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
