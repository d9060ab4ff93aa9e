//! Logs, and traces for a collector.
//!
//! ```no_run
//! use trishanku_framework::telemetry::{Format, Settings};
//!
//! # #[tokio::main(flavor = "current_thread")]
//! # async fn main() -> Result<(), Box<dyn std::error::Error>> {
//! let telemetry = Settings::new("tank-controller").format(Format::Json).spans_of("tanks").init()?;
//! let manager = trishanku_framework::Manager::new(kube::Config::infer().await?).telemetry(&telemetry);
//! manager.run(async { drop(tokio::signal::ctrl_c().await) }).await?;
//! telemetry.end().await;
//! # Ok(())
//! # }
//! ```
//!
//! # Logs
//!
//! They go to standard error, for people or as JSON ([`Format`]). A line inside a reconcile has `controller`, `object.kind`,
//! `object.namespace`, `object.name`, `trigger` and `attempt`, and if it is traced, `trace_id` and `span_id`. The log filter
//! is that of [`Settings::log_filter`], or else `RUST_LOG`, in the syntax of `tracing-subscriber` (`info,tanks=debug`), by
//! default `info`. [`Telemetry::set_log_filter`] or `PUT /debug/log` ([`serve`](crate::serve)) change it at run time.
//!
//! # Traces
//!
//! Every reconcile is a trace: a root span `reconcile` with object, generation, trigger, attempt and outcome, and a span for
//! every request to the apiserver ([`Calls`](crate::client::Calls)), which is asked to continue the trace. Links lead from a
//! reconcile to its causes:
//!
//! | attribute `link` of the link | target |
//! |---|---|
//! | `previous` | the object's last reconcile, if that failed or asked for another one |
//! | `origin` | the context that is [stamped](TraceContext::stamp) on the object: the reconcile that created it |
//!
//! Traces are off unless [`Settings::collector`] or OpenTelemetry's variables enable them. While they are off, a reconcile
//! pays for the check of one flag. If the collector is unreachable, spans are lost, with a warning once a minute; no
//! reconcile waits for it.
//!
//! | variable | |
//! |---|---|
//! | `OTEL_TRACES_EXPORTER` | `otlp` enables traces, `none` disables them; others are rejected |
//! | `OTEL_EXPORTER_OTLP_ENDPOINT` | enables them, too; [`Settings::collector`] takes precedence |
//! | `OTEL_EXPORTER_OTLP_PROTOCOL` | only `grpc`; `http/protobuf` and `http/json` are rejected |
//! | `OTEL_EXPORTER_OTLP_HEADERS`, `_TIMEOUT`, `_CERTIFICATE`, `_CLIENT_CERTIFICATE`, `_CLIENT_KEY` | as specified; compression is not supported |
//! | `OTEL_SERVICE_NAME`, `OTEL_RESOURCE_ATTRIBUTES` | as specified |
//! | `OTEL_TRACES_SAMPLER`, `_ARG` | as specified; `jaeger_remote`, `parentbased_jaeger_remote` and `xray` are rejected |
//! | `OTEL_BSP_…`, `OTEL_SPAN_…_LIMIT` | as specified |
//! | `OTEL_SDK_DISABLED` | `true` disables traces in any case |
//! | `OTEL_PROPAGATORS` | not read: W3C Trace Context, no baggage |
//!
//! `OTEL_EXPORTER_OTLP_TRACES_…` takes precedence over `OTEL_EXPORTER_OTLP_…`. Only traces are exported: logs go to standard
//! error, and metrics are scraped ([`metrics`](crate::metrics)).
//!
//! **Secrets.** Spans contain what this page names. They contain no bodies, headers or queries, and of an error the reason,
//! not the message. Spans of other crates (kube's contain whole URLs) are left out, unless [`Settings::spans_of`] names them.

mod otlp;
mod settings;

use std::sync::Arc;
use std::time::Duration;

use opentelemetry_sdk::trace::SdkTracerProvider;
use tracing_subscriber::filter::EnvFilter;
use tracing_subscriber::layer::Layered;
use tracing_subscriber::{Layer, Registry, reload};

