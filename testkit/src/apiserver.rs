//! The command line of kube-apiserver, and its clients.

use std::ffi::OsString;
use std::io;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::Command;

use kube::Config;
use serde_json::json;

use crate::certs;
use crate::process::Server;

const AUDIT_POLICY: &str = r#"{"apiVersion":"audit.k8s.io/v1","kind":"Policy","omitStages":["RequestReceived"],"rules":[{"level":"Metadata"}]}"#;

/// Settings of a kube-apiserver.
#[derive(Clone, Debug)]
pub(crate) struct Settings {
    pub(crate) program: PathBuf,
    /// Folder of its files, with those of `certs::write`.
    pub(crate) folder: PathBuf,
    /// Certificate of the authority.
    pub(crate) authority: Vec<u8>,
    pub(crate) store_url: String,
    /// Receives its traces.
    pub(crate) collector: Option<SocketAddr>,
    pub(crate) flags: Vec<String>,
}

impl Server for Settings {
    const NAME: &'static str = "kube-apiserver";
    const READY: &'static str = "/readyz";

    fn folder(&self) -> &Path {
        &self.folder
    }

    fn command(&self, port: u16) -> io::Result<Command> {
        std::fs::write(self.folder.join("audit-policy.json"), AUDIT_POLICY)?;
        let mut command = Command::new(&self.program);
        command.args(flags(self, port));
        if let Some(collector) = self.collector {
            std::fs::write(self.folder.join("tracing.json"), tracing(collector))?;
            // Tests wait for its spans, which are delayed by five seconds by default.
            command.env("OTEL_BSP_SCHEDULE_DELAY", "100");
        }
        Ok(command)
    }

    fn config(&self, port: u16) -> Config {
        config(port, &self.authority)
    }
}

/// Returns the configuration of a client that is a cluster administrator.
pub(crate) fn config(port: u16, authority: &[u8]) -> Config {
    let url = http::Uri::builder().scheme("https").authority(format!("127.0.0.1:{port}")).path_and_query("/").build();
    let mut config = Config::new(url.expect("the address is valid with any port"));
    config.root_cert = Some(vec![authority.to_owned()]);
    config.auth_info.token = Some(certs::TOKEN.to_owned().into());
    // Tests need to see each response.
    config.default_retry = false;
    config
}

/// Returns a kubeconfig as JSON, which is also YAML.
pub(crate) fn kubeconfig(port: u16, folder: &Path, user: Option<&str>) -> String {
    let mut credentials = json!({"token": certs::TOKEN});
    if let Some(user) = user {
        credentials["as"] = user.into();
    }
    let cluster = json!({
        "server": format!("https://127.0.0.1:{port}"),
        "certificate-authority": folder.join(certs::AUTHORITY),
    });
    let name = "testkit";
    let config = json!({
        "apiVersion": "v1", "kind": "Config", "current-context": name,
        "clusters": [{"name": name, "cluster": cluster}],
        "users": [{"name": name, "user": credentials}],
        "contexts": [{"name": name, "context": {"cluster": name, "user": name}}],
    });
    config.to_string()
}

pub(crate) fn audit_log(folder: &Path) -> PathBuf {
    folder.join("audit.log")
}

/// Returns a configuration that traces only requests that are already in a trace.
fn tracing(collector: SocketAddr) -> String {
    let (version, kind) = ("apiserver.config.k8s.io/v1", "TracingConfiguration");
    json!({"apiVersion": version, "kind": kind, "endpoint": collector.to_string()}).to_string()
}

fn flags(settings: &Settings, port: u16) -> Vec<OsString> {
    let file = |flag: &str, name: &str| {
        let mut flag = OsString::from(format!("--{flag}="));
        flag.push(settings.folder.join(name));
        flag
    };
    let mut flags = vec![
        file("tls-cert-file", "server.crt"),
        file("tls-private-key-file", "server.key"),
        file("token-auth-file", "tokens.csv"),
        file("service-account-key-file", "service-accounts.pub"),
        file("service-account-signing-key-file", "service-accounts.key"),
        file("cert-dir", "."),
        file("audit-policy-file", "audit-policy.json"),
        file("audit-log-path", "audit.log"),
    ];
    let plain = [
        format!("--etcd-servers={}", settings.store_url),
        format!("--secure-port={port}"),
        "--bind-address=127.0.0.1".to_owned(),
        // Otherwise it advertises the address of the default route, which a machine without a network does not have.
        "--advertise-address=127.0.0.1".to_owned(),
        "--endpoint-reconciler-type=none".to_owned(),
        "--service-cluster-ip-range=10.0.0.0/24".to_owned(),
        "--service-account-issuer=https://kubernetes.default.svc".to_owned(),
        "--authorization-mode=RBAC".to_owned(),
        // No controller creates the service accounts that this plugin requires.
        "--disable-admission-plugins=ServiceAccount".to_owned(),
        "--storage-media-type=application/json".to_owned(),
    ];
    flags.extend(settings.collector.map(|_| file("tracing-config-file", "tracing.json")));
    flags.extend(plain.into_iter().chain(settings.flags.iter().cloned()).map(OsString::from));
    flags
}
