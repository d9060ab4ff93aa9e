//! The kind: its spec, and its status.

use kube::CustomResource;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::Value;
use trishanku_api::Gitcd;
use trishanku_framework::impl_conditions;
use trishanku_framework::status::{Condition, conditions_schema};

/// A Job with a kube-apiserver on a branch of its own.
#[derive(CustomResource, JsonSchema, Clone, Debug, Deserialize, Serialize)]
#[serde(rename_all = "camelCase")]
#[kube(group = "heavens.example.org", version = "v1", kind = "JobHeaven", namespaced, status = "JobHeavenStatus")]
#[kube(doc = "A Job with its own kube-apiserver on its own Git branch.")]
#[kube(printcolumn = r#"{"name":"State","type":"string","jsonPath":".status.conditions[?(@.type=='Ready')].reason"}"#)]
pub(crate) struct JobHeavenSpec {
    /// The `TrishankuHeaven` (with `skip.app`) whose certificates are used. This Job is its controller.
    pub(crate) certificates_of: String,
    /// The branch, and its remotes.
    pub(crate) gitcd: Gitcd,
    /// Path of the kubeconfig in each container.
    pub(crate) kubeconfig_mount_path: String,
    /// Pod template of the Job.
    #[schemars(schema_with = "anything")]
    pub(crate) pod_template: Value,
}

fn anything(_: &mut schemars::SchemaGenerator) -> schemars::Schema {
    schemars::json_schema!({"type": "object", "x-kubernetes-preserve-unknown-fields": true})
}

/// Observed state.
#[derive(Clone, Debug, Default, Deserialize, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub(crate) struct JobHeavenStatus {
    pub(crate) observed_generation: Option<i64>,
    #[schemars(schema_with = "conditions_schema")]
    pub(crate) conditions: Vec<Condition>,
}

impl_conditions!(JobHeavenStatus);
