//! An HTTP client that shows all of an answer, also while it comes.

use std::sync::Arc;

use bytes::Bytes;
use http::{HeaderMap, Method, Request, Response};
use http_body_util::{BodyExt, Full};
use hyper::body::Incoming;
use hyper_util::rt::{TokioExecutor, TokioIo};
use serde_json::Value;
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;
use tokio_rustls::rustls::pki_types::pem::PemObject;
use tokio_rustls::rustls::pki_types::{CertificateDer, PrivateKeyDer};
use tokio_rustls::rustls::{ClientConfig, RootCertStore, crypto::ring::default_provider};

use crate::authority::Pair;
use crate::support::{PATIENCE, Server};

/// How a client reaches a server.
#[derive(Clone, Copy)]
pub(crate) enum Way<'a> {
    Plain,
    /// By TLS, with the server's authority, the client's certificate, and HTTP/2 or HTTP/1.1.
    Secure {
        authority: &'a str,
        identity: &'a Pair,
        http2: bool,
    },
}

/// An answer whose body has not been read yet.
pub(crate) struct Answer {
    pub(crate) status: u16,
    pub(crate) headers: HeaderMap,
    body: Incoming,
    read: Vec<u8>,
}

/// Sends a request on a connection of its own.
pub(crate) async fn send(server: &Server, way: Way<'_>, request: Request<String>) -> Answer {
    let (mut parts, body) = request.into_parts();
    let body = Full::new(Bytes::from(body));
    let answer = match way {
        Way::Plain => {
            parts.headers.entry("host").or_insert("localhost".parse().expect("it is a name"));
            let stream = TcpStream::connect(server.address()).await.expect("the server listens");
            http1(stream, Request::from_parts(parts, body)).await
        }
        Way::Secure { authority, identity, http2 } => {
            let stream = TcpStream::connect(server.secure_address()).await.expect("the server listens");
            let tls = TlsConnector::from(Arc::new(config(authority, identity, http2)));
            let stream =
                tls.connect("localhost".try_into().expect("it is a name"), stream).await.expect("they know each other");
            if http2 {
                let uri = format!("https://localhost{}", parts.uri);
                parts.uri = uri.parse().expect("it has a path");
                http2_exchange(stream, Request::from_parts(parts, body)).await
            } else {
                parts.headers.entry("host").or_insert("localhost".parse().expect("it is a name"));
                http1(stream, Request::from_parts(parts, body)).await
            }
        }
    };
    let (parts, body) = answer.into_parts();
    Answer { status: parts.status.as_u16(), headers: parts.headers, body, read: Vec::new() }
}

async fn http1<S>(stream: S, request: Request<Full<Bytes>>) -> Response<Incoming>
where
    S: tokio::io::AsyncRead + tokio::io::AsyncWrite + Unpin + Send + 'static,
{
    let (mut sender, connection) =
        hyper::client::conn::http1::handshake(TokioIo::new(stream)).await.expect("HTTP needs no more");
    tokio::spawn(connection);
    tokio::time::timeout(PATIENCE, sender.send_request(request))
        .await
        .expect("an answer comes")
        .expect("the connection holds")
}

async fn http2_exchange<S>(stream: S, request: Request<Full<Bytes>>) -> Response<Incoming>
where
    S: tokio::io::AsyncRead + tokio::io::AsyncWrite + Unpin + Send + 'static,
{
    let handshake = hyper::client::conn::http2::handshake(TokioExecutor::new(), TokioIo::new(stream)).await;
    let (mut sender, connection) = handshake.expect("HTTP needs no more");
    tokio::spawn(connection);
    tokio::time::timeout(PATIENCE, sender.send_request(request))
        .await
        .expect("an answer comes")
        .expect("the connection holds")
}

fn config(authority: &str, identity: &Pair, http2: bool) -> ClientConfig {
    let der = |pem: &str| CertificateDer::from_pem_slice(pem.as_bytes()).expect("it was just made");
    let mut roots = RootCertStore::empty();
    roots.add(der(authority)).expect("it is an authority");
    let key = PrivateKeyDer::from_pem_slice(identity.key.as_bytes()).expect("it was just made");
    let mut config = ClientConfig::builder_with_provider(default_provider().into())
        .with_safe_default_protocol_versions()
        .expect("there are suites for them")
        .with_root_certificates(roots)
        .with_client_auth_cert(vec![der(&identity.cert)], key)
        .expect("they belong together");
    config.alpn_protocols = vec![if http2 { b"h2".to_vec() } else { b"http/1.1".to_vec() }];
    config
}

impl Answer {
    pub(crate) fn header(&self, name: &str) -> Option<String> {
        self.headers.get(name).map(|value| String::from_utf8_lossy(value.as_bytes()).into_owned())
    }

    /// The next line of the body; nothing at its end.
    pub(crate) async fn line(&mut self) -> Option<Value> {
        loop {
            if let Some(end) = self.read.iter().position(|byte| *byte == b'\n') {
                let line: Vec<_> = self.read.drain(..=end).collect();
                return Some(serde_json::from_slice(&line).expect("every line is JSON"));
            }
            let frame = tokio::time::timeout(PATIENCE, self.body.frame()).await.expect("the body goes on");
            let Some(frame) = frame else {
                assert!(self.read.is_empty(), "half a line: {:?}", self.read);
                return None;
            };
            if let Ok(data) = frame.expect("the connection holds").into_data() {
                self.read.extend_from_slice(&data);
            }
        }
    }

    /// The whole body.
    pub(crate) async fn text(self) -> String {
        let rest = tokio::time::timeout(PATIENCE, self.body.collect()).await.expect("the body ends");
        let mut read = self.read;
        read.extend_from_slice(&rest.expect("the connection holds").to_bytes());
        String::from_utf8(read).expect("it is text")
    }
}

/// A request with a body of JSON.
#[expect(clippy::needless_pass_by_value, reason = "callers make the body where they pass it")]
pub(crate) fn post(path: &str, body: impl ToString) -> Request<String> {
    Request::builder().method(Method::POST).uri(path).body(body.to_string()).expect("the path is one")
}
