//! A kube-apiserver that sends its audit events to gitcd, and users of it.

use std::ffi::OsStr;
use std::fs::File;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::time::{Duration, Instant};

use serde_json::{Value, json};
use tempfile::TempDir;

use crate::authority::{Authority, Pair};
use crate::support::{Kind, Launch, Server, assets, free_port};

/// Long enough for a busy machine.
const READY_WITHIN: Duration = Duration::from_mins(3);
const TOKEN: &str = "administrator";

/// The audit policy of `docs/design/audit.md`: bodies of responses for the resource version, but none of Secrets.
const POLICY: &str = r#"{"apiVersion":"audit.k8s.io/v1","kind":"Policy",
"omitStages":["RequestReceived","ResponseStarted","Panic"],"omitManagedFields":true,"rules":[
{"level":"None","nonResourceURLs":["/*"]},
{"level":"None","verbs":["get","list","watch"]},
{"level":"None","resources":[{"group":"","resources":["events"]},{"group":"events.k8s.io","resources":["events"]},
{"group":"coordination.k8s.io","resources":["leases"]}]},
{"level":"Metadata","resources":[{"group":"","resources":["secrets","serviceaccounts/token"]}]},
{"level":"RequestResponse"}]}"#;

/// gitcd and kube-apiserver.
pub(crate) struct Cluster {
    pub(crate) store: Server,
    apiserver: Child,
    port: u16,
    folder: TempDir,
}

/// How events reach gitcd.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Backend {
    /// By a webhook with client certificates.
    Webhook,
    /// By a log file.
    Log,
    /// Not at all, although gitcd listens.
    Silent,
    /// Not at all, and commits name no users.
    None,
}

fn write(path: &Path, content: &str) {
    std::fs::write(path, content).unwrap_or_else(|error| panic!("cannot write {}: {error}", path.display()));
}

/// Writes a certificate and its key. Returns the paths.
fn install(folder: &Path, name: &str, pair: &Pair) -> (PathBuf, PathBuf) {
    let (cert, key) = (folder.join(format!("{name}.crt")), folder.join(format!("{name}.key")));
    write(&cert, &pair.cert);
    write(&key, &pair.key);
    (cert, key)
}

impl Cluster {
    pub(crate) async fn start(backend: Backend) -> Self {
        let folder = tempfile::tempdir().expect("the temporary folder is writable");
        let authority = Authority::new("stores");
        let at = folder.path();
        write(&at.join("ca.crt"), authority.pem());
        let (cert, key) = install(at, "store", &authority.issue("store"));
        install(at, "client", &authority.issue("kube-apiserver"));
        let audit = free_port();
        let flag = |name: &str, value: &Path| format!("--{name}=default={}", value.display());
        let launch = Launch::new(Kind::Gitcd).secure().argument("--key-prefixes=default=/registry");
        let launch = launch.argument(flag("tls-cert", &cert)).argument(flag("tls-key", &key));
        let launch = launch.argument(flag("tls-trusted-ca-certs", &at.join("ca.crt")));
        let store = match backend {
            Backend::Log => launch.argument(flag("audit-log-file", &at.join("audit.log"))),
            Backend::None => launch,
            Backend::Webhook | Backend::Silent => {
                launch.argument(format!("--listen-audit-urls=default=https://127.0.0.1:{audit}"))
            }
        };
        let store = store.start().await;
        let port = free_port();
        let mut command = Command::new(assets::program("kube-apiserver"));
        write(&at.join("policy.json"), POLICY);
        write(&at.join("tokens.csv"), &format!("{TOKEN},admin,admin,system:masters\n"));
        let service_accounts = Authority::new("service-accounts").issue("service-accounts");
        install(at, "service-accounts", &service_accounts);
        command.args(flags(at, port, &store));
        if backend != Backend::None {
            command.arg(format!("--audit-policy-file={}", at.join("policy.json").display()));
        }
        match backend {
            Backend::Webhook => command.args(webhook(at, audit)),
            Backend::Log => command.arg(format!("--audit-log-path={}", at.join("audit.log").display())),
            Backend::Silent | Backend::None => &mut command,
        };
        let log = File::create(at.join("kube-apiserver.log")).expect("the temporary folder is writable");
        command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(log);
        let apiserver = command.spawn().expect("kube-apiserver can be started");
        let mut cluster = Self { store, apiserver, port, folder };
        cluster.ready().await;
        cluster
    }

