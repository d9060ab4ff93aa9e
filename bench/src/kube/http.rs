//! A client of kube-apiserver: HTTP/2 over TLS with an administrator's certificate, without rate limits.

use std::net::Ipv4Addr;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context, Result, bail, ensure};
use bytes::Bytes;
use http_body_util::{BodyExt, Full};
use hyper::client::conn::http2::{self, SendRequest};
use hyper::header::{ACCEPT, CONTENT_TYPE};
use hyper::{Method, Request, StatusCode};
use hyper_util::rt::{TokioExecutor, TokioIo};
use tokio::net::TcpStream;
use tokio::sync::RwLock;
use tokio_rustls::TlsConnector;
use tokio_rustls::rustls::pki_types::pem::PemObject;
use tokio_rustls::rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName};
use tokio_rustls::rustls::{ClientConfig, RootCertStore};
use trishanku::plane::certs;

/// Windows of a stream and of a connection, as in the comparison without kube-apiserver.
const WINDOW_BYTES: u32 = 1 << 20;
/// A request that takes longer hangs.
const TIMEOUT: Duration = Duration::from_mins(1);

/// Several HTTP/2 connections to one kube-apiserver, shared by all clients.
pub(crate) struct Http {
    port: u16,
    wanted: usize,
    tls: TlsConnector,
    connections: RwLock<Vec<SendRequest<Full<Bytes>>>>,
}

impl Http {
    /// Creates a client for a loopback port; `keys` is the folder of the control plane's certificates.
    ///
    /// # Errors
    /// If a certificate or key cannot be read.
    pub(crate) fn new(keys: &Path, port: u16, connections: usize) -> Result<Self> {
        let certificate = |subject: &str| {
            let path = certs::certificate(keys, subject);
            CertificateDer::from_pem_file(&path).with_context(|| format!("cannot read {}", path.display()))
        };
        let mut roots = RootCertStore::empty();
        roots.add(certificate("ca")?)?;
        let key = PrivateKeyDer::from_pem_file(certs::private_key(keys, "admin")).context("cannot read a key")?;
        let config = ClientConfig::builder().with_root_certificates(roots);
        let mut config = config.with_client_auth_cert(vec![certificate("admin")?], key)?;
        config.alpn_protocols = vec![b"h2".to_vec()];
        let tls = TlsConnector::from(Arc::new(config));
        Ok(Self { port, wanted: connections, tls, connections: RwLock::default() })
    }

    /// Opens all connections.
    pub(crate) async fn connect(&self) -> Result<()> {
        let mut connections = self.connections.write().await;
        while connections.len() < self.wanted {
            connections.push(self.one().await?);
        }
        Ok(())
    }

    async fn one(&self) -> Result<SendRequest<Full<Bytes>>> {
        let stream = TcpStream::connect((Ipv4Addr::LOCALHOST, self.port)).await?;
        stream.set_nodelay(true)?;
        let name = ServerName::IpAddress(Ipv4Addr::LOCALHOST.into());
        let stream = self.tls.connect(name, stream).await?;
        let (sender, connection) = http2::Builder::new(TokioExecutor::new())
            .initial_stream_window_size(WINDOW_BYTES)
            .initial_connection_window_size(WINDOW_BYTES)
            .handshake(TokioIo::new(stream))
            .await?;
        // The task ends with the last sender; pending requests get the connection's errors.
        tokio::spawn(connection);
        Ok(sender)
    }

    /// Closes all connections.
    pub(crate) async fn disconnect(&self) {
        self.connections.write().await.clear();
    }

    /// Sends a `GET`; clients are assigned to the connections round-robin.
    pub(crate) async fn get(&self, client: usize, path: &str) -> Result<Bytes> {
        self.ask(client, Method::GET, path, "", Bytes::new()).await
    }

    /// Sends a `POST` of a JSON object.
    pub(crate) async fn post(&self, client: usize, path: &str, object: Bytes) -> Result<Bytes> {
        self.ask(client, Method::POST, path, "application/json", object).await
    }

    /// Sends a `PATCH` with a JSON merge patch.
    pub(crate) async fn patch(&self, client: usize, path: &str, change: Bytes) -> Result<Bytes> {
        self.ask(client, Method::PATCH, path, "application/merge-patch+json", change).await
    }

    /// Sends a `DELETE`.
    pub(crate) async fn delete(&self, client: usize, path: &str) -> Result<Bytes> {
        self.ask(client, Method::DELETE, path, "", Bytes::new()).await
    }

    /// Returns the body of a successful response.
    async fn ask(&self, client: usize, method: Method, path: &str, kind: &str, body: Bytes) -> Result<Bytes> {
        let mut sender = {
            let connections = self.connections.read().await;
            ensure!(!connections.is_empty(), "not connected to kube-apiserver");
            connections[client % connections.len()].clone()
        };
        let what = format!("{method} {path}");
        let mut request = Request::builder()
            .method(method)
            .uri(format!("https://127.0.0.1:{}{path}", self.port))
            .header(ACCEPT, "application/json");
        if !kind.is_empty() {
            request = request.header(CONTENT_TYPE, kind);
        }
        let request = request.body(Full::new(body))?;
        let exchange = async {
            sender.ready().await?;
            let answer = sender.send_request(request).await?;
            let status = answer.status();
            anyhow::Ok((status, answer.into_body().collect().await?.to_bytes()))
        };
        let done = tokio::time::timeout(TIMEOUT, exchange).await;
        let (status, body) =
            done.with_context(|| format!("{what}: no response within {TIMEOUT:?}"))?.with_context(|| what.clone())?;
        if !matches!(status, StatusCode::OK | StatusCode::CREATED) {
            let said: String = String::from_utf8_lossy(&body).chars().take(400).collect();
            bail!("{what} failed with {status}: {said}");
        }
        Ok(body)
    }
}
