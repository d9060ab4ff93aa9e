//! Kubeconfigs: server, authority and credentials in one file that can be copied.

use base64::Engine as _;
use base64::prelude::BASE64_STANDARD;

use super::Data;

/// The address of a heaven's kube-apiserver, as seen from the same pod.
const SERVER: &str = "https://localhost:6443";

/// Writes the kubeconfig for the certificate in a Secret.
pub(super) fn of(pair: &Data) -> Vec<u8> {
    let value = |key: &str| BASE64_STANDARD.encode(pair.get(key).map_or(&[][..], Vec::as_slice));
    let text = format!(
        "\
apiVersion: v1
kind: Config
current-context: heaven
clusters:
- name: heaven
  cluster:
    server: {SERVER}
    certificate-authority-data: {authority}
contexts:
- name: heaven
  context:
    cluster: heaven
    user: heaven
users:
- name: heaven
  user:
    client-certificate-data: {certificate}
    client-key-data: {key}
",
        authority = value("ca.crt"),
        certificate = value("tls.crt"),
        key = value("tls.key"),
    );
    text.into_bytes()
}