    async fn ready(&mut self) {
        let start = Instant::now();
        while !self.kubectl("admin", ["get", "--raw=/readyz"], None).status.success() {
            let log = || std::fs::read_to_string(self.folder.path().join("kube-apiserver.log")).unwrap_or_default();
            assert!(start.elapsed() < READY_WITHIN, "kube-apiserver is not ready:\n{}", log());
            let exited = self.apiserver.try_wait().expect("the child is ours");
            assert!(exited.is_none(), "kube-apiserver exited:\n{}", log());
            tokio::time::sleep(Duration::from_millis(200)).await;
        }
    }

    /// Runs kubectl as a user, which the administrator impersonates unless it is `admin`.
    pub(crate) fn kubectl<I: AsRef<OsStr>>(
        &self,
        user: &str,
        words: impl IntoIterator<Item = I>,
        input: Option<&Value>,
    ) -> Output {
        let mut command = Command::new(assets::program("kubectl"));
        command.args([
            format!("--server=https://127.0.0.1:{}", self.port),
            format!("--token={TOKEN}"),
            "--insecure-skip-tls-verify".to_owned(),
            format!("--cache-dir={}", self.folder.path().join("cache").display()),
        ]);
        if user != "admin" {
            command.args([format!("--as={user}"), "--as-group=system:masters".to_owned()]);
        }
        command.args(words).env("KUBECONFIG", self.folder.path().join("none"));
        if let Some(input) = input {
            let file = tempfile::NamedTempFile::new().expect("the temporary folder is writable");
            write(file.path(), &input.to_string());
            return command
                .arg(format!("--filename={}", file.path().display()))
                .output()
                .expect("kubectl can be started");
        }
        command.stdin(Stdio::null()).output().expect("kubectl can be started")
    }

    /// Runs kubectl, which must succeed. Returns its output.
    pub(crate) fn done(&self, user: &str, words: &str, input: Option<&Value>) -> String {
        let output = self.kubectl(user, words.split_whitespace(), input);
        assert!(output.status.success(), "{user}: kubectl {words}: {}", String::from_utf8_lossy(&output.stderr));
        String::from_utf8_lossy(&output.stdout).into_owned()
    }

    /// Returns the URL of a path.
    pub(crate) fn url(&self, path: &str) -> String {
        format!("https://127.0.0.1:{}{path}", self.port)
    }

    /// Returns a client of the administrator.
    pub(crate) fn client() -> reqwest::Client {
        // The only one that is compiled in; a test may have installed it before.
        let _is_installed = tokio_rustls::rustls::crypto::ring::default_provider().install_default();
        let token = format!("Bearer {TOKEN}").parse().expect("it is a header's value");
        let headers = [(reqwest::header::AUTHORIZATION, token)].into_iter().collect();
        let builder = reqwest::Client::builder().default_headers(headers);
        builder.tls_danger_accept_invalid_certs(true).build().expect("the client needs no files")
    }

    /// Returns the processor time of kube-apiserver.
    pub(crate) fn processor_time(&self) -> Duration {
        let stat = std::fs::read_to_string(format!("/proc/{}/stat", self.apiserver.id())).expect("it runs");
        let fields = stat.rsplit_once(')').map_or("", |(_, fields)| fields).split_whitespace();
        // utime and stime, in hundredths of a second.
        let ticks: u64 = fields.skip(11).take(2).map(|ticks| ticks.parse::<u64>().expect("it is a number")).sum();
        Duration::from_millis(ticks * 10)
    }

