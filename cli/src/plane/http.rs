//! HTTP requests to components of this machine: readiness and metrics.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use http::StatusCode;
use tokio_rustls::rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use tokio_rustls::rustls::crypto::{CryptoProvider, verify_tls12_signature, verify_tls13_signature};
use tokio_rustls::rustls::pki_types::{CertificateDer, ServerName, UnixTime};
use tokio_rustls::rustls::{ClientConfig, DigitallySignedStruct, SignatureScheme};
use trishanku_service::error::chain;
use trishanku_service::http::{Client, ClientBuilder, HttpError as RequestError};
use trishanku_service::tls::ClientTls;

use super::certs;

/// Limit for a whole request; a component that takes longer is not healthy.
const TIMEOUT: Duration = Duration::from_secs(5);
/// gitcd's metrics are some tens of KiB.
const MAX_ANSWER_BYTES: usize = 8 << 20;

/// A component's HTTP server on a loopback port.
#[derive(Clone, Debug)]
pub struct Endpoint {
    port: u16,
    client: Client,
}

/// Why there was no answer.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum HttpError {
    /// The connection was refused or broke.
    #[error("no answer on port {port}: {reason}")]
    Connection {
        /// The loopback port.
        port: u16,
        /// The error and its causes.
        reason: String,
    },
    /// The connection was made, but there was no valid response.
    #[error("no proper HTTP answer on port {port}: {reason}")]
    Exchange {
        /// The loopback port.
        port: u16,
        /// The error and its causes.
        reason: String,
    },
    /// The time limit passed.
    #[error("no answer on port {port} within {TIMEOUT:?}")]
    TimedOut {
        /// The loopback port.
        port: u16,
    },
    /// The status is not 200.
    #[error("port {port} answers {status}: {body}")]
    Status {
        /// The loopback port.
        port: u16,
        /// The answer's status.
        status: StatusCode,
        /// The answer's text, at most 400 characters.
        body: String,
    },
}

/// Why a certificate or key cannot be used.
#[derive(Debug, thiserror::Error)]
#[error("cannot use the certificate in {path:?}: {reason}")]
pub struct TrustError {
    path: PathBuf,
    reason: String,
}

impl Endpoint {
    fn new(scheme: &str, port: u16, tls: Option<ClientConfig>) -> Self {
        let base = format!("{scheme}://127.0.0.1:{port}").parse().expect("it is a URL");
        let client = Client::builder(base).within(TIMEOUT).at_most(MAX_ANSWER_BYTES);
        let client = tls.into_iter().fold(client, ClientBuilder::tls).build();
        Self { port, client }
    }

    /// A server that speaks plain HTTP.
    #[must_use]
    pub fn plain(port: u16) -> Self {
        Self::new("http", port, None)
    }

    /// A server whose certificate the authority in the file `ca` issued for 127.0.0.1.
    ///
    /// # Errors
    /// [`TrustError`] if the file has no certificate.
    pub fn tls(port: u16, ca: &Path) -> Result<Self, TrustError> {
        Ok(Self::new("https", port, Some(trusting(ca)?.config())))
    }

    /// A store, which requires a client certificate; `keys` is the folder with that and the store's authority
    /// ([`super::certs`]).
    ///
    /// # Errors
    /// [`TrustError`] if a file is missing or invalid.
    pub fn store(port: u16, keys: &Path) -> Result<Self, TrustError> {
        let (cert, key) = (certs::certificate(keys, "store-client"), certs::private_key(keys, "store-client"));
        let tls = trusting(&certs::certificate(keys, "store-ca"))?;
        let identity = tls.config_with_identity(&read(&cert)?, &read(&key)?);
        Ok(Self::new("https", port, Some(identity.map_err(|error| unusable(&cert, &error))?)))
    }

    /// A TLS server with any certificate: like kubelet's probes, this only checks health and sends no secrets.
    #[must_use]
    pub fn of_anybody(port: u16) -> Self {
        let config = ClientConfig::builder().dangerous().with_custom_certificate_verifier(Arc::new(Anybody::new()));
        Self::new("https", port, Some(config.with_no_client_auth()))
    }

