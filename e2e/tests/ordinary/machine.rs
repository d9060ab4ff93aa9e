//! A control-plane node in a folder, with paths and ports of its own. Scripts replace kubelet, systemd and kubeadm; etcd,
//! kube-apiserver, kubectl, etcdctl, gitcd and trishanku are real.

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};

use rustix::process::{Pid, Signal, kill_process};
use serde_json::{Value, json};
use tempfile::TempDir;
use trishanku::plane::Assets;
use trishanku_e2e::{programs, wait};

/// Folders of the node.
const FOLDERS: [&str; 6] =
    ["/etc/kubernetes", "/etc/gitcd", "/etc/systemd", "/var/lib/gitcd", "/var/lib/etcd", "/usr/local/bin"];
/// Ports of the node: etcd, gitcd, its audit webhook, kube-apiserver.
const PORTS: [u16; 4] = [2379, 2479, 2481, 6443];
const TOKEN: &str = "administrator";

pub(crate) struct Machine {
    // Stopped in this order.
    pods: BTreeMap<&'static str, (String, Child)>,
    gitcd: Option<Child>,
    root: TempDir,
    ports: [u16; 4],
    environment: BTreeMap<String, String>,
    kubectl: PathBuf,
}

impl Drop for Machine {
    fn drop(&mut self) {
        // kube-apiserver first: without its store, it waits.
        for name in ["kube-apiserver", "etcd"] {
            if let Some((_, child)) = self.pods.remove(name) {
                stop(child);
            }
        }
        if let Some(gitcd) = self.gitcd.take() {
            stop(gitcd);
        }
    }
}

/// Stops a process as kubelet and systemd do: with SIGTERM, and with SIGKILL if that takes too long.
fn stop(mut child: Child) {
    let _gone = kill_process(Pid::from_child(&child), Signal::TERM);
    if wait::until("the end of a process", || Ok(child.try_wait()?)).is_err() {
        child.kill().unwrap();
        child.wait().unwrap();
    }
}

fn free_port() -> u16 {
    std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port()
}

impl Machine {
    /// Creates a cluster as kubeadm does, and waits until it is ready.
    pub(crate) fn new() -> Self {
        let root = tempfile::Builder::new().prefix("trishanku-ordinary-").tempdir().unwrap();
        let kubectl = Assets::find(None).unwrap().program("kubectl");
        let mut machine = Self {
            pods: BTreeMap::new(),
            gitcd: None,
            root,
            ports: PORTS.map(|_| free_port()),
            environment: BTreeMap::new(),
            kubectl,
        };
        for folder in FOLDERS {
            fs::create_dir_all(machine.path(folder)).unwrap();
        }
        machine.check_out();
        machine.create_cluster();
        machine
    }

    fn path(&self, path: &str) -> PathBuf {
        self.root.path().join(path.trim_start_matches('/'))
    }

    /// Returns a text with the paths and ports of this machine.
    pub(crate) fn here(&self, text: &str) -> String {
        let root = self.root.path().display();
        let text =
            FOLDERS.iter().fold(text.to_owned(), |text, folder| text.replace(folder, &format!("{root}{folder}")));
        let ports = PORTS.iter().zip(self.ports);
        ports.fold(text, |text, (old, new)| text.replace(&format!("127.0.0.1:{old}"), &format!("127.0.0.1:{new}")))
    }

    /// Creates the parts of a checkout that the page uses.
    fn check_out(&self) {
        let checkout = Path::new(env!("CARGO_MANIFEST_DIR")).join("../deploy/control-plane");
        let (deploy, built) = (self.path("deploy/control-plane"), self.path("target/release"));
        fs::create_dir_all(&deploy).unwrap();
        fs::create_dir_all(&built).unwrap();
        for file in fs::read_dir(checkout).unwrap().map(Result::unwrap) {
            let text = fs::read_to_string(file.path()).unwrap();
            fs::write(deploy.join(file.file_name()), self.here(&text)).unwrap();
        }
        for program in ["gitcd", "trishanku"] {
            let _copied = std::os::unix::fs::symlink(programs::folder().unwrap().join(program), built.join(program));
        }
    }

