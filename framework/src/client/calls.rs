//! Traces and metrics of every request.

use std::sync::Arc;
use std::time::Instant;

use futures::FutureExt;
use futures::future::BoxFuture;
use http::{Request, Response, Uri};
use tower::{BoxError, Layer, Service};
use tracing::Instrument;

use super::pace::is_watch;
use super::path::template;
use crate::around::{Around, Surrounded};
use crate::metrics::{Metrics, Requests};
use crate::trace::{Call, CallTo, TraceContext};

/// A layer that propagates traces and counts requests.
///
/// - A request inside a sampled trace (in a reconcile, if [traces](crate::telemetry) are enabled) gets a span of its own,
///   with method, path, path template and status by [OpenTelemetry's conventions][http], and without body and query.
/// - A request inside any trace has the header `traceparent`, and `tracestate` if there is one, by [W3C Trace Context][w3c].
/// - Every request counts in `rest_client_requests_total`, if there are metrics.
///
/// A span ends, and the duration is measured, when the head of the response arrives. Each attempt is a request: no layer
/// below retries. Without traces, a request costs the check of a flag and two counters.
///
/// [http]: https://opentelemetry.io/docs/specs/semconv/http/http-spans/
/// [w3c]: https://www.w3.org/TR/trace-context/
#[derive(Clone, Debug)]
pub struct Calls(Arc<Server>);

#[derive(Debug)]
struct Server {
    /// Prefix of every URL.
    url: String,
    host: String,
    address: String,
    port: i64,
    metrics: Option<Requests>,
}

impl Calls {
    /// Creates a layer for requests to this apiserver ([`kube::Config::cluster_url`]).
    pub fn to(cluster_url: &Uri, metrics: Option<&Metrics>) -> Self {
        let default_port = if cluster_url.scheme_str() == Some("http") { 80 } else { 443 };
        Self(Arc::new(Server {
            url: cluster_url.to_string().trim_end_matches('/').to_owned(),
            host: cluster_url.authority().map(ToString::to_string).unwrap_or_default(),
            address: cluster_url.host().unwrap_or_default().to_owned(),
            port: cluster_url.port_u16().unwrap_or(default_port).into(),
            metrics: metrics.map(Metrics::requests),
        }))
    }

    fn begin<B>(&self, request: &Request<B>) -> Option<Call> {
        let path = request.uri().path();
        Call::begin(|| CallTo {
            method: request.method().as_str(),
            template: template(path),
            url: format!("{}{path}", self.0.url),
            address: &self.0.address,
            port: self.0.port,
        })
    }
}

impl<S> Layer<S> for Calls {
    type Service = Surrounded<S, Self>;

    fn layer(&self, inner: S) -> Self::Service {
        Surrounded::new(inner, self)
    }
}

impl<S, A, B> Around<S, A> for Calls
where
    S: Service<Request<A>, Response = Response<B>>,
    S::Future: Send + 'static,
    S::Error: Into<BoxError>,
    B: 'static,
{
    fn around(&self, inner: &mut S, mut request: Request<A>) -> BoxFuture<'static, Result<Response<B>, BoxError>> {
        let call = self.begin(&request);
        // Also if the trace is not sampled: the apiserver must not sample it either.
        let context = call.as_ref().map(Call::context);
        if let Some(context) = context.or_else(TraceContext::current) {
            context.send_in(request.headers_mut());
        }
        let (server, began) = (self.0.clone(), Instant::now());
        let (method, watch) = (request.method().clone(), is_watch(request.uri()));
        let span = call.as_ref().map_or_else(tracing::Span::none, Call::span);
        let answer = inner.call(request);
        async move {
            let answer = answer.await.map_err(Into::into);
            let status = answer.as_ref().ok().map(Response::status);
            if let Some(metrics) = &server.metrics {
                let took = (!watch).then(|| began.elapsed());
                metrics.answered(&method, &server.host, status, took);
            }
            if let Some(call) = call {
                call.end(status, answer.as_ref().err());
            }
            answer
        }
        .instrument(span)
        .boxed()
    }
}

#[cfg(test)]
mod tests {
    use tower::service_fn;

    use super::*;

    #[tokio::test]
    async fn every_request_is_counted_and_without_traces_carries_none() {
        let metrics = Metrics::default();
        let calls = Calls::to(&"https://10.0.0.1:6443/".parse().unwrap(), Some(&metrics));
        let mut service = calls.layer(service_fn(async |request: Request<()>| {
            assert!(!request.headers().contains_key("traceparent"));
            if request.uri().path() == "/gone" { Err(BoxError::from("gone")) } else { Ok(Response::new(())) }
        }));
        for uri in ["/api/v1/pods", "/api/v1/pods?watch=true", "/gone"] {
            let _answered = service.call(Request::get(uri).body(()).unwrap()).await;
        }
        let text = metrics.text();
        for line in [
            "rest_client_requests_total{code=\"200\",method=\"GET\",host=\"10.0.0.1:6443\"} 2",
            "rest_client_requests_total{code=\"<error>\",method=\"GET\",host=\"10.0.0.1:6443\"} 1",
            "rest_client_request_duration_seconds_count{verb=\"GET\",host=\"10.0.0.1:6443\"} 2",
        ] {
            assert!(text.lines().any(|there| there == line), "{line} is not in\n{text}");
        }
    }
}
