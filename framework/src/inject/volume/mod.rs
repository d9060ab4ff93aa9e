//! Volumes: their sources, and the handles that containers mount.

mod claim;
mod csi;
mod empty_dir;
mod host_path;
mod projected;

use std::fmt::Debug;
use std::marker::PhantomData;

use k8s_openapi::api::core::v1::{Volume as Raw, VolumeMount};

use super::brand::Brand;
use super::files::Files;

pub use self::claim::{Claim, EphemeralClaim};
pub use self::csi::Csi;
pub use self::empty_dir::EmptyDir;
pub use self::host_path::{HostPath, HostPathType};
pub use self::projected::Projected;

mod sealed {
    pub trait Access {
        const IS_WRITABLE: bool;
    }

    pub trait Source {
        /// The volume without its name.
        fn volume(self) -> k8s_openapi::api::core::v1::Volume;
    }
}

/// Whether a container may write into a volume: [`ReadOnly`] or [`Writable`].
pub trait Access: sealed::Access + Clone + Debug + 'static {}

/// A volume that no container can write.
#[derive(Clone, Debug)]
pub enum ReadOnly {}
impl sealed::Access for ReadOnly {
    const IS_WRITABLE: bool = false;
}
impl Access for ReadOnly {}

/// A volume that containers with a writable mount can write.
#[derive(Clone, Debug)]
pub enum Writable {}
impl sealed::Access for Writable {
    const IS_WRITABLE: bool = true;
}
impl Access for Writable {}

/// The source of a volume: [`EmptyDir`], [`Files`], [`Claim`], [`EphemeralClaim`], [`Projected`], [`Csi`], [`HostPath`].
pub trait Source: sealed::Source {
    /// Whether containers may write into it.
    type Access: Access;
}

/// Returns whether containers may write into the volumes of a source.
pub(super) fn is_writable<A: Access>() -> bool {
    A::IS_WRITABLE
}

/// A volume of the pod under construction. Mounts need this handle.
#[derive(Clone, Debug)]
pub struct Volume<'p, A> {
    /// A mount without path and access.
    mount: VolumeMount,
    access: PhantomData<A>,
    pub(super) brand: Brand<'p>,
}

impl<'p, A: Access> Volume<'p, A> {
    pub(super) fn new(name: String, brand: Brand<'p>) -> Self {
        Self { mount: VolumeMount { name, ..VolumeMount::default() }, access: PhantomData, brand }
    }

    /// Returns its name in the pod.
    pub fn name(&self) -> &str {
        &self.mount.name
    }

    /// Returns a folder or file in the volume, which can be mounted like the volume.
    ///
    /// Kubelet does not update such a mount when a Secret or a `ConfigMap` changes.
    #[must_use]
    pub fn sub_path(&self, path: impl Into<String>) -> Self {
        let mut handle = self.clone();
        let (mount, path) = (&mut handle.mount, path.into());
        if let Some(folder) = mount.sub_path_expr.take() {
            mount.sub_path_expr = Some(joined(Some(folder), literal(&path)));
        } else {
            mount.sub_path = Some(joined(mount.sub_path.take(), path));
        }
        handle
    }

    /// Returns a folder or file in the volume whose path contains variables of the container: `$(POD_NAME)/logs`.
    ///
    /// [`finish`](super::Injector::finish) reports variables that a container that mounts it does not have.
    #[must_use]
    pub fn sub_path_expr(&self, path: impl Into<String>) -> Self {
        let mut handle = self.clone();
        let mount = &mut handle.mount;
        let folder = mount.sub_path.take().map(|folder| literal(&folder));
        mount.sub_path_expr = Some(joined(folder.or(mount.sub_path_expr.take()), path.into()));
        handle
    }

    /// Returns the same volume, whose mounts also have what is mounted into the volume later, on the node or by other
    /// containers.
    #[must_use]
    pub fn host_to_container(&self) -> Self {
        self.propagated("HostToContainer")
    }

    /// Returns the same volume, whose mounts are read-only with everything that is mounted below them. Without it, those
    /// mounts stay writable.
    ///
    /// Kubelet does not start the container on a node that does not support it. It excludes
    /// [`host_to_container`](Self::host_to_container).
    #[must_use]
    pub fn recursive_read_only(&self) -> Volume<'p, ReadOnly> {
        let recursive_read_only = Some("Enabled".to_owned());
        let mount = VolumeMount { recursive_read_only, ..self.mount.clone() };
        Volume { mount, access: PhantomData, brand: self.brand }
    }

    fn propagated(&self, propagation: &str) -> Self {
        let mut handle = self.clone();
        handle.mount.mount_propagation = Some(propagation.to_owned());
        handle
    }

    pub(super) fn mounted(&self, mount_path: String, writable: bool) -> VolumeMount {
        VolumeMount { mount_path, read_only: (!writable).then_some(true), ..self.mount.clone() }
    }
}

impl Volume<'_, Writable> {
    /// Returns the same volume, whose mounts also show on the node, and in other containers, what the container mounts into
    /// it: for file systems that a container provides.
    ///
    /// The container has to be privileged, which [`finish`](super::Injector::finish) checks.
    #[must_use]
    pub fn bidirectional(&self) -> Self {
        self.propagated("Bidirectional")
    }
}

fn joined(folder: Option<String>, path: String) -> String {
    match folder {
        Some(folder) => format!("{}/{path}", folder.trim_end_matches('/')),
        None => path,
    }
}

/// Escapes a path for an expression.
fn literal(path: &str) -> String {
    path.replace("$(", "$$(")
}

impl Source for Files {
    type Access = ReadOnly;
}

impl sealed::Source for Files {
    fn volume(self) -> Raw {
        self.volume()
    }
}