    fn create_cluster(&mut self) {
        let pki = "/etc/kubernetes/pki/etcd";
        fs::create_dir_all(self.path("/etc/kubernetes/manifests")).unwrap();
        fs::create_dir_all(self.path(pki)).unwrap();
        // A server on loopback and its client: for etcd, and as keys for kube-apiserver.
        self.run(&format!("target/release/gitcd init --repo=scratch.git --loopback-certificates={pki}"));
        self.run(&format!("mv {pki}/store-ca.crt {pki}/ca.crt"));
        for (from, to) in [("store", "server"), ("store-client", "healthcheck-client")] {
            self.run(&format!("for it in crt key; do mv {pki}/{from}.$it {pki}/{to}.$it; done"));
        }
        fs::write(self.path("tokens.csv"), format!("{TOKEN},kubernetes-admin,admin,system:masters\n")).unwrap();
        fs::write(self.path("/etc/kubernetes/admin.conf"), self.kubeconfig().to_string()).unwrap();
        self.environment.insert("KUBECONFIG".into(), self.here("/etc/kubernetes/admin.conf"));
        self.write_manifest("etcd", &self.etcd_flags());
        self.write_manifest("kube-apiserver", &self.apiserver_flags());
        self.run_pods();
        self.run("until kubectl get --raw=/readyz --request-timeout=5s; do sleep 0.2; done");
        let configuration = "apiVersion: kubeadm.k8s.io/v1beta4\nkind: ClusterConfiguration\netcd:\n  local: {}\n";
        fs::write(self.path("old.yaml"), configuration).unwrap();
        self.run("kubectl -n kube-system create configmap kubeadm-config --from-file=ClusterConfiguration=old.yaml");
    }

    fn kubeconfig(&self) -> Value {
        let server = self.here("https://127.0.0.1:6443");
        let cluster = json!({"server": server, "certificate-authority": self.here("/etc/kubernetes/pki/etcd/ca.crt")});
        json!({
            "apiVersion": "v1", "kind": "Config", "current-context": "a",
            "clusters": [{"name": "a", "cluster": cluster}], "users": [{"name": "a", "user": {"token": TOKEN}}],
            "contexts": [{"name": "a", "context": {"cluster": "a", "user": "a"}}],
        })
    }

    fn etcd_flags(&self) -> Vec<String> {
        let flags = [
            "--advertise-client-urls=https://127.0.0.1:2379",
            "--listen-client-urls=https://127.0.0.1:2379",
            "--listen-peer-urls=http://127.0.0.1:0",
            "--cert-file=/etc/kubernetes/pki/etcd/server.crt",
            "--key-file=/etc/kubernetes/pki/etcd/server.key",
            "--client-cert-auth=true",
            "--trusted-ca-file=/etc/kubernetes/pki/etcd/ca.crt",
            "--data-dir=/var/lib/etcd",
        ];
        flags.map(|flag| self.here(flag)).to_vec()
    }

    fn apiserver_flags(&self) -> Vec<String> {
        let flags = [
            "--etcd-servers=https://127.0.0.1:2379",
            "--etcd-cafile=/etc/kubernetes/pki/etcd/ca.crt",
            "--etcd-certfile=/etc/kubernetes/pki/etcd/healthcheck-client.crt",
            "--etcd-keyfile=/etc/kubernetes/pki/etcd/healthcheck-client.key",
            "--tls-cert-file=/etc/kubernetes/pki/etcd/server.crt",
            "--tls-private-key-file=/etc/kubernetes/pki/etcd/server.key",
            "--service-account-key-file=/etc/kubernetes/pki/etcd/server.crt",
            "--service-account-signing-key-file=/etc/kubernetes/pki/etcd/server.key",
            "--service-account-issuer=https://kubernetes.default.svc",
            "--service-cluster-ip-range=10.96.0.0/16",
            "--authorization-mode=RBAC",
            "--bind-address=127.0.0.1",
            "--advertise-address=192.0.2.2",
        ];
        let of_test = [
            format!("--secure-port={}", self.ports[3]),
            format!("--token-auth-file={}", self.path("tokens.csv").display()),
        ];
        flags.map(|flag| self.here(flag)).into_iter().chain(of_test).collect()
    }

