//! What a program wants to be told of itself.

use std::io::IsTerminal;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use tracing::Dispatch;
use tracing_subscriber::filter::{FilterExt, LevelFilter, filter_fn};
use tracing_subscriber::fmt::MakeWriter;
use tracing_subscriber::fmt::format::JsonFields;
use tracing_subscriber::fmt::writer::BoxMakeWriter;
use tracing_subscriber::layer::SubscriberExt;
use tracing_subscriber::{Layer, reload};

use super::logs::Lines;
use super::plan::{environment, plan};
use super::{Format, Inner, ON, RECONCILE, TARGET, Telemetry, UnknownFilter, otlp, parse};

/// Why there are no logs or traces although somebody wants them.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum SetupError {
    /// `RUST_LOG` cannot be read.
    #[error("RUST_LOG={value} cannot be read")]
    LogFilter {
        /// What it is.
        value: String,
        /// Why not.
        source: UnknownFilter,
    },
    /// A variable of OpenTelemetry asks for what is not there.
    #[error("{variable}={value} is not supported: {instead}")]
    Unsupported {
        /// The variable.
        variable: String,
        /// What it says.
        value: String,
        /// What it may say.
        instead: String,
    },
    /// A variable of OpenTelemetry names a file that cannot be read.
    #[error("{variable}={path} cannot be read")]
    File {
        /// The variable.
        variable: String,
        /// The file.
        path: String,
        /// Why not.
        source: std::io::Error,
    },
    /// The collector's address or the certificates cannot be used.
    #[error("traces cannot be sent to {endpoint}")]
    Exporter {
        /// The address.
        endpoint: String,
        /// Why not.
        source: Box<dyn std::error::Error + Send + Sync>,
    },
    /// The process has a subscriber already.
    #[error("the process sends its logs somewhere else already")]
    Taken(#[source] tracing::dispatcher::SetGlobalDefaultError),
}

/// What to log and where to send traces. See the [module](crate::telemetry) for what the environment says.
#[derive(Debug)]
pub struct Settings {
    service: String,
    format: Format,
    collector: Option<String>,
    spans_of: Vec<String>,
    writer: BoxMakeWriter,
    ansi: bool,
}

impl Settings {
    /// Lines for people on standard error, and no traces unless the environment wants them; they call the service so, if the environment does not
    /// name it.
    pub fn new(service: impl Into<String>) -> Self {
        Self {
            service: service.into(),
            format: Format::default(),
            collector: None,
            spans_of: Vec::new(),
            writer: BoxMakeWriter::new(std::io::stderr),
            ansi: std::io::stderr().is_terminal(),
        }
    }

    /// How lines are written.
    #[must_use]
    pub fn format(mut self, format: Format) -> Self {
        self.format = format;
        self
    }

    /// Sends traces to this URL (`http://collector:4317`), whatever `OTEL_EXPORTER_OTLP_ENDPOINT` says.
    #[must_use]
    pub fn collector(mut self, url: impl Into<String>) -> Self {
        self.collector = Some(url.into());
        self
    }

    /// Sends the spans of this crate or module too. What they have is your business: their fields are sent as they are.
    #[must_use]
    pub fn spans_of(mut self, target: impl Into<String>) -> Self {
        self.spans_of.push(target.into());
        self
    }

    /// Writes lines somewhere else, without colours.
    #[must_use]
    pub fn writer(mut self, writer: impl for<'a> MakeWriter<'a> + Send + Sync + 'static) -> Self {
        (self.writer, self.ansi) = (BoxMakeWriter::new(writer), false);
        self
    }

    /// Takes care of all logs and spans of the process from now on. Call it once, at the beginning, inside the runtime.
    ///
    /// # Errors
    /// [`SetupError`].
    pub fn init(self) -> Result<Telemetry, SetupError> {
        let (subscriber, telemetry) = self.build()?;
        tracing::dispatcher::set_global_default(subscriber).map_err(SetupError::Taken)?;
        Ok(telemetry)
    }

    /// As [`init`](Self::init), for whoever decides where it takes care: a test, for its own thread.
    ///
    /// # Errors
    /// [`SetupError`].
    pub fn build(self) -> Result<(Dispatch, Telemetry), SetupError> {
        let plan = plan(self.collector.as_deref(), &environment)?;
        let provider = plan.map(|plan| otlp::provider(plan, &self.service)).transpose()?;
        let traces = provider.as_ref().map(|provider| otlp::layer(provider, self.spans_of));
        let value = environment("RUST_LOG").unwrap_or_else(|| "info".to_owned());
        let filter = parse(&value).map_err(|source| SetupError::LogFilter { value, source })?;
        let (filter, level) = reload::Layer::new(filter);
        // Whatever is left out, lines know which object they are about; spans for collectors alone are not for lines.
        // The hints leave the most detailed level to the filter.
        let of_reconciles = filter_fn(|metadata| metadata.is_span() && metadata.target() == RECONCILE)
            .with_max_level_hint(LevelFilter::ERROR);
        let of_others = filter_fn(|metadata| metadata.target() != TARGET && !has_bodies(metadata))
            .with_max_level_hint(LevelFilter::TRACE);
        let lines = tracing_subscriber::fmt::layer()
            .with_writer(self.writer)
            .with_ansi(self.ansi)
            .fmt_fields(JsonFields::new())
            .event_format(Lines(self.format))
            .with_filter(filter.or(of_reconciles).and(of_others));
        if provider.is_some() {
            ON.store(true, Ordering::Relaxed);
        }
        let subscriber = tracing_subscriber::registry().with(traces).with(lines);
        Ok((subscriber.into(), Telemetry(Arc::new(Inner { provider, level }))))
    }
}

/// kube warns of answers that it cannot read with the whole of them: lists of Secrets, if there is one in it that it cannot. Who asked gets an error.
fn has_bodies(metadata: &tracing::Metadata<'_>) -> bool {
    metadata.target() == "kube_client::client" && *metadata.level() == tracing::Level::WARN
}
