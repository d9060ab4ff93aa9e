//! Secrets as folders of files: those of the manifests, and those with certificates issued here.

use std::collections::BTreeMap;
use std::fs::DirBuilder;
use std::io;
use std::os::unix::fs::DirBuilderExt as _;
use std::path::{Path, PathBuf};

use time::OffsetDateTime;
use trishanku_api::TrishankuHeavenSpec;
use trishanku_heaven::certificates::{IssueError, RenewalCriteria, Stored, User, issue};
use trishanku_heaven_plan::names::Certificates;

use super::check;
use super::manifest::Data;
use crate::plane::file;

/// The Secrets of all heavens.
#[derive(Debug)]
pub(super) struct Secrets {
    /// The folder of the Secrets that were issued here.
    folder: PathBuf,
    /// The Secrets of the manifests, which are never changed.
    given: BTreeMap<String, Data>,
}

/// The result of issuing certificates.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Made {
    /// The Secrets that were written.
    pub(super) secrets: Vec<String>,
    /// When the next renewal is due.
    pub(super) look_again: Option<OffsetDateTime>,
}

/// Why a Secret is not available.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum SecretError {
    /// Certificates cannot be issued.
    #[error("heaven {heaven:?}: {source}")]
    Issue {
        /// The heaven.
        heaven: String,
        /// The reason.
        source: IssueError,
    },
    /// The name of a Secret in a manifest is invalid.
    #[error("{user}: {reason}")]
    Name {
        /// The object that needs it.
        user: String,
        /// What is wrong.
        reason: String,
    },
    /// The Secret is neither in the manifests nor issued here.
    #[error("{user} needs Secret {secret:?}: add it to the files")]
    Missing {
        /// The object that needs it.
        user: String,
        /// Its name.
        secret: String,
    },
    /// A file or folder cannot be written or read.
    #[error("cannot use {path:?}")]
    File {
        /// The path.
        path: PathBuf,
        /// The error of the system.
        source: io::Error,
    },
}

impl Secrets {
    pub(super) fn new(folder: PathBuf, given: BTreeMap<String, Data>) -> Self {
        Self { folder, given }
    }

    /// Issues the certificates of a heaven that are missing or due.
    ///
    /// # Errors
    /// See [`SecretError`].
    pub(super) fn issue(&self, heaven: &str, spec: &TrishankuHeavenSpec) -> Result<Made, SecretError> {
        let names = Certificates::of(heaven, spec);
        let controller = spec.certificates.as_ref().and_then(|given| given.controller.clone());
        let user = controller.map(|controller| User { name: controller.user_name, group: controller.group_name });
        let mut stored = BTreeMap::new();
        for name in names.all() {
            check_name(name, &format!("heaven {heaven:?}: spec.certificates"))?;
            if let Some(found) = self.stored(name)? {
                stored.insert(name, found);
            }
        }
        let criteria = RenewalCriteria { now: OffsetDateTime::now_utc(), reissue_before: None };
        let issued = issue(&names, user.as_ref(), &stored, &criteria);
        let issued = issued.map_err(|source| SecretError::Issue { heaven: heaven.to_owned(), source })?;
        let mut made = Made { secrets: Vec::new(), look_again: issued.look_again };
        for wanted in issued.secrets {
            if stored.get(wanted.name.as_str()).is_none_or(|stored| stored.data != wanted.data) {
                let folder = self.folder.join(&wanted.name);
                write_all(&folder, &wanted.data)?;
                let there = stored.get(wanted.name.as_str()).into_iter().flat_map(|stored| stored.data.keys());
                for name in there.filter(|name| !wanted.data.contains_key(*name)) {
                    remove(&folder.join(name))?;
                }
                made.secrets.push(wanted.name);
            }
        }
        Ok(made)
    }

    /// The values of a Secret.
    ///
    /// # Errors
    /// [`SecretError::Missing`], [`SecretError::File`].
    pub(super) fn get(&self, name: &str, user: &str) -> Result<Data, SecretError> {
        check_name(name, user)?;
        let missing = || SecretError::Missing { user: user.to_owned(), secret: name.to_owned() };
        Ok(self.stored(name)?.ok_or_else(missing)?.data)
    }

    /// Whether there is such a Secret.
    pub(super) fn has(&self, name: &str) -> bool {
        self.given.contains_key(name) || check::is_subdomain(name) && self.folder.join(name).is_dir()
    }

