//! A real Kubernetes cluster with one node that runs pods, to install Trishanku into.
//!
//! Scenarios use a [`Provider`], whatever its implementation. [`host::Host`] runs containerd and kubelet in namespaces on this
//! machine, without a container engine; [`kind::Kind`] uses kind, with one.
//!
//! Environment:
//! - `TRISHANKU_E2E_CLUSTER`: `host` or `kind`; without it nothing is started.
//! - `TRISHANKU_E2E_IMAGES`: the folder with the archives of `hack/images.sh`.
//! - `TRISHANKU_E2E_HOST_STORE=gitcd`: the host's own kube-apiserver stores its objects in gitcd instead of etcd.
//! - `TRISHANKU_E2E_KEEP`: keep the folder of the node and print its path. The volumes of pods are not kept: they are on a file
//!   system in memory (`kubelet` in that folder) that goes away with the namespaces. Copy what you need while the node runs.

mod cuts;
pub mod host;
pub mod kind;
pub mod kubectl;

use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, bail};
use serde_json::{Value, json};

/// kubelet settings of every kind of node that differ from the defaults.
fn kubelet() -> Value {
    json!({
        "apiVersion": "kubelet.config.k8s.io/v1beta1",
        "kind": "KubeletConfiguration",
        // A container that is killed repeatedly restarts within seconds instead of minutes. kubelet 1.35 and later enable the
        // gate by default.
        "featureGates": {"KubeletCrashLoopBackOffMax": true},
        "crashLoopBackOff": {"maxContainerRestartPeriod": "20s"},
        // Changed Secrets reach their pods soon.
        "syncFrequency": "10s",
    })
}

/// A cluster that runs pods.
pub trait Provider: Send + Sync {
    /// Loads images into the node, from archives in the format of `docker save`.
    ///
    /// # Errors
    /// If one cannot be read or loaded; the text names it and has the output.
    fn load(&self, archives: &[PathBuf]) -> anyhow::Result<()>;

    /// A program that can reach the cluster's kube-apiserver, and the ports of `kubectl port-forward`.
    fn command(&self, program: &Path) -> Command;

    /// The kubeconfig of an administrator, for [`Self::command`].
    fn kubeconfig(&self) -> PathBuf;

    /// The path of kubectl.
    fn kubectl_program(&self) -> PathBuf;

    /// The ends of all logs of the cluster, for the message of a failed scenario.
    fn last_words(&self) -> String;

    /// The faults that can be injected.
    fn faults(&self) -> &dyn Faults;

    /// kubectl with this kubeconfig, where it can reach the addresses of pods.
    ///
    /// # Errors
    /// If the kubeconfig cannot be copied there.
    fn kubectl_among_pods(&self, kubeconfig: &Path) -> anyhow::Result<Command>;

    /// The name of the node.
    fn node(&self) -> String;

    /// Creates a world-writable folder on the node, for a volume, and returns its path. It goes away with the node.
    ///
    /// # Errors
    /// If it cannot be created.
    fn folder(&self, name: &str) -> anyhow::Result<String>;
}

/// A place to run programs on a node.
trait Inside {
    /// Runs a program until it exits, and returns its output.
    ///
    /// # Errors
    /// If it fails; the text has its output.
    fn run(&self, program: &str, arguments: &[&str]) -> anyhow::Result<String>;
}

/// Faults of a node.
pub trait Faults {
    /// Kills a container with SIGKILL; kubelet has to replace it.
    ///
    /// # Errors
    /// If there is none with this ID.
    fn kill_container(&self, id: &str) -> anyhow::Result<()>;

    /// Blocks all packets between two addresses from now on. Both are of pods, or one is the node's.
    ///
    /// # Errors
    /// If the rules cannot be added.
    fn cut(&self, one: &str, other: &str) -> anyhow::Result<()>;

    /// The number of packets that a [`Self::cut`] has dropped, in both directions.
    ///
    /// # Errors
    /// If there is none.
    fn dropped(&self, one: &str, other: &str) -> anyhow::Result<u64>;

    /// Removes a [`Self::cut`].
    ///
    /// # Errors
    /// If there is none.
    fn mend(&self, one: &str, other: &str) -> anyhow::Result<()>;

    /// The address of the cluster's kube-apiserver as seen by pods, for [`Self::cut`].
    fn node_address(&self) -> &str;

    /// Whether the volumes of pods are on a file system that can be filled without harm.
    fn has_own_disk(&self) -> bool {
        true
    }

    /// Fills the file system that holds the volumes of all pods.
    ///
    /// # Errors
    /// If it cannot be filled; what was written is removed.
    fn fill_disk(&self) -> anyhow::Result<()>;

    /// Undoes [`Self::fill_disk`].
    ///
    /// # Errors
    /// If it is not full.
    fn free_disk(&self) -> anyhow::Result<()>;

    /// Kills a program of the node itself, such as kubelet, kube-apiserver or its store, and waits until it is gone.
    ///
    /// # Errors
    /// If it is not running.
    fn kill_program(&self, name: &str) -> anyhow::Result<()>;

    /// Starts it again.
    ///
    /// # Errors
    /// If it is running.
    fn start_program(&self, name: &str) -> anyhow::Result<()>;
}

/// Starts the cluster that the environment requests.
///
/// # Errors
/// If it cannot run here or does not become ready; the text says what to do.
pub fn start() -> anyhow::Result<Box<dyn Provider>> {
    match wanted().as_deref() {
        Some("host") => Ok(Box::new(host::Host::start()?)),
        Some("kind") => Ok(Box::new(kind::Kind::start()?)),
        Some(other) => bail!("TRISHANKU_E2E_CLUSTER is {other:?}; must be host or kind"),
        None => bail!("TRISHANKU_E2E_CLUSTER is not set; `make test-cluster` sets it to host"),
    }
}

/// The cluster that the environment requests.
#[must_use]
pub fn wanted() -> Option<String> {
    std::env::var("TRISHANKU_E2E_CLUSTER").ok().filter(|wanted| !wanted.is_empty())
}

/// Folders of images of other versions, below the image folder.
const OTHERS: [&str; 2] = ["next", "previous"];

/// Whether an image of this name exists in another version.
#[must_use]
pub fn has_other(version: &str, name: &str) -> bool {
    let folder = std::env::var_os("TRISHANKU_E2E_IMAGES").unwrap_or_default();
    Path::new(&folder).join(version).join(format!("{name}.tar")).is_file()
}

/// The archives of all images.
///
/// # Errors
/// If there are none.
pub fn archives() -> anyhow::Result<Vec<PathBuf>> {
    let folder = std::env::var_os("TRISHANKU_E2E_IMAGES")
        .context("TRISHANKU_E2E_IMAGES must name a folder with images: run `hack/images.sh test`")?;
    let entries =
        std::fs::read_dir(&folder).with_context(|| format!("cannot read the folder of images {}", folder.display()))?;
    // Other versions of some images, for upgrades.
    let others = OTHERS.into_iter().filter_map(|other| std::fs::read_dir(Path::new(&folder).join(other)).ok());
    let mut archives: Vec<_> = entries.chain(others.flatten()).filter_map(|entry| Some(entry.ok()?.path())).collect();
    archives.retain(|path| path.extension().is_some_and(|extension| extension == "tar"));
    archives.sort();
    if archives.is_empty() {
        bail!("no images in {}: run `hack/images.sh`", folder.display());
    }
    Ok(archives)
}