    /// Runs `gitcd … --json`.
    pub(crate) fn gitcd(&self, words: &[&str]) -> Value {
        let mut command = Command::new(env!("CARGO_BIN_EXE_gitcd"));
        command.args(words).env("GITCD_REPO", self.store.repository().path());
        let output = command.output().expect("gitcd can be started");
        // `gitcd diff` exits with 1 if something differs.
        serde_json::from_slice(&output.stdout).unwrap_or_else(|error| panic!("gitcd {words:?}: {error}: {output:?}"))
    }

    /// Returns the changes of a key, oldest first: what, and the actor or null.
    pub(crate) fn log(&self, key: &str) -> Vec<(String, Value)> {
        let log = self.gitcd(&["log", "--json", "--limit=1000", key]);
        let entries = log.as_array().expect("the log is a list").iter().rev();
        let of = |entry: &Value| {
            let actors = entry["actors"].as_array().expect("the actors are a list");
            assert!(actors.len() <= 1, "{entry}");
            (entry["what"].as_str().expect("it says what").to_owned(), actors.first().cloned().unwrap_or(Value::Null))
        };
        entries.map(of).collect()
    }

    /// Returns a metric of gitcd.
    pub(crate) async fn metric(&self, name: &str) -> u64 {
        let page = self.store.page("/metrics").await;
        let line = page.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(' '));
        line.unwrap_or_else(|| panic!("no metric {name}")).parse::<f64>().expect("metrics are numbers") as u64
    }
}

impl Drop for Cluster {
    fn drop(&mut self) {
        let _has_exited = self.apiserver.kill();
        let _status = self.apiserver.wait();
    }
}

fn flags(at: &Path, port: u16, store: &Server) -> Vec<String> {
    let file = |flag: &str, name: &str| format!("--{flag}={}", at.join(name).display());
    vec![
        format!("--etcd-servers=https://{}", store.secure_address()),
        file("etcd-cafile", "ca.crt"),
        file("etcd-certfile", "client.crt"),
        file("etcd-keyfile", "client.key"),
        format!("--secure-port={port}"),
        file("cert-dir", "serving"),
        file("token-auth-file", "tokens.csv"),
        file("service-account-key-file", "service-accounts.crt"),
        file("service-account-signing-key-file", "service-accounts.key"),
        "--bind-address=127.0.0.1".to_owned(),
        "--advertise-address=127.0.0.1".to_owned(),
        "--endpoint-reconciler-type=none".to_owned(),
        "--service-cluster-ip-range=10.0.0.0/24".to_owned(),
        "--service-account-issuer=https://kubernetes.default.svc".to_owned(),
        "--authorization-mode=RBAC".to_owned(),
        "--disable-admission-plugins=ServiceAccount".to_owned(),
        "--storage-media-type=application/json".to_owned(),
    ]
}

/// The flags for a webhook, as `trishanku up` sets them.
fn webhook(at: &Path, port: u16) -> Vec<String> {
    let name = "gitcd";
    let cluster = json!({
        "server": format!("https://127.0.0.1:{port}/audit"), "certificate-authority": at.join("ca.crt"),
    });
    let user = json!({"client-certificate": at.join("client.crt"), "client-key": at.join("client.key")});
    let config = json!({
        "apiVersion": "v1", "kind": "Config", "current-context": name,
        "clusters": [{"name": name, "cluster": cluster}], "users": [{"name": name, "user": user}],
        "contexts": [{"name": name, "context": {"cluster": name, "user": name}}],
    });
    write(&at.join("webhook.json"), &config.to_string());
    vec![
        format!("--audit-webhook-config-file={}", at.join("webhook.json").display()),
        "--audit-webhook-mode=batch".to_owned(),
        "--audit-webhook-batch-max-wait=25ms".to_owned(),
        "--audit-webhook-batch-max-size=32".to_owned(),
        "--audit-webhook-batch-throttle-enable=false".to_owned(),
    ]
}
