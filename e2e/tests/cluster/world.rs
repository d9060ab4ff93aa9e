//! Actions of scenarios on a cluster, as a user would perform them.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::sync::Mutex;
use std::time::{Duration, Instant};

use anyhow::{Context, ensure};
use base64::Engine as _;
use base64::prelude::BASE64_STANDARD;
use serde_json::Value;
use tempfile::TempDir;
use trishanku_e2e::nodes::kubectl::{Forward, said};
use trishanku_e2e::nodes::{self, Provider};
use trishanku_e2e::{Shared, git};

use crate::headless::{CONTROLLERS, SCHEDULERS};
use crate::host_certificate::HostCertificate;

/// Longer than anything takes on a busy machine: kubelet retries with increasing backoff.
pub(crate) const PATIENCE: Duration = Duration::from_mins(4);

/// The repository of a headless cluster, for programs in pods.
pub(crate) const REPOSITORY: &str = "https://10.96.0.80/team/cluster.git";
/// The token for pushes. It is secret to this test, and lives as long as the cluster.
pub(crate) const TOKEN: &str = "e2e-token-of-the-git-host";

/// The file with the authority of the Git host.
const HOST_AUTHORITY: &str = "git-host-ca.pem";

/// The port of a heaven's kube-apiserver in its pod.
const PORT: u16 = 6443;

const DOCUMENTATION: &str = include_str!("../../../docs/operate.md");

/// Waits for a value, and prints how long that took.
pub(crate) fn until<T>(what: &str, look: impl FnMut() -> anyhow::Result<Option<T>>) -> anyhow::Result<T> {
    let begun = Instant::now();
    let found = trishanku_e2e::wait::until_within(what, PATIENCE, look)?;
    eprintln!("{what}: {:?}", begun.elapsed());
    Ok(found)
}

/// The ID of a pod's container in containerd.
pub(crate) fn container_id(pod: &Value, name: &str) -> anyhow::Result<String> {
    let of = |list: &str| pod["status"][list].as_array().cloned().unwrap_or_default();
    let found =
        [of("initContainerStatuses"), of("containerStatuses")].concat().into_iter().find(|found| found["name"] == name);
    let id = found.and_then(|found| Some(found["containerID"].as_str()?.strip_prefix("containerd://")?.to_owned()));
    id.with_context(|| format!("{} has no container {name}", pod["metadata"]["name"]))
}

pub(crate) struct World {
    provider: Box<dyn Provider>,
    scratch: TempDir,
    host: Mutex<Option<Forward>>,
    pub(crate) host_certificate: HostCertificate,
    /// The objects that existed before the installation.
    before: Mutex<BTreeSet<String>>,
}

impl World {
    pub(crate) fn start() -> anyhow::Result<Self> {
        let begun = Instant::now();
        let provider = nodes::start()?;
        eprintln!("the node was ready after {:?}", begun.elapsed());
        let (scratch, host_certificate) = (tempfile::tempdir()?, HostCertificate::issue()?);
        std::fs::write(scratch.path().join(HOST_AUTHORITY), &host_certificate.authority)?;
        Ok(Self { provider, scratch, host: Mutex::default(), host_certificate, before: Mutex::default() })
    }

    pub(crate) fn cluster(&self) -> &dyn Provider {
        self.provider.as_ref()
    }

    pub(crate) fn kubectl(&self, words: &str) -> anyhow::Result<String> {
        self.cluster().kubectl(words.split(' '))
    }

    /// Runs a command of the operator documentation verbatim.
    pub(crate) fn documented(&self, command: &str) -> anyhow::Result<String> {
        self.documented_with(command, &[], &Self::source(""))
    }

    /// The same with a name instead of `NAME`.
    pub(crate) fn documented_for(&self, command: &str, name: &str) -> anyhow::Result<String> {
        self.documented_with(command, &[("NAME", name)], &Self::source(""))
    }