    /// Returns the body of the response to `GET path`, if its status is 200. Takes at most five seconds.
    ///
    /// # Errors
    /// See [`HttpError`].
    pub async fn ask(&self, path: &str) -> Result<Bytes, HttpError> {
        let port = self.port;
        let response = self.client.get(path).await.map_err(|error| match error {
            RequestError::TimedOut { .. } => HttpError::TimedOut { port },
            // Their own text says no more than ours.
            RequestError::Connect(cause) | RequestError::Tls(cause) => {
                HttpError::Connection { port, reason: chain(&*cause) }
            }
            error => HttpError::Exchange { port, reason: chain(&error) },
        })?;
        let status = response.status();
        if status != StatusCode::OK {
            let body = String::from_utf8_lossy(response.body()).chars().take(400).collect();
            return Err(HttpError::Status { port, status, body });
        }
        Ok(response.into_body())
    }
}

fn trusting(ca: &Path) -> Result<ClientTls, TrustError> {
    ClientTls::new().authorities(&read(ca)?).map_err(|error| unusable(ca, &error))
}

fn read(path: &Path) -> Result<Vec<u8>, TrustError> {
    std::fs::read(path).map_err(|error| unusable(path, &error))
}

fn unusable(path: &Path, error: &dyn std::error::Error) -> TrustError {
    TrustError { path: path.into(), reason: chain(error) }
}

/// Accepts every certificate, and only verifies that the server has its key.
#[derive(Debug)]
struct Anybody(Arc<CryptoProvider>);

impl Anybody {
    fn new() -> Self {
        Self(Arc::new(tokio_rustls::rustls::crypto::ring::default_provider()))
    }
}

impl ServerCertVerifier for Anybody {
    fn verify_server_cert(
        &self,
        _: &CertificateDer<'_>,
        _: &[CertificateDer<'_>],
        _: &ServerName<'_>,
        _: &[u8],
        _: UnixTime,
    ) -> Result<ServerCertVerified, tokio_rustls::rustls::Error> {
        Ok(ServerCertVerified::assertion())
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        cert: &CertificateDer<'_>,
        dss: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, tokio_rustls::rustls::Error> {
        verify_tls12_signature(message, cert, dss, &self.0.signature_verification_algorithms)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        cert: &CertificateDer<'_>,
        dss: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, tokio_rustls::rustls::Error> {
        verify_tls13_signature(message, cert, dss, &self.0.signature_verification_algorithms)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.0.signature_verification_algorithms.supported_schemes()
    }
}

#[cfg(test)]
mod tests {
    use tokio::io::{AsyncReadExt, AsyncWriteExt};

    use super::*;

    async fn server(answer: &'static str) -> u16 {
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let port = listener.local_addr().unwrap().port();
        tokio::spawn(async move {
            let (mut stream, _) = listener.accept().await.unwrap();
            let _read = stream.read(&mut [0; 1024]).await.unwrap();
            stream.write_all(answer.as_bytes()).await.unwrap();
        });
        port
    }

    #[tokio::test]
    async fn the_body_of_a_200_is_returned() {
        let port = server("HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\nok").await;
        assert_eq!(Endpoint::plain(port).ask("/health").await.unwrap(), "ok");
    }

    #[tokio::test]
    async fn any_other_status_is_an_error_that_shows_the_answer() {
        let port = server("HTTP/1.1 503 No\r\ncontent-length: 5\r\n\r\n[-]db").await;
        let error = Endpoint::plain(port).ask("/readyz").await.unwrap_err();
        assert!(error.to_string().contains("503"), "{error}");
        assert!(error.to_string().contains("[-]db"), "{error}");
    }

    #[tokio::test]
    async fn a_closed_port_is_named() {
        // A bound port without a listener: connections are refused, and no other process can use the port.
        let bound = tokio::net::TcpSocket::new_v4().unwrap();
        bound.bind("127.0.0.1:0".parse().unwrap()).unwrap();
        let port = bound.local_addr().unwrap().port();
        let error = Endpoint::plain(port).ask("/").await.unwrap_err();
        assert!(error.to_string().contains(&port.to_string()), "{error}");
    }
}
