//! A kube-apiserver process.

use std::ffi::OsString;
use std::hash::{BuildHasher, RandomState};
use std::io;
use std::net::{Ipv4Addr, SocketAddr, TcpListener};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

use kube::{Client, Config};
use serde_json::json;

use crate::certs;
use crate::error::StartError;
use crate::guard::Program;

/// Long enough for a busy machine.
pub(crate) const READY_WITHIN: Duration = Duration::from_mins(2);
const LOOK_EVERY: Duration = Duration::from_millis(50);
/// How many ports to try. Another process may take a port between the choice and the start.
const PORTS: usize = 5;

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

#[derive(Debug)]
pub(crate) struct ApiServer {
    port: u16,
    _program: Program,
}

impl ApiServer {
    /// Starts it on `port`, or on a free one, and waits until it is ready.
    pub(crate) async fn start(settings: &Settings, port: Option<u16>) -> Result<Self, StartError> {
        let mut tries = 0;
        loop {
            tries += 1;
            let chosen = port.map_or_else(free_port, Ok).map_err(StartError::System)?;
            match Self::start_on(settings, chosen).await {
                Err(StartError::Ended { log, .. }) if tries < PORTS && log.contains("address already in use") => {}
                result => return result,
            }
        }
    }

    async fn start_on(settings: &Settings, port: u16) -> Result<Self, StartError> {
        let folder = &settings.folder;
        let (log, ended) = (log(folder), folder.join("apiserver.ended"));
        match std::fs::remove_file(&ended) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(StartError::System(error)),
            _ => {}
        }
        std::fs::write(folder.join("audit-policy.json"), AUDIT_POLICY).map_err(StartError::System)?;
        let mut command = Command::new(&settings.program);
        command.args(flags(settings, port));
        if let Some(collector) = settings.collector {
            std::fs::write(folder.join("tracing.json"), tracing(collector)).map_err(StartError::System)?;
            // Tests wait for its spans, which are delayed by five seconds by default.
            command.env("OTEL_BSP_SCHEDULE_DELAY", "100");
        }
        let program = Program::start(&command, &log, &ended).map_err(StartError::System)?;
        let client =
            Client::try_from(config(port, &settings.authority)).map_err(|error| StartError::Client(Box::new(error)))?;
        let deadline = Instant::now() + READY_WITHIN;
        loop {
            let asked = http::Request::get("/readyz").body(Vec::new()).map(|request| client.request_text(request));
            let answer = asked.map_err(|error| StartError::System(io::Error::other(error)))?.await;
            if answer.is_ok() {
                return Ok(Self { port, _program: program });
            }
            if ended.exists() {
                return Err(StartError::Ended { program: "kube-apiserver", log: last_lines(&log) });
            }
            if Instant::now() > deadline {
                return Err(StartError::NotReady {
                    program: "kube-apiserver",
                    within: READY_WITHIN,
                    log: last_lines(&log),
                });
            }
            tokio::time::sleep(LOOK_EVERY).await;
        }
    }

    pub(crate) fn port(&self) -> u16 {
        self.port
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

fn log(folder: &Path) -> PathBuf {
    folder.join("apiserver.log")
}

pub(crate) fn last_lines(log: &Path) -> String {
    let text = std::fs::read_to_string(log).unwrap_or_default();
    let lines: Vec<_> = text.lines().collect();
    lines[lines.len().saturating_sub(20)..].join("\n")
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

/// Returns a loopback port that was free just now, outside of the range for outgoing connections.
fn free_port() -> io::Result<u16> {
    let range = std::fs::read_to_string("/proc/sys/net/ipv4/ip_local_port_range").unwrap_or_default();
    let first = range.split_whitespace().next().and_then(|first| first.parse().ok()).unwrap_or(32_768_u16);
    if first <= 12_000 {
        return TcpListener::bind((Ipv4Addr::LOCALHOST, 0))?.local_addr().map(|address| address.port());
    }
    // Random, so that concurrent callers choose different ports.
    let span = first - 11_000;
    let random = |_| 11_000 + (RandomState::new().hash_one(()) % u64::from(span)) as u16;
    let free = |port: &u16| TcpListener::bind((Ipv4Addr::LOCALHOST, *port)).is_ok();
    (0..200).map(random).find(free).ok_or_else(|| io::Error::other("no free loopback port"))
}