    /// The same with a reader's replacements, in a folder like a checkout.
    pub(crate) fn documented_with(
        &self,
        command: &str,
        given: &[(&str, &str)],
        folder: &Path,
    ) -> anyhow::Result<String> {
        let is_there = DOCUMENTATION.lines().any(|line| line.strip_prefix("$ ") == Some(command));
        ensure!(is_there, "docs/operate.md has no command `{command}`");
        let typed = given.iter().fold(command.to_owned(), |typed, (word, by)| typed.replace(word, by));
        let (cluster, kubectl) = (self.cluster(), self.cluster().kubectl_program());
        let programs = kubectl.parent().map(Path::to_owned).into_iter();
        let path = std::env::var_os("PATH").unwrap_or_default();
        let path = std::env::join_paths(programs.chain(std::env::split_paths(&path)))?;
        let mut shell = cluster.command(Path::new("sh"));
        shell.env("PATH", path).env("KUBECONFIG", cluster.kubeconfig()).current_dir(folder).args(["-c", &typed]);
        said(&mut shell, "")
    }

    /// The operator documentation's advice for a condition's reason.
    pub(crate) fn advice(condition: &str, reason: &str) -> anyhow::Result<String> {
        let rows = DOCUMENTATION.lines().filter(|line| line.starts_with('|'));
        let mut rows = rows.map(|row| row.trim_matches('|').splitn(3, '|').map(str::trim).collect::<Vec<_>>());
        let row = rows.find(|row| {
            let names = |cell: usize, name: &str| row.get(cell).is_some_and(|cell| cell.contains(&format!("`{name}`")));
            (names(0, condition) || row.first() == Some(&"any")) && names(1, reason)
        });
        let advice = row.as_ref().and_then(|row| row.get(2)).map(|advice| (*advice).to_owned());
        advice.with_context(|| format!("docs/operate.md has no advice for {condition} with {reason}"))
    }

    /// Waits for a condition of an object. `of` is split at spaces.
    pub(crate) fn until_condition(&self, of: &str, condition: &str) -> anyhow::Result<()> {
        let mut last = String::new();
        let found = until(&format!("{of} to be {condition}"), || {
            let object = self.cluster().object(of)?;
            let conditions = object["status"]["conditions"].as_array().cloned().unwrap_or_default();
            let found = conditions.iter().find(|found| found["type"] == condition);
            let value = |field: &str| found.map_or("", |found| found[field].as_str().unwrap_or_default());
            last = format!("{} {}", value("reason"), value("message"));
            ensure!(value("status") == "True", "{last}");
            Ok(Some(()))
        });
        found.with_context(|| last.clone())
    }

    pub(crate) fn file(&self, name: &str) -> PathBuf {
        self.scratch.path().join(name)
    }

    /// Records all existing objects, to find new ones later.
    pub(crate) fn remember_everything(&self) -> anyhow::Result<()> {
        *self.before.lock().expect("no thread panics while holding the lock") = self.everything()?;
        Ok(())
    }

    /// The objects that did not exist when they were recorded.
    pub(crate) fn new_objects(&self) -> anyhow::Result<Vec<String>> {
        let before = self.before.lock().expect("no thread panics while holding the lock").clone();
        ensure!(!before.is_empty(), "no objects were recorded");
        Ok(self.everything()?.difference(&before).cloned().collect())
    }

    /// All objects except short-lived ones.
    fn everything(&self) -> anyhow::Result<BTreeSet<String>> {
        let kinds = self.kubectl("api-resources --verbs=list --output=name")?;
        let kinds: Vec<_> = kinds
            .lines()
            .filter(|kind| {
                !["events", "leases", "componentstatuses"].contains(&kind.split('.').next().unwrap_or_default())
            })
            .collect();
        let names = "--output=custom-columns=KIND:.kind,NAMESPACE:.metadata.namespace,NAME:.metadata.name";
        let listed =
            self.kubectl(&format!("get {} --all-namespaces --no-headers --ignore-not-found {names}", kinds.join(",")))?;
        let words = |line: &str| line.split_whitespace().collect::<Vec<_>>().join(" ");
        Ok(listed.lines().map(words).collect())
    }

