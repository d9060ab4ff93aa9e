//! The control plane's certificate authorities, and the certificates that they issue.
//!
//! All keys are ECDSA P-256. Private keys are written atomically with mode 0600. Valid certificates are left alone, so a
//! copied kubeconfig keeps working from run to run.

mod subjects;

use std::io;
use std::path::{Path, PathBuf};

use rcgen::{
    BasicConstraints, CertificateParams, DistinguishedName, DnType, ExtendedKeyUsagePurpose, IsCa, Issuer, KeyPair,
    KeyUsagePurpose, PublicKeyData,
};
use time::{Duration, OffsetDateTime};
use x509_parser::pem::parse_x509_pem;

use self::subjects::{Authority, CLUSTER, FRONT_PROXY, STORE, SUBJECTS, Subject};
pub use self::subjects::{FRONT_PROXY_CLIENT, SERVICE_RANGE};
use super::file;

const CA_LIFE: Duration = Duration::days(3650);
const LIFE: Duration = Duration::days(365);
// A certificate must not outlast its authority, so the authority is renewed while it still has a certificate's whole life.
const CA_RENEW_BEFORE: Duration = Duration::days(365 + 30);
const RENEW_BEFORE: Duration = Duration::days(30);
/// Tolerance for clock differences between the machines of a cluster.
const BACKDATE: Duration = Duration::minutes(5);

/// Why keys or certificates could not be prepared.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum CertsError {
    /// A file cannot be read or replaced.
    #[error("cannot read or write {path:?}")]
    File {
        /// The file.
        path: PathBuf,
        /// The error of the system.
        source: io::Error,
    },
    /// An invalid key that must not be replaced silently.
    #[error("{path:?} is not a usable private key; restore it, or delete it to generate a new one")]
    Key {
        /// The file.
        path: PathBuf,
        /// The error of the parser.
        source: rcgen::Error,
    },
    /// A certificate could not be issued.
    #[error("cannot issue a certificate for {subject}")]
    Issue {
        /// The subject.
        subject: &'static str,
        /// The error of the library.
        source: rcgen::Error,
    },
}

/// The certificate file of a subject (`ca`, `admin`, a component).
#[must_use]
pub fn certificate(dir: &Path, subject: &str) -> PathBuf {
    dir.join(format!("{subject}.crt"))
}

/// The private key file of a subject (`ca`, `admin`, `service-account`, a component).
#[must_use]
pub fn private_key(dir: &Path, subject: &str) -> PathBuf {
    dir.join(format!("{subject}.key"))
}

/// The public key that verifies service account tokens.
#[must_use]
pub fn service_account_public_key(dir: &Path) -> PathBuf {
    dir.join("service-account.pub")
}

/// Issues what is missing, damaged or about to expire at `now`; returns the subjects of the new certificates.
///
/// Certificates live one year and are renewed 30 days before they expire. Authorities live ten years and are renewed 395
/// days before, together with all their certificates. The service account key is never replaced, since it verifies tokens
/// that are in use.
///
/// # Errors
/// [`CertsError::File`] if a file cannot be read or written; [`CertsError::Key`] for a damaged service account key.
pub fn ensure(dir: &Path, now: OffsetDateTime) -> Result<Vec<&'static str>, CertsError> {
    ensure_service_account_key(dir)?;
    let cluster = ensure_of(dir, &[CLUSTER], now)?;
    Ok([cluster, ensure_local(dir, now)?].concat())
}

/// Like [`ensure`], for the certificates that heavens do not get from their manifests: those of the local stores and
/// front proxies.
///
/// # Errors
/// [`CertsError::File`] if a file cannot be read or written.
pub fn ensure_local(dir: &Path, now: OffsetDateTime) -> Result<Vec<&'static str>, CertsError> {
    ensure_of(dir, &[FRONT_PROXY, STORE], now)
}

fn ensure_of(dir: &Path, authorities: &[Authority], now: OffsetDateTime) -> Result<Vec<&'static str>, CertsError> {
    let mut renewed = Vec::new();
    for &authority in authorities {
        let key = if let Some(key) = sound_pair(dir, authority.file, now + CA_RENEW_BEFORE)? {
            key
        } else {
            renewed.push(authority.file);
            new_authority(dir, authority, now)?
        };
        let issuer = Issuer::new(params(authority, now), key);
        for subject in SUBJECTS.iter().filter(|s| s.authority == authority) {
            if sound_pair(dir, subject.file, now + RENEW_BEFORE)?.is_none() {
                issue(dir, subject, &issuer, now).map_err(|error| named(error, subject.file))?;
                renewed.push(subject.file);
            }
        }
    }
    Ok(renewed)
}

