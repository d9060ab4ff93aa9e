//! A branch that only merges others.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::{Condition, Time};
use kube::{CustomResource, KubeSchema};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use trishanku_framework::status::{Conditions, conditions_schema};

use crate::Gitcd;

/// Merges branches into one, all the time, without a kube-apiserver.
#[derive(CustomResource, KubeSchema, Clone, Debug, Default, Deserialize, Serialize, PartialEq)]
#[serde(rename_all = "camelCase")]
#[kube(
    group = "controllers.trishanku.org.trishanku.org",
    version = "v1alpha1",
    kind = "AutomatedMerge",
    namespaced,
    status = "AutomatedMergeStatus",
    shortname = "merge",
    category = "trishanku",
    derive = "PartialEq",
    derive = "Default"
)]
#[kube(printcolumn = r#"{"name":"Ready","type":"string","jsonPath":".status.conditions[?(@.type=='Ready')].status"}"#)]
#[kube(printcolumn = r#"{"name":"Reason","type":"string","jsonPath":".status.conditions[?(@.type=='Ready')].reason"}"#)]
#[kube(printcolumn = r#"{"name":"Branch","type":"string","jsonPath":".status.branch"}"#)]
#[kube(printcolumn = r#"{"name":"Age","type":"date","jsonPath":".metadata.creationTimestamp"}"#)]
#[x_kube(validation = Rule::new("has(self.gitcd) && has(self.gitcd.git) && has(self.gitcd.git.remotes) && size(self.gitcd.git.remotes) > 0").message("there is nothing to merge: add the branches to be merged to gitcd.git.remotes"))]
pub struct AutomatedMergeSpec {
    /// The branch, and those that are merged into it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub gitcd: Option<Gitcd>,
    /// The pod.
    pub app: MergeApp,
    /// Stops the pod, and leaves everything else as it is.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub suspend: Option<bool>,
    /// Why it is suspended, for others.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 1024))]
    pub suspend_reason: Option<String>,
}

/// The pod that merges.
#[derive(Clone, Debug, Default, Deserialize, Serialize, JsonSchema, PartialEq, Eq)]
#[serde(rename_all = "camelCase")]
pub struct MergeApp {
    /// How many pods: 1 if unset, 0 to rest. Several would only make each other's merges again.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 0))]
    pub replicas: Option<i32>,
    /// The `ConfigMap` with entry points. `<name>-entrypoints` if unset.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = 253))]
    pub entrypoints_config_map_name: Option<String>,
    /// In whose name the merges are committed.
    #[schemars(length(min = 1))]
    pub committer_name: String,
}

/// How a merge is.
#[derive(Clone, Debug, Default, Deserialize, Serialize, JsonSchema, PartialEq)]
#[serde(rename_all = "camelCase", default)]
pub struct AutomatedMergeStatus {
    /// Which generation of the object this is about.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub observed_generation: Option<i64>,
    /// The branch into which is merged.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub branch: Option<String>,
    /// Each remote.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub remotes: Vec<RemoteStatus>,
    /// Whether it is as it should be, and why not.
    #[schemars(schema_with = "conditions_schema")]
    pub conditions: Vec<Condition>,
}

/// How a remote is.
#[derive(Clone, Debug, Default, Deserialize, Serialize, JsonSchema, PartialEq)]
#[serde(rename_all = "camelCase", default)]
pub struct RemoteStatus {
    /// Its name.
    pub name: String,
    /// The commit of it that was merged last.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub last_merge: Option<String>,
    /// When that was.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "crate::schema::time")]
    pub last_merge_time: Option<Time>,
    /// Its commits that are not merged yet.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub commits_behind: Option<i64>,
    /// Keys and fields that were decided by the conflict resolution since the pod began.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub conflicts: Option<i64>,
    /// What went wrong at last.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub error: Option<String>,
}

impl Conditions for AutomatedMergeStatus {
    fn conditions(&mut self) -> &mut Vec<Condition> {
        &mut self.conditions
    }

    fn observed_generation(&mut self) -> &mut Option<i64> {
        &mut self.observed_generation
    }
}
