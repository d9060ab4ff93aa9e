//! An HTTP client that shows the status, headers and body of a response, also while it is streamed.

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

/// How a client connects.
#[derive(Clone, Copy)]
pub(crate) enum Way<'a> {
    Plain,
    /// TLS with the server's CA, the client's certificate, and HTTP/2 or HTTP/1.1.
    Secure {
        authority: &'a str,
        identity: &'a Pair,
        http2: bool,
    },
}

/// A response whose body has not been read yet.
pub(crate) struct Answer {
    pub(crate) status: u16,
    pub(crate) headers: HeaderMap,
    body: Incoming,
    read: Vec<u8>,
}

/// Sends a request on a new connection.
pub(crate) async fn send(server: &Server, way: Way<'_>, request: Request<String>) -> Answer {
    let (mut parts, body) = request.into_parts();
    let body = Full::new(Bytes::from(body));
    let answer = match way {
        Way::Plain => {
            parts.headers.entry("host").or_insert("localhost".parse().expect("a host name is a valid header"));
            let stream = TcpStream::connect(server.address()).await.expect("the server listens");
            http1(stream, Request::from_parts(parts, body)).await
        }
        Way::Secure { authority, identity, http2 } => {
            let stream = TcpStream::connect(server.secure_address()).await.expect("the server listens");
            let tls = TlsConnector::from(Arc::new(config(authority, identity, http2)));
            let stream = tls
                .connect("localhost".try_into().expect("a host name is a valid server name"), stream)
                .await
                .expect("client and server trust each other");
            if http2 {
                let uri = format!("https://localhost{}", parts.uri);
                parts.uri = uri.parse().expect("the request has a path");
                http2_exchange(stream, Request::from_parts(parts, body)).await
            } else {
                parts.headers.entry("host").or_insert("localhost".parse().expect("a host name is a valid header"));
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
        hyper::client::conn::http1::handshake(TokioIo::new(stream)).await.expect("the HTTP handshake succeeds");
    tokio::spawn(connection);
    tokio::time::timeout(PATIENCE, sender.send_request(request))
        .await
        .expect("the server answers in time")
        .expect("the connection stays open")
}

async fn http2_exchange<S>(stream: S, request: Request<Full<Bytes>>) -> Response<Incoming>
where
    S: tokio::io::AsyncRead + tokio::io::AsyncWrite + Unpin + Send + 'static,
{
    let handshake = hyper::client::conn::http2::handshake(TokioExecutor::new(), TokioIo::new(stream)).await;
    let (mut sender, connection) = handshake.expect("the HTTP handshake succeeds");
    tokio::spawn(connection);
    tokio::time::timeout(PATIENCE, sender.send_request(request))
        .await
        .expect("the server answers in time")
        .expect("the connection stays open")
}

fn config(authority: &str, identity: &Pair, http2: bool) -> ClientConfig {
    let der = |pem: &str| CertificateDer::from_pem_slice(pem.as_bytes()).expect("a generated certificate is valid");
    let mut roots = RootCertStore::empty();
    roots.add(der(authority)).expect("the certificate is a CA");
    let key = PrivateKeyDer::from_pem_slice(identity.key.as_bytes()).expect("a generated key is valid");
    let mut config = ClientConfig::builder_with_provider(default_provider().into())
        .with_safe_default_protocol_versions()
        .expect("cipher suites exist for these versions")
        .with_root_certificates(roots)
        .with_client_auth_cert(vec![der(&identity.cert)], key)
        .expect("key and certificate match");
    config.alpn_protocols = vec![if http2 { b"h2".to_vec() } else { b"http/1.1".to_vec() }];
    config
}

impl Answer {
    pub(crate) fn header(&self, name: &str) -> Option<String> {
        self.headers.get(name).map(|value| String::from_utf8_lossy(value.as_bytes()).into_owned())
    }

    /// Reads the next line of the body; `None` at its end.
    pub(crate) async fn line(&mut self) -> Option<Value> {
        loop {
            if let Some(end) = self.read.iter().position(|byte| *byte == b'\n') {
                let line: Vec<_> = self.read.drain(..=end).collect();
                return Some(serde_json::from_slice(&line).expect("every line is JSON"));
            }
            let frame =
                tokio::time::timeout(PATIENCE, self.body.frame()).await.expect("more of the body arrives in time");
            let Some(frame) = frame else {
                assert!(self.read.is_empty(), "half a line: {:?}", self.read);
                return None;
            };
            if let Ok(data) = frame.expect("the connection stays open").into_data() {
                self.read.extend_from_slice(&data);
            }
        }
    }

    /// Reads the whole body.
    pub(crate) async fn text(self) -> String {
        let rest = tokio::time::timeout(PATIENCE, self.body.collect()).await.expect("the body ends in time");
        let mut read = self.read;
        read.extend_from_slice(&rest.expect("the connection stays open").to_bytes());
        String::from_utf8(read).expect("the body is UTF-8")
    }
}

/// Builds a POST request with a JSON body.
#[expect(clippy::needless_pass_by_value, reason = "callers build the body in the argument")]
pub(crate) fn post(path: &str, body: impl ToString) -> Request<String> {
    Request::builder().method(Method::POST).uri(path).body(body.to_string()).expect("the path is valid")
}
