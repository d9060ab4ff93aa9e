//! The certificate of the Git host, and the authority that its clients trust.

use rcgen::{BasicConstraints, CertificateParams, DnType, ExtendedKeyUsagePurpose, IsCa, Issuer, KeyPair};

/// Addresses of the Git host: those of its Services, and that of forwarded ports.
const ADDRESSES: [&str; 3] = ["10.96.0.80", "10.96.0.81", "127.0.0.1"];

/// The certificate with its key and its authority, in PEM.
#[derive(Debug)]
pub(crate) struct HostCertificate {
    pub(crate) authority: String,
    pub(crate) certificate: String,
    pub(crate) key: String,
}

impl HostCertificate {
    pub(crate) fn issue() -> Result<Self, rcgen::Error> {
        let mut params = CertificateParams::default();
        params.distinguished_name.push(DnType::CommonName, "e2e-git-host-ca");
        params.is_ca = IsCa::Ca(BasicConstraints::Constrained(0));
        let key = KeyPair::generate()?;
        let authority = params.self_signed(&key)?.pem();
        let issuer = Issuer::new(params, key);
        let mut params = CertificateParams::new(ADDRESSES.map(ToOwned::to_owned))?;
        params.extended_key_usages.push(ExtendedKeyUsagePurpose::ServerAuth);
        let key = KeyPair::generate()?;
        let certificate = params.signed_by(&key, &issuer)?.pem();
        Ok(Self { authority, certificate, key: key.serialize_pem() })
    }
}
