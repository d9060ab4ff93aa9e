//! A certificate that both sides show, and that is all that both trust: for a gitcd without a kube-apiserver, so without an authority.

use rcgen::{CertificateParams, DnType, ExtendedKeyUsagePurpose, KeyPair};
use time::{Duration, OffsetDateTime};

/// How long one is good for.
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

/// A new one for this name.
///
/// # Errors
/// The system has no randomness.
pub fn make(name: &str, now: OffsetDateTime) -> Result<Pair, rcgen::Error> {
    let mut parameters = CertificateParams::new(["localhost".to_owned()])?;
    parameters.distinguished_name.push(DnType::CommonName, name);
    // No authority: what signs nothing else is taken as it is.
    parameters.extended_key_usages = vec![ExtendedKeyUsagePurpose::ServerAuth, ExtendedKeyUsagePurpose::ClientAuth];
    // Clocks differ.
    parameters.not_before = now - Duration::hours(1);
    parameters.not_after = now + LIFETIME;
    let key = KeyPair::generate()?;
    let certificate = parameters.self_signed(&key)?.pem();
    Ok(Pair { certificate, key: key.serialize_pem() })
}
