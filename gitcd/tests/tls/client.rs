//! Clients that see more of TLS than the usual ones.

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

/// What a client shows and wants.
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

/// A handshake, and nothing behind it. With TLS 1.3 the client is done before the server has looked at its certificate.
pub(crate) async fn handshake(
    address: SocketAddr,
    servers: &Authority,
    hello: Hello<'_>,
) -> io::Result<TlsStream<TcpStream>> {
    let mut roots = RootCertStore::empty();
    roots.add(der(servers.pem())).expect("it is an authority");
    let builder = ClientConfig::builder_with_provider(default_provider().into())
        .with_protocol_versions(&[hello.version])
        .expect("there are suites for it")
        .with_root_certificates(roots);
    let mut config = match hello.identity {
        None => builder.with_no_client_auth(),
        Some(pair) => {
            let key = PrivateKeyDer::from_pem_slice(pair.key.as_bytes()).expect("it was just made");
            builder.with_client_auth_cert(vec![der(&pair.cert)], key).expect("they belong together")
        }
    };
    config.alpn_protocols = hello.protocols.iter().map(|protocol| protocol.as_bytes().to_vec()).collect();
    let stream = TcpStream::connect(address).await?;
    TlsConnector::from(Arc::new(config)).connect("localhost".try_into().expect("it is a name"), stream).await
}

fn der(pem: &str) -> CertificateDer<'static> {
    CertificateDer::from_pem_slice(pem.as_bytes()).expect("it was just made")
}

/// What a plain HTTP client gets to hear.
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

/// The certificate that the server shows to a new connection.
pub(crate) async fn shown(address: SocketAddr, files: &Files) -> CertificateDer<'static> {
    let stream = handshake(address, &files.servers, Hello::default()).await.expect("the server's certificate is good");
    let (_, session) = stream.get_ref();
    session.peer_certificates().expect("the server has shown one")[0].clone().into_owned()
}

/// A gRPC client that shows `identity`.
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
