//! A proxy in front of kube-apiserver that injects faults.

mod rule;
mod stream;

use std::convert::Infallible;
use std::net::{Ipv4Addr, SocketAddr};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Instant;

use bytes::Bytes;
use http::{HeaderMap, Request, Response, StatusCode, header};
use http_body_util::{BodyExt, Full};
use hyper::body::Incoming;
use hyper::service::service_fn;
use hyper_util::rt::TokioIo;
use kube::client::Body;
use kube::{Client, Config};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;

pub use self::rule::{Fault, Rule};
use self::stream::{Streams, Way};
use crate::TestCluster;

type Reply = http_body_util::combinators::UnsyncBoxBody<Bytes, std::io::Error>;

/// A request that the proxy received.
#[derive(Clone, Debug)]
pub struct Seen {
    /// `GET`, `PUT`, …
    pub method: http::Method,
    /// Path and query.
    pub uri: String,
    /// Whether it is a watch.
    pub watch: bool,
    /// When it arrived.
    pub at: Instant,
}

/// An HTTP server on loopback that forwards requests to kube-apiserver, unless a [rule](Self::add) applies.
///
/// It belongs to the runtime in which it is created. Its clients are cluster administrators, unless a request impersonates
/// another user.
#[derive(Clone)]
pub struct Proxy(Arc<Inner>);

struct Inner {
    address: SocketAddr,
    upstream: Client,
    rules: Mutex<Vec<Rule>>,
    seen: Mutex<Vec<Seen>>,
    streams: watch::Sender<Streams>,
    server: Mutex<Option<tokio::task::JoinHandle<()>>>,
}

impl Proxy {
    /// Starts a proxy in front of a cluster.
    ///
    /// # Panics
    /// If there is no free loopback port.
    pub async fn start(cluster: &TestCluster) -> Self {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await.expect("loopback has a free port");
        let address = listener.local_addr().expect("the listener is bound");
        let proxy = Self(Arc::new(Inner {
            address,
            upstream: cluster.client(),
            rules: Mutex::default(),
            seen: Mutex::default(),
            streams: watch::channel(Streams::default()).0,
            server: Mutex::default(),
        }));
        let serving = Arc::downgrade(&proxy.0);
        let server = tokio::spawn(async move {
            let mut connections = tokio::task::JoinSet::new();
            while let Ok((connection, _)) = listener.accept().await {
                let Some(inner) = serving.upgrade() else { return };
                connections.spawn(serve(connection, Self(inner)));
                while connections.try_join_next().is_some() {}
            }
        });
        *lock(&proxy.0.server) = Some(server);
        proxy
    }

    /// Returns the configuration of a client that goes through it.
    ///
    /// # Panics
    /// Never: an address makes a URL.
    pub fn config(&self) -> Config {
        let mut config = Config::new(format!("http://{}", self.0.address).parse().expect("an address makes a URL"));
        config.default_retry = false;
        config
    }

    /// Returns a client that goes through it, for the runtime in which this is called.
    ///
    /// # Panics
    /// Never: plain HTTP needs no files.
    pub fn client(&self) -> Client {
        Client::try_from(self.config()).expect("plain HTTP needs no files")
    }

    /// Adds a rule. If several match a request, the one that was added first applies.
    pub fn add(&self, rule: Rule) {
        lock(&self.0.rules).push(rule);
    }

    /// Removes all rules.
    pub fn clear(&self) {
        lock(&self.0.rules).clear();
    }

    /// Breaks all responses in flight, such as watches, as a lost connection does.
    pub fn cut(&self) {
        self.0.streams.send_modify(|streams| streams.end(Way::Broken));
    }

    /// Ends all watches, as a server does that shuts down.
    pub fn end_watches(&self) {
        self.0.streams.send_modify(|streams| streams.end(Way::Orderly));
    }

    /// Drops everything in both directions, silently: requests and watches hang.
    pub fn partition(&self) {
        self.0.streams.send_modify(|streams| streams.parted = true);
    }

    /// Ends a [`partition`](Self::partition). Requests that hang continue.
    pub fn heal(&self) {
        self.0.streams.send_modify(|streams| streams.parted = false);
    }

    /// Returns all requests so far, including those that were not forwarded.
    pub fn seen(&self) -> Vec<Seen> {
        lock(&self.0.seen).clone()
    }

