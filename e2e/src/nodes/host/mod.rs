//! A cluster with one node on this machine, without a container engine: containerd, kubelet and kube-proxy, and a control plane
//! as processes beside them.
//!
//! Everything runs in namespaces of its own: processes, mounts and networks of this machine are neither seen nor
//! changed, except for control groups and a few kernel settings that kubelet requires. However the test ends, the [init
//! process](init) of the namespaces restores both, and removes the folder.
//!
//! Requires root, `unshare` and `nsenter`, `ip`, `iptables`, containerd with runc, CNI plugins, and a file system that supports
//! overlayfs. `hack/node.sh` installs the packages.

mod checks;
mod init;
mod keys;
mod programs;
mod sandbox;

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

use anyhow::{Context, bail, ensure};
use rustix::process::Signal;
use trishanku::plane::{Assets, log};

use self::init::{Belongings, Program};
use self::keys::Keys;
use self::programs::{Blueprint, SOCKET, log_of};
use self::sandbox::Sandbox;
use super::{Faults, Inside as _, Provider, cuts};
use crate::wait::until_within;

pub use self::init::init;

/// The node's name.
pub const NODE: &str = "node-1";
/// The node's address, at which kube-apiserver listens, too.
pub const NODE_ADDRESS: &str = "10.240.0.1";
const POD_RANGE: &str = "10.244.0.0/24";
/// The address range of Services.
pub const SERVICE_RANGE: &str = "10.96.0.0/16";
const API_ADDRESS: &str = "10.96.0.1";

/// Longer than anything takes on a busy machine.
const PATIENCE: Duration = Duration::from_mins(3);

/// Folders that programs write to regardless of their flags: network plugins, and kubelet, where device plugins register.
const PLACES: [&str; 2] = ["/var/lib/cni", "/var/lib/kubelet"];

/// Size of the file system for the volumes of all pods; it uses as much memory as is written.
const DISK: &str = "2G";

/// Kernel settings that kubelet changes for the whole machine.
const SETTINGS: [&str; 6] = [
    "vm/overcommit_memory",
    "vm/panic_on_oom",
    "kernel/panic",
    "kernel/panic_on_oops",
    "kernel/keys/root_maxkeys",
    "kernel/keys/root_maxbytes",
];

/// A running cluster, stopped on drop.
pub struct Host {
    sandbox: Sandbox,
    folder: PathBuf,
    keys: Keys,
    assets: PathBuf,
    programs: BTreeMap<String, Program>,
}

impl Host {
    /// Starts a cluster and waits until its node is ready.
    ///
    /// # Errors
    /// If it cannot run on this machine or does not become ready; the text says what to do, or has the last lines of the logs.
    pub fn start() -> anyhow::Result<Self> {
        checks::check()?;
        let kubelet = Assets::find(None)?.program("kubelet");
        let assets = kubelet.parent().context("the program has no parent folder")?.to_owned();
        for name in ["kubelet", "kube-proxy", "etcd"] {
            ensure!(
                assets.join(name).is_file(),
                "no {name} in {}: run `hack/assets.sh etcd kubelet kube-proxy`",
                assets.display()
            );
        }
        let gitcd = match std::env::var("TRISHANKU_E2E_HOST_STORE").as_deref() {
            Ok("gitcd") => Some(crate::programs::folder()?.join("gitcd")),
            Ok("etcd" | "") | Err(_) => None,
            Ok(other) => bail!("TRISHANKU_E2E_HOST_STORE is {other:?}; must be etcd or gitcd"),
        };
        let folder = tempfile::Builder::new().prefix("trishanku-node-").tempdir()?.keep();
        let keep = std::env::var_os("TRISHANKU_E2E_KEEP").is_some();
        if keep {
            eprintln!("the node's folder is {}", folder.display());
        }
        let group =
            folder.file_name().and_then(|name| name.to_str()).context("the folder's name is not UTF-8")?.to_owned();
        let belongings = belongings(&folder, &group, keep)?;
        let sandbox = match Sandbox::open(&belongings) {
            Ok(sandbox) => sandbox,
            Err(error) => {
                // The init process is not running, so it cannot do it.
                init::take_away(&belongings, Instant::now());
                return Err(error);
            }
        };
        let keys = Keys::make(&folder.join("keys"))?;
        let blueprint = Blueprint { folder: &folder, keys: &keys, assets: &assets, group: &group, gitcd };
        if let Some(gitcd) = &blueprint.gitcd {
            let repository = format!("--repo={}", folder.join("host.git").display());
            super::kubectl::said(
                Command::new(gitcd).args(["init", &repository, "--key-prefixes=default=/registry"]),
                "",
            )?;
        }
        let programs = [
            blueprint.store(),
            blueprint.apiserver(),
            blueprint.containerd()?,
            blueprint.controller_manager(),
            blueprint.scheduler(),
            blueprint.kubelet()?,
            blueprint.proxy()?,
        ];
        let order: Vec<_> = programs.iter().map(|program| program.name.clone()).collect();
        let programs = programs.into_iter().map(|program| (program.name.clone(), program)).collect();
        let host = Self { sandbox, folder: folder.clone(), keys, assets, programs };
        host.bring_up(&order)
            .map_err(|error| error.context(format!("the node did not become ready\n{}", host.last_words())))?;
        Ok(host)
    }