    /// Runs a command of the page, which must succeed, as a shell does on this machine. Returns its output.
    pub(crate) fn run(&mut self, command: &str) -> String {
        let command = self.here(command);
        let words: Vec<_> = command.split_whitespace().collect();
        match &words[..] {
            ["export", assignments @ ..] => {
                let pairs = assignments.iter().filter_map(|assignment| assignment.split_once('='));
                self.environment.extend(pairs.map(|(name, value)| (name.to_owned(), value.to_owned())));
            }
            ["systemctl", "enable", "--now", "gitcd"] => self.start_gitcd(),
            ["systemctl", "disable", "--now", "gitcd"] => stop(self.gitcd.take().expect("gitcd runs")),
            ["kubeadm", "init", "phase", "control-plane", "apiserver", "--config", file] => self.render(file),
            ["kubeadm", "init", "phase", "upload-config", "kubeadm", "--config", file] => {
                let made = format!("--from-file=ClusterConfiguration={file} --dry-run=client --output=yaml");
                let create = format!("kubectl -n kube-system create configmap kubeadm-config {made}");
                self.shell(&format!("{create} | kubectl replace --filename=-"));
            }
            _ => {
                let output = self.shell(&command);
                self.run_pods();
                return output;
            }
        }
        self.run_pods();
        String::new()
    }

    fn shell(&self, command: &str) -> String {
        let Output { status, stdout, stderr } = self.command(command).output().unwrap();
        let text = |bytes: Vec<u8>| String::from_utf8_lossy(&bytes).into_owned();
        let (stdout, stderr) = (text(stdout), text(stderr));
        assert!(status.success(), "{command}\n{stdout}\n{stderr}\n{}", self.logs());
        stdout
    }

    fn command(&self, script: &str) -> Command {
        // The page's loops wait without a limit.
        let mut command = Command::new("timeout");
        let script = format!("set -o pipefail; {script}");
        command.args(["--foreground", "120", "bash", "-c", &script]).current_dir(self.root.path()).stdin(Stdio::null());
        let assets = self.kubectl.parent().unwrap();
        let path = std::env::var("PATH").unwrap();
        command.env("PATH", format!("{}:{}:{path}", self.path("/usr/local/bin").display(), assets.display()));
        for variable in ["GITCD_REPO", "GITCD_CONFIG", "TRISHANKU_DIR", "TRISHANKU_NAME"] {
            command.env_remove(variable);
        }
        command.envs(&self.environment).env("HOME", self.root.path());
        command
    }

    fn logs(&self) -> String {
        let end = |name: &str| {
            let text = fs::read_to_string(self.path(&format!("{name}.log"))).unwrap_or_default();
            let lines: Vec<_> = text.lines().rev().take(20).collect();
            format!("--- {name}:\n{}\n", lines.into_iter().rev().collect::<Vec<_>>().join("\n"))
        };
        ["etcd", "gitcd", "kube-apiserver"].map(end).concat()
    }

    fn log(&self, name: &str) -> File {
        File::options().append(true).create(true).open(self.path(&format!("{name}.log"))).unwrap()
    }

    /// Does what systemd does at `systemctl enable --now gitcd`.
    fn start_gitcd(&mut self) {
        let unit = fs::read_to_string(self.path("/etc/systemd/system/gitcd.service")).unwrap();
        let line = |name: &str| {
            let found = unit.lines().find_map(|line| line.strip_prefix(&format!("{name}=")));
            found.unwrap_or_else(|| panic!("the unit has no {name}")).to_owned()
        };
        fs::create_dir_all(self.path("/var/lib/gitcd")).unwrap();
        let mut command = self.command(&format!("exec {}", line("ExecStart")));
        let gitcd =
            command.env_remove("GITCD_CONFIG").env_remove("GITCD_REPO").stderr(self.log("gitcd")).spawn().unwrap();
        let gitcd = self.gitcd.insert(gitcd);
        let mut check = Command::new("bash").args(["-c", &line("ExecStartPost")]).spawn().unwrap();
        let started = wait::until("the start of gitcd", || {
            if let Some(status) = gitcd.try_wait()? {
                return Ok(Some(Err(status)));
            }
            Ok(check.try_wait()?.map(Ok))
        });
        if !matches!(started, Ok(Ok(status)) if status.success()) {
            let _ended = check.kill();
            panic!("gitcd does not start: {started:?}\n{}", self.logs());
        }
    }

