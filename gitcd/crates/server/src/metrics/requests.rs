//! Counts gRPC requests by service, method and code, under etcd's names, which are those of go-grpc-prometheus.

use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use axum::body::{Body, Bytes, HttpBody};
use http::{Request as HttpRequest, Response};
use http_body::Frame;
use prometheus_client::encoding::EncodeLabelSet;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::registry::Registry;

use super::clients::Clients;
use super::codes::{CANCELED, CODES, OK, code_in};
use super::messages::{Counted, Position};

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

/// Counters of a branch's requests. As in etcd, every method has its counters from the start, so a request only looks up its
/// method, by path.
#[derive(Clone, Debug)]
pub struct Requests {
    started: Family<Started, Counter>,
    handled: Family<Handled, Counter>,
    methods: Arc<[Counters]>,
    pub(super) clients: Arc<Clients>,
}

/// The counters of one method.
#[derive(Debug)]
struct Counters {
    path: String,
    is_unary: bool,
    started: Counter,
    handled: [Counter; CODES.len()],
    kind: &'static str,
    service: &'static str,
    name: &'static str,
    /// Messages of streams.
    received: Counter,
    sent: Counter,
}

impl Default for Requests {
    fn default() -> Self {
        let (started, handled) = (Family::<Started, Counter>::default(), Family::<Handled, Counter>::default());
        let counters = |Method { service, name, kind }| {
            let method = Started { grpc_type: kind, grpc_service: service, grpc_method: name };
            Counters {
                path: format!("/{service}/{name}"),
                is_unary: kind == UNARY,
                started: started.get_or_create_owned(&method),
                handled: CODES.map(|code| {
                    let labels = Handled { grpc_type: kind, grpc_service: service, grpc_method: name, grpc_code: code };
                    handled.get_or_create_owned(&labels)
                }),
                kind,
                service,
                name,
                received: Counter::default(),
                sent: Counter::default(),
            }
        };
        let methods = methods().map(counters).collect();
        Self { started, handled, methods, clients: Arc::default() }
    }
}

impl Requests {
    pub(super) fn register(&self, registry: &mut Registry) {
        registry.register("grpc_server_started", "Total number of RPCs started on the server", self.started.clone());
        let help = "Total number of RPCs completed on the server, regardless of success or failure";
        registry.register("grpc_server_handled", help, self.handled.clone());
    }

    /// Returns the messages received and sent, by method. A unary request has one of each; as in etcd, an error counts, too.
    pub(super) fn messages(&self) -> impl Iterator<Item = ([(&'static str, &'static str); 3], u64, u64)> {
        self.methods.iter().map(|method| {
            let labels = [("grpc_type", method.kind), ("grpc_service", method.service), ("grpc_method", method.name)];
            if method.is_unary {
                (labels, method.started.get(), method.handled.iter().map(Counter::get).sum())
            } else {
                (labels, method.received.get(), method.sent.get())
            }
        })
    }

    /// Counts the start of a request, if it is for a known method.
    pub(crate) fn begin<B>(&self, request: &HttpRequest<B>) -> Option<Request> {
        let path = request.uri().path();
        // The most frequent methods come first.
        let method = self.methods.iter().position(|method| method.path == path)?;
        let counters = &self.methods[method];
        counters.started.inc();
        self.clients.count(request.headers(), !counters.is_unary);
        Some(Request { methods: self.methods.clone(), method, code: CANCELED })
    }
}

/// A method as labels; only known ones, so that clients cannot invent time series.
#[derive(Clone, Copy, Debug)]
struct Method {
    service: &'static str,
    name: &'static str,
    kind: &'static str,
}

const UNARY: &str = "unary";
const SERVER_STREAM: &str = "server_stream";
const BIDI_STREAM: &str = "bidi_stream";

