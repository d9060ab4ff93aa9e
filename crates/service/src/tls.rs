//! Certificates of listeners, reloaded when their files change.
//!
//! The files are read for every new connection, and parsed only if their bytes have changed. Reading three small files costs a
//! few per cent of a handshake, and unlike timestamps, inodes or watches, it never misses a change.

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

use crate::throttle::LogThrottle;

/// ALPN protocols: HTTP/2 for gRPC, HTTP/1.1 for health and metrics.
const PROTOCOLS: [&[u8]; 2] = [b"h2", b"http/1.1"];
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
    loaded: Mutex<Loaded>,
}

#[derive(Debug)]
struct Loaded {
    contents: Contents,
    config: Arc<ServerConfig>,
    complaints: LogThrottle,
}

impl Certificates {
    /// Loads the files; warns about certificates that have expired or expire soon.
    ///
    /// # Errors
    /// [`Unusable`] if a file is missing or cannot be parsed, or if the key does not match the certificate.
    pub fn load(files: Files) -> Result<Self, Unusable> {
        let contents = Contents::read(&files)?;
        let config = contents.parse(&files)?;
        Ok(Self {
            files,
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
        match read.and_then(|contents| Ok((contents.parse(&self.files)?, contents))) {
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

    fn parse(&self, files: &Files) -> Result<Arc<ServerConfig>, Unusable> {
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
        config.alpn_protocols = PROTOCOLS.map(<[u8]>::to_vec).to_vec();
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
