//! Names of the objects that the controllers use and create.

use trishanku_api::{AutomatedMergeSpec, TrishankuHeavenSpec};

/// The Secrets with certificates of a heaven.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Certificates {
    /// The authority.
    pub authority: String,
    /// The key pair for service account tokens.
    pub service_accounts: String,
    /// The certificate of kube-apiserver.
    pub kubernetes: String,
    /// Certificate and kubeconfig of an administrator.
    pub admin: String,
    /// Certificate and kubeconfig of the controller.
    pub controller: String,
}

impl Certificates {
    /// Returns the default names.
    pub fn new(name: &str) -> Self {
        Self::of(name, &TrishankuHeavenSpec::default())
    }

    /// Returns the names for a heaven.
    pub fn of(name: &str, spec: &TrishankuHeavenSpec) -> Self {
        let given = spec.certificates.clone().unwrap_or_default();
        let or = |given: Option<String>, suffix: &str| given.unwrap_or_else(|| format!("{name}-{suffix}"));
        Self {
            authority: or(given.certificate_authority_secret_name, "cert-ca"),
            service_accounts: or(given.service_accounts_secret_name, "cert-service-account"),
            kubernetes: or(given.kubernetes_secret_name, "cert-kubernetes"),
            admin: or(given.admin_secret_name, "admin"),
            controller: or(given.controller.and_then(|controller| controller.secret_name), "controller"),
        }
    }

    /// All of them.
    pub fn all(&self) -> [&str; 5] {
        [&self.authority, &self.service_accounts, &self.kubernetes, &self.admin, &self.controller]
    }
}

/// The `ConfigMap` with the entry points of a heaven.
pub fn entry_points_of_heaven(name: &str, spec: &TrishankuHeavenSpec) -> String {
    let given = spec.app.as_ref().and_then(|app| app.entrypoints_config_map_name.clone());
    given.unwrap_or_else(|| entry_points(name))
}

/// The default name of the `ConfigMap` with entry points.
pub fn entry_points(name: &str) -> String {
    format!("{name}-entrypoints")
}

/// The `ConfigMap` with the entry points of an `AutomatedMerge`.
pub fn entry_points_of_merge(name: &str, spec: &AutomatedMergeSpec) -> String {
    spec.app.entrypoints_config_map_name.clone().unwrap_or_else(|| entry_points(name))
}

/// The workload of a heaven, such as its Deployment.
pub fn heaven(name: &str) -> String {
    format!("{name}-heaven")
}

/// The Deployment of an `AutomatedMerge`.
pub fn merge(name: &str) -> String {
    format!("{name}-automerge")
}

/// The Secret with the certificate for the status of an `AutomatedMerge`.
pub fn merge_status(name: &str) -> String {
    format!("{name}-automerge-status")
}

/// The volume claim that is created for a repository.
pub fn repository_claim(name: &str) -> String {
    format!("{name}-repo")
}

/// The Service of a Git host.
pub fn host_service(name: &str) -> String {
    format!("{name}-git")
}
