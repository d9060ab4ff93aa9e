//! Images of containers.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// An image and its pull policy.
#[derive(Clone, Debug, Default, Deserialize, Serialize, JsonSchema, PartialEq, Eq)]
#[serde(rename_all = "camelCase")]
pub struct Image {
    /// Image reference, such as `registry.k8s.io/kube-apiserver:v1.36.3`. The manager's default if unset.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1))]
    pub image: Option<String>,
    /// Its pull policy. If unset, Kubernetes' default (always for `latest`, otherwise if the image is missing).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub image_pull_policy: Option<PullPolicy>,
}

/// When an image is pulled.
#[derive(Clone, Copy, Debug, Deserialize, Serialize, JsonSchema, PartialEq, Eq)]
pub enum PullPolicy {
    /// Before every start.
    Always,
    /// If it is not on the node.
    IfNotPresent,
    /// Never; it must be on the node.
    Never,
}

impl PullPolicy {
    /// The value in a container's spec.
    pub fn name(self) -> &'static str {
        match self {
            Self::Always => "Always",
            Self::IfNotPresent => "IfNotPresent",
            Self::Never => "Never",
        }
    }
}