/// A failure that is not yet attributed to a subject.
enum IssueError {
    File(CertsError),
    Make(rcgen::Error),
}

impl From<rcgen::Error> for IssueError {
    fn from(error: rcgen::Error) -> Self {
        Self::Make(error)
    }
}

impl From<CertsError> for IssueError {
    fn from(error: CertsError) -> Self {
        Self::File(error)
    }
}

fn named(error: IssueError, subject: &'static str) -> CertsError {
    match error {
        IssueError::File(error) => error,
        IssueError::Make(source) => CertsError::Issue { subject, source },
    }
}

fn ensure_service_account_key(dir: &Path) -> Result<(), CertsError> {
    let path = private_key(dir, "service-account");
    let unusable = |source| CertsError::Key { path: path.clone(), source };
    let key = if let Some(pem) = read(&path)? {
        KeyPair::from_pem(&pem).map_err(unusable)?
    } else {
        let key = KeyPair::generate().map_err(unusable)?;
        write(&path, &key.serialize_pem(), 0o600)?;
        key
    };
    write(&service_account_public_key(dir), &key.public_key_pem(), 0o644)
}

/// The authority's parameters. The same name and key make the same issuer, so the certificate need not be parsed back.
fn params(authority: Authority, now: OffsetDateTime) -> CertificateParams {
    let mut params = CertificateParams::default();
    params.distinguished_name = DistinguishedName::new();
    params.distinguished_name.push(DnType::CommonName, authority.common_name);
    params.is_ca = IsCa::Ca(BasicConstraints::Constrained(0));
    params.key_usages = vec![KeyUsagePurpose::KeyCertSign, KeyUsagePurpose::CrlSign, KeyUsagePurpose::DigitalSignature];
    params.not_before = now - BACKDATE;
    params.not_after = now + CA_LIFE;
    params
}

fn new_authority(dir: &Path, authority: Authority, now: OffsetDateTime) -> Result<KeyPair, CertsError> {
    // The old authority's certificates are removed first: after a crash in between they must not pass for ones of the new
    // authority.
    for subject in SUBJECTS.iter().filter(|s| s.authority == authority) {
        let path = certificate(dir, subject.file);
        match std::fs::remove_file(&path) {
            Err(source) if source.kind() != io::ErrorKind::NotFound => {
                return Err(CertsError::File { path, source });
            }
            _ => {}
        }
    }
    let make = || -> Result<KeyPair, IssueError> {
        let key = KeyPair::generate()?;
        let cert = params(authority, now).self_signed(&key)?;
        write_pair(dir, authority.file, &key, &cert.pem())?;
        Ok(key)
    };
    make().map_err(|error| named(error, authority.file))
}

fn issue(dir: &Path, subject: &Subject, issuer: &Issuer<'_, KeyPair>, now: OffsetDateTime) -> Result<(), IssueError> {
    let names: Vec<String> = subject.names.iter().map(ToString::to_string).collect();
    let mut params = CertificateParams::new(names)?;
    params.distinguished_name = DistinguishedName::new();
    params.distinguished_name.push(DnType::CommonName, subject.common_name);
    if let Some(organization) = subject.organization {
        params.distinguished_name.push(DnType::OrganizationName, organization);
    }
    params.key_usages = vec![KeyUsagePurpose::DigitalSignature];
    if subject.server {
        params.extended_key_usages.push(ExtendedKeyUsagePurpose::ServerAuth);
    }
    if subject.client {
        params.extended_key_usages.push(ExtendedKeyUsagePurpose::ClientAuth);
    }
    params.use_authority_key_identifier_extension = true;
    params.not_before = now - BACKDATE;
    params.not_after = now + LIFE;
    let key = KeyPair::generate()?;
    let cert = params.signed_by(&key, issuer)?;
    write_pair(dir, subject.file, &key, &cert.pem())?;
    Ok(())
}

