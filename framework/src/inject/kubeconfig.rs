//! Kubeconfigs, for injected containers and for the user's.

use k8s_openapi::api::core::v1::{EnvVar, VolumeMount};

use super::brand::Brand;
use super::volume::{ReadOnly, Volume};

/// The variable from which clients of Kubernetes read the path of the kubeconfig.
pub const KUBECONFIG: &str = "KUBECONFIG";

/// Name of the file in the volume.
pub(super) const FILE: &str = "kubeconfig";

/// A kubeconfig in the pod, which can be mounted in two ways.
#[derive(Clone, Debug)]
pub struct Kubeconfig<'p> {
    pub(super) volume: Volume<'p, ReadOnly>,
}

impl<'p> Kubeconfig<'p> {
    /// Mounts it as the file `kubeconfig` in a folder of its own. The file follows changes of the Secret, so credentials can
    /// be renewed.
    pub fn in_folder(&self, path: impl Into<String>) -> MountedKubeconfig<'p> {
        let path = path.into();
        let file = format!("{}/{FILE}", path.trim_end_matches('/'));
        MountedKubeconfig { mount: self.volume.mounted(path, false), file, _brand: self.volume.brand }
    }

    /// Mounts it as this file, among others. The file never changes, so the credentials must outlive the pod.
    pub fn as_file(&self, path: impl Into<String>) -> MountedKubeconfig<'p> {
        let (file, volume) = (path.into(), self.volume.sub_path(FILE));
        MountedKubeconfig { mount: volume.mounted(file.clone(), false), file, _brand: volume.brand }
    }
}

/// A kubeconfig and its mount, for [`Container::kubeconfig`](super::Container::kubeconfig) and
/// [`Pod::give_kubeconfig`](super::Pod::give_kubeconfig).
#[derive(Clone, Debug)]
pub struct MountedKubeconfig<'p> {
    pub(super) mount: VolumeMount,
    file: String,
    _brand: Brand<'p>,
}

impl MountedKubeconfig<'_> {
    /// Returns the path of the file, as in `KUBECONFIG`.
    pub fn path(&self) -> &str {
        &self.file
    }

    pub(super) fn variable(&self) -> EnvVar {
        EnvVar { name: KUBECONFIG.to_owned(), value: Some(self.file.clone()), value_from: None }
    }
}

/// A selection of the user's containers.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Users {
    /// All that this injector does not add, including init containers and those that others have injected.
    All,
    /// Those with these names.
    Named(Vec<String>),
}

impl Users {
    /// Selects the containers with these names.
    pub fn named<S: Into<String>>(names: impl IntoIterator<Item = S>) -> Self {
        Self::Named(names.into_iter().map(Into::into).collect())
    }
}
