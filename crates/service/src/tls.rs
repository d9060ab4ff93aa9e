//! Certificates of listeners, reloaded when their files change, and the TLS settings of clients.
//!
//! ```no_run
//! use trishanku_service::tls::{Certificates, Files, Unusable};
//!
//! let files = Files { cert: "tls.crt".into(), key: "tls.key".into(), trusted_ca: None };
//! let certificates = Certificates::load(files, &[b"h2", b"http/1.1"])?;
//! // For each connection: TlsAcceptor::from(certificates.current()).accept(stream)
//! # Ok::<(), Unusable>(())
//! ```
//!
//! The files are read for every new connection, and parsed only if their bytes have changed. Reading three small files costs a
//! few per cent of a handshake, and unlike timestamps, inodes or watches, it never misses a change.

mod client;
mod curve;
mod expiry;

use std::fmt::Display;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant, SystemTime};

use parking_lot::Mutex;
use tokio_rustls::rustls::pki_types::pem::PemObject;
use tokio_rustls::rustls::pki_types::{CertificateDer, PrivateKeyDer};
use tokio_rustls::rustls::server::WebPkiClientVerifier;
use tokio_rustls::rustls::{self, RootCertStore, ServerConfig};

pub use self::client::{ClientTls, ClientTlsError};
use crate::throttle::LogThrottle;
pub use tokio_rustls::rustls::ClientConfig;
pub use tokio_rustls::rustls::pki_types::ServerName;

/// Minimum interval between two warnings about unusable files.
const COMPLAIN_EVERY: Duration = Duration::from_mins(1);

/// Paths of the PEM files with a listener's certificates and key.
#[derive(Clone, Debug)]
pub struct Files {
    /// The server's certificate, followed by the intermediate ones.
    pub cert: PathBuf,
    /// The private key of the server's certificate.
    pub key: PathBuf,
    /// If set, clients must present a certificate signed by one of these authorities.
    pub trusted_ca: Option<PathBuf>,
}

/// Error for a certificate or key file that cannot be used.
#[derive(Debug, thiserror::Error)]
#[error("cannot use {path:?} for TLS: {problem}")]
pub struct Unusable {
    /// The file.
    pub path: PathBuf,
    /// What is wrong with it.
    pub problem: String,
}

/// The certificates of a server's listeners. Open connections keep those that they started with.
#[derive(Debug)]
pub struct Certificates {
    files: Files,
    protocols: &'static [&'static [u8]],
    loaded: Mutex<Loaded>,
}

#[derive(Debug)]
struct Loaded {
    contents: Contents,
    config: Arc<ServerConfig>,
    complaints: LogThrottle,
}

impl Certificates {
    /// Loads the files; warns about certificates that have expired or expire soon. Connections negotiate one of `protocols` (ALPN,
    /// preferred first); if there are none, nothing is negotiated.
    ///
    /// # Errors
    /// [`Unusable`] if a file is missing or cannot be parsed, or if the key does not match the certificate.
    pub fn load(files: Files, protocols: &'static [&'static [u8]]) -> Result<Self, Unusable> {
        let contents = Contents::read(&files)?;
        let config = contents.parse(&files, protocols)?;
        Ok(Self {
            files,
            protocols,
            loaded: Mutex::new(Loaded { contents, config, complaints: LogThrottle::every(COMPLAIN_EVERY) }),
        })
    }

    /// Returns the TLS configuration for the next connection: that of the files as they are now, or, while a file is unusable,
    /// the last usable one. Blocks: reads the files.
    pub fn current(&self) -> Arc<ServerConfig> {
        let mut loaded = self.loaded.lock();
        let read = Contents::read(&self.files);
        if read.as_ref().is_ok_and(|contents| *contents == loaded.contents) {
            return loaded.config.clone();
        }
        match read.and_then(|contents| Ok((contents.parse(&self.files, self.protocols)?, contents))) {
            Ok((config, contents)) => {
                tracing::info!(cert = %self.files.cert.display(), "reloaded certificates for new connections");
                loaded.config = config;
                loaded.contents = contents;
            }
            Err(error) if loaded.complaints.admits(Instant::now()) => {
                tracing::warn!(%error, "cannot use the changed certificates; new connections get the previous ones");
            }
            Err(_) => {}
        }
        loaded.config.clone()
    }
}

/// Returns the TLS configuration of a server with this certificate, followed by the intermediate ones, and this key, both in PEM: for
/// certificates that are not in files. Warns as [`Certificates::load`] does.
///
/// # Errors
/// [`Unusable`], with the names `tls.crt` and `tls.key`, as in a Secret of the type `kubernetes.io/tls`.
pub fn server_config(
    certificate: &[u8],
    key: &[u8],
    protocols: &'static [&'static [u8]],
) -> Result<Arc<ServerConfig>, Unusable> {
    let files = Files { cert: "tls.crt".into(), key: "tls.key".into(), trusted_ca: None };
    Contents { cert: certificate.to_vec(), key: key.to_vec(), trusted_ca: None }.parse(&files, protocols)
}

#[derive(PartialEq, Eq)]
struct Contents {
    cert: Vec<u8>,
    key: Vec<u8>,
    trusted_ca: Option<Vec<u8>>,
}

impl std::fmt::Debug for Contents {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Contents")
    }
}

impl Contents {
    fn read(files: &Files) -> Result<Self, Unusable> {
        let read = |path: &PathBuf| std::fs::read(path).map_err(|error| unusable(path, error));
        Ok(Self {
            cert: read(&files.cert)?,
            key: read(&files.key)?,
            trusted_ca: files.trusted_ca.as_ref().map(read).transpose()?,
        })
    }