    /// Does what kubeadm does: writes the manifest of kube-apiserver with the flags of a configuration.
    fn render(&self, file: &str) {
        let text = fs::read_to_string(self.root.path().join(file)).unwrap();
        let configuration: Value = serde_saphyr::from_str(&text).unwrap();
        let external = &configuration["etcd"]["external"];
        let text = |value: &Value| value.as_str().unwrap_or_else(|| panic!("no text: {value}")).to_owned();
        let etcd = [("servers", &external["endpoints"][0]), ("cafile", &external["caFile"])];
        let client = [("certfile", &external["certFile"]), ("keyfile", &external["keyFile"])];
        let etcd = etcd.into_iter().chain(client).map(|(flag, value)| (format!("etcd-{flag}"), text(value)));
        let extra = configuration["apiServer"]["extraArgs"].as_array().unwrap();
        let extra = extra.iter().map(|arg| (text(&arg["name"]), text(&arg["value"])));
        let flags: BTreeMap<_, _> = etcd.chain(extra).collect();
        let kept = self.apiserver_flags().into_iter().filter(|flag| {
            let name = flag.trim_start_matches("--").split('=').next().unwrap();
            !flags.contains_key(name)
        });
        let set = flags.iter().map(|(name, value)| format!("--{name}={value}"));
        self.write_manifest("kube-apiserver", &kept.chain(set).collect::<Vec<_>>());
    }

    fn write_manifest(&self, name: &str, flags: &[String]) {
        let command: Vec<_> = [name.to_owned()].into_iter().chain(flags.iter().cloned()).collect();
        let pod =
            json!({"apiVersion": "v1", "kind": "Pod", "spec": {"containers": [{"name": name, "command": command}]}});
        fs::write(self.path(&format!("/etc/kubernetes/manifests/{name}.yaml")), pod.to_string()).unwrap();
    }

    /// Does what kubelet does with static pods: stops those whose manifest has gone or changed, and starts the others.
    fn run_pods(&mut self) {
        for name in ["etcd", "kube-apiserver"] {
            let manifest = fs::read_to_string(self.path(&format!("/etc/kubernetes/manifests/{name}.yaml"))).ok();
            if self.pods.get(name).is_some_and(|(running, _)| Some(running) != manifest.as_ref()) {
                stop(self.pods.remove(name).unwrap().1);
            }
            let Some(manifest) = manifest.filter(|_| !self.pods.contains_key(name)) else { continue };
            let pod: Value = serde_json::from_str(&manifest).unwrap();
            let words = pod["spec"]["containers"][0]["command"].as_array().unwrap().iter();
            let words: Vec<_> = words.map(|word| word.as_str().unwrap()).collect();
            let mut command = Command::new(self.kubectl.with_file_name(words[0]));
            let log = self.log(name);
            let child =
                command.args(&words[1..]).stdin(Stdio::null()).stdout(log.try_clone().unwrap()).stderr(log).spawn();
            self.pods.insert(name, (manifest, child.unwrap()));
        }
    }

    /// Replaces parts of a YAML file by those of another one, as the page asks the reader to do.
    pub(crate) fn edit(&self, file: &str, parts: &[&str], other: &str) {
        let read = |file: &str| -> Value {
            serde_saphyr::from_str(&fs::read_to_string(self.root.path().join(file)).unwrap()).unwrap()
        };
        let (mut content, other) = (read(file), read(other));
        for part in parts {
            content[*part] = other[*part].clone();
        }
        fs::write(self.root.path().join(file), content.to_string()).unwrap();
    }
}