    fn stored(&self, name: &str) -> Result<Option<Stored>, SecretError> {
        if let Some(data) = self.given.get(name) {
            return Ok(Some(Stored { data: data.clone(), is_ours: false }));
        }
        let folder = self.folder.join(name);
        let failed = |source| SecretError::File { path: folder.clone(), source };
        let entries = match std::fs::read_dir(&folder) {
            Ok(entries) => entries,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
            Err(error) => return Err(failed(error)),
        };
        let mut data = Data::new();
        for entry in entries {
            let entry = entry.map_err(failed)?;
            // A crash may leave a file that was about to replace another one.
            let path = entry.path();
            let is_left = path.extension().is_some_and(|extension| extension == "next");
            if let Some(name) = entry.file_name().to_str().filter(|_| !is_left) {
                data.insert(name.to_owned(), std::fs::read(&path).map_err(failed)?);
            }
        }
        Ok(Some(Stored { data, is_ours: true }))
    }
}

/// Checks that a name cannot leave the folder of Secrets.
fn check_name(name: &str, user: &str) -> Result<(), SecretError> {
    let wrong = |reason| SecretError::Name { user: user.to_owned(), reason };
    check::subdomain("the Secret's name", name).map_err(wrong)
}

/// Creates a folder and its parents, readable by the owner only.
pub(crate) fn make_folder(path: &Path) -> Result<(), SecretError> {
    let made = DirBuilder::new().recursive(true).mode(0o700).create(path);
    made.map_err(|source| SecretError::File { path: path.into(), source })
}

/// Removes a file that is no longer needed.
fn remove(path: &Path) -> Result<(), SecretError> {
    match std::fs::remove_file(path) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => {
            Err(SecretError::File { path: path.into(), source: error })
        }
        _ => Ok(()),
    }
}

/// Writes values as files, each atomically and readable by the owner only.
pub(super) fn write_all(folder: &Path, data: &Data) -> Result<(), SecretError> {
    make_folder(folder)?;
    for (name, content) in data {
        write(&folder.join(name), content, 0o600)?;
    }
    Ok(())
}

/// Writes a file atomically if its content differs; returns whether it did.
pub(super) fn write(path: &Path, content: &[u8], mode: u32) -> Result<bool, SecretError> {
    if std::fs::read(path).is_ok_and(|known| known == content) {
        return Ok(false);
    }
    if let Some(folder) = path.parent() {
        make_folder(folder)?;
    }
    file::replace(path, content, mode).map_err(|source| SecretError::File { path: path.into(), source })?;
    Ok(true)
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt as _;

    use serde_json::json;

    use super::*;

    #[test]
    fn heavens_share_what_both_name_and_nothing_is_made_twice() {
        let dir = tempfile::tempdir().unwrap();
        let secrets = Secrets::new(dir.path().into(), BTreeMap::new());
        let spec = |user: &str| -> TrishankuHeavenSpec {
            serde_json::from_value(json!({"certificates": {
                "certificateAuthoritySecretName": "ca", "serviceAccountsSecretName": "sa",
                "kubernetesSecretName": "server", "adminSecretName": "admin", "controller": {"userName": user},
            }}))
            .unwrap()
        };
        assert_eq!(secrets.issue("a", &spec("a")).unwrap().secrets, ["ca", "sa", "server", "admin", "a-controller"]);
        assert_eq!(secrets.issue("b", &spec("b")).unwrap().secrets, ["b-controller"]);
        assert!(secrets.issue("a", &spec("a")).unwrap().secrets.is_empty());
        assert!(secrets.get("b-controller", "b").unwrap().contains_key("kubeconfig"));
        // A key that is no longer used is removed, once.
        std::fs::write(dir.path().join("sa/next.key"), "unused").unwrap();
        assert_eq!(secrets.issue("a", &spec("a")).unwrap().secrets, ["sa"]);
        assert!(secrets.issue("a", &spec("a")).unwrap().secrets.is_empty());
        let mode = |path: &str| dir.path().join(path).metadata().unwrap().permissions().mode() & 0o777;
        assert_eq!((mode("ca"), mode("ca/tls.key")), (0o700, 0o600));
        for name in ["", "..", "../x", "/etc"] {
            let said = secrets.get(name, "heaven \"a\"").unwrap_err().to_string();
            assert!(said.starts_with("heaven \"a\": the Secret's name ") && !secrets.has(name), "{said}");
        }
        let outside = serde_json::from_value(json!({"certificates": {"adminSecretName": "../out"}})).unwrap();
        assert!(secrets.issue("c", &outside).unwrap_err().to_string().contains("../out"));
        let said = secrets.get("git", "heaven \"a\"").unwrap_err().to_string();
        assert_eq!(said, "heaven \"a\" needs Secret \"git\": add it to the files");
    }

    #[test]
    fn what_is_given_is_used_as_it_is() {
        let dir = tempfile::tempdir().unwrap();
        let given = Data::from([("tls.crt".to_owned(), b"no certificate".to_vec())]);
        let secrets = Secrets::new(dir.path().into(), [("a-cert-ca".to_owned(), given)].into());
        let said = secrets.issue("a", &TrishankuHeavenSpec::default()).unwrap_err().to_string();
        assert!(said.contains("heaven \"a\"") && said.contains("a-cert-ca"), "{said}");
    }
}