    fn bring_up(&self, order: &[String]) -> anyhow::Result<()> {
        self.set_up_network()?;
        for name in order {
            self.start_program(name)?;
            if name == "kube-apiserver" {
                self.until("kube-apiserver", || self.provider().kubectl(["get", "--raw", "/readyz"]).map(Some))?;
            }
            if name == "containerd" {
                self.until("containerd", || self.sandbox.run("ctr", &["--address", SOCKET, "version"]).map(Some))?;
                self.load(&super::archives()?)?;
            }
        }
        self.until("the node", || {
            let ready = r#"--output=jsonpath={.status.conditions[?(@.type=="Ready")].status}"#;
            Ok((self.provider().kubectl(["get", "node", NODE, ready])? == "True").then_some(()))
        })?;
        // Pods cannot be created without it.
        self.until("the default service account", || {
            self.provider().kubectl(["get", "serviceaccount", "default"]).map(Some)
        })?;
        Ok(())
    }

    fn set_up_network(&self) -> anyhow::Result<()> {
        // Mounts of containers are visible to the node, and those of the node to containers.
        self.sandbox.run("mount", &["--make-rshared", "/"])?;
        for place in ["/run", "/var/log"].into_iter().chain(PLACES) {
            self.sandbox.run("mount", &["-t", "tmpfs", "-o", "mode=755", "tmpfs", place])?;
        }
        // A file system of its own for pods, so that it can be filled.
        let state = state_of_pods(&self.folder);
        fs::create_dir(&state).with_context(|| format!("cannot create {}", state.display()))?;
        let size = format!("mode=755,size={DISK}");
        self.sandbox.run("mount", &["-t", "tmpfs", "-o", &size, "tmpfs", &state.display().to_string()])?;
        let plain: [(&str, &[&str]); 4] = [
            ("ip", &["link", "set", "lo", "up"]),
            ("ip", &["link", "add", "node0", "type", "veth", "peer", "name", "node1"]),
            ("ip", &["link", "set", "node1", "up"]),
            ("ip", &["link", "set", "node0", "up"]),
        ];
        for (program, words) in plain {
            self.sandbox.run(program, words)?;
        }
        self.sandbox.run("ip", &["address", "add", &format!("{NODE_ADDRESS}/24"), "dev", "node0"])?;
        // Without a default route, Services would be unreachable, too.
        self.sandbox.run("ip", &["route", "add", "default", "dev", "node0"])?;
        self.sandbox.run("sh", &["-c", "echo 1 > /proc/sys/net/ipv4/ip_forward"])?;
        Ok(())
    }

    /// Waits, but fails when a program has exited.
    fn until<T>(&self, what: &str, mut look: impl FnMut() -> anyhow::Result<Option<T>>) -> anyhow::Result<T> {
        let found = until_within(what, PATIENCE, || {
            for name in self.programs.keys() {
                if let Ok(Some(how)) = self.sandbox.ended(name) {
                    return Ok(Some(Err(anyhow::anyhow!("{name} exited {how} while waiting for {what}"))));
                }
            }
            Ok(look()?.map(Ok))
        });
        found?
    }

    fn provider(&self) -> &dyn Provider {
        self
    }

    /// The path of the file that fills the disk.
    fn ballast(&self) -> String {
        state_of_pods(&self.folder).join("ballast").display().to_string()
    }
}

/// The folder of kubelet's pod state and volumes.
fn state_of_pods(folder: &Path) -> PathBuf {
    folder.join("kubelet")
}

fn belongings(folder: &Path, group: &str, keep: bool) -> anyhow::Result<Belongings> {
    let settings = SETTINGS.map(|setting| Path::new("/proc/sys").join(setting)).into_iter();
    let settings = settings.filter_map(|setting| Some((setting.clone(), fs::read_to_string(setting).ok()?))).collect();
    let mut belongings = Belongings { folder: folder.to_owned(), keep, groups: Vec::new(), made: Vec::new(), settings };
    if let Err(error) = make(&mut belongings, group) {
        init::take_away(&belongings, Instant::now());
        return Err(error);
    }
    Ok(belongings)
}