    /// The path of a file of this repository.
    pub(crate) fn source(path: &str) -> PathBuf {
        Path::new(env!("CARGO_MANIFEST_DIR")).join("..").join(path)
    }

    /// Runs stock Git with the cluster's repository; `REMOTE` among the words is its URL.
    pub(crate) fn git(&self, folder: &Path, words: &[&str]) -> anyhow::Result<String> {
        self.git_at("team/cluster.git", folder, words)
    }

    /// The same with another repository of the Git host.
    pub(crate) fn git_at(&self, repository: &str, folder: &Path, words: &[&str]) -> anyhow::Result<String> {
        let mut forward = self.host.lock().expect("no thread panics while holding the lock");
        let mut run = |anew: bool| {
            if anew || forward.is_none() {
                *forward = Some(self.cluster().forward("default", "service/git", 443)?);
            }
            let port = forward.as_ref().map_or(0, Forward::port);
            let remote = format!("https://e2e:{TOKEN}@127.0.0.1:{port}/{repository}");
            let words = words.iter().map(|word| if *word == "REMOTE" { &remote } else { *word });
            let mut command = self.cluster().command(Path::new("git"));
            command.arg("-C").arg(folder).args(["-c", "user.name=e2e", "-c", "user.email=e2e@example.org"]);
            command.args(words);
            git::plain(&mut command);
            // A variable of the machine would override the setting http.sslCAInfo.
            command.env("GIT_SSL_CAINFO", self.file(HOST_AUTHORITY));
            said(&mut command, "")
        };
        // A forwarded port breaks with its pod.
        run(false).or_else(|_| run(true))
    }

    /// Adds the authority of the Git host to a Secret with credentials for it.
    pub(crate) fn trust_host(&self, namespace: &str, secret: &str) -> anyhow::Result<()> {
        let authority = BASE64_STANDARD.encode(&self.host_certificate.authority);
        let patch = serde_json::json!({"data": {"ca.crt": authority}});
        self.kubectl(&format!("patch secret {secret} --namespace {namespace} --type=merge --patch={patch}")).map(drop)
    }

    /// Both heavens of the headless cluster.
    pub(crate) fn heavens(&self) -> anyhow::Result<Vec<Heaven<'_>>> {
        [CONTROLLERS, SCHEDULERS].iter().map(|name| self.heaven("default", name, "sample-k8s-admin")).collect()
    }

    /// Access to a heaven's kube-apiserver with the administrator's kubeconfig from a Secret.
    pub(crate) fn heaven(&self, namespace: &str, name: &str, admin: &str) -> anyhow::Result<Heaven<'_>> {
        self.heaven_in(namespace, name, admin, &format!("deployment/{name}-heaven"))
    }

    /// The same in a given pod or workload.
    pub(crate) fn heaven_in(
        &self,
        namespace: &str,
        name: &str,
        admin: &str,
        target: &str,
    ) -> anyhow::Result<Heaven<'_>> {
        let kubeconfig = self.kubeconfig_of(namespace, name, admin)?;
        let forward = self.cluster().forward(namespace, target, PORT)?;
        Ok(Heaven { world: self, name: name.to_owned(), kubeconfig, way: Way::Forwarded(forward) })
    }

    /// The same at the address of its pod, independent of the host cluster.
    pub(crate) fn heaven_at(
        &self,
        namespace: &str,
        name: &str,
        admin: &str,
        address: String,
    ) -> anyhow::Result<Heaven<'_>> {
        let kubeconfig = self.kubeconfig_of(namespace, name, admin)?;
        Ok(Heaven { world: self, name: name.to_owned(), kubeconfig, way: Way::Direct(address) })
    }

    fn kubeconfig_of(&self, namespace: &str, name: &str, admin: &str) -> anyhow::Result<PathBuf> {
        let secret = self.cluster().object(&format!("secret {admin} --namespace {namespace}"))?;
        let kubeconfig = secret["data"]["kubeconfig"].as_str().context("the Secret has no kubeconfig")?;
        let file = self.file(&format!("{namespace}-{name}.kubeconfig"));
        std::fs::write(&file, BASE64_STANDARD.decode(kubeconfig)?)?;
        Ok(file)
    }
}

