//! Volumes of CSI drivers, without a claim.

use std::marker::PhantomData;

use k8s_openapi::api::core::v1::{CSIVolumeSource, LocalObjectReference, Volume as Raw};

use super::{Access, ReadOnly, Source, Writable, sealed};
use crate::inject::reference::SecretRef;

/// An ephemeral volume that a CSI driver provides for the pod. The driver has to support such volumes.
///
/// ```
/// use trishanku_framework::inject::Csi;
///
/// let secrets = Csi::driver("secrets-store.csi.k8s.io").attribute("secretProviderClass", "vault").read_only();
/// ```
#[derive(Clone, Debug, PartialEq)]
pub struct Csi<A> {
    source: CSIVolumeSource,
    access: PhantomData<A>,
}

impl Csi<Writable> {
    /// Requests a volume from the driver with this name.
    pub fn driver(name: impl Into<String>) -> Self {
        let source = CSIVolumeSource { driver: name.into(), ..CSIVolumeSource::default() };
        Self { source, access: PhantomData }
    }

    /// Returns the same volume, provided read-only. Some drivers require it.
    #[must_use]
    pub fn read_only(self) -> Csi<ReadOnly> {
        let source = CSIVolumeSource { read_only: Some(true), ..self.source };
        Csi { source, access: PhantomData }
    }
}

impl<A: Access> Csi<A> {
    /// Sets an attribute, which the driver defines.
    #[must_use]
    pub fn attribute(mut self, key: impl Into<String>, value: impl Into<String>) -> Self {
        self.source.volume_attributes.get_or_insert_default().insert(key.into(), value.into());
        self
    }

    /// Sets the type of the file system; by default the driver's.
    #[must_use]
    pub fn fs_type(mut self, fs_type: impl Into<String>) -> Self {
        self.source.fs_type = Some(fs_type.into());
        self
    }

    /// Sets the Secret that the driver receives for publishing the volume on the node.
    #[must_use]
    pub fn node_publish_secret(mut self, secret: &SecretRef) -> Self {
        self.source.node_publish_secret_ref = Some(LocalObjectReference { name: secret.name.clone() });
        self
    }
}

impl<A: Access> Source for Csi<A> {
    type Access = A;
}

impl<A: Access> sealed::Source for Csi<A> {
    fn volume(self) -> Raw {
        Raw { csi: Some(self.source), ..Raw::default() }
    }
}
