//! The span of a request to the apiserver.

use http::StatusCode;
use tower::BoxError;
use tracing::Span;
use tracing::field::Empty;

use super::{TARGET, TraceContext};
use crate::error::Closed;

/// A request that may get a span.
pub(crate) struct CallTo<'a> {
    pub(crate) method: &'a str,
    /// The path without names.
    pub(crate) template: String,
    /// Without the query, which may be confidential.
    pub(crate) url: String,
    pub(crate) address: &'a str,
    pub(crate) port: i64,
}

/// A request in flight. If it is dropped before it ends, it was cancelled.
pub(crate) struct Call {
    span: Span,
    context: TraceContext,
    ended: bool,
}

impl Call {
    /// Starts a span, if the surrounding code is in a sampled trace.
    pub(crate) fn begin<'a>(to: impl FnOnce() -> CallTo<'a>) -> Option<Self> {
        TraceContext::current().filter(TraceContext::is_sampled)?;
        let to = to();
        let span = tracing::info_span!(
            target: TARGET,
            "call",
            otel.name = format!("{} {}", to.method, to.template),
            otel.kind = "client",
            otel.status_code = Empty,
            http.request.method = to.method,
            http.response.status_code = Empty,
            url.full = to.url,
            url.template = to.template,
            server.address = to.address,
            server.port = to.port,
            "error.type" = Empty,
        );
        let context = TraceContext::of(&span)?;
        Some(Self { span, context, ended: false })
    }

    pub(crate) fn context(&self) -> TraceContext {
        self.context.clone()
    }

    pub(crate) fn span(&self) -> Span {
        self.span.clone()
    }

    /// Ends the span when the head of the response has arrived, or the request has failed.
    pub(crate) fn end(mut self, status: Option<StatusCode>, error: Option<&BoxError>) {
        self.ended = true;
        if let Some(status) = status {
            self.span.record("http.response.status_code", i64::from(status.as_u16()));
            if status.is_client_error() || status.is_server_error() {
                self.failed(status.as_str());
            }
        }
        match error {
            Some(error) if error.is::<Closed>() => self.failed("LeaseLost"),
            Some(_) => self.failed("ApiUnreachable"),
            None => {}
        }
    }

    fn failed(&self, kind: &str) {
        self.span.record("error.type", kind);
        self.span.record("otel.status_code", "ERROR");
    }
}

impl Drop for Call {
    fn drop(&mut self) {
        if !self.ended {
            self.failed("Cancelled");
        }
    }
}
