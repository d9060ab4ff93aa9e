//! A collector of traces.

use std::net::SocketAddr;
use std::sync::{Arc, Mutex, PoisonError};

use opentelemetry_proto::tonic::collector::trace::v1::trace_service_server::{TraceService, TraceServiceServer};
use opentelemetry_proto::tonic::collector::trace::v1::{ExportTraceServiceRequest, ExportTraceServiceResponse};
use opentelemetry_proto::tonic::common::v1::any_value::Value;
use opentelemetry_proto::tonic::common::v1::{AnyValue, KeyValue};
use opentelemetry_proto::tonic::trace::v1 as otlp;
use tokio::net::TcpListener;
use tonic::transport::Server;
use tonic::transport::server::TcpIncoming;
use tonic::{Request, Response, Status};

use crate::wait;

/// A server that collects spans sent over OTLP (gRPC), until it is dropped.
#[derive(Debug)]
pub struct Collector {
    address: SocketAddr,
    spans: Spans,
    server: tokio::task::JoinHandle<()>,
}

#[derive(Clone, Debug, Default)]
struct Spans(Arc<Mutex<Vec<Span>>>);

/// A span, with the name of its service.
#[derive(Clone, Debug)]
pub struct Span {
    /// `service.name`.
    pub service: String,
    /// The span as it was exported.
    pub span: otlp::Span,
}

#[tonic::async_trait]
impl TraceService for Spans {
    async fn export(
        &self,
        request: Request<ExportTraceServiceRequest>,
    ) -> Result<Response<ExportTraceServiceResponse>, Status> {
        let mut spans = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        for resource in request.into_inner().resource_spans {
            let service = text(&resource.resource.unwrap_or_default().attributes, "service.name");
            let of_scopes = resource.scope_spans.into_iter().flat_map(|scope| scope.spans);
            spans.extend(of_scopes.map(|span| Span { service: service.clone(), span }));
        }
        Ok(Response::new(ExportTraceServiceResponse::default()))
    }
}

impl Collector {
    /// Listens on a free loopback port.
    ///
    /// # Panics
    /// If there is no free port.
    pub async fn start() -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("there is a free port");
        let address = listener.local_addr().expect("the listener is bound");
        let spans = Spans::default();
        let service = TraceServiceServer::new(spans.clone());
        let server = tokio::spawn(async move {
            let served = Server::builder().add_service(service).serve_with_incoming(TcpIncoming::from(listener)).await;
            served.expect("the collector serves");
        });
        Self { address, spans, server }
    }

    /// Returns its listen address.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Returns its URL, for exporters.
    pub fn url(&self) -> String {
        format!("http://{}", self.address)
    }

    /// Returns all spans so far.
    pub fn spans(&self) -> Vec<Span> {
        self.spans.0.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Waits for the first span for which `is` returns true, at most for [`wait::PATIENCE`].
    ///
    /// # Errors
    /// [`wait::TimedOut`], with the names of all spans.
    pub async fn span(&self, what: &str, is: impl Fn(&Span) -> bool) -> Result<Span, wait::TimedOut> {
        wait::until(what, async || {
            let spans = self.spans();
            let names = || spans.iter().map(|span| format!("{}: {}", span.service, span.name())).collect::<Vec<_>>();
            spans.iter().find(|span| is(span)).cloned().ok_or_else(|| format!("there are {:#?}", names()))
        })
        .await
    }
}

impl Drop for Collector {
    fn drop(&mut self) {
        self.server.abort();
    }
}

impl Span {
    /// Returns its name.
    pub fn name(&self) -> &str {
        &self.span.name
    }

    /// Returns the trace id, as 32 hexadecimal digits.
    pub fn trace_id(&self) -> String {
        hexadecimal(&self.span.trace_id)
    }

    /// Returns its id, as 16 hexadecimal digits.
    pub fn span_id(&self) -> String {
        hexadecimal(&self.span.span_id)
    }

    /// Returns whether its parent is `parent`.
    pub fn is_child_of(&self, parent: &Self) -> bool {
        self.span.trace_id == parent.span.trace_id && self.span.parent_span_id == parent.span.span_id
    }

    /// Returns whether it is in the same trace.
    pub fn is_of_trace_of(&self, other: &Self) -> bool {
        self.span.trace_id == other.span.trace_id
    }

    /// Returns an attribute as text; empty if there is none.
    pub fn attribute(&self, key: &str) -> String {
        text(&self.span.attributes, key)
    }

    /// Returns whether its status is an error.
    pub fn is_error(&self) -> bool {
        self.span.status.as_ref().is_some_and(|status| status.code == otlp::status::StatusCode::Error as i32)
    }

    /// Returns the ids of spans to which it has a link with this value of the attribute `link`.
    pub fn linked(&self, link: &str) -> Vec<String> {
        let links = self.span.links.iter().filter(|to| text(&to.attributes, "link") == link);
        links.map(|to| hexadecimal(&to.span_id)).collect()
    }
}

fn hexadecimal(bytes: &[u8]) -> String {
    bytes.iter().fold(String::new(), |text, byte| text + &format!("{byte:02x}"))
}

fn text(attributes: &[KeyValue], key: &str) -> String {
    let found = attributes.iter().find(|attribute| attribute.key == key);
    match found.and_then(|attribute| attribute.value.as_ref()) {
        Some(AnyValue { value: Some(Value::StringValue(text)) }) => text.clone(),
        Some(AnyValue { value: Some(Value::IntValue(number)) }) => number.to_string(),
        other => other.map(|value| format!("{value:?}")).unwrap_or_default(),
    }
}
