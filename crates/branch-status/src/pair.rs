//! Self-signed certificates that both sides use and trust: for a gitcd without a kube-apiserver, and so without an
//! authority.

use rcgen::{CertificateParams, DnType, ExtendedKeyUsagePurpose, KeyPair};
use time::{Duration, OffsetDateTime};

/// The validity of a certificate.
pub const LIFETIME: Duration = Duration::days(3_650);

/// A certificate and its key, in PEM.
#[derive(Clone)]
pub struct Pair {
    /// The certificate.
    pub certificate: String,
    /// Its key.
    pub key: String,
}

impl std::fmt::Debug for Pair {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Pair").finish_non_exhaustive()
    }
}

/// Creates a certificate for this name.
///
/// # Errors
/// If the system has no randomness.
pub fn make(name: &str, now: OffsetDateTime) -> Result<Pair, rcgen::Error> {
    let mut parameters = CertificateParams::new(["localhost".to_owned()])?;
    parameters.distinguished_name.push(DnType::CommonName, name);
    // Not a CA: a certificate that signs no others is accepted as it is.
    parameters.extended_key_usages = vec![ExtendedKeyUsagePurpose::ServerAuth, ExtendedKeyUsagePurpose::ClientAuth];
    // Tolerance for clock differences.
    parameters.not_before = now - Duration::hours(1);
    parameters.not_after = now + LIFETIME;
    let key = KeyPair::generate()?;
    let certificate = parameters.self_signed(&key)?.pem();
    Ok(Pair { certificate, key: key.serialize_pem() })
}
