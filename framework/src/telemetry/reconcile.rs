//! The span of a reconcile, and what leads from one to the next.

use std::collections::HashMap;
use std::sync::{Mutex, PoisonError};

use opentelemetry::KeyValue;
use tracing::field::Empty;
use tracing::{Instrument, Span};
use tracing_opentelemetry::OpenTelemetrySpanExt;

use super::{RECONCILE, TraceContext, logs};
use crate::Key;
use crate::metrics::Ending;
use crate::queue::Lane;

/// What is reconciled, and why.
pub(crate) struct Subject<'a> {
    pub(crate) controller: &'a str,
    pub(crate) kind: &'a str,
    pub(crate) key: &'a Key,
    pub(crate) generation: Option<i64>,
    pub(crate) lane: Lane,
    pub(crate) failures: u32,
}

/// The traces of objects that are to be looked at again: what they were last is the reason for what comes next.
///
/// It has as many as the queue has timers: who is at rest is forgotten.
#[derive(Debug, Default)]
pub(crate) struct Trail(Mutex<HashMap<Key, TraceContext>>);

impl Trail {
    fn with<T>(&self, act: impl FnOnce(&mut HashMap<Key, TraceContext>) -> T) -> T {
        act(&mut self.0.lock().unwrap_or_else(PoisonError::into_inner))
    }

    pub(crate) fn forget(&self, key: &Key) {
        if super::on() {
            self.with(|last| last.remove(key));
        }
    }

    pub(crate) fn clear(&self) {
        self.with(HashMap::clear);
    }

    /// Begins a span for a reconcile, with links to what led to it; `origin` is where the object comes from, if it says so.
    pub(crate) fn begin(&self, of: &Subject<'_>, origin: impl FnOnce() -> Option<TraceContext>) -> Reconcile<'_> {
        // An error only by its level: whatever is left out of the log, lines say which object they are about.
        let span = tracing::error_span!(
            target: RECONCILE,
            parent: None,
            "reconcile",
            controller = of.controller,
            object.kind = of.kind,
            object.namespace = of.key.namespace(),
            object.name = of.key.name(),
            object.generation = of.generation,
            trigger = trigger(of.lane),
            attempt = i64::from(of.failures) + 1,
            outcome = Empty,
            "error.type" = Empty,
            otel.status_code = Empty,
        );
        if super::on() {
            self.lead_on(&span, of.key, origin());
        }
        Reconcile { span, key: of.key.clone(), trail: self, ended: false }
    }

    /// Links a span to what led to it, and keeps it for what comes next.
    fn lead_on(&self, span: &Span, key: &Key, origin: Option<TraceContext>) {
        let links = [("previous", self.with(|last| last.remove(key))), ("origin", origin)];
        for (what, TraceContext(context)) in links.into_iter().filter_map(|(what, link)| Some((what, link?))) {
            span.add_link_with_attributes(context, vec![KeyValue::new("link", what)]);
        }
        // No more links after this: it has begun.
        let Some(context) = TraceContext::of(span) else { return };
        logs::identify(span, &context);
        if context.is_sampled() {
            self.with(|last| last.insert(key.clone(), context));
        }
    }
}

fn trigger(lane: Lane) -> &'static str {
    match lane {
        Lane::Changed => "changed",
        Lane::Due => "due",
        Lane::Resync => "resync",
    }
}

/// A reconcile under way. If it is dropped without an end, it panicked or was cancelled.
pub(crate) struct Reconcile<'a> {
    span: Span,
    key: Key,
    trail: &'a Trail,
    ended: bool,
}

impl Reconcile<'_> {
    /// Runs it inside the span; `reason` is that of a failure.
    pub(crate) async fn run<T>(mut self, work: impl Future<Output = (T, Ending, Option<&'static str>)>) -> (T, Ending) {
        let span = self.span.clone();
        async move {
            let (outcome, ending, reason) = work.await;
            self.end(ending, reason);
            (outcome, ending)
        }
        .instrument(span)
        .await
    }

    fn end(&mut self, ending: Ending, reason: Option<&'static str>) {
        self.ended = true;
        // No line of the log comes after it: only a trace tells of it, and what is recorded takes time.
        if super::on() {
            self.span.record("outcome", outcome(ending));
        }
        if matches!(ending, Ending::Failed | Ending::Terminal | Ending::TimedOut | Ending::Panicked) {
            self.span.record("otel.status_code", "ERROR");
        }
        if let Some(reason) = reason {
            self.span.record("error.type", reason);
        }
        // A terminal one is only tried again for another reason.
        if matches!(ending, Ending::Success | Ending::Terminal) {
            self.trail.forget(&self.key);
        }
    }
}

impl Drop for Reconcile<'_> {
    fn drop(&mut self) {
        if self.ended {
            return;
        }
        if std::thread::panicking() {
            self.end(Ending::Panicked, Some("Panicked"));
            tracing::error!(reason = "Panicked", "the reconcile panicked");
        } else {
            self.end(Ending::Cancelled, None);
        }
    }
}

fn outcome(ending: Ending) -> &'static str {
    match ending {
        Ending::Success => "success",
        Ending::Again => "requeue_after",
        Ending::AtOnce => "requeue",
        Ending::Failed => "error",
        Ending::Terminal => "terminal_error",
        Ending::TimedOut => "timeout",
        Ending::Panicked => "panic",
        Ending::Cancelled => "cancelled",
    }
}
