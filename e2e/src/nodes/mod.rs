//! A real Kubernetes cluster of one node, in which pods run: what Trishanku is installed into.
//!
//! Scenarios ask for a [`Provider`] and know nothing of how it came about. [`host::Host`] makes one on this machine, of containerd and kubelet
//! in namespaces of their own, where there is no container engine; [`kind::Kind`] makes one with kind, where there is.
//!
//! Environment:
//! - `TRISHANKU_E2E_CLUSTER`: `host` or `kind`; without it nothing is started.
//! - `TRISHANKU_E2E_IMAGES`: the folder with the archives that `hack/images.sh` makes.
//! - `TRISHANKU_E2E_HOST_STORE=gitcd`: the host's own kube-apiserver keeps its objects in gitcd, not in etcd.
//! - `TRISHANKU_E2E_KEEP`: keep the folder of the node and print its path. The volumes of pods do not stay: they are on a disk of memory (`kubelet` in that folder),
//!   which goes with the namespaces. What is wanted of them is copied while the node runs.

mod cuts;
pub mod host;
pub mod kind;
pub mod kubectl;

use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, bail};
use serde_json::{Value, json};

/// What kubelet does otherwise than elsewhere, on a node of whatever kind.
fn kubelet() -> Value {
    json!({
        "apiVersion": "kubelet.config.k8s.io/v1beta1",
        "kind": "KubeletConfiguration",
        // What is killed again and again is not away for minutes. Kubelets from 1.35 on need not be told that they may.
        "featureGates": {"KubeletCrashLoopBackOffMax": true},
        "crashLoopBackOff": {"maxContainerRestartPeriod": "20s"},
        // What a Secret is changed to is in its pods soon.
        "syncFrequency": "10s",
    })
}

/// A cluster that pods run in.
pub trait Provider: Send + Sync {
    /// Brings images to the node. An archive is as `docker save` writes it.
    ///
    /// # Errors
    /// If one cannot be read or brought there; the text has which, and what was said.
    fn load(&self, archives: &[PathBuf]) -> anyhow::Result<()>;

    /// A program at a place from which the cluster's kube-apiserver can be reached, and the ports that `kubectl port-forward` opens.
    fn command(&self, program: &Path) -> Command;

    /// The kubeconfig of an administrator, for [`Self::command`].
    fn kubeconfig(&self) -> PathBuf;

    /// kubectl.
    fn kubectl_program(&self) -> PathBuf;

    /// The ends of the logs of whatever the cluster consists of, for the message of a failed scenario.
    fn last_words(&self) -> String;

    /// What can be made to go wrong.
    fn faults(&self) -> &dyn Faults;

    /// kubectl with this kubeconfig, at a place from which the addresses of pods can be reached.
    ///
    /// # Errors
    /// If the kubeconfig cannot be brought there.
    fn kubectl_among_pods(&self, kubeconfig: &Path) -> anyhow::Result<Command>;

    /// The name of the node.
    fn node(&self) -> String;

    /// Makes a folder on the node that everybody may write to, for a volume, and tells its path there. It goes with the node.
    ///
    /// # Errors
    /// If it cannot be made.
    fn folder(&self, name: &str) -> anyhow::Result<String>;
}

/// Where programs can be run on a node, to their end.
trait Inside {
    /// # Errors
    /// If it fails; the text has what it said.
    fn run(&self, program: &str, arguments: &[&str]) -> anyhow::Result<String>;
}

/// Ways in which a node goes wrong.
pub trait Faults {
    /// Kills a container with SIGKILL. It is for kubelet to start another one.
    ///
    /// # Errors
    /// If there is none of this id.
    fn kill_container(&self, id: &str) -> anyhow::Result<()>;

    /// From now on nothing gets from one of these addresses to the other. They are those of pods, or one is the node's.
    ///
    /// # Errors
    /// If the rule cannot be made.
    fn cut(&self, one: &str, other: &str) -> anyhow::Result<()>;