/// Returns the key of a matching pair that is valid beyond `until`; `None` if there is none.
fn sound_pair(dir: &Path, subject: &str, until: OffsetDateTime) -> Result<Option<KeyPair>, CertsError> {
    let key = read(&private_key(dir, subject))?;
    let cert = read(&certificate(dir, subject))?;
    let (Some(key), Some(cert)) = (key, cert) else {
        return Ok(None);
    };
    let pair = || {
        let key = KeyPair::from_pem(&key).ok()?;
        let (_, pem) = parse_x509_pem(cert.as_bytes()).ok()?;
        let cert = pem.parse_x509().ok()?;
        // A crash between the two writes of a renewal leaves a key and a certificate that do not match.
        let belongs = cert.public_key().raw == key.subject_public_key_info();
        let lasts = cert.validity().not_after.timestamp() > until.unix_timestamp();
        (belongs && lasts).then_some(key)
    };
    Ok(pair())
}

fn write_pair(dir: &Path, subject: &str, key: &KeyPair, cert: &str) -> Result<(), CertsError> {
    write(&private_key(dir, subject), &key.serialize_pem(), 0o600)?;
    write(&certificate(dir, subject), cert, 0o644)
}

fn read(path: &Path) -> Result<Option<String>, CertsError> {
    match std::fs::read_to_string(path) {
        Ok(text) => Ok(Some(text)),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
        Err(source) => Err(CertsError::File { path: path.into(), source }),
    }
}

fn write(path: &Path, text: &str, mode: u32) -> Result<(), CertsError> {
    file::replace(path, text.as_bytes(), mode).map_err(|source| CertsError::File { path: path.into(), source })
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt;

    use super::*;

    const ALL: [&str; 10] = [
        "ca",
        "kube-apiserver",
        "admin",
        "kube-controller-manager",
        "kube-scheduler",
        "front-proxy-ca",
        "front-proxy-client",
        "store-ca",
        "store",
        "store-client",
    ];
    const AUTHORITIES: [&str; 3] = ["ca", "front-proxy-ca", "store-ca"];

    fn now() -> OffsetDateTime {
        OffsetDateTime::UNIX_EPOCH + Duration::days(20_000)
    }

    #[test]
    fn a_second_run_changes_nothing() {
        let dir = tempfile::tempdir().unwrap();
        assert_eq!(ensure(dir.path(), now()).unwrap(), ALL);
        let before = std::fs::read(private_key(dir.path(), "service-account")).unwrap();
        assert!(ensure(dir.path(), now() + Duration::days(300)).unwrap().is_empty());
        let after = std::fs::read(private_key(dir.path(), "service-account")).unwrap();
        assert_eq!(before, after);
    }

    #[test]
    fn certificates_near_their_end_are_renewed_and_the_authorities_stay() {
        let dir = tempfile::tempdir().unwrap();
        ensure(dir.path(), now()).unwrap();
        let later = now() + Duration::days(336);
        let renewed = ensure(dir.path(), later).unwrap();
        assert_eq!(renewed.len(), ALL.len() - AUTHORITIES.len());
        assert!(AUTHORITIES.iter().all(|ca| !renewed.contains(ca)), "{renewed:?}");
    }

    #[test]
    fn an_authority_that_certificates_would_outlast_is_replaced_with_all_it_issued() {
        let dir = tempfile::tempdir().unwrap();
        ensure(dir.path(), now()).unwrap();
        let later = now() + Duration::days(3650 - 394);
        assert_eq!(ensure(dir.path(), later).unwrap(), ALL);
    }

    #[test]
    fn halves_of_different_pairs_are_replaced() {
        let dir = tempfile::tempdir().unwrap();
        ensure(dir.path(), now()).unwrap();
        std::fs::copy(private_key(dir.path(), "kube-scheduler"), private_key(dir.path(), "admin")).unwrap();
        assert_eq!(ensure(dir.path(), now()).unwrap(), ["admin"]);
    }

    #[test]
    fn only_the_owner_reads_private_keys() {
        let dir = tempfile::tempdir().unwrap();
        ensure(dir.path(), now()).unwrap();
        for subject in ALL.into_iter().chain(["service-account"]) {
            let path = private_key(dir.path(), subject);
            let mode = path.metadata().unwrap().permissions().mode();
            assert_eq!(mode & 0o777, 0o600, "{path:?}");
        }
    }

    #[test]
    fn a_damaged_service_account_key_is_an_error_and_stays() {
        let dir = tempfile::tempdir().unwrap();
        let path = private_key(dir.path(), "service-account");
        std::fs::write(&path, "garbage").unwrap();
        let error = ensure(dir.path(), now()).unwrap_err();
        assert!(error.to_string().contains("service-account.key"), "{error}");
        assert_eq!(std::fs::read_to_string(&path).unwrap(), "garbage");
    }
}
