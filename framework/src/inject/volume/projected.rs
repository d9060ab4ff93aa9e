//! Files from several sources.

use k8s_openapi::api::core::v1::{
    DownwardAPIProjection, DownwardAPIVolumeFile, ProjectedVolumeSource, ServiceAccountTokenProjection, Volume as Raw,
    VolumeProjection,
};

use super::{ReadOnly, Source, sealed};
use crate::inject::env::FieldRef;
use crate::inject::files::Files;

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
