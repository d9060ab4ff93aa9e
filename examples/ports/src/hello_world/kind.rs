//! The kind: its spec, and its status. The names of the fields are those of Stackable's operator.

use std::collections::BTreeMap;

use k8s_openapi::api::core::v1::{Affinity, PodTemplateSpec};
use kube::CustomResource;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use trishanku_framework::status::{ConditionedStatus, any_object};

/// A server that greets, in role groups.
#[derive(CustomResource, JsonSchema, Clone, Debug, Default, Deserialize, Serialize)]
#[serde(rename_all = "camelCase")]
#[kube(group = "hello-world.stackable.tech", version = "v1alpha1", kind = "HelloCluster", namespaced)]
#[kube(plural = "hello-world-clusters", shortname = "hello-world", status = "HelloClusterStatus")]
#[kube(doc = "A server that greets, in role groups.")]
#[kube(printcolumn = r#"{"name":"State","type":"string","jsonPath":".status.conditions[?(@.type=='Ready')].reason"}"#)]
pub struct HelloClusterSpec {
    /// Settings of the whole cluster.
    pub cluster_config: ClusterConfig,
    /// Pauses or stops the cluster.
    #[serde(default)]
    pub cluster_operation: ClusterOperation,
    /// The image of the server.
    pub image: Image,
    /// The servers.
    pub servers: Option<Role>,
    /// Who is greeted.
    pub recipient: String,
    /// The color of the greeting.
    pub color: String,
}

/// Settings of the whole cluster.
#[derive(JsonSchema, Clone, Debug, Default, Deserialize, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct ClusterConfig {
    /// From where the servers can be reached.
    #[serde(default)]
    pub listener_class: ListenerClass,
}

/// From where the servers can be reached.
#[derive(JsonSchema, Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum ListenerClass {
    /// From the Kubernetes cluster.
    #[default]
    ClusterInternal,
    /// At a port of each node.
    ExternalUnstable,
    /// By a load balancer.
    ExternalStable,
}

/// Pauses or stops the cluster.
#[derive(JsonSchema, Clone, Copy, Debug, Default, Deserialize, Serialize)]
#[serde(rename_all = "camelCase", default)]
pub struct ClusterOperation {
    /// Changes nothing while it is true.
    pub reconciliation_paused: bool,
    /// Runs no servers while it is true.
    pub stopped: bool,
}

/// An image.
#[derive(JsonSchema, Clone, Debug, Default, Deserialize, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Image {
    /// Version of the product.
    pub product_version: String,
    /// The image, if it is not that of the product's version.
    pub custom: Option<String>,
}

/// Servers with the same purpose.
#[derive(JsonSchema, Clone, Debug, Default, Deserialize, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Role {
    /// What holds for all role groups that say nothing else.
    #[serde(flatten)]
    pub common: Overrides,
    /// Settings of the role as a whole.
    #[serde(default)]
    pub role_config: RoleConfig,
    /// The role groups by their names.
    pub role_groups: BTreeMap<String, Group>,
}

/// Settings of a role as a whole.
#[derive(JsonSchema, Clone, Debug, Default, Deserialize, Serialize)]
#[serde(rename_all = "camelCase", default)]
pub struct RoleConfig {
    /// How many servers may be down at a time.
    pub pod_disruption_budget: PdbConfig,
}

/// How many servers may be down at a time.
#[derive(JsonSchema, Clone, Copy, Debug, Deserialize, Serialize)]
#[serde(rename_all = "camelCase", default)]
pub struct PdbConfig {
    /// Whether there is a `PodDisruptionBudget`.
    pub enabled: bool,
    /// The number; 1 by default.
    pub max_unavailable: Option<u16>,
}

impl Default for PdbConfig {
    fn default() -> Self {
        Self { enabled: true, max_unavailable: None }
    }
}

/// Servers that are alike.
#[derive(JsonSchema, Clone, Debug, Default, Deserialize, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Group {
    /// What differs from the role.
    #[serde(flatten)]
    pub common: Overrides,
    /// Number of servers; not managed if it is missing.
    #[schemars(range(min = 0))]
    pub replicas: Option<u16>,
}

/// What a role sets, and a role group may set differently.
#[derive(JsonSchema, Clone, Debug, Default, Deserialize, Serialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Overrides {
    /// Settings of the operator.
    pub config: ConfigFragment,
    /// Properties by file.
    pub config_overrides: BTreeMap<String, BTreeMap<String, String>>,
    /// Variables of the environment.
    pub env_overrides: BTreeMap<String, String>,
    /// Any fields of the pods.
    #[schemars(schema_with = "any_object")]
    pub pod_overrides: PodTemplateSpec,
}

/// Settings of which each may be missing.
#[derive(JsonSchema, Clone, Debug, Default, Deserialize, Serialize)]
#[serde(rename_all = "camelCase", default)]
pub struct ConfigFragment {
    /// CPU, memory and storage: `cpu.min`, `cpu.max`, `memory.limit`, `storage.data.capacity`.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "any_object")]
    pub resources: Option<serde_json::Value>,
    /// Where pods are scheduled.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "any_object")]
    pub affinity: Option<Affinity>,
    /// Time that a server has to stop, such as `2m`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub graceful_shutdown_timeout: Option<String>,
}

/// The conditions of a cluster.
pub type HelloClusterStatus = ConditionedStatus;
