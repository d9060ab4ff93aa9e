//! `TrishankuHeaven`: a controller with its own kube-apiserver and branch.

use std::collections::BTreeMap;

use k8s_openapi::api::core::v1::ResourceRequirements;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{Condition, Time};
use kube::{CustomResource, KubeSchema};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::Value;
use trishanku_framework::status::{Conditions, conditions_schema};

use crate::{Gitcd, Image, schema};

/// A controller with its own kube-apiserver, whose store is a Git branch that is merged with others.
#[derive(CustomResource, KubeSchema, Clone, Debug, Default, Deserialize, Serialize, PartialEq)]
#[serde(rename_all = "camelCase")]
#[kube(
    group = "controllers.trishanku.org.trishanku.org",
    version = "v1alpha1",
    kind = "TrishankuHeaven",
    doc = "A controller with its own kube-apiserver, whose store is a Git branch that is merged with other branches.",
    namespaced,
    status = "TrishankuHeavenStatus",
    shortname = "heaven",
    category = "trishanku",
    derive = "PartialEq",
    derive = "Default"
)]
#[kube(printcolumn = r#"{"name":"Ready","type":"string","jsonPath":".status.conditions[?(@.type=='Ready')].status"}"#)]
#[kube(printcolumn = r#"{"name":"Reason","type":"string","jsonPath":".status.conditions[?(@.type=='Ready')].reason"}"#)]
#[kube(printcolumn = r#"{"name":"Branch","type":"string","jsonPath":".status.branch.name"}"#)]
#[kube(printcolumn = r#"{"name":"Revision","type":"integer","jsonPath":".status.branch.revision"}"#)]
#[kube(printcolumn = r#"{"name":"Behind","type":"integer","jsonPath":".status.branch.commitsBehind"}"#)]
#[kube(printcolumn = r#"{"name":"Last merge","type":"date","jsonPath":".status.branch.lastMergeTime","priority":1}"#)]
#[kube(printcolumn = r#"{"name":"Conflicts","type":"integer","jsonPath":".status.branch.conflicts","priority":1}"#)]
#[kube(printcolumn = r#"{"name":"Age","type":"date","jsonPath":".metadata.creationTimestamp"}"#)]
#[x_kube(validation = Rule::new("(has(self.skip) && has(self.skip.app) && self.skip.app) || has(self.app)").message("app is missing: add the controller's pod, or set skip.app"))]
#[x_kube(validation = Rule::new("(has(self.skip) && has(self.skip.app) && self.skip.app) || (has(self.certificates) && has(self.certificates.controller))").message("certificates.controller is missing: it sets the user name of the controller at its kube-apiserver"))]
#[x_kube(validation = Rule::new("!has(self.skip) || !has(self.skip.entrypoints) || !self.skip.entrypoints || (has(self.skip.app) && self.skip.app) || (has(self.app) && has(self.app.entrypointsConfigMapName))").message("skip.entrypoints needs the name of an existing ConfigMap: set app.entrypointsConfigMapName"))]
pub struct TrishankuHeavenSpec {
    /// Parts to skip.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub skip: Option<Skip>,
    /// The Secrets with certificates.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub certificates: Option<Certificates>,
    /// A separate etcd for events. If unset, gitcd stores them, but does not commit them.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub events_etcd: Option<EventsEtcd>,
    /// The store.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub gitcd: Option<Gitcd>,
    /// The API server.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub apiserver: Option<ApiServer>,
    /// The controller. Needed unless `skip.app` is true.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub app: Option<App>,
    /// Stops the pod and keeps everything else. The branch can then be served elsewhere.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub suspend: Option<bool>,
    /// Why it is suspended.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 1024))]
    pub suspend_reason: Option<String>,
    /// Allows unencrypted Secrets on a public branch. Otherwise, they are rejected.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub allow_public_secrets: Option<bool>,
}

/// Parts to skip.
#[derive(Clone, Debug, Default, Deserialize, Serialize, JsonSchema, PartialEq, Eq)]
#[serde(rename_all = "camelCase")]
pub struct Skip {
    /// The Secrets with certificates.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub certificates: Option<bool>,
    /// The `ConfigMap` with entry points.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub entrypoints: Option<bool>,
    /// The Deployment.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub app: Option<bool>,
}

/// The Secrets with certificates. An existing Secret is used, a missing one is created.
#[derive(Clone, Debug, Default, Deserialize, Serialize, JsonSchema, PartialEq, Eq)]
#[serde(rename_all = "camelCase")]
pub struct Certificates {
    /// The authority that signs the others. `<name>-cert-ca` if unset.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = 253))]
    pub certificate_authority_secret_name: Option<String>,
    /// Key pair for service account tokens. `<name>-cert-service-account` if unset.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = 253))]
    pub service_accounts_secret_name: Option<String>,
    /// Certificate of kube-apiserver. `<name>-cert-kubernetes` if unset.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = 253))]
    pub kubernetes_secret_name: Option<String>,
    /// Admin certificate and kubeconfig. `<name>-admin` if unset.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = 253))]
    pub admin_secret_name: Option<String>,
    /// Certificate and kubeconfig of the controller. Needed for an app.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub controller: Option<ControllerCertificate>,
}

