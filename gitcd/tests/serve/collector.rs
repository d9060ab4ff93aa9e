//! An OTLP collector for traces.

use std::net::SocketAddr;
use std::sync::{Arc, Mutex};

use opentelemetry_proto::tonic::collector::trace::v1::trace_service_server::{TraceService, TraceServiceServer};
use opentelemetry_proto::tonic::collector::trace::v1::{ExportTraceServiceRequest, ExportTraceServiceResponse};
use opentelemetry_proto::tonic::common::v1::any_value::Value;
use opentelemetry_proto::tonic::common::v1::{AnyValue, KeyValue};
use opentelemetry_proto::tonic::trace::v1 as otlp;
use tokio::net::TcpListener;
use tonic::transport::server::TcpIncoming;
use tonic::transport::{Identity, Server, ServerTlsConfig};
use tonic::{Request, Response, Status};

use super::authority::Pair;
use super::support::eventually;

/// Records all spans that it receives.
pub(crate) struct Collector {
    address: SocketAddr,
    spans: Spans,
    server: tokio::task::JoinHandle<()>,
}

#[derive(Clone, Default)]
struct Spans(Arc<Mutex<Vec<Span>>>);

/// A span with the resource of its service.
#[derive(Clone, Debug)]
pub(crate) struct Span {
    pub(crate) service: Vec<KeyValue>,
    pub(crate) span: otlp::Span,
}

#[tonic::async_trait]
impl TraceService for Spans {
    async fn export(
        &self,
        request: Request<ExportTraceServiceRequest>,
    ) -> Result<Response<ExportTraceServiceResponse>, Status> {
        let mut spans = self.0.lock().expect("no thread panics while holding the lock");
        for resource in request.into_inner().resource_spans {
            let service = resource.resource.unwrap_or_default().attributes;
            let of_scopes = resource.scope_spans.into_iter().flat_map(|scope| scope.spans);
            spans.extend(of_scopes.map(|span| Span { service: service.clone(), span }));
        }
        Ok(Response::new(ExportTraceServiceResponse::default()))
    }
}

impl Collector {
    pub(crate) async fn start() -> Self {
        Self::serve(Server::builder()).await
    }

    /// Starts a collector that serves TLS.
    pub(crate) async fn secure(pair: &Pair) -> Self {
        let tls = ServerTlsConfig::new().identity(Identity::from_pem(&pair.cert, &pair.key));
        Self::serve(Server::builder().tls_config(tls).expect("certificate and key match")).await
    }

    async fn serve(mut server: Server) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("a free port exists");
        let address = listener.local_addr().expect("the listener is bound");
        let spans = Spans::default();
        let service = TraceServiceServer::new(spans.clone());
        let server = tokio::spawn(async move {
            let ended = server.add_service(service).serve_with_incoming(TcpIncoming::from(listener));
            ended.await.expect("the collector can serve");
        });
        Self { address, spans, server }
    }

    pub(crate) fn address(&self) -> SocketAddr {
        self.address
    }

    /// Returns all spans received so far.
    pub(crate) fn spans(&self) -> Vec<Span> {
        self.spans.0.lock().expect("no thread panics while holding the lock").clone()
    }

    /// Waits for the first span that `is` accepts.
    pub(crate) async fn span(&self, what: &str, is: impl Fn(&Span) -> bool) -> Span {
        eventually(what, async || self.spans().into_iter().find(&is)).await
    }
}

impl Drop for Collector {
    fn drop(&mut self) {
        self.server.abort();
    }
}

impl Span {
    pub(crate) fn name(&self) -> &str {
        &self.span.name
    }

    pub(crate) fn is_child_of(&self, parent: &Self) -> bool {
        self.span.trace_id == parent.span.trace_id && self.span.parent_span_id == parent.span.span_id
    }

    /// An attribute as text; empty if absent.
    pub(crate) fn attribute(&self, key: &str) -> String {
        text(&self.span.attributes, key)
    }

    /// An attribute of its service's resource as text; empty if absent.
    pub(crate) fn service(&self, key: &str) -> String {
        text(&self.service, key)
    }
}

fn text(attributes: &[KeyValue], key: &str) -> String {
    let found = attributes.iter().find(|attribute| attribute.key == key);
    match found.and_then(|attribute| attribute.value.as_ref()) {
        Some(AnyValue { value: Some(Value::StringValue(text)) }) => text.clone(),
        Some(AnyValue { value: Some(Value::IntValue(number)) }) => number.to_string(),
        other => other.map(|value| format!("{value:?}")).unwrap_or_default(),
    }
}
