//! The trace context of programs without traces: there is none.

use http::HeaderMap;
use kube::Resource;
use tracing::Span;

/// Placeholder without the feature `telemetry`: there is no value of it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum TraceContext {}

/// Returns whether traces are enabled.
pub(crate) fn on() -> bool {
    false
}

impl TraceContext {
    pub(crate) fn current() -> Option<Self> {
        None
    }

    pub(crate) fn of(_: &Span) -> Option<Self> {
        None
    }

    pub(crate) fn on(_: &impl Resource) -> Option<Self> {
        None
    }

    pub(crate) fn is_sampled(&self) -> bool {
        match *self {}
    }

    pub(crate) fn stamp(&self, _: &mut impl Resource) {
        match *self {}
    }

    pub(crate) fn send_in(&self, _: &mut HeaderMap) {
        match *self {}
    }

    pub(crate) fn link(self, _: &Span, _: &'static str) {
        match self {}
    }

    pub(crate) fn identify(&self, _: &Span) {
        match *self {}
    }
}