/// The controller's identity for its kube-apiserver.
#[derive(Clone, Debug, Default, Deserialize, Serialize, JsonSchema, PartialEq, Eq)]
#[serde(rename_all = "camelCase")]
pub struct ControllerCertificate {
    /// Secret with certificate and kubeconfig. `<name>-controller` if unset.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = 253))]
    pub secret_name: Option<String>,
    /// User name for RBAC, such as `system:kube-scheduler`.
    #[schemars(length(min = 1))]
    pub user_name: String,
    /// Group for RBAC.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1))]
    pub group_name: Option<String>,
}

/// A separate etcd for events.
#[derive(Clone, Debug, Default, Deserialize, Serialize, JsonSchema, PartialEq)]
#[serde(rename_all = "camelCase")]
pub struct EventsEtcd {
    /// An etcd in the same pod. Its data is lost with the pod.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub local: Option<LocalEtcd>,
}

/// An etcd in the same pod.
#[derive(Clone, Debug, Default, Deserialize, Serialize, JsonSchema, PartialEq)]
#[serde(rename_all = "camelCase")]
pub struct LocalEtcd {
    /// Its image.
    #[serde(flatten)]
    pub image: Image,
    /// Resources of its container.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "schema::resources")]
    pub resources: Option<ResourceRequirements>,
}

/// The API server.
#[derive(Clone, Debug, Default, Deserialize, Serialize, JsonSchema, PartialEq)]
#[serde(rename_all = "camelCase")]
pub struct ApiServer {
    /// Its image.
    #[serde(flatten)]
    pub image: Image,
    /// Resources of its container.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "schema::resources")]
    pub resources: Option<ResourceRequirements>,
    /// Additional or replacement flags, such as `{"v": "4", "feature-gates": "…"}`.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub extra_args: BTreeMap<String, String>,
    /// Secret whose `encryption.yaml` is an `EncryptionConfiguration`. Heavens whose branches are merged need the same one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = 253))]
    pub encryption_configuration_secret_name: Option<String>,
}

/// The controller.
#[derive(Clone, Debug, Default, Deserialize, Serialize, JsonSchema, PartialEq)]
#[serde(rename_all = "camelCase")]
pub struct App {
    /// Number of pods, 1 if unset. A branch has one writer, so more are only useful with `gitcd.writerLease`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 0))]
    pub replicas: Option<i32>,
    /// The `ConfigMap` with entry points. `<name>-entrypoints` if unset.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = 253))]
    pub entrypoints_config_map_name: Option<String>,
    /// Path of the controller's kubeconfig in each container of the template.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 2), regex(pattern = "^/[^:]+$"))]
    pub kubeconfig_mount_path: Option<String>,
    /// Allows `hostNetwork`, `hostPID` and `shareProcessNamespace` in the pod template. Without it, they are rejected: a
    /// shared namespace gives processes access to other containers, without the authorization of the heaven's
    /// kube-apiserver.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub allow_shared_namespaces: Option<bool>,
    /// The pod of the controller.
    #[schemars(schema_with = "schema::pod_template")]
    pub pod_template: Value,
}

/// Observed state.
#[derive(Clone, Debug, Default, Deserialize, Serialize, JsonSchema, PartialEq)]
#[serde(rename_all = "camelCase", default)]
pub struct TrishankuHeavenStatus {
    /// Generation that this status is about.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub observed_generation: Option<i64>,
    /// The branch, as its gitcd reports it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub branch: Option<BranchStatus>,
    /// Conditions of the object.
    #[schemars(schema_with = "conditions_schema")]
    pub conditions: Vec<Condition>,
}

/// Status of a branch.
#[derive(Clone, Debug, Default, Deserialize, Serialize, JsonSchema, PartialEq)]
#[serde(rename_all = "camelCase", default)]
pub struct BranchStatus {
    /// Its name.
    pub name: String,
    /// Its head commit.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub commit: Option<String>,
    /// Revision of that commit.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub revision: Option<i64>,
    /// Commits of its remotes that are not merged yet.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub commits_behind: Option<i64>,
    /// The commit that was merged last.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub last_merge: Option<String>,
    /// Merge time.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "crate::schema::time")]
    pub last_merge_time: Option<Time>,
    /// Keys and fields with conflicts that were resolved since the pod started.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub conflicts: Option<i64>,
}

impl Conditions for TrishankuHeavenStatus {
    fn conditions(&mut self) -> &mut Vec<Condition> {
        &mut self.conditions
    }

    fn observed_generation(&mut self) -> &mut Option<i64> {
        &mut self.observed_generation
    }
}