    fn parse(&self, files: &Files, protocols: &[&[u8]]) -> Result<Arc<ServerConfig>, Unusable> {
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let versions = [&rustls::version::TLS13, &rustls::version::TLS12];
        let builder = ServerConfig::builder_with_provider(provider.clone())
            .with_protocol_versions(&versions)
            .expect("the provider has suites for both versions");
        let builder = match (&files.trusted_ca, &self.trusted_ca) {
            (Some(path), Some(pem)) => {
                let roots = Arc::new(roots(path, pem)?);
                let verifier = WebPkiClientVerifier::builder_with_provider(roots, provider).build();
                builder.with_client_cert_verifier(verifier.map_err(|error| unusable(path, error))?)
            }
            _ => builder.with_no_client_auth(),
        };
        let chain = certificates(&files.cert, &self.cert)?;
        expiry::warn(&files.cert, &chain, SystemTime::now());
        let key = PrivateKeyDer::from_pem_slice(&self.key)
            .map_err(|_| unusable(&files.key, "it has no private key in PEM, or one with a passphrase"))?;
        if let Some(problem) = chain.first().and_then(curve::problem) {
            return Err(unusable(&files.cert, problem));
        }
        let config = builder.with_single_cert(chain, key).map_err(|error| match error {
            rustls::Error::InconsistentKeys(_) => {
                unusable(&files.key, format!("it is not the key of the certificate in {}", files.cert.display()))
            }
            rustls::Error::InvalidCertificate(_) => unusable(&files.cert, error),
            _ => unusable(&files.key, error),
        });
        let mut config = config?;
        config.alpn_protocols = protocols.iter().map(|protocol| protocol.to_vec()).collect();
        Ok(Arc::new(config))
    }
}

fn unusable(path: &Path, problem: impl Display) -> Unusable {
    Unusable { path: path.to_owned(), problem: problem.to_string() }
}

fn certificates(path: &Path, pem: &[u8]) -> Result<Vec<CertificateDer<'static>>, Unusable> {
    let certificates: Result<Vec<_>, _> = CertificateDer::pem_slice_iter(pem).collect();
    match certificates {
        Ok(certificates) if certificates.is_empty() => Err(unusable(path, "it has no certificate in PEM")),
        Ok(certificates) => Ok(certificates),
        Err(error) => Err(unusable(path, error)),
    }
}

/// Skips authorities that rustls does not support, with a warning; fails if no other is left.
fn roots(path: &Path, pem: &[u8]) -> Result<RootCertStore, Unusable> {
    let mut roots = RootCertStore::empty();
    let mut last_error = None;
    let authorities = certificates(path, pem)?;
    expiry::warn(path, &authorities, SystemTime::now());
    curve::warn(path, &authorities);
    for authority in authorities {
        if let Err(error) = roots.add(authority) {
            tracing::warn!(path = %path.display(), %error, "skipped a certificate authority for clients");
            last_error = Some(error);
        }
    }
    match last_error {
        Some(error) if roots.is_empty() => Err(unusable(path, error)),
        _ => Ok(roots),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn write(files: &Files, host: &str) {
        let made = rcgen::generate_simple_self_signed([host.to_owned()]).unwrap();
        std::fs::write(&files.cert, made.cert.pem()).unwrap();
        std::fs::write(&files.key, made.signing_key.serialize_pem()).unwrap();
    }

    #[test]
    fn a_certificate_that_is_not_in_a_file_is_checked_as_one_that_is() {
        let made = rcgen::generate_simple_self_signed(["one".to_owned()]).unwrap();
        let (certificate, key) = (made.cert.pem(), made.signing_key.serialize_pem());
        let config = server_config(certificate.as_bytes(), key.as_bytes(), &[b"h2"]).unwrap();
        assert_eq!(config.alpn_protocols, [b"h2"]);
        let other = rcgen::KeyPair::generate().unwrap().serialize_pem();
        let error = server_config(certificate.as_bytes(), other.as_bytes(), &[]).unwrap_err().to_string();
        assert!(error.contains("tls.key") && error.contains("not the key of the certificate in tls.crt"), "{error}");
    }

    #[test]
    fn changed_files_are_used_and_unusable_ones_leave_the_last_usable() {
        let folder = tempfile::tempdir().unwrap();
        let at = |name: &str| folder.path().join(name);
        let files = Files { cert: at("tls.crt"), key: at("tls.key"), trusted_ca: None };
        let error = Certificates::load(files.clone(), &[]).unwrap_err().to_string();
        assert!(error.contains("tls.crt"), "{error}");
        write(&files, "one");
        let certificates = Certificates::load(files.clone(), &[b"http/1.1"]).unwrap();
        let first = certificates.current();
        assert!(Arc::ptr_eq(&first, &certificates.current()), "unchanged files are not parsed again");
        assert_eq!(first.alpn_protocols, [b"http/1.1"]);
        write(&files, "two");
        let second = certificates.current();
        assert!(!Arc::ptr_eq(&first, &second));
        let key = rcgen::KeyPair::generate().unwrap().serialize_pem();
        std::fs::write(&files.key, key).unwrap();
        assert!(Arc::ptr_eq(&second, &certificates.current()), "the key is another certificate's");
        std::fs::remove_file(&files.cert).unwrap();
        assert!(Arc::ptr_eq(&second, &certificates.current()));
        write(&files, "three");
        assert!(!Arc::ptr_eq(&second, &certificates.current()));
    }
}
