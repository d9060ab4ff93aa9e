//! Exports spans to a collector over OTLP (gRPC).

use opentelemetry::trace::TracerProvider;
use opentelemetry_sdk::trace::SdkTracerProvider;
use tracing_subscriber::filter::{LevelFilter, filter_fn};
use tracing_subscriber::{Layer, Registry};
use trishanku_service::otlp::{Collector, OtlpError, resource};

use crate::trace::{RECONCILE, TARGET};

/// Creates the provider that makes and exports spans. Call it inside the runtime.
pub(super) fn provider(collector: &Collector, service: &str) -> Result<SdkTracerProvider, OtlpError> {
    let provider = SdkTracerProvider::builder().with_resource(resource(None, service, []));
    Ok(provider.with_batch_exporter(collector.exporter()?).build())
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
