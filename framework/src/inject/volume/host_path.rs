//! Folders and files of the node.

use std::marker::PhantomData;

use k8s_openapi::api::core::v1::{HostPathVolumeSource, Volume as Raw};

use super::{Access, ReadOnly, Source, Writable, sealed};

/// What kubelet requires at the path of a [`HostPath`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum HostPathType {
    /// A folder, which kubelet creates if it does not exist.
    DirectoryOrCreate,
    /// A folder.
    Directory,
    /// A file, which kubelet creates if it does not exist. It does not create folders.
    FileOrCreate,
    /// A file.
    File,
    /// A Unix socket.
    Socket,
    /// A character device.
    CharDevice,
    /// A block device.
    BlockDevice,
}

/// A folder or file of the node, read-only unless [`writable`](Self::writable).
///
/// It gives the container what the node protects: credentials of kubelet, data of other pods; if writable, the node itself.
/// The Pod Security Standard *baseline* forbids it.
#[derive(Clone, Debug, PartialEq)]
pub struct HostPath<A> {
    source: HostPathVolumeSource,
    access: PhantomData<A>,
}

impl HostPath<ReadOnly> {
    /// References a path on the node. Read about [the danger](Self) first.
    pub fn dangerous(path: impl Into<String>) -> Self {
        Self { source: HostPathVolumeSource { path: path.into(), type_: None }, access: PhantomData }
    }

    /// Returns the same path, which containers may write.
    #[must_use]
    pub fn writable(self) -> HostPath<Writable> {
        HostPath { source: self.source, access: PhantomData }
    }
}

impl<A: Access> HostPath<A> {
    /// Sets what kubelet requires at the path before it starts the pod; by default nothing.
    #[must_use]
    pub fn of_type(mut self, host_path_type: HostPathType) -> Self {
        self.source.type_ = Some(format!("{host_path_type:?}"));
        self
    }
}

impl<A: Access> Source for HostPath<A> {
    type Access = A;
}

impl<A: Access> sealed::Source for HostPath<A> {
    fn volume(self) -> Raw {
        Raw { host_path: Some(self.source), ..Raw::default() }
    }
}
