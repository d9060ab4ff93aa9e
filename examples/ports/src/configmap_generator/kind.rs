//! The kind.

use kube::CustomResource;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// Generates a `ConfigMap`.
#[derive(CustomResource, JsonSchema, Clone, Debug, Default, Deserialize, Serialize)]
#[kube(group = "nullable.se", version = "v1", kind = "ConfigMapGenerator", shortname = "cmg", namespaced)]
#[kube(doc = "Generates a ConfigMap.")]
pub struct ConfigMapGeneratorSpec {
    /// Content of the map.
    pub content: String,
}
