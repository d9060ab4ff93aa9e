//! A kind cluster, for machines with a container engine.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use anyhow::{Context, bail, ensure};
use serde_json::{Value, json};
use tempfile::TempDir;
use trishanku::plane::Assets;

use super::kubectl::said;
use super::{Faults, Inside, Provider, cuts};
use crate::wait::until_within;

/// Limit for kind, which downloads its node image the first time.
const WAIT: &str = "5m";
/// Limit for a program of the node to exit.
const PATIENCE: Duration = Duration::from_mins(3);
/// The engines that kind supports, in its order of preference.
const ENGINES: [&str; 3] = ["docker", "nerdctl", "podman"];
/// The folder of kubelet's static pods.
const MANIFESTS: &str = "/etc/kubernetes/manifests";
/// systemd 252 renamed this option, but still accepts it.
const MAIN_ALONE: &str = "--kill-who=main";
/// The folder for manifests that kubelet must not run.
const ASIDE: &str = "/etc/kubernetes";

/// A running cluster, deleted on drop.
pub struct Kind {
    name: String,
    programs: Programs,
    folder: TempDir,
    /// The node's address.
    address: String,
    /// The container engine that runs the node.
    engine: PathBuf,
}

/// The programs that create and manage it.
struct Programs {
    kind: PathBuf,
    /// Candidate container engines; the node is a container of one of them.
    engines: Vec<PathBuf>,
    kubectl: PathBuf,
}

impl Kind {
    /// Creates a cluster and waits until its node is ready and has the images.
    ///
    /// # Errors
    /// If kind or a container engine is missing or fails; the text has the output of kind.
    pub fn start() -> anyhow::Result<Self> {
        let given = |name: &str, usual: &str| std::env::var_os(name).map_or_else(|| usual.into(), PathBuf::from);
        let programs = Programs {
            kind: given("KIND", "kind"),
            // kind selects an engine by the name of its program.
            engines: std::env::var_os("KIND_EXPERIMENTAL_PROVIDER")
                .map_or_else(|| ENGINES.map(PathBuf::from).to_vec(), |engine| vec![engine.into()]),
            kubectl: Assets::find(None)?.program("kubectl"),
        };
        Self::of(programs, &super::archives()?)
    }

    fn of(programs: Programs, archives: &[PathBuf]) -> anyhow::Result<Self> {
        said(Command::new(&programs.kind).arg("version"), "").context(
            "cannot run kind: install it (https://kind.sigs.k8s.io), or set TRISHANKU_E2E_CLUSTER=host as root",
        )?;
        let folder = tempfile::Builder::new().prefix("trishanku-kind-").tempdir()?;
        let name = format!("trishanku-{}", std::process::id());
        let mut kind = Self { name, programs, folder, address: String::new(), engine: PathBuf::new() };
        let config = kind.folder.path().join("kind.json");
        std::fs::write(&config, configuration().to_string())?;
        let config = config.to_str().context("the folder's name is not UTF-8")?;
        kind.run(&["create", "cluster", "--config", config, "--wait", WAIT])?;
        kind.engine = kind.engine()?;
        kind.load(archives)?;
        let provider: &dyn Provider = &kind;
        let node = provider.object(&format!("node {}", kind.node()))?;
        let addresses = node["status"]["addresses"].as_array().cloned().unwrap_or_default();
        let inner = addresses.iter().find(|address| address["type"] == "InternalIP");
        let inner = inner.and_then(|inner| inner["address"].as_str()).context("the node has no address")?;
        inner.clone_into(&mut kind.address);
        Ok(kind)
    }

    /// Finds the engine that kind has chosen: kind reports it only in text for users.
    fn engine(&self) -> anyhow::Result<PathBuf> {
        let has_node = |engine: &&PathBuf| said(Command::new(engine).args(["inspect", &self.node()]), "").is_ok();
        let found = self.programs.engines.iter().find(has_node);
        let engines: Vec<_> = self.programs.engines.iter().map(|engine| engine.display().to_string()).collect();
        found.cloned().with_context(|| {
            format!(
                "none of {} has the container {}: set KIND_EXPERIMENTAL_PROVIDER to its engine",
                engines.join(", "),
                self.node()
            )
        })
    }

