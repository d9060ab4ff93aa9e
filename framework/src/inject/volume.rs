//! Volumes: their sources, and the handles that containers mount.

use std::fmt::Debug;
use std::marker::PhantomData;

use k8s_openapi::api::core::v1::{
    DownwardAPIProjection, DownwardAPIVolumeFile, EmptyDirVolumeSource, PersistentVolumeClaimVolumeSource,
    ProjectedVolumeSource, ServiceAccountTokenProjection, Volume as Raw, VolumeMount, VolumeProjection,
};
use k8s_openapi::apimachinery::pkg::api::resource::Quantity;

use super::brand::Brand;
use super::files::Files;
use super::reference::FieldRef;

mod sealed {
    pub trait Access {}

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
impl sealed::Access for ReadOnly {}
impl Access for ReadOnly {}

/// A volume that containers with a writable mount can write.
#[derive(Clone, Debug)]
pub enum Writable {}
impl sealed::Access for Writable {}
impl Access for Writable {}

/// The source of a volume: [`EmptyDir`], [`Files`], [`Claim`], [`Projected`].
pub trait Source: sealed::Source {
    /// Whether containers may write into it.
    type Access: Access;
}

/// A volume of the pod under construction. Mounts need this handle.
#[derive(Clone, Debug)]
pub struct Volume<'p, A> {
    name: String,
    sub_path: Option<String>,
    access: PhantomData<A>,
    pub(super) brand: Brand<'p>,
}

impl<'p, A: Access> Volume<'p, A> {
    pub(super) fn new(name: String, brand: Brand<'p>) -> Self {
        Self { name, sub_path: None, access: PhantomData, brand }
    }

    /// Returns its name in the pod.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Returns a folder or file in the volume, which can be mounted like the volume.
    ///
    /// Kubelet does not update such a mount when a Secret or a `ConfigMap` changes.
    #[must_use]
    pub fn sub_path(&self, path: impl Into<String>) -> Self {
        Self { sub_path: Some(path.into()), ..self.clone() }
    }

    pub(super) fn mounted(&self, mount_path: String, writable: bool) -> VolumeMount {
        let (name, sub_path) = (self.name.clone(), self.sub_path.clone());
        VolumeMount { name, mount_path, sub_path, read_only: (!writable).then_some(true), ..VolumeMount::default() }
    }
}

/// An empty folder that lives as long as the pod.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct EmptyDir {
    source: EmptyDirVolumeSource,
}

impl EmptyDir {
    /// Creates a folder on the node's disk, without a limit.
    pub fn new() -> Self {
        Self::default()
    }

    /// Puts the folder into memory, which counts as that of the containers.
    #[must_use]
    pub fn in_memory(mut self) -> Self {
        self.source.medium = Some("Memory".to_owned());
        self
    }

    /// Limits the size: a pod that writes more (`512Mi`) is evicted.
    #[must_use]
    pub fn size_limit(mut self, limit: impl Into<String>) -> Self {
        self.source.size_limit = Some(Quantity(limit.into()));
        self
    }
}

impl Source for EmptyDir {
    type Access = Writable;
}

impl sealed::Source for EmptyDir {
    fn volume(self) -> Raw {
        Raw { empty_dir: Some(self.source), ..Raw::default() }
    }
}

impl Source for Files {
    type Access = ReadOnly;
}

impl sealed::Source for Files {
    fn volume(self) -> Raw {
        self.volume()
    }
}

/// A `PersistentVolumeClaim` of the pod's namespace.
#[derive(Clone, Debug, PartialEq)]
pub struct Claim<A> {
    name: String,
    access: PhantomData<A>,
}

impl Claim<Writable> {
    /// References the claim with this name.
    pub fn named(name: impl Into<String>) -> Self {
        Self { name: name.into(), access: PhantomData }
    }

    /// Returns the same claim, attached read-only.
    pub fn read_only(self) -> Claim<ReadOnly> {
        Claim { name: self.name, access: PhantomData }
    }
}

fn claim(claim_name: String, read_only: Option<bool>) -> Raw {
    let claim = PersistentVolumeClaimVolumeSource { claim_name, read_only };
    Raw { persistent_volume_claim: Some(claim), ..Raw::default() }
}

impl Source for Claim<Writable> {
    type Access = Writable;
}

impl sealed::Source for Claim<Writable> {
    fn volume(self) -> Raw {
        claim(self.name, None)
    }
}

impl Source for Claim<ReadOnly> {
    type Access = ReadOnly;
}

impl sealed::Source for Claim<ReadOnly> {
    fn volume(self) -> Raw {
        claim(self.name, Some(true))
    }
}

/// Files from several sources in one folder.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Projected {
    sources: Vec<VolumeProjection>,
}

impl Projected {
    /// Creates an empty folder.
    pub fn new() -> Self {
        Self::default()
    }

    /// Adds these files.
    #[must_use]
    pub fn files(mut self, files: Files) -> Self {
        self.sources.push(files.projection());
        self
    }

    /// Adds a token of the pod's service account for `audience` (`None`: the apiserver), as a file with this relative path.
    /// Kubelet renews it.
    #[must_use]
    pub fn token(mut self, path: impl Into<String>, audience: Option<&str>) -> Self {
        let (path, audience) = (path.into(), audience.map(str::to_owned));
        let token = ServiceAccountTokenProjection { path, audience, ..Default::default() };
        self.sources.push(VolumeProjection { service_account_token: Some(token), ..VolumeProjection::default() });
        self
    }

    /// Adds a field of the pod, as a file with this relative path.
    #[must_use]
    pub fn field(mut self, path: impl Into<String>, field: FieldRef) -> Self {
        let field_ref = Some(field.selector());
        let file = DownwardAPIVolumeFile { path: path.into(), field_ref, ..DownwardAPIVolumeFile::default() };
        let fields = DownwardAPIProjection { items: Some(vec![file]) };
        self.sources.push(VolumeProjection { downward_api: Some(fields), ..VolumeProjection::default() });
        self
    }
}

impl Source for Projected {
    type Access = ReadOnly;
}

impl sealed::Source for Projected {
    fn volume(self) -> Raw {
        let projected = ProjectedVolumeSource { sources: Some(self.sources), ..Default::default() };
        Raw { projected: Some(projected), ..Raw::default() }
    }
}
