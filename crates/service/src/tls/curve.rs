//! Detection of certificates whose keys are not supported.

use std::path::Path;

use tokio_rustls::rustls::pki_types::CertificateDer;
use x509_parser::der_parser::oid;
use x509_parser::prelude::{FromDer, X509Certificate};

/// Returns what is wrong with a certificate whose key is on a curve that *ring* does not support.
pub(super) fn problem(certificate: &CertificateDer<'_>) -> Option<&'static str> {
    let (_, certificate) = X509Certificate::from_der(certificate).ok()?;
    let curve = certificate.public_key().algorithm.parameters.as_ref()?.as_oid().ok()?;
    let is_p521 = curve == oid!(1.3.132.0.35);
    is_p521.then_some("its key is on the curve P-521, which is not supported; use P-256, P-384, Ed25519 or RSA")
}

/// Warns about authorities in the file whose signatures cannot be verified.
pub(super) fn warn(path: &Path, authorities: &[CertificateDer<'_>]) {
    for problem in authorities.iter().filter_map(problem) {
        let path = path.display();
        tracing::warn!(%path, problem, "clients with certificates of this authority are rejected");
    }
}
