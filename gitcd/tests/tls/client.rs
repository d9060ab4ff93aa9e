//! Clients with control over the TLS handshake.

use std::io;
use std::net::SocketAddr;
use std::sync::Arc;

use gitcd::proto::etcdserverpb::kv_client::KvClient;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;
use tokio_rustls::client::TlsStream;
use tokio_rustls::rustls::pki_types::pem::PemObject;
use tokio_rustls::rustls::pki_types::{CertificateDer, PrivateKeyDer};
use tokio_rustls::rustls::{
    ClientConfig, RootCertStore, SupportedProtocolVersion, crypto::ring::default_provider, version,
};
use tonic::transport::{Certificate, Channel, ClientTlsConfig, Endpoint, Identity};

use crate::Files;
use crate::authority::{Authority, Pair};

/// The user agent of a Go program.
pub(crate) const AGENT: &str = "grpc-go/1.77.0";

/// A client's certificate, TLS version and protocols.
#[derive(Clone, Copy)]
pub(crate) struct Hello<'a> {
    pub(crate) identity: Option<&'a Pair>,
    pub(crate) version: &'static SupportedProtocolVersion,
    pub(crate) protocols: &'a [&'a str],
}

impl Default for Hello<'_> {
    fn default() -> Self {
        Self { identity: None, version: &version::TLS13, protocols: &["h2"] }
    }
}

/// Performs only a handshake. With TLS 1.3, the client finishes before the server has verified its certificate.
pub(crate) async fn handshake(
    address: SocketAddr,
    servers: &Authority,
    hello: Hello<'_>,
) -> io::Result<TlsStream<TcpStream>> {
    let mut roots = RootCertStore::empty();
    roots.add(der(servers.pem())).expect("the certificate is a CA");
    let builder = ClientConfig::builder_with_provider(default_provider().into())
        .with_protocol_versions(&[hello.version])
        .expect("cipher suites exist for this version")
        .with_root_certificates(roots);
    let mut config = match hello.identity {
        None => builder.with_no_client_auth(),
        Some(pair) => {
            let key = PrivateKeyDer::from_pem_slice(pair.key.as_bytes()).expect("a generated key is valid");
            builder.with_client_auth_cert(vec![der(&pair.cert)], key).expect("key and certificate match")
        }
    };
    config.alpn_protocols = hello.protocols.iter().map(|protocol| protocol.as_bytes().to_vec()).collect();
    let stream = TcpStream::connect(address).await?;
    TlsConnector::from(Arc::new(config))
        .connect("localhost".try_into().expect("a host name is a valid server name"), stream)
        .await
}

fn der(pem: &str) -> CertificateDer<'static> {
    CertificateDer::from_pem_slice(pem.as_bytes()).expect("a generated certificate is valid")
}

/// Fetches a path over HTTP/1.1 and returns the whole response.
pub(crate) async fn fetch(
    address: SocketAddr,
    servers: &Authority,
    hello: Hello<'_>,
    path: &str,
) -> io::Result<String> {
    let mut stream = handshake(address, servers, hello).await?;
    stream.write_all(format!("GET {path} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n").as_bytes()).await?;
    let mut answer = String::new();
    stream.read_to_string(&mut answer).await?;
    Ok(answer)
}

/// Returns the certificate that the server presents to a new connection.
pub(crate) async fn shown(address: SocketAddr, files: &Files) -> CertificateDer<'static> {
    let stream =
        handshake(address, &files.servers, Hello::default()).await.expect("the server's certificate is trusted");
    let (_, session) = stream.get_ref();
    session.peer_certificates().expect("the server has a certificate")[0].clone().into_owned()
}

/// Connects a gRPC client that presents `identity`.
pub(crate) async fn connect(
    address: SocketAddr,
    files: &Files,
    identity: Option<&Pair>,
) -> Result<KvClient<Channel>, tonic::transport::Error> {
    let authority = Certificate::from_pem(files.servers.pem());
    let mut tls = ClientTlsConfig::new().ca_certificate(authority).domain_name("localhost");
    if let Some(pair) = identity {
        tls = tls.identity(Identity::from_pem(&pair.cert, &pair.key));
    }
    let endpoint = Endpoint::from_shared(format!("https://{address}"))?.user_agent(AGENT)?.tls_config(tls)?;
    Ok(KvClient::new(endpoint.connect().await?))
}
