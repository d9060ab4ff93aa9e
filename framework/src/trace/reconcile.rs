//! The span of a reconcile, and its links.

use std::collections::HashMap;
use std::sync::{Mutex, PoisonError};

use tracing::field::Empty;
use tracing::{Instrument, Span};

use super::context::on;
use super::{RECONCILE, TraceContext};
use crate::Key;
use crate::metrics::Ending;
use crate::queue::Lane;

/// The object of a reconcile, and its trigger.
pub(crate) struct Subject<'a> {
    pub(crate) controller: &'a str,
    pub(crate) kind: &'a str,
    pub(crate) key: &'a Key,
    pub(crate) generation: Option<i64>,
    pub(crate) lane: Lane,
    pub(crate) failures: u32,
}

/// The traces of objects that will be reconciled again: the next reconcile links to the last one.
///
/// It has as many entries as the queue has timers. Idle objects have none.
#[derive(Debug, Default)]
pub(crate) struct Trail(Mutex<HashMap<Key, TraceContext>>);

impl Trail {
    fn with<T>(&self, act: impl FnOnce(&mut HashMap<Key, TraceContext>) -> T) -> T {
        act(&mut self.0.lock().unwrap_or_else(PoisonError::into_inner))
    }

    pub(crate) fn forget(&self, key: &Key) {
        if on() {
            self.with(|last| last.remove(key));
        }
    }

    pub(crate) fn clear(&self) {
        self.with(HashMap::clear);
    }

    /// Starts the span of a reconcile, with links to its causes; `origin` is the context on the object.
    pub(crate) fn begin(&self, of: &Subject<'_>, origin: impl FnOnce() -> Option<TraceContext>) -> Reconcile<'_> {
        // Of level error, so that no log filter removes it: log lines need its fields.
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
        if on() {
            self.lead_on(&span, of.key, origin());
        }
        Reconcile { span, key: of.key.clone(), trail: self, ended: false }
    }

    /// Links a span to its causes, and keeps it for the next reconcile.
    fn lead_on(&self, span: &Span, key: &Key, origin: Option<TraceContext>) {
        let links = [("previous", self.with(|last| last.remove(key))), ("origin", origin)];
        for (cause, context) in links.into_iter().filter_map(|(cause, link)| Some((cause, link?))) {
            context.link(span, cause);
        }
        // Starts the span, so no more links after this.
        let Some(context) = TraceContext::of(span) else { return };
        context.identify(span);
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

/// A running reconcile. If it is dropped before it ends, it panicked or was cancelled.
pub(crate) struct Reconcile<'a> {
    span: Span,
    key: Key,
    trail: &'a Trail,
    ended: bool,
}

impl Reconcile<'_> {
    /// Runs `work` inside the span. It returns the reason of a failure, too.
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
        // No log line follows, so only the trace needs it, and recording takes time.
        if on() {
            self.span.record("outcome", outcome(ending));
        }
        if matches!(ending, Ending::Failed | Ending::Terminal | Ending::TimedOut | Ending::Panicked) {
            self.span.record("otel.status_code", "ERROR");
        }
        if let Some(reason) = reason {
            self.span.record("error.type", reason);
        }
        // After a terminal failure, the next reconcile has another cause.
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
