//! Certificate authorities that a remote needs besides those of this machine.

use std::io::Write as _;
use std::path::Path;

use base64::Engine as _;
use base64::prelude::BASE64_STANDARD;
use reqwest::Certificate;
use tempfile::NamedTempFile;

use super::status::Condition;
use super::wire::TransportError;

/// `git prune` removes files with this prefix that a crash leaves behind.
const PREFIX: &str = "tmp_authorities-";

/// Certificate authorities, in PEM.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Authorities(Vec<u8>);

impl Authorities {
    /// Reads a file.
    pub(super) fn read(file: &Path) -> Result<Self, TransportError> {
        let failed = |problem: &dyn std::fmt::Display| {
            let said = format!("cannot use the certificate authorities in {}: {problem}", file.display());
            TransportError::new(Condition::Failed, said)
        };
        let authorities = std::fs::read(file).map(Self).map_err(|error| failed(&error))?;
        match authorities.certificates() {
            Ok(found) if found.is_empty() => Err(failed(&"no certificate in PEM")),
            Ok(_) => Ok(authorities),
            Err(error) => Err(failed(&gitcd_core::error::chain(&error))),
        }
    }

    /// Returns the certificates.
    pub(super) fn certificates(&self) -> reqwest::Result<Vec<Certificate>> {
        Certificate::from_pem_bundle(&self.0)
    }

    /// Writes a file with these authorities and those of this machine, for `git`, which trusts only the file. It is in a
    /// repository, since a container may have no other folder to write to.
    pub(super) fn file(&self, git_dir: &Path) -> Result<NamedTempFile, TransportError> {
        let mut pem = self.0.clone();
        for der in rustls_native_certs::load_native_certs().certs {
            pem.extend_from_slice(b"\n-----BEGIN CERTIFICATE-----\n");
            for line in BASE64_STANDARD.encode(der).as_bytes().chunks(64) {
                pem.extend_from_slice(line);
                pem.push(b'\n');
            }
            pem.extend_from_slice(b"-----END CERTIFICATE-----\n");
        }
        let made = tempfile::Builder::new().prefix(PREFIX).suffix(".pem").tempfile_in(git_dir.join("objects"));
        let written = made.and_then(|mut file| file.write_all(&pem).map(|()| file));
        written
            .map_err(|error| TransportError::here(format!("cannot write a file of certificate authorities: {error}")))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_without_a_certificate_is_reported_with_its_path() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("ca.crt");
        let problem = || Authorities::read(&file).unwrap_err().said;
        assert!(problem().contains("ca.crt: No such file"), "{}", problem());
        std::fs::write(&file, "nothing").unwrap();
        assert!(problem().ends_with("ca.crt: no certificate in PEM"), "{}", problem());
    }

    #[test]
    fn git_gets_these_authorities_and_those_of_the_machine() {
        let folder = tempfile::tempdir().unwrap();
        std::fs::create_dir(folder.path().join("objects")).unwrap();
        let own = "-----BEGIN CERTIFICATE-----\nAA==\n-----END CERTIFICATE-----\n";
        let file = Authorities(own.as_bytes().to_vec()).file(folder.path()).unwrap();
        let text = std::fs::read_to_string(file.path()).unwrap();
        let count = rustls_native_certs::load_native_certs().certs.len();
        assert!(text.starts_with(own));
        assert_eq!(Certificate::from_pem_bundle(text.as_bytes()).unwrap().len(), count + 1);
    }
}
