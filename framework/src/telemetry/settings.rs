//! Settings of logs and traces.

use std::io::IsTerminal;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use tracing::Dispatch;
use tracing_subscriber::filter::{FilterExt, LevelFilter, filter_fn};
use tracing_subscriber::fmt::MakeWriter;
use tracing_subscriber::fmt::format::JsonFields;
use tracing_subscriber::fmt::writer::BoxMakeWriter;
use tracing_subscriber::layer::SubscriberExt;
use tracing_subscriber::registry::Extensions;
use tracing_subscriber::{Layer, reload};
use trishanku_service::log_lines::{Ids, LogLines};
use trishanku_service::otlp::{Collector, OtlpError, environment};

use super::{Format, Inner, Telemetry, UnknownFilter, otlp, parse};
use crate::trace::{RECONCILE, TARGET, TRACES_ENABLED, TraceIds};

/// Why logs and traces cannot be set up.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum SetupError {
    /// The filter of [`Settings::log_filter`], or else of `RUST_LOG`, is invalid.
    #[error("{value:?} is not a log filter")]
    LogFilter {
        /// The text.
        value: String,
        /// The cause.
        source: UnknownFilter,
    },
    /// OpenTelemetry's variables or [`Settings::collector`] are not usable.
    #[error(transparent)]
    Traces(#[from] OtlpError),
    /// The process already has a subscriber.
    #[error("the process already has a log subscriber")]
    Taken(#[source] tracing::dispatcher::SetGlobalDefaultError),
}

/// Settings of logs and traces. The [module](crate::telemetry) lists the environment variables.
#[derive(Debug)]
pub struct Settings {
    service: String,
    format: Format,
    log_filter: Option<String>,
    collector: Option<String>,
    spans_of: Vec<String>,
    writer: BoxMakeWriter,
    ansi: bool,
}

impl Settings {
    /// Creates settings with log lines for people on standard error, and no traces unless the environment enables them.
    /// `service` is the name in traces, unless the environment sets it.
    pub fn new(service: impl Into<String>) -> Self {
        Self {
            service: service.into(),
            format: Format::default(),
            log_filter: None,
            collector: None,
            spans_of: Vec::new(),
            writer: BoxMakeWriter::new(std::io::stderr),
            ansi: std::io::stderr().is_terminal(),
        }
    }

    /// Sets the format of log lines.
    #[must_use]
    pub fn format(mut self, format: Format) -> Self {
        self.format = format;
        self
    }

    /// Sets the log filter (`debug`, `info,tanks=debug`), regardless of `RUST_LOG`. [`init`](Self::init) fails if it is invalid.
    #[must_use]
    pub fn log_filter(mut self, filter: impl Into<String>) -> Self {
        self.log_filter = Some(filter.into());
        self
    }

    /// Sends traces to this URL (`http://collector:4317`), regardless of `OTEL_EXPORTER_OTLP_ENDPOINT`.
    #[must_use]
    pub fn collector(mut self, url: impl Into<String>) -> Self {
        self.collector = Some(url.into());
        self
    }

    /// Also sends the spans of this crate or module. Their fields are sent as they are, so check that they are not secret.
    #[must_use]
    pub fn spans_of(mut self, target: impl Into<String>) -> Self {
        self.spans_of.push(target.into());
        self
    }

    /// Writes log lines to `writer`, without colours.
    #[must_use]
    pub fn writer(mut self, writer: impl for<'a> MakeWriter<'a> + Send + Sync + 'static) -> Self {
        (self.writer, self.ansi) = (BoxMakeWriter::new(writer), false);
        self
    }

    /// Installs the subscriber of the whole process. Call it once, at the beginning, inside the runtime.
    ///
    /// # Errors
    /// [`SetupError`].
    pub fn init(self) -> Result<Telemetry, SetupError> {
        let (subscriber, telemetry) = self.build()?;
        tracing::dispatcher::set_global_default(subscriber).map_err(SetupError::Taken)?;
        Ok(telemetry)
    }

    /// As [`init`](Self::init), but leaves it to the caller to install the subscriber: a test does so for its own thread.
    ///
    /// # Errors
    /// [`SetupError`].
    pub fn build(self) -> Result<(Dispatch, Telemetry), SetupError> {
        let collector = Collector::find(self.collector.as_deref(), &environment)?;
        let provider = collector.map(|collector| otlp::provider(&collector, &self.service)).transpose()?;
        let traces = provider.as_ref().map(|provider| otlp::layer(provider, self.spans_of));
        let value = self.log_filter.or_else(|| environment("RUST_LOG")).unwrap_or_else(|| "info".to_owned());
        let filter = parse(&value).map_err(|source| SetupError::LogFilter { value, source })?;
        let (filter, level) = reload::Layer::new(filter);
        // Log lines name their object whatever the filter; spans for collectors are not logged. The hints leave the most
        // detailed level to the filter.
        let of_reconciles = filter_fn(|metadata| metadata.is_span() && metadata.target() == RECONCILE)
            .with_max_level_hint(LevelFilter::ERROR);
        let of_others = filter_fn(|metadata| metadata.target() != TARGET && !has_bodies(metadata))
            .with_max_level_hint(LevelFilter::TRACE);
        let lines = tracing_subscriber::fmt::layer()
            .with_writer(self.writer)
            .with_ansi(self.ansi)
            .fmt_fields(JsonFields::new())
            .event_format(LogLines::new(self.format).with_ids(ids))
            .with_filter(filter.or(of_reconciles).and(of_others));
        if provider.is_some() {
            TRACES_ENABLED.store(true, Ordering::Relaxed);
        }
        let subscriber = tracing_subscriber::registry().with(traces).with(lines);
        Ok((subscriber.into(), Telemetry(Arc::new(Inner { provider, level }))))
    }
}

/// kube logs a whole response that it cannot decode, as a warning: the response may contain Secrets. The caller gets an error
/// anyway.
fn has_bodies(metadata: &tracing::Metadata<'_>) -> bool {
    metadata.target() == "kube_client::client" && *metadata.level() == tracing::Level::WARN
}

/// Returns the trace and the span of a reconcile or a request.
fn ids(extensions: &Extensions<'_>) -> Option<Ids> {
    let TraceIds { trace, span } = extensions.get()?;
    Some(Ids { trace: trace.clone(), span: span.clone() })
}
