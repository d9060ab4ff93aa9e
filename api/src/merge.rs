//! `AutomatedMerge`: a branch that only merges others.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::{Condition, Time};
use kube::{CustomResource, KubeSchema};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use trishanku_framework::status::{Conditions, conditions_schema};

use crate::Gitcd;

/// Continuously merges branches into one, without a kube-apiserver.
#[derive(CustomResource, KubeSchema, Clone, Debug, Default, Deserialize, Serialize, PartialEq)]
#[serde(rename_all = "camelCase")]
#[kube(
    group = "controllers.trishanku.org.trishanku.org",
    version = "v1alpha1",
    kind = "AutomatedMerge",
    doc = "A continuous merge of Git branches into one, without a kube-apiserver.",
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
    /// Stops the pod and keeps everything else.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub suspend: Option<bool>,
    /// Why it is suspended.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 1024))]
    pub suspend_reason: Option<String>,
    /// Allows pushing Secrets to remotes that may be public, for instance because heavens encrypt them.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub allow_public_secrets: Option<bool>,
}

/// The pod of a merge.
#[derive(Clone, Debug, Default, Deserialize, Serialize, JsonSchema, PartialEq, Eq)]
#[serde(rename_all = "camelCase")]
pub struct MergeApp {
    /// Number of pods, 1 if unset, 0 to suspend. More than one would only repeat the same merges.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 0))]
    pub replicas: Option<i32>,
    /// The `ConfigMap` with entry points. `<name>-entrypoints` if unset.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = 253))]
    pub entrypoints_config_map_name: Option<String>,
    /// Committer name of the merges.
    #[schemars(length(min = 1))]
    pub committer_name: String,
}

/// Observed state.
#[derive(Clone, Debug, Default, Deserialize, Serialize, JsonSchema, PartialEq)]
#[serde(rename_all = "camelCase", default)]
pub struct AutomatedMergeStatus {
    /// Generation that this status is about.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub observed_generation: Option<i64>,
    /// The target branch.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub branch: Option<String>,
    /// The remotes.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub remotes: Vec<RemoteStatus>,
    /// Conditions of the object.
    #[schemars(schema_with = "conditions_schema")]
    pub conditions: Vec<Condition>,
}

/// Remote status.
#[derive(Clone, Debug, Default, Deserialize, Serialize, JsonSchema, PartialEq)]
#[serde(rename_all = "camelCase", default)]
pub struct RemoteStatus {
    /// Its name.
    pub name: String,
    /// Its last merged commit.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub last_merge: Option<String>,
    /// Merge time.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "crate::schema::time")]
    pub last_merge_time: Option<Time>,
    /// Its commits that are not merged yet.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub commits_behind: Option<i64>,
    /// Keys and fields with conflicts that were resolved since the pod started.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub conflicts: Option<i64>,
    /// The last error.
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