pub use self::settings::{Settings, SetupError};
pub use crate::trace::{TRACEPARENT, TraceContext};
pub use trishanku_service::log_lines::{Format, UnknownFormat};
pub use trishanku_service::otlp::OtlpError;

/// How long the collector may take to accept the last spans.
const FLUSH_LIMIT: Duration = Duration::from_secs(3);

/// Error of an invalid log filter.
#[derive(Debug, thiserror::Error)]
#[error("{0}; a filter is a level, or `crate=level`, with commas between several")]
pub struct UnknownFilter(tracing_subscriber::filter::ParseError);

fn parse(filter: &str) -> Result<EnvFilter, UnknownFilter> {
    EnvFilter::try_new(filter).map_err(UnknownFilter)
}

/// The subscriber below the log: the registry and the traces.
type Traced = Layered<Option<Box<dyn Layer<Registry> + Send + Sync>>, Registry>;

/// Running logs and traces. Clones share them.
#[derive(Clone)]
pub struct Telemetry(Arc<Inner>);

struct Inner {
    provider: Option<SdkTracerProvider>,
    level: reload::Handle<EnvFilter, Traced>,
}

impl Telemetry {
    /// Returns the log filter.
    pub fn log_filter(&self) -> String {
        self.0.level.with_current(ToString::to_string).unwrap_or_default()
    }

    /// Sets the log filter (`debug`, `info,tanks=debug`).
    ///
    /// # Errors
    /// [`UnknownFilter`]; the filter stays as it is.
    pub fn set_log_filter(&self, filter: &str) -> Result<(), UnknownFilter> {
        let parsed = parse(filter)?;
        // Fails if the subscriber is gone, and with it the log.
        let _set = self.0.level.reload(parsed);
        Ok(())
    }

    /// Sends the spans that have ended, within three seconds. A [`Manager`](crate::Manager) does so after its controllers
    /// have stopped.
    pub async fn flush(&self) {
        let Some(provider) = self.0.provider.clone() else { return };
        let flushed = tokio::task::spawn_blocking(move || provider.force_flush());
        if let Ok(Ok(Err(error))) = tokio::time::timeout(FLUSH_LIMIT, flushed).await {
            tracing::warn!(%error, "the last traces may be lost");
        }
    }

    /// Sends the last spans as [`flush`](Self::flush) does, and accepts no more.
    pub async fn end(&self) {
        let Some(provider) = self.0.provider.clone() else { return };
        let ended = tokio::task::spawn_blocking(move || provider.shutdown_with_timeout(FLUSH_LIMIT)).await;
        if let Ok(Err(error)) = ended {
            tracing::warn!(%error, "the last traces may be lost");
        }
    }
}

impl std::fmt::Debug for Telemetry {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let (log, traces) = (self.log_filter(), self.0.provider.is_some());
        f.debug_struct("Telemetry").field("log", &log).field("traces", &traces).finish()
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use std::io;
    use std::sync::{Mutex, PoisonError};

    use tracing_subscriber::fmt::MakeWriter;

    use super::*;
    use crate::trace::{Subject, Trail};

    /// A writer that keeps the text.
    #[derive(Clone, Debug, Default)]
    pub(crate) struct Lines(Arc<Mutex<Vec<u8>>>);

    impl Lines {
        pub(crate) fn text(&self) -> String {
            String::from_utf8(self.0.lock().unwrap_or_else(PoisonError::into_inner).clone()).unwrap()
        }
    }

    impl io::Write for Lines {
        fn write(&mut self, text: &[u8]) -> io::Result<usize> {
            self.0.lock().unwrap_or_else(PoisonError::into_inner).write(text)
        }

        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    impl<'a> MakeWriter<'a> for Lines {
        type Writer = Self;

        fn make_writer(&'a self) -> Self {
            self.clone()
        }
    }

