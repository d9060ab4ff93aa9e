//! A span for every gRPC request, in the trace of its client.

use std::sync::Arc;

use axum::body::Body;
use axum::extract::Request;
use axum::http::{HeaderMap, header};
use axum::middleware::{Next, from_fn};
use axum::response::Response;
use http_body_util::BodyExt;
use opentelemetry::propagation::{Extractor, TextMapPropagator};
use opentelemetry::trace::TraceContextExt;
use opentelemetry_sdk::propagation::TraceContextPropagator;
use tonic::Code;
use tracing::field::Empty;
use tracing::{Instrument, Span, info_span};
use tracing_opentelemetry::OpenTelemetrySpanExt;

use super::TARGET;

pub(super) fn traced(routes: axum::Router, branch: Arc<str>) -> axum::Router {
    routes.layer(from_fn(move |request, next| trace(branch.clone(), request, next)))
}

async fn trace(branch: Arc<str>, request: Request, next: Next) -> Response {
    let Some(span) = begin(&branch, &request) else { return next.run(request).await };
    let response = next.run(request).instrument(span.clone()).await;
    let mut outcome = Outcome { span, recorded: false };
    // An error without a message has its status in the headers; otherwise it follows the last message.
    outcome.read(response.headers());
    response.map(|body| {
        Body::new(body.map_frame(move |frame| {
            if let Some(trailers) = frame.trailers_ref() {
                outcome.read(trailers);
            }
            frame
        }))
    })
}

/// Returns the span of a request, if its client or our own sampling selects it.
fn begin(branch: &str, request: &Request) -> Option<Span> {
    let kind = request.headers().get(header::CONTENT_TYPE)?;
    if !kind.as_bytes().starts_with(b"application/grpc") {
        return None;
    }
    let name = request.uri().path().strip_prefix('/')?;
    let (service, method) = name.split_once('/')?;
    let span = info_span!(
        target: TARGET,
        parent: None,
        "request",
        otel.name = name,
        otel.kind = "server",
        otel.status_code = Empty,
        rpc.system = "grpc",
        rpc.service = service,
        rpc.method = method,
        rpc.grpc.status_code = Empty,
        gitcd.branch = branch,
    );
    let parent = TraceContextPropagator::new().extract(&Headers(request.headers()));
    span.set_parent(parent).ok()?;
    span.context().span().span_context().is_sampled().then_some(span)
}

struct Headers<'a>(&'a HeaderMap);

impl Extractor for Headers<'_> {
    fn get(&self, key: &str) -> Option<&str> {
        self.0.get(key)?.to_str().ok()
    }

    fn keys(&self) -> Vec<&str> {
        self.0.keys().map(header::HeaderName::as_str).collect()
    }
}

/// Ends the span with the response, or when the client disconnects before.
struct Outcome {
    span: Span,
    recorded: bool,
}

impl Outcome {
    fn read(&mut self, headers: &HeaderMap) {
        let Some(code) = headers.get("grpc-status") else { return };
        self.record(Code::from_bytes(code.as_bytes()));
    }

    fn record(&mut self, code: Code) {
        self.recorded = true;
        // Entered, since a span ends when it is exited for the last time.
        self.span.in_scope(|| {
            self.span.record("rpc.grpc.status_code", code as i64);
            // Errors that are not the client's fault.
            if matches!(
                code,
                Code::Unknown
                    | Code::DeadlineExceeded
                    | Code::Unimplemented
                    | Code::Internal
                    | Code::Unavailable
                    | Code::DataLoss
            ) {
                self.span.record("otel.status_code", "ERROR");
            }
        });
    }
}

impl Drop for Outcome {
    fn drop(&mut self) {
        if !self.recorded {
            self.record(Code::Cancelled);
        }
    }
}