/// Creates what is outside of the node's folder, recording each item.
fn make(belongings: &mut Belongings, group: &str) -> anyhow::Result<()> {
    // As mount points.
    for place in PLACES {
        match fs::create_dir(place) {
            Ok(()) => belongings.made.push(place.into()),
            Err(error) if error.kind() == std::io::ErrorKind::AlreadyExists => {}
            Err(error) => return Err(error).with_context(|| format!("cannot create {place}")),
        }
    }
    for hierarchy in checks::hierarchies()? {
        let group = hierarchy.join(group);
        fs::create_dir(&group).with_context(|| format!("cannot create the control group {}", group.display()))?;
        belongings.groups.push(group);
    }
    Ok(())
}

impl Provider for Host {
    fn load(&self, archives: &[PathBuf]) -> anyhow::Result<()> {
        for archive in archives {
            let file = archive.to_str().context("the archive's name is not UTF-8")?;
            self.sandbox.run("ctr", &["--address", SOCKET, "--namespace", "k8s.io", "images", "import", file])?;
        }
        Ok(())
    }

    fn command(&self, program: &Path) -> Command {
        let mut command = self.sandbox.in_network(program);
        command.env("KUBECACHEDIR", self.folder.join("kubectl-cache"));
        command
    }

    fn kubeconfig(&self) -> PathBuf {
        self.keys.kubeconfig_of("admin")
    }

    fn kubectl_program(&self) -> PathBuf {
        self.assets.join("kubectl")
    }

    fn last_words(&self) -> String {
        let mut words = Vec::new();
        for name in self.programs.keys() {
            words.push(name.clone());
            words.extend(log::tail(&log_of(&self.folder, name), 6).iter().map(|line| format!("  | {line}")));
        }
        words.join("\n")
    }

    fn faults(&self) -> &dyn Faults {
        self
    }

    fn kubectl_among_pods(&self, kubeconfig: &Path) -> anyhow::Result<Command> {
        let mut command = self.command(&self.kubectl_program());
        command.arg("--kubeconfig").arg(kubeconfig);
        Ok(command)
    }

    fn node(&self) -> String {
        NODE.to_owned()
    }

    fn folder(&self, name: &str) -> anyhow::Result<String> {
        // With the volumes of pods, on their file system.
        let folder = state_of_pods(&self.folder).join("folders").join(name).display().to_string();
        self.sandbox.run("mkdir", &["--parents", "--mode=777", &folder])?;
        Ok(folder)
    }
}

impl Faults for Host {
    fn kill_container(&self, id: &str) -> anyhow::Result<()> {
        let words = ["--address", SOCKET, "--namespace", "k8s.io", "tasks", "kill", "--signal", "SIGKILL", id];
        self.sandbox.run("ctr", &words).map(drop)
    }

    fn cut(&self, one: &str, other: &str) -> anyhow::Result<()> {
        cuts::make(&self.sandbox, one, other)
    }

    fn dropped(&self, one: &str, other: &str) -> anyhow::Result<u64> {
        cuts::dropped(&self.sandbox, one, other)
    }

    fn mend(&self, one: &str, other: &str) -> anyhow::Result<()> {
        cuts::take_back(&self.sandbox, one, other)
    }

    fn node_address(&self) -> &str {
        NODE_ADDRESS
    }

    fn fill_disk(&self) -> anyhow::Result<()> {
        let ballast = self.ballast();
        // dd fails once the disk is full, and says so; in English with this locale.
        let said = self
            .sandbox
            .run("env", &["LC_ALL=C", "dd", "if=/dev/zero", &format!("of={ballast}"), "bs=64K", "status=none"]);
        let why = said.err().map(|error| format!("{error:#}")).unwrap_or_default();
        if why.contains("No space left") {
            return Ok(());
        }
        // A failed attempt must not keep the space.
        let removed = self.sandbox.run("rm", &["--force", &ballast]).err();
        let stays = removed.map(|error| format!("; cannot remove it: {error:#}")).unwrap_or_default();
        bail!("{ballast} did not fill the disk: {why}{stays}");
    }

    fn free_disk(&self) -> anyhow::Result<()> {
        self.sandbox.run("rm", &[&self.ballast()]).map(drop)
    }

    fn kill_program(&self, name: &str) -> anyhow::Result<()> {
        self.sandbox.signal(name, Signal::KILL)?;
        until_within(&format!("{name} to exit"), PATIENCE, || self.sandbox.ended(name))?;
        Ok(())
    }

    fn start_program(&self, name: &str) -> anyhow::Result<()> {
        let program = self.programs.get(name).with_context(|| format!("the node has no program {name}"))?;
        self.sandbox.start(program.clone())
    }
}
