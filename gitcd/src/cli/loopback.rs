//! Certificates for a server on loopback and its clients.

use std::path::Path;

use anyhow::Context;
use gitcd_core::durable;
use rcgen::{
    BasicConstraints, CertificateParams, DnType, ExtendedKeyUsagePurpose, IsCa, Issuer, KeyPair, KeyUsagePurpose,
};
use time::{Duration, OffsetDateTime};

/// Help of the flag that names the folder.
pub(super) const HELP: &str = "Also create certificates for a server on loopback and its clients, valid for ten years, unless \
                               FOLDER has them: store-ca.crt, store.crt, store.key, store-client.crt, store-client.key";

/// Written last, so that it only exists if all the others do.
const AUTHORITY: &str = "store-ca.crt";
const LIFE: Duration = Duration::days(3650);
/// Tolerance for clocks that are set back.
const BACKDATE: Duration = Duration::hours(1);

/// Creates a certificate authority, a certificate for a server at loopback addresses, and one for its clients, unless the
/// folder has them already. The key of the authority is not kept, so that no other certificate can be issued.
///
/// # Errors
/// The folder cannot be written to, or the library cannot make a key.
pub(super) fn ensure(folder: &Path) -> anyhow::Result<()> {
    create(folder).with_context(|| format!("cannot create certificates in {}", folder.display()))
}

fn create(folder: &Path) -> anyhow::Result<()> {
    if folder.join(AUTHORITY).try_exists()? {
        return Ok(());
    }
    let mut params = params("gitcd-store-ca", &[])?;
    params.is_ca = IsCa::Ca(BasicConstraints::Constrained(0));
    params.key_usages = vec![KeyUsagePurpose::KeyCertSign];
    let key = KeyPair::generate()?;
    let authority = params.self_signed(&key)?;
    let issuer = Issuer::new(params, key);
    issue(folder, "store", &["localhost", "127.0.0.1", "::1"], ExtendedKeyUsagePurpose::ServerAuth, &issuer)?;
    issue(folder, "store-client", &[], ExtendedKeyUsagePurpose::ClientAuth, &issuer)?;
    Ok(durable::replace(&folder.join(AUTHORITY), authority.pem().as_bytes())?)
}

fn params(name: &str, names: &[&str]) -> Result<CertificateParams, rcgen::Error> {
    let names: Vec<_> = names.iter().map(ToString::to_string).collect();
    let mut params = CertificateParams::new(names)?;
    params.distinguished_name = rcgen::DistinguishedName::new();
    params.distinguished_name.push(DnType::CommonName, name);
    let now = OffsetDateTime::now_utc();
    (params.not_before, params.not_after) = (now - BACKDATE, now + LIFE);
    Ok(params)
}

fn issue(
    folder: &Path,
    name: &str,
    names: &[&str],
    usage: ExtendedKeyUsagePurpose,
    issuer: &Issuer<'_, KeyPair>,
) -> anyhow::Result<()> {
    let mut params = params(&format!("gitcd-{name}"), names)?;
    params.key_usages = vec![KeyUsagePurpose::DigitalSignature];
    params.extended_key_usages = vec![usage];
    let key = KeyPair::generate()?;
    let certificate = params.signed_by(&key, issuer)?;
    durable::replace(&folder.join(format!("{name}.key")), key.serialize_pem().as_bytes())?;
    Ok(durable::replace(&folder.join(format!("{name}.crt")), certificate.pem().as_bytes())?)
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt as _;

    use super::*;

    #[test]
    fn certificates_are_created_once_and_only_their_owner_reads_them() {
        let folder = tempfile::tempdir().unwrap();
        // As a run that was interrupted leaves it.
        std::fs::write(folder.path().join("store.key"), "half").unwrap();
        ensure(folder.path()).unwrap();
        let read = || {
            let files = ["store-ca.crt", "store.crt", "store.key", "store-client.crt", "store-client.key"];
            files.map(|file| std::fs::read_to_string(folder.path().join(file)).unwrap())
        };
        let before = read();
        assert!(before.iter().all(|file| file.starts_with("-----BEGIN ")), "{before:?}");
        for entry in std::fs::read_dir(folder.path()).unwrap().map(Result::unwrap) {
            let mode = entry.metadata().unwrap().permissions().mode() & 0o777;
            assert_eq!(mode, 0o600, "{:?}", entry.file_name());
        }
        ensure(folder.path()).unwrap();
        assert_eq!(read(), before);
    }
}
