//! The TLS settings of a client.

use std::sync::Arc;

use tokio_rustls::rustls::crypto::ring;
use tokio_rustls::rustls::pki_types::pem::{self, PemObject as _};
use tokio_rustls::rustls::pki_types::{CertificateDer, PrivateKeyDer};
use tokio_rustls::rustls::{self, ClientConfig, RootCertStore};

/// The certificate authorities that a client trusts; at first, none.
///
/// ```
/// use trishanku_service::tls::ClientTls;
///
/// let config = ClientTls::new().system_authorities().config();
/// let error = ClientTls::new().authorities(b"no PEM").unwrap_err();
/// assert_eq!(error.to_string(), "no certificate in PEM");
/// ```
#[derive(Clone, Debug)]
pub struct ClientTls {
    roots: RootCertStore,
}

/// Why certificates or a key of a TLS client cannot be used.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ClientTlsError {
    /// There is no certificate.
    #[error("no certificate in PEM")]
    NoCertificate,
    /// A certificate is not valid PEM.
    #[error("a certificate is not valid PEM")]
    Certificate(#[source] pem::Error),
    /// rustls does not accept a certificate authority.
    #[error("a certificate authority is not valid")]
    Authority(#[source] rustls::Error),
    /// There is no private key without a passphrase.
    #[error("no private key in PEM without a passphrase")]
    Key(#[source] pem::Error),
    /// The key is of an unknown kind, or not that of the certificate.
    #[error("the private key does not match the certificate")]
    Identity(#[source] rustls::Error),
}

impl Default for ClientTls {
    fn default() -> Self {
        Self { roots: RootCertStore::empty() }
    }
}

impl ClientTls {
    /// Returns settings that trust no server.
    pub fn new() -> Self {
        Self::default()
    }

    /// Trusts the certificate authorities of the machine. Skips those that rustls does not support.
    #[must_use]
    pub fn system_authorities(mut self) -> Self {
        self.roots.add_parsable_certificates(rustls_native_certs::load_native_certs().certs);
        self
    }

    /// Trusts these certificate authorities (PEM) in addition.
    ///
    /// # Errors
    /// [`ClientTlsError`] if there is none, or if one of them cannot be used.
    pub fn authorities(mut self, pem: &[u8]) -> Result<Self, ClientTlsError> {
        for authority in certificates(pem)? {
            self.roots.add(authority).map_err(ClientTlsError::Authority)?;
        }
        Ok(self)
    }

    /// Returns the settings of a client without a certificate of its own.
    pub fn config(self) -> ClientConfig {
        self.builder().with_no_client_auth()
    }

    /// Returns the settings of a client that presents a certificate, followed by the intermediate ones, with this key (PEM).
    ///
    /// # Errors
    /// [`ClientTlsError`] if the certificate or the key is missing or not valid, or if they do not match.
    pub fn config_with_identity(self, certificate: &[u8], key: &[u8]) -> Result<ClientConfig, ClientTlsError> {
        let chain = certificates(certificate)?;
        let key = PrivateKeyDer::from_pem_slice(key).map_err(ClientTlsError::Key)?;
        self.builder().with_client_auth_cert(chain, key).map_err(ClientTlsError::Identity)
    }

    fn builder(self) -> rustls::ConfigBuilder<ClientConfig, rustls::client::WantsClientCert> {
        ClientConfig::builder_with_provider(Arc::new(ring::default_provider()))
            .with_safe_default_protocol_versions()
            .expect("the provider has suites for all versions")
            .with_root_certificates(self.roots)
    }
}

fn certificates(pem: &[u8]) -> Result<Vec<CertificateDer<'static>>, ClientTlsError> {
    let found = CertificateDer::pem_slice_iter(pem).collect::<Result<Vec<_>, _>>();
    let found = found.map_err(ClientTlsError::Certificate)?;
    if found.is_empty() { Err(ClientTlsError::NoCertificate) } else { Ok(found) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_identity_needs_a_certificate_and_its_own_key() {
        let made = rcgen::generate_simple_self_signed(["a".to_owned()]).unwrap();
        let (certificate, key) = (made.cert.pem(), made.signing_key.serialize_pem());
        let with = |certificate: &str, key: &str| {
            let tls = ClientTls::new().authorities(made.cert.pem().as_bytes()).unwrap();
            tls.config_with_identity(certificate.as_bytes(), key.as_bytes()).map(drop)
        };
        with(&certificate, &key).unwrap();
        let other = rcgen::KeyPair::generate().unwrap().serialize_pem();
        assert!(matches!(with(&certificate, &other), Err(ClientTlsError::Identity(_))));
        assert!(matches!(with(&certificate, &certificate), Err(ClientTlsError::Key(_))));
        assert!(matches!(with(&key, &key), Err(ClientTlsError::NoCertificate)));
    }
}