    /// The containers of a static pod; heavens have some of the same name.
    fn containers_of(&self, component: &str) -> anyhow::Result<Vec<String>> {
        let (name, namespace) = (format!("^{component}$"), "io.kubernetes.pod.namespace=kube-system");
        let printed = self.inside("crictl", &["ps", "--quiet", "--name", &name, "--label", namespace])?;
        Ok(printed.lines().map(str::to_owned).collect())
    }

    fn inside(&self, program: &str, arguments: &[&str]) -> anyhow::Result<String> {
        said(Command::new(&self.engine).args(["exec", &self.node(), program]).args(arguments), "")
    }

    fn run(&self, words: &[&str]) -> anyhow::Result<String> {
        said(&mut self.kind(words), "")
    }

    fn kind(&self, words: &[&str]) -> Command {
        let mut command = Command::new(&self.programs.kind);
        command.args(words).args(["--name", &self.name]).env("KUBECONFIG", self.kubeconfig());
        command
    }
}

/// The configuration: one node, with no more than the scenarios have on the host's own node.
#[must_use]
pub fn configuration() -> Value {
    json!({
        "kind": "Cluster",
        "apiVersion": "kind.x-k8s.io/v1alpha4",
        "networking": {"podSubnet": "10.244.0.0/16", "serviceSubnet": super::host::SERVICE_RANGE, "apiServerAddress": "127.0.0.1"},
        "nodes": [{"role": "control-plane"}],
        // Merged into kubeadm's configuration by kind:
        // <https://kind.sigs.k8s.io/docs/user/configuration/#kubeadm-config-patches>
        "kubeadmConfigPatches": [super::kubelet().to_string()],
    })
}

impl Provider for Kind {
    fn load(&self, archives: &[PathBuf]) -> anyhow::Result<()> {
        for archive in archives {
            ensure!(archive.is_file(), "no such archive: {}", archive.display());
            let file = archive.to_str().context("the archive's name is not UTF-8")?;
            self.run(&["load", "image-archive", file])?;
        }
        Ok(())
    }

    fn command(&self, program: &Path) -> Command {
        let mut command = Command::new(program);
        command.env("KUBECACHEDIR", self.folder.path().join("kubectl-cache"));
        command
    }

    fn kubeconfig(&self) -> PathBuf {
        self.folder.path().join("kubeconfig")
    }

    fn kubectl_program(&self) -> PathBuf {
        self.programs.kubectl.clone()
    }

    fn last_words(&self) -> String {
        format!("the logs of kind: kind export logs --name {}", self.name)
    }

    fn faults(&self) -> &dyn Faults {
        self
    }

    /// kubectl on the node: not every machine can reach the networks of containers.
    fn kubectl_among_pods(&self, kubeconfig: &Path) -> anyhow::Result<Command> {
        let name = kubeconfig.file_name().and_then(|name| name.to_str()).context("the kubeconfig has no name")?;
        let there = format!("/root/{name}");
        let mut copy = Command::new(&self.engine);
        said(copy.arg("cp").arg(kubeconfig).arg(format!("{}:{there}", self.node())), "")?;
        let mut command = Command::new(&self.engine);
        command.args(["exec", "--interactive", &self.node(), "kubectl", "--kubeconfig", &there]);
        Ok(command)
    }

    fn node(&self) -> String {
        format!("{}-control-plane", self.name)
    }

    fn folder(&self, name: &str) -> anyhow::Result<String> {
        let folder = format!("/var/local/trishanku/{name}");
        self.inside("mkdir", &["--parents", "--mode=777", &folder])?;
        Ok(folder)
    }
}

