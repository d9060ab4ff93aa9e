//! A collector of traces.

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

/// Takes whatever is sent to it.
pub(crate) struct Collector {
    address: SocketAddr,
    spans: Spans,
    server: tokio::task::JoinHandle<()>,
}

#[derive(Clone, Default)]
struct Spans(Arc<Mutex<Vec<Span>>>);

/// A span, with what there is to know of its service.
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
        let mut spans = self.0.lock().expect("nobody panics with it");
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

    /// One that speaks TLS.
    pub(crate) async fn secure(pair: &Pair) -> Self {
        let tls = ServerTlsConfig::new().identity(Identity::from_pem(&pair.cert, &pair.key));
        Self::serve(Server::builder().tls_config(tls).expect("they belong together")).await
    }

    async fn serve(mut server: Server) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("there is a free port");
        let address = listener.local_addr().expect("it is bound");
        let spans = Spans::default();
        let service = TraceServiceServer::new(spans.clone());
        let server = tokio::spawn(async move {
            let ended = server.add_service(service).serve_with_incoming(TcpIncoming::from(listener));
            ended.await.expect("the collector serves");
        });
        Self { address, spans, server }
    }

    pub(crate) fn address(&self) -> SocketAddr {
        self.address
    }

    /// All spans so far.
    pub(crate) fn spans(&self) -> Vec<Span> {
        self.spans.0.lock().expect("nobody panics with it").clone()
    }

    /// The first span that `is`; waits for it.
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

    /// An attribute as text; empty if there is none.
    pub(crate) fn attribute(&self, key: &str) -> String {
        text(&self.span.attributes, key)
    }

    /// The same of its service.
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
