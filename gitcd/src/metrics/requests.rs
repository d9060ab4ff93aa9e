//! Counts gRPC requests by service, method and code, under the names that etcd has from go-grpc-prometheus.

use std::pin::Pin;
use std::task::{Context, Poll};

use axum::body::{Body, Bytes, HttpBody};
use http::{HeaderMap, Request, Response};
use http_body::Frame;
use prometheus_client::encoding::EncodeLabelSet;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::registry::Registry;
use tower::{Layer, Service};

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
#[expect(clippy::struct_field_names, reason = "the fields are the labels' names")]
struct Started {
    grpc_type: &'static str,
    grpc_service: &'static str,
    grpc_method: &'static str,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
#[expect(clippy::struct_field_names, reason = "the fields are the labels' names")]
struct Handled {
    grpc_type: &'static str,
    grpc_service: &'static str,
    grpc_method: &'static str,
    grpc_code: &'static str,
}

/// The requests of a branch.
#[derive(Clone, Debug, Default)]
pub struct Requests {
    started: Family<Started, Counter>,
    handled: Family<Handled, Counter>,
}

impl Requests {
    pub(super) fn register(&self, registry: &mut Registry) {
        registry.register("grpc_server_started", "Total number of RPCs started on the server", self.started.clone());
        let help = "Total number of RPCs completed on the server, regardless of success or failure";
        registry.register("grpc_server_handled", help, self.handled.clone());
    }
}

/// A method as labels; known ones only, so that clients cannot invent figures.
#[derive(Clone, Copy, Debug)]
struct Method {
    service: &'static str,
    name: &'static str,
    kind: &'static str,
}

const UNARY: &str = "unary";
const SERVER_STREAM: &str = "server_stream";
const BIDI_STREAM: &str = "bidi_stream";

/// A service, its methods with one answer, its streams with their kinds.
type Methods = (&'static str, &'static [&'static str], &'static [(&'static str, &'static str)]);

const SERVICES: &[Methods] = &[
    ("etcdserverpb.KV", &["Range", "Put", "DeleteRange", "Txn", "Compact"], &[("RangeStream", SERVER_STREAM)]),
    ("etcdserverpb.Watch", &[], &[("Watch", BIDI_STREAM)]),
    (
        "etcdserverpb.Lease",
        &["LeaseGrant", "LeaseRevoke", "LeaseTimeToLive", "LeaseLeases"],
        &[("LeaseKeepAlive", BIDI_STREAM)],
    ),
    ("etcdserverpb.Cluster", &["MemberAdd", "MemberRemove", "MemberUpdate", "MemberList", "MemberPromote"], &[]),
    (
        "etcdserverpb.Maintenance",
        &["Alarm", "Status", "Defragment", "Hash", "HashKV", "MoveLeader", "Downgrade"],
        &[("Snapshot", SERVER_STREAM)],
    ),
    ("etcdserverpb.Auth", &["AuthStatus", "AuthEnable", "AuthDisable", "Authenticate"], &[]),
    ("v3lockpb.Lock", &["Lock", "Unlock"], &[]),
    ("v3electionpb.Election", &["Campaign", "Proclaim", "Leader", "Resign"], &[("Observe", SERVER_STREAM)]),
    ("grpc.health.v1.Health", &["Check"], &[("Watch", SERVER_STREAM)]),
];

impl Method {
    fn of(path: &str) -> Option<Self> {
        let (service, name) = path.strip_prefix('/')?.split_once('/')?;
        let (service, unary, streams) = SERVICES.iter().find(|(known, ..)| *known == service)?;
        let one = unary.iter().find(|known| **known == name).map(|name| (*name, UNARY));
        let (name, kind) = one.or_else(|| streams.iter().find(|(known, _)| *known == name).copied())?;
        Some(Self { service, name, kind })
    }
}

/// The layer that counts.
#[derive(Clone, Debug)]
pub struct Counting(pub Requests);

impl<S> Layer<S> for Counting {
    type Service = Counted<S>;

    fn layer(&self, inner: S) -> Counted<S> {
        Counted { requests: self.0.clone(), inner }
    }
}

/// A service whose requests are counted.
#[derive(Clone, Debug)]
pub struct Counted<S> {
    requests: Requests,
    inner: S,
}

impl<S, B> Service<Request<B>> for Counted<S>
where
    S: Service<Request<B>, Response = Response<Body>>,
    S::Future: Send + 'static,
{
    type Response = Response<Body>;
    type Error = S::Error;
    type Future =
        futures::future::Either<S::Future, Pin<Box<dyn Future<Output = Result<Response<Body>, S::Error>> + Send>>>;

    fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), S::Error>> {
        self.inner.poll_ready(cx)
    }

    fn call(&mut self, request: Request<B>) -> Self::Future {
        let Some(method) = Method::of(request.uri().path()) else {
            return futures::future::Either::Left(self.inner.call(request));
        };
        let Method { service, name, kind } = method;
        self.requests
            .started
            .get_or_create(&Started { grpc_type: kind, grpc_service: service, grpc_method: name })
            .inc();
        // Counted when it is dropped, however the request ends.
        let end = End { requests: self.requests.clone(), method, code: CANCELED };
        let answer = self.inner.call(request);
        futures::future::Either::Right(Box::pin(async move {
            let answer = answer.await?;
            if let Some(code) = code_in(answer.headers()) {
                end.with(code);
                return Ok(answer);
            }
            if method.kind == UNARY {
                // An error would be in the headers: a handler of one answer has ended by now.
                end.with(OK);
                return Ok(answer);
            }
            Ok(answer.map(|inner| Body::new(Ending { inner, end })))
        }))
    }
}

const OK: usize = 0;
const CANCELED: usize = 1;
/// Go's names, by number.
const CODES: [&str; 17] = [
    "OK",
    "Canceled",
    "Unknown",
    "InvalidArgument",
    "DeadlineExceeded",
    "NotFound",
    "AlreadyExists",
    "PermissionDenied",
    "ResourceExhausted",
    "FailedPrecondition",
    "Aborted",
    "OutOfRange",
    "Unimplemented",
    "Internal",
    "Unavailable",
    "DataLoss",
    "Unauthenticated",
];

fn code_in(headers: &HeaderMap) -> Option<usize> {
    let code = headers.get("grpc-status")?.to_str().ok()?.parse().ok()?;
    Some(if code < CODES.len() { code } else { 2 })
}

#[derive(Debug)]
struct End {
    requests: Requests,
    method: Method,
    code: usize,
}

impl End {
    fn with(mut self, code: usize) {
        self.code = code;
    }
}

impl Drop for End {
    fn drop(&mut self) {
        let Method { service, name, kind } = self.method;
        let labels = Handled { grpc_type: kind, grpc_service: service, grpc_method: name, grpc_code: CODES[self.code] };
        self.requests.handled.get_or_create(&labels).inc();
    }
}

/// The body of a stream, whose code is in its trailers.
struct Ending {
    inner: Body,
    end: End,
}

impl HttpBody for Ending {
    type Data = Bytes;
    type Error = axum::Error;

    fn poll_frame(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, axum::Error>>> {
        let frame = std::task::ready!(Pin::new(&mut self.inner).poll_frame(cx));
        if let Some(Ok(frame)) = &frame
            && let Some(code) = frame.trailers_ref().and_then(code_in)
        {
            self.end.code = code;
        }
        Poll::Ready(frame)
    }

    fn is_end_stream(&self) -> bool {
        self.inner.is_end_stream()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_known_methods_are_counted() {
        let method = Method::of("/etcdserverpb.KV/Range").unwrap();
        assert_eq!((method.service, method.name, method.kind), ("etcdserverpb.KV", "Range", UNARY));
        assert_eq!(Method::of("/etcdserverpb.Watch/Watch").unwrap().kind, BIDI_STREAM);
        for path in ["/etcdserverpb.KV/Invented", "/x/Range", "/metrics", ""] {
            assert!(Method::of(path).is_none(), "{path}");
        }
    }
}