impl Inside for Kind {
    fn run(&self, program: &str, arguments: &[&str]) -> anyhow::Result<String> {
        self.inside(program, arguments)
    }
}

/// What runs a program of the node: kubelet or systemd.
enum Keeper {
    /// By its manifest, without `.yaml`.
    Kubelet(&'static str),
    Systemd,
}

fn keeper(program: &str) -> anyhow::Result<Keeper> {
    match program {
        "kube-apiserver" => Ok(Keeper::Kubelet("kube-apiserver")),
        "store" => Ok(Keeper::Kubelet("etcd")),
        "kubelet" | "containerd" => Ok(Keeper::Systemd),
        other => bail!("a kind node has no program {other}"),
    }
}

impl Faults for Kind {
    fn kill_container(&self, id: &str) -> anyhow::Result<()> {
        self.inside("ctr", &["--namespace", "k8s.io", "tasks", "kill", "--signal", "SIGKILL", id]).map(drop)
    }

    fn cut(&self, one: &str, other: &str) -> anyhow::Result<()> {
        cuts::make(self, one, other)
    }

    fn dropped(&self, one: &str, other: &str) -> anyhow::Result<u64> {
        cuts::dropped(self, one, other)
    }

    fn mend(&self, one: &str, other: &str) -> anyhow::Result<()> {
        cuts::take_back(self, one, other)
    }

    fn node_address(&self) -> &str {
        &self.address
    }

    fn has_own_disk(&self) -> bool {
        false
    }

    fn fill_disk(&self) -> anyhow::Result<()> {
        bail!("a kind node uses the machine's disk, which must not be filled")
    }

    fn free_disk(&self) -> anyhow::Result<()> {
        bail!("a kind node uses the machine's disk, which must not be filled")
    }

    /// Also keeps kubelet or systemd from restarting it.
    fn kill_program(&self, name: &str) -> anyhow::Result<()> {
        match keeper(name)? {
            Keeper::Systemd => {
                // Only the main process: containers keep running.
                self.inside("systemctl", &["kill", MAIN_ALONE, "--signal=SIGKILL", name])?;
                self.inside("systemctl", &["stop", name])?;
            }
            Keeper::Kubelet(component) => {
                self.inside("mv", &[&format!("{MANIFESTS}/{component}.yaml"), ASIDE])?;
                let ended = self.containers_of(component).and_then(|found| {
                    for id in found {
                        // kubelet may have stopped it already.
                        let _ended = self.kill_container(&id);
                    }
                    until_within(&format!("{name} to exit"), PATIENCE, || {
                        Ok(self.containers_of(component)?.is_empty().then_some(()))
                    })
                });
                // A program that did not exit is not kept stopped.
                if ended.is_err() {
                    self.start_program(name)?;
                }
                ended?;
            }
        }
        Ok(())
    }

