//! Certificates and keys for listeners, checked one by one, so that an error names the file that is to blame.

use std::path::{Path, PathBuf};

use tokio_rustls::rustls::crypto::ring::default_provider;
use tokio_rustls::rustls::pki_types::pem::PemObject;
use tokio_rustls::rustls::pki_types::{CertificateDer, PrivateKeyDer};
use tokio_rustls::rustls::server::ParsedCertificate;
use tokio_rustls::rustls::sign::CertifiedKey;
use tokio_rustls::rustls::{self, RootCertStore};
use tonic::transport::{Certificate, Identity, ServerTlsConfig};

use crate::server::{ServeError, Tls};

/// What a listener needs of these files. Reads them once: renewed ones count from the next start on.
///
/// # Errors
/// [`ServeError::Tls`] with the file that cannot be used.
pub(crate) fn listener(tls: &Tls) -> Result<ServerTlsConfig, ServeError> {
    let cert = read(&tls.cert)?;
    let key = read(&tls.key)?;
    pair(tls, &cert, &key)?;
    let mut config = ServerTlsConfig::new().identity(Identity::from_pem(&cert, &key));
    if let Some(path) = &tls.trusted_ca {
        let authorities = read(path)?;
        let (usable, _) = RootCertStore::empty().add_parsable_certificates(certificates(path, &authorities)?);
        if usable == 0 {
            return Err(unusable(path, "no certificate in it is one of an authority"));
        }
        config = config.client_ca_root(Certificate::from_pem(&authorities));
    }
    Ok(config)
}

/// Checks the certificate, then the key, then that they belong together.
fn pair(tls: &Tls, cert: &[u8], key: &[u8]) -> Result<(), ServeError> {
    let chain = certificates(&tls.cert, cert)?;
    ParsedCertificate::try_from(&chain[0]).map_err(|error| unusable(&tls.cert, error))?;
    let key = PrivateKeyDer::from_pem_slice(key)
        .map_err(|_| unusable(&tls.key, "there is no unencrypted private key in PEM in it"))?;
    let provider = default_provider();
    provider.key_provider.load_private_key(key.clone_key()).map_err(|error| unusable(&tls.key, error))?;
    match CertifiedKey::from_der(chain, key, &provider) {
        Ok(_) => Ok(()),
        Err(rustls::Error::InconsistentKeys(_)) => {
            Err(unusable(&tls.key, format_args!("it is not the key of the certificate in {}", tls.cert.display())))
        }
        Err(error) => Err(unusable(&tls.cert, error)),
    }
}

/// At least one.
fn certificates(path: &Path, pem: &[u8]) -> Result<Vec<CertificateDer<'static>>, ServeError> {
    let found: Result<Vec<_>, _> = CertificateDer::pem_slice_iter(pem).collect();
    match found {
        Ok(found) if found.is_empty() => Err(unusable(path, "there is no certificate in PEM in it")),
        Ok(found) => Ok(found),
        Err(error) => Err(unusable(path, error)),
    }
}

fn read(path: &PathBuf) -> Result<Vec<u8>, ServeError> {
    std::fs::read(path).map_err(|error| unusable(path, error))
}

fn unusable(path: &Path, problem: impl std::fmt::Display) -> ServeError {
    ServeError::Tls { path: path.to_owned(), problem: problem.to_string() }
}
