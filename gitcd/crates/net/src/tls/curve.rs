//! Which keys nothing can be done with.

use std::path::Path;

use tokio_rustls::rustls::pki_types::CertificateDer;
use x509_parser::der_parser::oid;
use x509_parser::prelude::{FromDer, X509Certificate};

/// What to say of a certificate whose key is on a curve that the cryptography in here does not have.
pub(super) fn problem(certificate: &CertificateDer<'_>) -> Option<&'static str> {
    let (_, certificate) = X509Certificate::from_der(certificate).ok()?;
    let curve = certificate.public_key().algorithm.parameters.as_ref()?.as_oid().ok()?;
    let is_p521 = curve == oid!(1.3.132.0.35);
    is_p521.then_some("its key is on the curve P-521, which is not supported; take P-256, P-384, Ed25519 or RSA")
}

/// Warns of authorities in the file whose signatures cannot be checked.
pub(super) fn warn(path: &Path, authorities: &[CertificateDer<'_>]) {
    for problem in authorities.iter().filter_map(problem) {
        let path = path.display();
        tracing::warn!(%path, problem, "all clients of a certificate authority will be refused");
    }
}