    fn start_program(&self, name: &str) -> anyhow::Result<()> {
        match keeper(name)? {
            Keeper::Systemd => self.inside("systemctl", &["start", name])?,
            Keeper::Kubelet(component) => self.inside("mv", &[&format!("{ASIDE}/{component}.yaml"), MANIFESTS])?,
        };
        Ok(())
    }
}

impl Drop for Kind {
    fn drop(&mut self) {
        if let Err(error) = self.run(&["delete", "cluster"]) {
            eprintln!("cannot delete the cluster {}: {error:#}", self.name);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::os::unix::fs::PermissionsExt as _;

    use serde::Deserialize;

    use super::*;

    /// The used part of the configuration's schema: <https://kind.sigs.k8s.io/docs/user/configuration/>.
    #[derive(Deserialize)]
    #[serde(deny_unknown_fields, rename_all = "camelCase")]
    struct Cluster {
        kind: String,
        api_version: String,
        networking: Networking,
        nodes: Vec<Node>,
        kubeadm_config_patches: Vec<String>,
    }

    #[derive(Deserialize)]
    #[serde(deny_unknown_fields, rename_all = "camelCase")]
    struct Networking {
        pod_subnet: String,
        service_subnet: String,
        api_server_address: std::net::IpAddr,
    }

    #[derive(Deserialize)]
    #[serde(deny_unknown_fields)]
    struct Node {
        role: String,
    }

    #[test]
    fn the_configuration_is_one_of_kind_with_the_networks_that_manifests_rely_on() {
        let cluster: Cluster = serde_json::from_value(configuration()).unwrap();
        assert_eq!((cluster.kind.as_str(), cluster.api_version.as_str()), ("Cluster", "kind.x-k8s.io/v1alpha4"));
        assert_eq!(cluster.networking.service_subnet, "10.96.0.0/16");
        assert_eq!(cluster.networking.pod_subnet, "10.244.0.0/16");
        assert!(cluster.networking.api_server_address.is_loopback());
        let roles: Vec<_> = cluster.nodes.iter().map(|node| node.role.as_str()).collect();
        assert_eq!(roles, ["control-plane"]);
        let patches: Vec<Value> =
            cluster.kubeadm_config_patches.iter().map(|patch| serde_json::from_str(patch).unwrap()).collect();
        assert_eq!(patches.len(), 1);
        assert_eq!(patches[0]["kind"], "KubeletConfiguration");
        assert_eq!(patches[0]["crashLoopBackOff"]["maxContainerRestartPeriod"], "20s");
    }

    /// Stand-ins that record their arguments. kubectl knows a node, and the engines one container of it until it is killed.
    fn stand_ins(folder: &Path) -> Programs {
        let asked = folder.join("asked").display().to_string();
        let program = |name: &str, answers: &str| {
            let program = folder.join(name);
            fs::write(&program, format!("#!/bin/sh\necho \"{name} $*\" >> {asked}\n{answers}\n")).unwrap();
            fs::set_permissions(&program, fs::Permissions::from_mode(0o755)).unwrap();
            program
        };
        let node = r#"{"status": {"addresses": [{"type": "Hostname", "address": "node"}, {"type": "InternalIP", "address": "172.18.0.2"}]}}"#;
        let node_answers = format!(
            r#"case "$*" in
  *' crictl ps '*) grep -q 'tasks kill.*the-container' {asked} || echo the-container ;;
  *' iptables --wait --verbose --list-rules '*)
    echo '-A FORWARD -s 10.244.0.5/32 -d 10.244.0.6/32 -c 2 104 -j DROP'
    echo '-A FORWARD -s 10.244.0.6/32 -d 10.244.0.5/32 -c 1 52 -j DROP' ;;
esac"#
        );
        Programs {
            kind: program("kind", ""),
            // A missing engine, one without the node, and one with it.
            engines: vec![folder.join("none"), program("empty", "exit 1"), program("engine", &node_answers)],
            kubectl: program("kubectl", &format!("echo '{node}'")),
        }
    }

    /// The recorded commands, in order.
    fn asked(folder: &Path, name: &str) -> Vec<String> {
        let asked = fs::read_to_string(folder.join("asked")).unwrap();
        asked.lines().map(|line| line.replace(name, "NAME")).collect()
    }

    #[test]
    fn a_cluster_is_made_gets_each_archive_and_is_deleted() {
        let folder = tempfile::tempdir().unwrap();
        let archives = ["a.tar", "b.tar"].map(|name| folder.path().join(name));
        archives.iter().for_each(|archive| fs::write(archive, "").unwrap());
        let kind = Kind::of(stand_ins(folder.path()), &archives).unwrap();
        let missing = kind.load(&[folder.path().join("c.tar")]).unwrap_err().to_string();
        assert!(missing.contains("c.tar"), "{missing}");
        let (name, config) = (kind.name.clone(), kind.folder.path().join("kind.json"));
        drop(kind);
        let [a, b] = archives.map(|archive| archive.display().to_string());
        let expected = [
            "kind version".to_owned(),
            format!("kind create cluster --config {} --wait {WAIT} --name NAME", config.display()),
            "empty inspect NAME-control-plane".to_owned(),
            "engine inspect NAME-control-plane".to_owned(),
            format!("kind load image-archive {a} --name NAME"),
            format!("kind load image-archive {b} --name NAME"),
            "kubectl get --output=json node NAME-control-plane".to_owned(),
            "kind delete cluster --name NAME".to_owned(),
        ];
        assert_eq!(asked(folder.path(), &name), expected);
    }