/// A service, its unary methods, its streams with their kinds.
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
    (
        "etcdserverpb.Auth",
        &[
            "AuthEnable",
            "AuthDisable",
            "AuthStatus",
            "Authenticate",
            "UserAdd",
            "UserGet",
            "UserList",
            "UserDelete",
            "UserChangePassword",
            "UserGrantRole",
            "UserRevokeRole",
            "RoleAdd",
            "RoleGet",
            "RoleList",
            "RoleDelete",
            "RoleGrantPermission",
            "RoleRevokePermission",
        ],
        &[],
    ),
    ("v3lockpb.Lock", &["Lock", "Unlock"], &[]),
    ("v3electionpb.Election", &["Campaign", "Proclaim", "Leader", "Resign"], &[("Observe", SERVER_STREAM)]),
    ("grpc.health.v1.Health", &["Check"], &[("Watch", SERVER_STREAM)]),
];

fn methods() -> impl Iterator<Item = Method> {
    SERVICES.iter().flat_map(|(service, unary, streams)| {
        let unary = unary.iter().map(|name| (*name, UNARY));
        unary.chain(streams.iter().copied()).map(move |(name, kind)| Method { service, name, kind })
    })
}

/// A request in progress. Counted as handled when dropped, however it ends: a client may disconnect at any time.
#[derive(Debug)]
pub(crate) struct Request {
    methods: Arc<[Counters]>,
    method: usize,
    code: usize,
}

impl Request {
    /// Ends the request with a code.
    pub(crate) fn end(mut self, code: tonic::Code) {
        self.code = code as usize;
    }

    /// Wraps the body of the request; messages of a stream are counted as they arrive.
    pub(crate) fn receives(&self, body: Body) -> Body {
        let counters = &self.methods[self.method];
        if counters.is_unary {
            return body;
        }
        Body::new(Counted { inner: body, position: Position::default(), messages: counters.received.clone() })
    }

    /// Records the response; a stream ends later.
    pub(crate) fn answered(self, answer: Response<Body>) -> Response<Body> {
        let mut request = self;
        if let Some(code) = code_in(answer.headers()) {
            request.code = code;
            return answer;
        }
        if request.methods[request.method].is_unary {
            // An error would be in the headers: a unary handler has finished by now.
            request.code = OK;
            return answer;
        }
        answer.map(|inner| Body::new(Ending { inner, request, position: Position::default() }))
    }
}

impl Drop for Request {
    fn drop(&mut self) {
        self.methods[self.method].handled[self.code].inc();
    }
}

/// The body of a stream, whose code is in its trailers.
struct Ending {
    inner: Body,
    request: Request,
    position: Position,
}

impl HttpBody for Ending {
    type Data = Bytes;
    type Error = axum::Error;

    fn poll_frame(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, axum::Error>>> {
        let this = &mut *self;
        let frame = std::task::ready!(Pin::new(&mut this.inner).poll_frame(cx));
        if let Some(Ok(frame)) = &frame {
            if let Some(code) = frame.trailers_ref().and_then(code_in) {
                this.request.code = code;
            } else if let Some(data) = frame.data_ref() {
                this.request.methods[this.request.method].sent.inc_by(this.position.pass(data));
            }
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
        let requests = Requests::default();
        let begin = |path: &str| requests.begin(&HttpRequest::builder().uri(path).body(()).unwrap());
        for path in ["/etcdserverpb.KV/Invented", "/x/Range", "/metrics", "/"] {
            assert!(begin(path).is_none(), "{path}");
        }
        begin("/etcdserverpb.KV/Range").unwrap().end(tonic::Code::NotFound);
        drop(begin("/etcdserverpb.Watch/Watch").unwrap());
        let handled = |kind, service, name, code| {
            let labels = Handled { grpc_type: kind, grpc_service: service, grpc_method: name, grpc_code: code };
            requests.handled.get(&labels).unwrap().get()
        };
        assert_eq!(handled(UNARY, "etcdserverpb.KV", "Range", "NotFound"), 1);
        assert_eq!(handled(UNARY, "etcdserverpb.KV", "Range", "OK"), 0);
        assert_eq!(handled(BIDI_STREAM, "etcdserverpb.Watch", "Watch", "Canceled"), 1);
    }
}