    fn rule_for(&self, seen: &Seen) -> Option<Fault> {
        let mut rules = lock(&self.0.rules);
        let index = rules.iter().position(|rule| rule.is_for(seen))?;
        let (fault, spent) = rules[index].apply();
        if spent {
            rules.remove(index);
        }
        Some(fault)
    }

    /// Answers a request; `None` breaks the connection.
    async fn answer(&self, request: Request<Incoming>) -> Option<Response<Reply>> {
        let uri = request.uri().path_and_query().map_or_else(|| "/".to_owned(), ToString::to_string);
        let watch = uri.contains("watch=true") || uri.contains("watch=1");
        let seen = Seen { method: request.method().clone(), uri, watch, at: Instant::now() };
        lock(&self.0.seen).push(seen.clone());
        let mut streams = self.0.streams.subscribe();
        healed(&mut streams).await;
        match self.rule_for(&seen) {
            Some(Fault::Status { code, retry_after }) => return Some(refusal(code, retry_after)),
            Some(Fault::Delay(time)) => tokio::time::sleep(time).await,
            Some(Fault::Break) => return None,
            Some(Fault::Hang) => std::future::pending().await,
            Some(Fault::BreakAfter) => {
                let _done = self.pass(request, &seen.uri).await;
                return None;
            }
            None => {}
        }
        let (parts, body) = self.pass(request, &seen.uri).await?.into_parts();
        healed(&mut streams).await;
        let mut answer = Response::new(stream::through(body, streams, seen.watch));
        *answer.status_mut() = parts.status;
        *answer.headers_mut() = end_to_end(parts.headers);
        Some(answer)
    }

    async fn pass(&self, request: Request<Incoming>, uri: &str) -> Option<Response<Body>> {
        let (parts, body) = request.into_parts();
        let body = body.collect().await.ok()?.to_bytes();
        let mut passed = Request::new(Body::from(body));
        *passed.method_mut() = parts.method;
        *passed.uri_mut() = uri.parse().ok()?;
        *passed.headers_mut() = end_to_end(parts.headers);
        self.0.upstream.send(passed).await.ok()
    }
}

impl Drop for Inner {
    fn drop(&mut self) {
        if let Some(server) = lock(&self.server).take() {
            server.abort();
        }
    }
}

async fn serve(connection: TcpStream, proxy: Proxy) {
    let weak = Arc::downgrade(&proxy.0);
    drop(proxy);
    let service = service_fn(move |request| {
        let proxy = weak.upgrade().map(Proxy);
        async move {
            let answer = match proxy {
                Some(proxy) => proxy.answer(request).await,
                None => None,
            };
            answer.ok_or_else(broken)
        }
    });
    // The client notices the end of the connection.
    let _broken = hyper::server::conn::http1::Builder::new().serve_connection(TokioIo::new(connection), service).await;
}

fn broken() -> std::io::Error {
    std::io::Error::other("broken on purpose")
}

async fn healed(streams: &mut watch::Receiver<Streams>) {
    // The sender lives as long as the proxy; without it, there is nothing to wait for.
    let _gone = streams.wait_for(|streams| !streams.parted).await;
}

/// Returns an error response like those of kube-apiserver.
fn refusal(code: u16, retry_after: Option<u32>) -> Response<Reply> {
    let text = format!(
        r#"{{"kind":"Status","apiVersion":"v1","status":"Failure","message":"refused on purpose","reason":"{}","code":{code}}}"#,
        match code {
            409 => "Conflict",
            410 => "Expired",
            429 => "TooManyRequests",
            500 => "InternalError",
            503 => "ServiceUnavailable",
            _ => "Unknown",
        }
    );
    let body = Full::new(Bytes::from(text)).map_err(|never: Infallible| match never {}).boxed_unsync();
    let mut answer = Response::new(body);
    *answer.status_mut() = StatusCode::from_u16(code).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
    answer.headers_mut().insert(header::CONTENT_TYPE, header::HeaderValue::from_static("application/json"));
    if let Some(seconds) = retry_after {
        answer.headers_mut().insert(header::RETRY_AFTER, seconds.into());
    }
    answer
}

/// Removes headers of a single connection, and credentials.
fn end_to_end(mut headers: HeaderMap) -> HeaderMap {
    let hops =
        [header::HOST, header::CONNECTION, header::TRANSFER_ENCODING, header::CONTENT_LENGTH, header::AUTHORIZATION];
    for name in hops {
        headers.remove(name);
    }
    headers
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
