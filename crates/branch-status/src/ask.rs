//! A request for the status of a gitcd.

use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;

use http_body_util::{BodyExt as _, Empty, Limited};
use hyper::Request;
use hyper::body::Bytes;
use hyper::client::conn::http1;
use hyper_util::rt::TokioIo;
use tokio::net::TcpStream;
use tokio::time::timeout;
use tokio_rustls::TlsConnector;
use tokio_rustls::rustls::crypto::ring;
use tokio_rustls::rustls::pki_types::pem::PemObject as _;
use tokio_rustls::rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName};
use tokio_rustls::rustls::{ClientConfig, RootCertStore};

use crate::answer::{Answer, Branch};

/// Time limit of a request.
const PATIENCE: Duration = Duration::from_secs(5);
/// Size limit of a response.
const MOST_BYTES: usize = 1 << 20;
/// The name in the server's certificate, under which it serves in its pod.
const NAME: &str = "localhost";

/// Credentials for a gitcd, in PEM.
#[derive(Clone, PartialEq, Eq)]
pub struct Identity {
    /// The CA certificates of the server.
    pub authorities: Vec<u8>,
    /// The client certificate.
    pub certificate: Vec<u8>,
    /// Its key.
    pub key: Vec<u8>,
}

impl std::fmt::Debug for Identity {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Identity").finish_non_exhaustive()
    }
}

type Failure = Box<dyn std::error::Error + Send + Sync>;

fn connector(identity: &Identity) -> Result<TlsConnector, Failure> {
    let certificates = |pem: &[u8]| CertificateDer::pem_slice_iter(pem).collect::<Result<Vec<_>, _>>();
    let mut roots = RootCertStore::empty();
    for certificate in certificates(&identity.authorities)? {
        roots.add(certificate)?;
    }
    let config = ClientConfig::builder_with_provider(Arc::new(ring::default_provider()))
        .with_safe_default_protocol_versions()?
        .with_root_certificates(roots)
        .with_client_auth_cert(certificates(&identity.certificate)?, PrivateKeyDer::from_pem_slice(&identity.key)?)?;
    Ok(TlsConnector::from(Arc::new(config)))
}

/// Requests the status of a branch from a gitcd.
pub(crate) async fn ask(address: IpAddr, port: u16, identity: &Identity) -> Result<Branch, String> {
    let asked = async {
        let stream = TcpStream::connect(SocketAddr::new(address, port)).await?;
        let stream = connector(identity)?.connect(ServerName::try_from(NAME)?, stream).await?;
        let (mut send, connection) = http1::handshake(TokioIo::new(stream)).await?;
        let request = Request::get("/status").header("host", NAME).body(Empty::<Bytes>::new())?;
        let answer = async {
            let answer = send.send_request(request).await?;
            let status = answer.status();
            let body = Limited::new(answer.into_body(), MOST_BYTES).collect().await?.to_bytes();
            drop(send);
            if !status.is_success() {
                return Err(Failure::from(format!("HTTP status {status}")));
            }
            Ok(body)
        };
        // The connection has no other user, and closes after the response.
        let (answer, _) = tokio::join!(answer, connection);
        let answer: Answer = serde_json::from_slice(&answer?)?;
        answer.branches.into_iter().next().ok_or_else(|| Failure::from("no branch in the response"))
    };
    match timeout(PATIENCE, asked).await {
        Ok(answer) => answer.map_err(|error| error.to_string()),
        Err(_) => Err(format!("no response within {PATIENCE:?}")),
    }
}
