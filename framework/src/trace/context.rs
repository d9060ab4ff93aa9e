//! The trace context that is passed from one program to the next.

use std::sync::atomic::{AtomicBool, Ordering};

use http::{HeaderMap, HeaderName, HeaderValue};
use kube::Resource;
use opentelemetry::KeyValue;
use opentelemetry::propagation::{Extractor, TextMapPropagator};
use opentelemetry::trace::{SpanContext, TraceContextExt};
use opentelemetry_sdk::propagation::TraceContextPropagator;
use tracing::Span;
use tracing_opentelemetry::OpenTelemetrySpanExt;
use tracing_subscriber::Registry;
use tracing_subscriber::registry::LookupSpan;

/// Whether traces are enabled in this process.
pub(crate) static TRACES_ENABLED: AtomicBool = AtomicBool::new(false);

/// Returns whether traces are enabled.
pub(crate) fn on() -> bool {
    TRACES_ENABLED.load(Ordering::Relaxed)
}

/// The annotation of a [stamp](TraceContext::stamp).
pub const TRACEPARENT: &str = "framework.trishanku.org/traceparent";

/// A span of a trace, as in [W3C Trace Context](https://www.w3.org/TR/trace-context/). There is none unless traces are
/// [enabled](crate::telemetry).
#[derive(Clone, Debug)]
pub struct TraceContext(SpanContext);

/// The ids of a trace that a span of the registry has, for log lines inside it.
pub(crate) struct TraceIds {
    pub(crate) trace: String,
    pub(crate) span: String,
}

impl PartialEq for TraceContext {
    /// The same span, from whatever source.
    fn eq(&self, other: &Self) -> bool {
        self.0.trace_id() == other.0.trace_id() && self.0.span_id() == other.0.span_id()
    }
}

impl Eq for TraceContext {}

impl TraceContext {
    /// Returns the current span, which is that of the reconcile or one inside it; `None` without traces.
    pub fn current() -> Option<Self> {
        Self::of(&Span::current())
    }

    /// Returns the context of a span. This starts the span: it accepts no more links.
    pub(crate) fn of(span: &Span) -> Option<Self> {
        if !on() || span.is_disabled() {
            return None;
        }
        let context = span.context().span().span_context().clone();
        context.is_valid().then_some(Self(context))
    }

    /// Parses a header `traceparent`; `None` if it is invalid.
    pub fn parse(traceparent: &str) -> Option<Self> {
        struct Head<'a>(&'a str);
        impl Extractor for Head<'_> {
            fn get(&self, key: &str) -> Option<&str> {
                (key == "traceparent").then_some(self.0)
            }
            fn keys(&self) -> Vec<&str> {
                vec!["traceparent"]
            }
        }
        let context = TraceContextPropagator::new().extract(&Head(traceparent));
        let context = context.span().span_context().clone();
        context.is_valid().then_some(Self(context))
    }

    /// Returns the trace id, as 32 hexadecimal digits.
    pub fn trace_id(&self) -> String {
        self.0.trace_id().to_string()
    }

    /// Returns the span id, as 16 hexadecimal digits.
    pub fn span_id(&self) -> String {
        self.0.span_id().to_string()
    }

    /// Returns whether the trace is sampled; others are only ids.
    pub fn is_sampled(&self) -> bool {
        self.0.is_sampled()
    }

    /// Formats it as a header `traceparent`.
    pub fn traceparent(&self) -> String {
        format!("00-{}-{}-0{}", self.0.trace_id(), self.0.span_id(), u8::from(self.is_sampled()))
    }

    /// Returns the context that was [stamped](Self::stamp) on an object.
    pub fn on(object: &impl Resource) -> Option<Self> {
        Self::parse(object.meta().annotations.as_ref()?.get(TRACEPARENT)?)
    }

    /// Stamps an object with the annotation [`TRACEPARENT`]: reconciles of the object link to this span.
    ///
    /// For objects that are created. On an existing object, each stamp is a change, and triggers every controller that
    /// watches it.
    pub fn stamp(&self, object: &mut impl Resource) {
        object.meta_mut().annotations.get_or_insert_default().insert(TRACEPARENT.to_owned(), self.traceparent());
    }

    /// Links a span that has not started to this one, which is its cause.
    pub(crate) fn link(self, span: &Span, cause: &'static str) {
        span.add_link_with_attributes(self.0, vec![KeyValue::new("link", cause)]);
    }

    /// Shows its ids in log lines inside the span, from now on.
    pub(crate) fn identify(&self, span: &Span) {
        span.with_subscriber(|(id, subscriber)| {
            let registry = subscriber.downcast_ref::<Registry>();
            if let Some(span) = registry.and_then(|registry| registry.span(id)) {
                span.extensions_mut().replace(TraceIds { trace: self.trace_id(), span: self.span_id() });
            }
        });
    }

    /// Adds it to the headers of a request.
    pub(crate) fn send_in(&self, headers: &mut HeaderMap) {
        let mut send = |name: &'static str, value: String| {
            if let Ok(value) = HeaderValue::try_from(value) {
                headers.insert(HeaderName::from_static(name), value);
            }
        };
        send("traceparent", self.traceparent());
        let state = self.0.trace_state().header();
        if !state.is_empty() {
            send("tracestate", state);
        }
    }
}

#[cfg(test)]
mod tests {
    use k8s_openapi::api::core::v1::ConfigMap;

    use super::*;

    const PARENT: &str = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01";

    #[test]
    fn a_stamp_is_read_as_it_was_written_and_nonsense_is_none() {
        let context = TraceContext::parse(PARENT).expect("the context is valid");
        assert_eq!((context.traceparent().as_str(), context.is_sampled()), (PARENT, true));
        assert_eq!(context.trace_id(), "0af7651916cd43dd8448eb211c80319c");
        assert_eq!(context.span_id(), "b7ad6b7169203331");
        let mut map = ConfigMap::default();
        assert_eq!(TraceContext::on(&map), None);
        context.stamp(&mut map);
        assert_eq!(TraceContext::on(&map), Some(context));
        for nonsense in ["", "00", "00-00000000000000000000000000000000-b7ad6b7169203331-01", &PARENT[4..]] {
            map.metadata.annotations = Some([(TRACEPARENT.to_owned(), nonsense.to_owned())].into());
            assert_eq!(TraceContext::on(&map), None, "{nonsense}");
        }
    }

    #[test]
    fn requests_are_sent_what_the_trace_says_of_itself() {
        let mut headers = HeaderMap::new();
        let state = "vendor=value".parse().expect("the state is valid");
        let TraceContext(context) = TraceContext::parse(PARENT).expect("the context is valid");
        let context = SpanContext::new(context.trace_id(), context.span_id(), context.trace_flags(), false, state);
        TraceContext(context).send_in(&mut headers);
        assert_eq!(
            (&headers["traceparent"], &headers["tracestate"]),
            (&HeaderValue::from_static(PARENT), &HeaderValue::from_static("vendor=value"))
        );
    }

    #[test]
    fn without_traces_there_is_no_context() {
        assert_eq!(TraceContext::current(), None);
    }
}
