//! Keys and certificates of a test cluster.

use std::path::Path;

use rcgen::{
    BasicConstraints, CertificateParams, DnType, ExtendedKeyUsagePurpose, IsCa, Issuer, KeyPair, KeyUsagePurpose,
};

/// Token of a cluster administrator. The server listens only on loopback, and lives as long as a test.
pub(crate) const TOKEN: &str = "trishanku-testkit";

/// File name of the authority's certificate.
pub(crate) const AUTHORITY: &str = "authority.crt";

/// Writes the files that kube-apiserver needs into `dir`. Returns the authority's certificate in DER.
pub(crate) fn write(dir: &Path) -> std::io::Result<Vec<u8>> {
    let (authority, authority_pem, server, server_key) = issue().map_err(std::io::Error::other)?;
    let service_accounts = KeyPair::generate().map_err(std::io::Error::other)?;
    let files = [
        (AUTHORITY, authority_pem),
        ("server.crt", server),
        ("server.key", server_key),
        ("service-accounts.key", service_accounts.serialize_pem()),
        ("service-accounts.pub", service_accounts.public_key_pem()),
        ("tokens.csv", format!("{TOKEN},test,test,system:masters\n")),
    ];
    for (name, content) in files {
        std::fs::write(dir.join(name), content)?;
    }
    Ok(authority)
}

fn issue() -> Result<(Vec<u8>, String, String, String), rcgen::Error> {
    let mut params = CertificateParams::default();
    params.distinguished_name.push(DnType::CommonName, "trishanku-testkit");
    params.is_ca = IsCa::Ca(BasicConstraints::Constrained(0));
    params.key_usages = vec![KeyUsagePurpose::KeyCertSign, KeyUsagePurpose::DigitalSignature];
    let key = KeyPair::generate()?;
    let authority = params.self_signed(&key)?;
    let issuer = Issuer::new(params, key);

    let mut params = CertificateParams::new(["127.0.0.1".to_owned(), "localhost".to_owned()])?;
    params.extended_key_usages.push(ExtendedKeyUsagePurpose::ServerAuth);
    let key = KeyPair::generate()?;
    Ok((authority.der().to_vec(), authority.pem(), params.signed_by(&key, &issuer)?.pem(), key.serialize_pem()))
}
