//! Kubeconfigs, for injected containers and the user's.

use k8s_openapi::api::core::v1::{EnvVar, VolumeMount};

use super::brand::Brand;
use super::volume::{ReadOnly, Volume};

/// The variable that clients of Kubernetes look at.
pub const KUBECONFIG: &str = "KUBECONFIG";

/// The name of the file, and the key's in its volume.
pub(super) const FILE: &str = "kubeconfig";

/// A kubeconfig that the pod has, to be mounted in one of two ways.
#[derive(Clone, Debug)]
pub struct Kubeconfig<'p> {
    pub(super) volume: Volume<'p, ReadOnly>,
}

impl<'p> Kubeconfig<'p> {
    /// In a folder of its own, as the file `kubeconfig`. The file changes when the Secret does, so credentials can be renewed.
    pub fn in_folder(&self, path: impl Into<String>) -> MountedKubeconfig<'p> {
        let path = path.into();
        let file = format!("{}/{FILE}", path.trim_end_matches('/'));
        MountedKubeconfig { mount: self.volume.mounted(path, false), file, _brand: self.volume.brand }
    }

    /// As this file, among others. It stays as it is until the pod goes, so it is for credentials that live longer.
    pub fn as_file(&self, path: impl Into<String>) -> MountedKubeconfig<'p> {
        let (file, volume) = (path.into(), self.volume.sub_path(FILE));
        MountedKubeconfig { mount: volume.mounted(file.clone(), false), file, _brand: volume.brand }
    }
}

/// A kubeconfig and where it is mounted, for [`Container::kubeconfig`](super::Container::kubeconfig) and
/// [`Pod::give_kubeconfig`](super::Pod::give_kubeconfig).
#[derive(Clone, Debug)]
pub struct MountedKubeconfig<'p> {
    pub(super) mount: VolumeMount,
    file: String,
    _brand: Brand<'p>,
}

impl MountedKubeconfig<'_> {
    /// Where the file is, as in `KUBECONFIG`.
    pub fn path(&self) -> &str {
        &self.file
    }

    pub(super) fn variable(&self) -> EnvVar {
        EnvVar { name: KUBECONFIG.to_owned(), value: Some(self.file.clone()), value_from: None }
    }
}

/// Which of the user's containers.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Users {
    /// All that this injector does not add, init containers too; those that others have injected are among them.
    All,
    /// Those of these names.
    Named(Vec<String>),
}

impl Users {
    /// Those of these names.
    pub fn named<S: Into<String>>(names: impl IntoIterator<Item = S>) -> Self {
        Self::Named(names.into_iter().map(Into::into).collect())
    }
}
