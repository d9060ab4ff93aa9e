//! Empty folders.

use k8s_openapi::api::core::v1::{EmptyDirVolumeSource, Volume as Raw};
use k8s_openapi::apimachinery::pkg::api::resource::Quantity;

use super::{Source, Writable, sealed};

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