impl Shared for World {
    fn last_words(&self) -> String {
        let mut words = Vec::new();
        for look in ["get pods --all-namespaces --output=wide", "get events --all-namespaces --sort-by=.lastTimestamp"]
        {
            let printed = self.kubectl(look).unwrap_or_else(|error| format!("{error:#}"));
            let lines: Vec<_> = printed.lines().collect();
            words.push(lines[lines.len().saturating_sub(40)..].join("\n"));
        }
        words.push(self.logs());
        words.push(self.cluster().last_words());
        words.join("\n---\n")
    }
}

impl World {
    /// The last output of containers that are not ready, and of the manager.
    fn logs(&self) -> String {
        let Ok(pods) = self.cluster().object("pods --all-namespaces") else { return String::new() };
        let mut words = Vec::new();
        for pod in pods["items"].as_array().into_iter().flatten() {
            let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
            let (name, namespace) = (text(&pod["metadata"]["name"]), text(&pod["metadata"]["namespace"]));
            let of = |list: &str| pod["status"][list].as_array().cloned().unwrap_or_default();
            for container in [of("initContainerStatuses"), of("containerStatuses")].concat() {
                let container_name = text(&container["name"]);
                let is_done = container["state"]["terminated"]["exitCode"] == 0;
                if (container["ready"] == true || is_done) && container_name != "manager" {
                    continue;
                }
                let printed = self
                    .kubectl(&format!("logs --namespace {namespace} {name} --container {container_name} --tail=12"));
                words.push(format!(
                    "{name} {container_name}:\n{}",
                    printed.unwrap_or_else(|error| format!("{error:#}"))
                ));
            }
        }
        words.join("\n")
    }
}

/// A heaven, accessed from outside of its pod.
pub(crate) struct Heaven<'w> {
    world: &'w World,
    name: String,
    kubeconfig: PathBuf,
    way: Way,
}

/// The path to its kube-apiserver.
enum Way {
    /// Through the host cluster's kube-apiserver and kubelet.
    Forwarded(Forward),
    /// At the address of its pod.
    Direct(String),
}

impl Heaven<'_> {
    /// The name of the heaven.
    pub(crate) fn name(&self) -> &str {
        &self.name
    }

    /// Runs kubectl there; `words` are split at spaces.
    pub(crate) fn kubectl(&self, words: &str) -> anyhow::Result<String> {
        self.kubectl_with(words, "")
    }

    pub(crate) fn kubectl_with(&self, words: &str, input: &str) -> anyhow::Result<String> {
        let cluster = self.world.cluster();
        let (mut command, server) = match &self.way {
            Way::Forwarded(forward) => {
                let mut command = cluster.command(&cluster.kubectl_program());
                command.arg("--kubeconfig").arg(&self.kubeconfig);
                (command, format!("localhost:{}", forward.port()))
            }
            Way::Direct(address) => (cluster.kubectl_among_pods(&self.kubeconfig)?, format!("{address}:{PORT}")),
        };
        // Its certificate does not contain the address of its pod.
        command.args([&*format!("--server=https://{server}"), "--tls-server-name=localhost"]).args(words.split(' '));
        said(&mut command, input)
    }

    pub(crate) fn object(&self, what: &str) -> anyhow::Result<Value> {
        Ok(serde_json::from_str(&self.kubectl(&format!("get --output=json {what}"))?)?)
    }
}
