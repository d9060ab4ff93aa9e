//! Certificates and certificate authorities, and when they end.

use std::fs;
use std::path::{Path, PathBuf};

use trishanku::plane::Home;
use x509_parser::pem::Pem;

use super::check::{Area, Check};

const DAY: i64 = 86_400;
/// Certificates that are issued here are renewed before.
const WARN_DAYS: i64 = 30;
/// Folders of Secrets in folders of heavens.
const DEPTH: usize = 4;
/// No certificate is larger.
const MAX_BYTES: u64 = 1 << 20;

/// A certificate in a file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Certificate {
    /// The file, relative to the state folder.
    file: PathBuf,
    is_authority: bool,
    /// In seconds since 1970.
    ends: i64,
}

/// Returns the certificates in a state folder, each once. Files that are no certificates are skipped.
pub(super) fn found(home: &Home) -> Vec<Certificate> {
    let mut files = Vec::new();
    for folder in [home.keys(), home.secrets(), home.heavens()] {
        collect(&folder, DEPTH, &mut files);
    }
    files.sort();
    let mut found: Vec<(Vec<u8>, Certificate)> = Vec::new();
    for file in files {
        let text = fs::read(&file).unwrap_or_default();
        for pem in Pem::iter_from_buffer(&text).filter_map(Result::ok).filter(|pem| pem.label == "CERTIFICATE") {
            let Ok(parsed) = pem.parse_x509() else { continue };
            let certificate = Certificate {
                file: file.strip_prefix(home.dir()).unwrap_or(&file).to_owned(),
                is_authority: parsed.is_ca(),
                ends: parsed.validity().not_after.timestamp(),
            };
            if found.iter().all(|(known, _)| *known != pem.contents) {
                found.push((pem.contents, certificate));
            }
        }
    }
    found.into_iter().map(|(_, certificate)| certificate).collect()
}

fn collect(folder: &Path, depth: usize, files: &mut Vec<PathBuf>) {
    for entry in fs::read_dir(folder).into_iter().flatten().flatten() {
        let path = entry.path();
        let Ok(metadata) = entry.metadata() else { continue };
        if metadata.is_dir() {
            // A repository has no certificates, and many files.
            if depth > 0 && path.file_name().is_none_or(|name| name != "repo") {
                collect(&path, depth - 1, files);
            }
        } else if metadata.len() <= MAX_BYTES && path.extension().is_some_and(|end| end == "crt" || end == "pem") {
            files.push(path);
        }
    }
}

/// Checks when certificates end. `is_supervised`: renewal works, so one that has ended is a failure.
pub(super) fn check(certificates: &[Certificate], now: i64, is_supervised: bool, program: &str) -> Vec<Check> {
    const NAME: &str = "certificates";
    let mut checks = Vec::new();
    for Certificate { file, is_authority, ends } in certificates {
        let left = ends - now;
        if left > WARN_DAYS * DAY {
            continue;
        }
        let what = if *is_authority { "a certificate authority" } else { "a certificate" };
        let issued = if is_supervised {
            "those that trishanku issued are renewed at the next check".to_owned()
        } else {
            format!("`{program} up` renews those that trishanku issued")
        };
        let remedy = format!("{issued}; renew those of your own manifests");
        let check = match left {
            ..0 if is_supervised => {
                Check::failure(Area::Cluster, NAME, format!("{what} ended {} days ago", -left / DAY), remedy)
            }
            ..0 => Check::warning(Area::Cluster, NAME, format!("{what} ended {} days ago", -left / DAY), remedy),
            left => Check::warning(Area::Cluster, NAME, format!("{what} ends in {} days", left / DAY), remedy),
        };
        checks.push(check.about(file.display().to_string()));
    }
    if let (true, Some(first)) = (checks.is_empty(), certificates.iter().min_by_key(|certificate| certificate.ends)) {
        let (count, days, file) = (certificates.len(), (first.ends - now) / DAY, first.file.display());
        checks.push(Check::ok(
            Area::Cluster,
            NAME,
            format!("{count} certificates; the first, {file}, ends in {days} days"),
        ));
    }
    checks
}

#[cfg(test)]
mod tests {
    use time::OffsetDateTime;
    use trishanku::plane::certs;

    use super::super::check::Status;
    use super::*;

    #[test]
    fn certificates_that_end_soon_warn_and_those_that_ended_fail_while_it_runs() {
        let certificate = |ends_in_days: i64, is_authority| Certificate {
            file: "pki/ca.crt".into(),
            is_authority,
            ends: 1000 * DAY + ends_in_days * DAY,
        };
        let of =
            |days, is_supervised| check(&[certificate(days, true)], 1000 * DAY, is_supervised, "trishanku").remove(0);
        assert_eq!(of(31, true).status, Status::Ok);
        let soon = of(30, true);
        assert_eq!((soon.status, soon.detail.as_str()), (Status::Warning, "a certificate authority ends in 30 days"));
        assert_eq!(soon.object.as_deref(), Some("pki/ca.crt"));
        let ended = of(-2, true);
        assert_eq!(
            (ended.status, ended.detail.as_str()),
            (Status::Failure, "a certificate authority ended 2 days ago")
        );
        let stopped = of(-2, false);
        assert!(stopped.status == Status::Warning && stopped.remedy.unwrap().contains("`trishanku up` renews"));
        let several = check(&[certificate(365, false), certificate(90, false)], 1000 * DAY, true, "trishanku");
        assert_eq!(several[0].detail, "2 certificates; the first, pki/ca.crt, ends in 90 days");
        assert!(check(&[], 0, true, "trishanku").is_empty());
    }

    #[test]
    fn the_certificates_of_a_folder_are_found_once_and_nothing_else() {
        let folder = tempfile::tempdir().unwrap();
        let home = Home::at(folder.path());
        home.create().unwrap();
        let now = OffsetDateTime::now_utc();
        certs::ensure(&home.keys(), now).unwrap();
        let before = found(&home);
        assert!(before.iter().any(|certificate| certificate.is_authority) && before.len() > 3, "{before:?}");
        let copy = home.secrets().join("a");
        fs::create_dir_all(&copy).unwrap();
        fs::copy(certs::certificate(&home.keys(), "admin"), copy.join("tls.crt")).unwrap();
        fs::write(copy.join("ca.crt"), "no certificate").unwrap();
        assert_eq!(found(&home), before);
        let good = check(&before, now.unix_timestamp(), true, "trishanku");
        assert_eq!((good.len(), good[0].status), (1, Status::Ok), "{good:?}");
    }
}
