//! Keys, certificates and kubeconfigs of the host cluster. They live as long as its folder, which only root can access.

use std::fs;
use std::path::{Path, PathBuf};

use anyhow::Context;
use rcgen::{
    BasicConstraints, CertificateParams, DistinguishedName, DnType, ExtendedKeyUsagePurpose, IsCa, Issuer, KeyPair,
    KeyUsagePurpose,
};
use serde_json::json;

use super::{API_ADDRESS, NODE, NODE_ADDRESS};

/// Client certificates: file, common name, organization.
const CLIENTS: [(&str, &str, Option<&str>); 6] = [
    ("admin", "admin", Some("system:masters")),
    ("kube-controller-manager", "system:kube-controller-manager", None),
    ("kube-scheduler", "system:kube-scheduler", None),
    ("kube-proxy", "system:kube-proxy", None),
    ("kubelet", "system:node:node-1", Some("system:nodes")),
    ("kube-apiserver-kubelet-client", "kube-apiserver-kubelet-client", Some("system:masters")),
];

/// The folder that holds them.
pub(super) struct Keys(PathBuf);

impl Keys {
    /// Creates all of them.
    pub(super) fn make(folder: &Path) -> anyhow::Result<Self> {
        let keys = Self(folder.to_owned());
        fs::create_dir(folder).with_context(|| format!("cannot create {}", folder.display()))?;
        let mut authority = named("trishanku-e2e", None, &[])?;
        authority.is_ca = IsCa::Ca(BasicConstraints::Constrained(0));
        authority.key_usages = vec![KeyUsagePurpose::KeyCertSign, KeyUsagePurpose::DigitalSignature];
        let key = KeyPair::generate()?;
        keys.write("ca", &authority.self_signed(&key)?.pem(), &key)?;
        let issuer = Issuer::new(authority, key);
        let of_api = [
            "localhost",
            "127.0.0.1",
            API_ADDRESS,
            NODE_ADDRESS,
            "kubernetes",
            "kubernetes.default",
            "kubernetes.default.svc",
        ];
        let of_node = [NODE, NODE_ADDRESS];
        for (file, names) in [("kube-apiserver", &of_api[..]), ("kubelet-server", &of_node[..])] {
            let mut params = named(file, None, names)?;
            params.extended_key_usages.push(ExtendedKeyUsagePurpose::ServerAuth);
            keys.issue(file, &params, &issuer)?;
        }
        for (file, name, organization) in CLIENTS {
            let mut params = named(name, organization, &[])?;
            params.extended_key_usages.push(ExtendedKeyUsagePurpose::ClientAuth);
            keys.issue(file, &params, &issuer)?;
            keys.kubeconfig(file)?;
        }
        let accounts = KeyPair::generate()?;
        fs::write(folder.join("service-accounts.key"), accounts.serialize_pem())?;
        fs::write(folder.join("service-accounts.pub"), accounts.public_key_pem())?;
        Ok(keys)
    }

    fn issue(&self, file: &str, params: &CertificateParams, issuer: &Issuer<'_, KeyPair>) -> anyhow::Result<()> {
        let key = KeyPair::generate()?;
        self.write(file, &params.signed_by(&key, issuer)?.pem(), &key)
    }

    fn write(&self, file: &str, certificate: &str, key: &KeyPair) -> anyhow::Result<()> {
        fs::write(self.certificate(file), certificate)?;
        fs::write(self.key(file), key.serialize_pem())?;
        Ok(())
    }

    fn kubeconfig(&self, of: &str) -> anyhow::Result<()> {
        let config = json!({
            "apiVersion": "v1", "kind": "Config", "current-context": "host",
            "clusters": [{"name": "host", "cluster": {
                "server": format!("https://{NODE_ADDRESS}:6443"), "certificate-authority": self.certificate("ca"),
            }}],
            "users": [{"name": of, "user": {"client-certificate": self.certificate(of), "client-key": self.key(of)}}],
            "contexts": [{"name": "host", "context": {"cluster": "host", "user": of}}],
        });
        fs::write(self.kubeconfig_of(of), config.to_string())?;
        Ok(())
    }

    pub(super) fn certificate(&self, of: &str) -> PathBuf {
        self.file(&format!("{of}.crt"))
    }

    pub(super) fn key(&self, of: &str) -> PathBuf {
        self.file(&format!("{of}.key"))
    }

    pub(super) fn kubeconfig_of(&self, user: &str) -> PathBuf {
        self.file(&format!("{user}.kubeconfig"))
    }

    pub(super) fn file(&self, name: &str) -> PathBuf {
        self.0.join(name)
    }
}

fn named(name: &str, organization: Option<&str>, names: &[&str]) -> anyhow::Result<CertificateParams> {
    let names: Vec<String> = names.iter().map(|name| (*name).to_owned()).collect();
    let mut params = CertificateParams::new(names)?;
    params.distinguished_name = DistinguishedName::new();
    params.distinguished_name.push(DnType::CommonName, name);
    if let Some(organization) = organization {
        params.distinguished_name.push(DnType::OrganizationName, organization);
    }
    params.key_usages = vec![KeyUsagePurpose::DigitalSignature];
    Ok(params)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_kubelet_is_the_node_that_the_certificates_are_for() {
        assert_eq!(CLIENTS[4].1, format!("system:node:{NODE}"));
        let range: std::net::Ipv4Addr = API_ADDRESS.parse().unwrap();
        assert_eq!(range.octets()[3], 1, "kube-apiserver must have the first Service address");
    }
}