    #[test]
    fn a_fault_on_the_node_lasts_until_its_end() {
        let folder = tempfile::tempdir().unwrap();
        let kind = Kind::of(stand_ins(folder.path()), &[]).unwrap();
        assert_eq!(kind.node_address(), "172.18.0.2");
        fs::write(folder.path().join("asked"), "").unwrap();
        kind.kill_program("store").unwrap();
        kind.start_program("store").unwrap();
        kind.kill_program("kubelet").unwrap();
        kind.start_program("kubelet").unwrap();
        let unknown = kind.kill_program("cron").unwrap_err().to_string();
        assert!(unknown.contains("cron"), "{unknown}");
        assert_eq!(kind.folder("kept").unwrap(), "/var/local/trishanku/kept");
        let expected = [
            "mv /etc/kubernetes/manifests/etcd.yaml /etc/kubernetes",
            "crictl ps --quiet --name ^etcd$ --label io.kubernetes.pod.namespace=kube-system",
            "ctr --namespace k8s.io tasks kill --signal SIGKILL the-container",
            "crictl ps --quiet --name ^etcd$ --label io.kubernetes.pod.namespace=kube-system",
            "mv /etc/kubernetes/etcd.yaml /etc/kubernetes/manifests",
            "systemctl kill --kill-who=main --signal=SIGKILL kubelet",
            "systemctl stop kubelet",
            "systemctl start kubelet",
            "mkdir --parents --mode=777 /var/local/trishanku/kept",
        ];
        let expected: Vec<_> = expected.iter().map(|line| format!("engine exec NAME-control-plane {line}")).collect();
        assert_eq!(asked(folder.path(), &kind.name), expected);

        kind.cut("10.244.0.5", "10.244.0.6").unwrap();
        // The stand-in prints the same rules for each of the three chains.
        assert_eq!(kind.dropped("10.244.0.5", "10.244.0.6").unwrap(), 9);
        let rules = asked(folder.path(), &kind.name).into_iter().filter(|line| line.contains("--insert")).count();
        assert_eq!(rules, 6, "one rule per direction and chain");
        assert!(!kind.has_own_disk() && kind.fill_disk().is_err());
    }

    #[test]
    fn among_pods_is_the_kubectl_of_the_node() {
        let folder = tempfile::tempdir().unwrap();
        let kind = Kind::of(stand_ins(folder.path()), &[]).unwrap();
        let kubeconfig = folder.path().join("a.kubeconfig");
        fs::write(&kubeconfig, "").unwrap();
        said(kind.kubectl_among_pods(&kubeconfig).unwrap().args(["get", "pods"]), "").unwrap();
        let asked = asked(folder.path(), &kind.name);
        let expected = [
            format!("engine cp {} NAME-control-plane:/root/a.kubeconfig", kubeconfig.display()),
            "engine exec --interactive NAME-control-plane kubectl --kubeconfig /root/a.kubeconfig get pods".to_owned(),
        ];
        assert_eq!(asked[asked.len() - 2..], expected);
    }

    #[test]
    fn without_kind_it_is_said_what_to_do() {
        let programs =
            Programs { kind: "/nowhere/kind".into(), engines: vec!["docker".into()], kubectl: "kubectl".into() };
        let Err(error) = Kind::of(programs, &[]) else { panic!("kind must be missing") };
        assert!(error.to_string().contains("TRISHANKU_E2E_CLUSTER=host"), "{error:#}");
    }
}