    #[test]
    fn what_is_logged_changes_at_once_and_nonsense_changes_nothing() {
        let lines = Lines::default();
        let (subscriber, telemetry) = Settings::new("test").writer(lines.clone()).build().unwrap();
        let say = |what: &str| tracing::dispatcher::with_default(&subscriber, || tracing::debug!("{what}"));
        say("one");
        telemetry.set_log_filter("warn,trishanku_framework=debug").unwrap();
        assert_eq!(telemetry.log_filter(), "trishanku_framework=debug,warn");
        say("two");
        let error = telemetry.set_log_filter("tank=loud").unwrap_err().to_string();
        assert!(error.contains("a filter is a level"), "{error}");
        say("three");
        telemetry.set_log_filter("off").unwrap();
        say("four");
        let said: Vec<_> =
            lines.text().lines().filter_map(|line| line.split_whitespace().last()).map(ToOwned::to_owned).collect();
        assert_eq!(said, ["two", "three"]);
    }

    #[test]
    fn the_programs_own_filter_applies_from_the_start_and_nonsense_is_an_error() {
        let lines = Lines::default();
        let (subscriber, telemetry) =
            Settings::new("test").log_filter("trishanku_framework=debug").writer(lines.clone()).build().unwrap();
        tracing::dispatcher::with_default(&subscriber, || tracing::debug!("in detail"));
        assert_eq!(telemetry.log_filter(), "trishanku_framework=debug");
        assert!(lines.text().contains("in detail"), "{}", lines.text());
        let error = Settings::new("test").log_filter("tank=loud").build().expect_err("there is no such level");
        let SetupError::LogFilter { value, source } = &error else { panic!("{error}") };
        assert_eq!((value.as_str(), error.to_string().as_str()), ("tank=loud", "\"tank=loud\" is not a log filter"));
        assert!(source.to_string().contains("a filter is a level"), "{source}");
    }

    #[tokio::test]
    async fn answers_that_cannot_be_read_are_not_in_the_log() {
        let lines = Lines::default();
        let (subscriber, telemetry) = Settings::new("test").writer(lines.clone()).build().unwrap();
        let service = tower::service_fn(async |_: http::Request<kube::client::Body>| {
            Ok::<_, std::io::Error>(http::Response::new(kube::client::Body::from(
                b"{\"data\": {\"a\": \"sesame".to_vec(),
            )))
        });
        let here = tracing::dispatcher::set_default(&subscriber);
        let client = kube::Client::new(service, "default");
        let secrets: kube::Api<k8s_openapi::api::core::v1::Secret> = kube::Api::default_namespaced(client);
        telemetry.set_log_filter("info").unwrap();
        let unread = secrets.get("a").await;
        tracing::warn!("it was asked for");
        drop(here);
        assert!(matches!(unread, Err(kube::Error::SerdeError(_))), "{unread:?}");
        let text = lines.text();
        assert!(text.contains("it was asked for") && !text.contains("sesame"), "{text}");
    }

    #[test]
    fn lines_know_their_object_whatever_is_left_out() {
        let lines = Lines::default();
        let (subscriber, telemetry) = Settings::new("test").format(Format::Json).writer(lines.clone()).build().unwrap();
        telemetry.set_log_filter("trishanku_framework::telemetry=warn").unwrap();
        let trail = Trail::default();
        let key = crate::Key::namespaced("plant", "a");
        let subject = Subject {
            controller: "tank",
            kind: "Tank",
            key: &key,
            generation: Some(3),
            lane: crate::queue::Lane::Due,
            failures: 1,
        };
        tracing::dispatcher::with_default(&subscriber, || {
            let work = async {
                tracing::info!("not said");
                tracing::warn!("it leaks");
                ((), crate::metrics::Ending::Success, None)
            };
            futures::executor::block_on(trail.begin(&subject, || None).run(work));
        });
        let line: serde_json::Value = serde_json::from_str(&lines.text()).expect("there is one line");
        for (name, value) in [
            ("message", "it leaks"),
            ("controller", "tank"),
            ("object.kind", "Tank"),
            ("object.namespace", "plant"),
            ("object.name", "a"),
            ("trigger", "due"),
        ] {
            assert_eq!(line[name], value, "{line}");
        }
        assert_eq!((&line["object.generation"], &line["attempt"]), (&3.into(), &2.into()));
        assert!(line.get("trace_id").is_none(), "{line}");
    }
}
