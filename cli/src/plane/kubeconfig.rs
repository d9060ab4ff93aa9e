//! Kubeconfigs: server, authority and credentials in one file that can be copied.

use std::path::Path;

use base64::Engine;
use base64::prelude::BASE64_STANDARD;

use super::certs::{self, CertsError};
use super::file;

/// Writes a kubeconfig for the certificate of `user` to `path`, readable by the owner only, since it contains the private
/// key.
///
/// # Errors
/// [`CertsError::File`] names the file that cannot be read or written.
pub fn write(path: &Path, keys: &Path, user: &str, apiserver_port: u16) -> Result<(), CertsError> {
    write_as(path, keys, (user, None), apiserver_port)
}

/// Does the same, for a user that acts as another one.
///
/// # Errors
/// As [`write()`].
pub fn write_impersonating(
    path: &Path,
    keys: &Path,
    (user, other): (&str, &str),
    apiserver_port: u16,
) -> Result<(), CertsError> {
    write_as(path, keys, (user, Some(other)), apiserver_port)
}

fn write_as(
    path: &Path,
    keys: &Path,
    (user, other): (&str, Option<&str>),
    apiserver_port: u16,
) -> Result<(), CertsError> {
    let data = |path: &Path| {
        std::fs::read(path)
            .map(|bytes| BASE64_STANDARD.encode(bytes))
            .map_err(|source| CertsError::File { path: path.into(), source })
    };
    let text = format!(
        "\
apiVersion: v1
kind: Config
current-context: trishanku
clusters:
- name: trishanku
  cluster:
    server: https://127.0.0.1:{apiserver_port}
    certificate-authority-data: {ca}
contexts:
- name: trishanku
  context:
    cluster: trishanku
    user: {user}
users:
- name: {user}
  user:
    client-certificate-data: {certificate}
    client-key-data: {key}
{acts_as}",
        ca = data(&certs::certificate(keys, "ca"))?,
        certificate = data(&certs::certificate(keys, user))?,
        key = data(&certs::private_key(keys, user))?,
        acts_as = other.map(|other| format!("    as: {other}\n")).unwrap_or_default(),
    );
    file::replace(path, text.as_bytes(), 0o600).map_err(|source| CertsError::File { path: path.into(), source })
}