    /// How many packets a [`Self::cut`] has kept from getting from one to the other, both ways together.
    ///
    /// # Errors
    /// If there is none.
    fn dropped(&self, one: &str, other: &str) -> anyhow::Result<u64>;

    /// Takes a [`Self::cut`] back.
    ///
    /// # Errors
    /// If there is none.
    fn mend(&self, one: &str, other: &str) -> anyhow::Result<()>;

    /// The address at which pods find the cluster's kube-apiserver, for [`Self::cut`].
    fn node_address(&self) -> &str;

    /// Whether pods have their volumes on a disk that can be filled without harm to anybody else.
    fn has_own_disk(&self) -> bool {
        true
    }

    /// From now on nothing more can be written to the disk that the volumes of all pods are on.
    ///
    /// # Errors
    /// If it cannot be filled; what was written is taken away again.
    fn fill_disk(&self) -> anyhow::Result<()>;

    /// Takes [`Self::fill_disk`] back.
    ///
    /// # Errors
    /// If it is not full.
    fn free_disk(&self) -> anyhow::Result<()>;

    /// Kills a program of the node itself, such as kubelet, kube-apiserver or the store of that, and returns when it is gone.
    ///
    /// # Errors
    /// If it does not run.
    fn kill_program(&self, name: &str) -> anyhow::Result<()>;

    /// Starts it again.
    ///
    /// # Errors
    /// If it runs.
    fn start_program(&self, name: &str) -> anyhow::Result<()>;
}

/// Brings up the cluster that the environment asks for.
///
/// # Errors
/// If it cannot run here, or does not get ready; the text says what to do.
pub fn start() -> anyhow::Result<Box<dyn Provider>> {
    match wanted().as_deref() {
        Some("host") => Ok(Box::new(host::Host::start()?)),
        Some("kind") => Ok(Box::new(kind::Kind::start()?)),
        Some(other) => bail!("TRISHANKU_E2E_CLUSTER is {other:?}; it can be host or kind"),
        None => bail!("TRISHANKU_E2E_CLUSTER is not set; `make test-cluster` sets it to host"),
    }
}

/// Which cluster the environment asks for.
#[must_use]
pub fn wanted() -> Option<String> {
    std::env::var("TRISHANKU_E2E_CLUSTER").ok().filter(|wanted| !wanted.is_empty())
}

/// Folders of images of other versions, below that of all others.
const OTHERS: [&str; 2] = ["next", "previous"];

/// Whether there is an image of this name among those of another version.
#[must_use]
pub fn has_other(version: &str, name: &str) -> bool {
    let folder = std::env::var_os("TRISHANKU_E2E_IMAGES").unwrap_or_default();
    Path::new(&folder).join(version).join(format!("{name}.tar")).is_file()
}

/// The archives of all images that were made.
///
/// # Errors
/// If there are none.
pub fn archives() -> anyhow::Result<Vec<PathBuf>> {
    let folder = std::env::var_os("TRISHANKU_E2E_IMAGES")
        .context("TRISHANKU_E2E_IMAGES names no folder with images: `hack/images.sh test` makes one")?;
    let entries =
        std::fs::read_dir(&folder).with_context(|| format!("cannot read the folder of images {}", folder.display()))?;
    // Other versions of some, for what is about replacing one by another.
    let others = OTHERS.into_iter().filter_map(|other| std::fs::read_dir(Path::new(&folder).join(other)).ok());
    let mut archives: Vec<_> = entries.chain(others.flatten()).filter_map(|entry| Some(entry.ok()?.path())).collect();
    archives.retain(|path| path.extension().is_some_and(|extension| extension == "tar"));
    archives.sort();
    if archives.is_empty() {
        bail!("there is no image in {}: `hack/images.sh` makes them", folder.display());
    }
    Ok(archives)
}
