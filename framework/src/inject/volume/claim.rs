//! Persistent volumes: by a claim of the namespace, or by one that the pod brings.

use std::collections::BTreeMap;
use std::marker::PhantomData;

use k8s_openapi::api::core::v1::{
    EphemeralVolumeSource, PersistentVolumeClaimSpec, PersistentVolumeClaimTemplate, PersistentVolumeClaimVolumeSource,
    Volume as Raw, VolumeResourceRequirements,
};
use k8s_openapi::apimachinery::pkg::api::resource::Quantity;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;

use super::{ReadOnly, Source, Writable, sealed};

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

/// A generic ephemeral volume: Kubernetes creates a `PersistentVolumeClaim` for the pod, and deletes it with the pod.
#[derive(Clone, Debug, PartialEq)]
pub struct EphemeralClaim {
    spec: PersistentVolumeClaimSpec,
    labels: BTreeMap<String, String>,
}

impl EphemeralClaim {
    /// Requests a volume of this size (`10Gi`), of the cluster's default storage class, for one node at a time.
    pub fn new(size: impl Into<String>) -> Self {
        let requests = Some(BTreeMap::from([("storage".to_owned(), Quantity(size.into()))]));
        let resources = VolumeResourceRequirements { requests, ..VolumeResourceRequirements::default() };
        Self::from(PersistentVolumeClaimSpec {
            access_modes: Some(vec!["ReadWriteOnce".to_owned()]),
            resources: Some(resources),
            ..PersistentVolumeClaimSpec::default()
        })
    }

    /// Sets the storage class.
    #[must_use]
    pub fn storage_class(mut self, name: impl Into<String>) -> Self {
        self.spec.storage_class_name = Some(name.into());
        self
    }

    /// Sets a label of the claim.
    #[must_use]
    pub fn label(mut self, key: impl Into<String>, value: impl Into<String>) -> Self {
        self.labels.insert(key.into(), value.into());
        self
    }
}

/// Any other claim, unchanged.
impl From<PersistentVolumeClaimSpec> for EphemeralClaim {
    fn from(spec: PersistentVolumeClaimSpec) -> Self {
        Self { spec, labels: BTreeMap::new() }
    }
}

impl Source for EphemeralClaim {
    type Access = Writable;
}

impl sealed::Source for EphemeralClaim {
    fn volume(self) -> Raw {
        let Self { spec, labels } = self;
        let labels = Some(labels).filter(|labels| !labels.is_empty());
        let metadata = labels.map(|labels| ObjectMeta { labels: Some(labels), ..ObjectMeta::default() });
        let volume_claim_template = Some(PersistentVolumeClaimTemplate { metadata, spec });
        Raw { ephemeral: Some(EphemeralVolumeSource { volume_claim_template }), ..Raw::default() }
    }
}
