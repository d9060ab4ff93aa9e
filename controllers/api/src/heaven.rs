//! A controller with a kube-apiserver and a branch of its own.

use std::collections::BTreeMap;

use k8s_openapi::api::core::v1::ResourceRequirements;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{Condition, Time};
use kube::{CustomResource, KubeSchema};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::Value;
use trishanku_framework::status::{Conditions, conditions_schema};

use crate::{Gitcd, Image, schema};

/// A controller with a control plane of its own: a kube-apiserver on a gitcd, whose branch follows others.
#[derive(CustomResource, KubeSchema, Clone, Debug, Default, Deserialize, Serialize, PartialEq)]
#[serde(rename_all = "camelCase")]
#[kube(
    group = "controllers.trishanku.org.trishanku.org",
    version = "v1alpha1",
    kind = "TrishankuHeaven",
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
#[x_kube(validation = Rule::new("(has(self.skip) && has(self.skip.app) && self.skip.app) || has(self.app)").message("app is missing: say which pod the heaven is for, or set skip.app"))]
#[x_kube(validation = Rule::new("(has(self.skip) && has(self.skip.app) && self.skip.app) || (has(self.certificates) && has(self.certificates.controller))").message("certificates.controller is missing: say by which user name the controller is known to its kube-apiserver"))]
#[x_kube(validation = Rule::new("!has(self.skip) || !has(self.skip.entrypoints) || !self.skip.entrypoints || (has(self.skip.app) && self.skip.app) || (has(self.app) && has(self.app.entrypointsConfigMapName))").message("with skip.entrypoints name the ConfigMap that has them: app.entrypointsConfigMapName"))]
pub struct TrishankuHeavenSpec {
    /// What is not made.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub skip: Option<Skip>,
    /// The Secrets with certificates.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub certificates: Option<Certificates>,
    /// Where events are kept: in an etcd of their own. If unset, by gitcd, which keeps them out of its commits.
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
    /// Stops the pod, and leaves everything else as it is. The branch can be served elsewhere meanwhile.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub suspend: Option<bool>,
    /// Why it is suspended, for others.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 1024))]
    pub suspend_reason: Option<String>,
    /// Allows Secrets to be stored in the clear on a branch that everybody can read. They are refused otherwise.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub allow_public_secrets: Option<bool>,
}

/// What is not made.
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

/// The Secrets with certificates. Each is used if it is there, and made under that name if not.
#[derive(Clone, Debug, Default, Deserialize, Serialize, JsonSchema, PartialEq, Eq)]
#[serde(rename_all = "camelCase")]
pub struct Certificates {
    /// The authority that signs the others. `<name>-cert-ca` if unset.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = 253))]
    pub certificate_authority_secret_name: Option<String>,
    /// The pair of keys for the tokens of service accounts. `<name>-cert-service-account` if unset.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = 253))]
    pub service_accounts_secret_name: Option<String>,
    /// The pair of kube-apiserver. `<name>-cert-kubernetes` if unset.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = 253))]
    pub kubernetes_secret_name: Option<String>,
    /// The pair and kubeconfig of an administrator. `<name>-admin` if unset.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = 253))]
    pub admin_secret_name: Option<String>,
    /// The pair and kubeconfig of the controller. Needed for an app.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub controller: Option<ControllerCertificate>,
}

/// By what name the controller is known to its kube-apiserver.
#[derive(Clone, Debug, Default, Deserialize, Serialize, JsonSchema, PartialEq, Eq)]
#[serde(rename_all = "camelCase")]
pub struct ControllerCertificate {
    /// The Secret with pair and kubeconfig. `<name>-controller` if unset.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = 253))]
    pub secret_name: Option<String>,
    /// Its user name, such as `system:kube-scheduler`: what RBAC calls a User.
    #[schemars(length(min = 1))]
    pub user_name: String,
    /// Its group: what RBAC calls a Group.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1))]
    pub group_name: Option<String>,
}

/// Where events are kept.
#[derive(Clone, Debug, Default, Deserialize, Serialize, JsonSchema, PartialEq)]
#[serde(rename_all = "camelCase")]
pub struct EventsEtcd {
    /// An etcd in the same pod. What is in it goes with the pod.
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
    /// What its container asks for and may use.
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
    /// What its container asks for and may use.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "schema::resources")]
    pub resources: Option<ResourceRequirements>,
    /// Arguments beside or instead of those that a heaven gives it, by name: `{"v": "4", "feature-gates": "…"}`.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub extra_args: BTreeMap<String, String>,
    /// The Secret whose `encryption.yaml` is an `EncryptionConfiguration`: how Secrets and the like are encrypted before they are stored. All heavens
    /// whose branches are merged need the same one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = 253))]
    pub encryption_configuration_secret_name: Option<String>,
}

/// The controller.
#[derive(Clone, Debug, Default, Deserialize, Serialize, JsonSchema, PartialEq)]
#[serde(rename_all = "camelCase")]
pub struct App {
    /// How many pods: 1 if unset. A branch has one writer, so more than 1 is of use with `gitcd.writerLease` only.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 0))]
    pub replicas: Option<i32>,
    /// The `ConfigMap` with entry points. `<name>-entrypoints` if unset.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = 253))]
    pub entrypoints_config_map_name: Option<String>,
    /// Where the kubeconfig of the controller is mounted in each container of the template, as a file of this path.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 2), regex(pattern = "^/[^:]+$"))]
    pub kubeconfig_mount_path: Option<String>,
    /// The pod of the controller.
    #[schemars(schema_with = "schema::pod_template")]
    pub pod_template: Value,
}

/// How a heaven is.
#[derive(Clone, Debug, Default, Deserialize, Serialize, JsonSchema, PartialEq)]
#[serde(rename_all = "camelCase", default)]
pub struct TrishankuHeavenStatus {
    /// Which generation of the object this is about.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub observed_generation: Option<i64>,
    /// The branch, as its gitcd reports it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub branch: Option<BranchStatus>,
    /// Whether it is as it should be, and why not.
    #[schemars(schema_with = "conditions_schema")]
    pub conditions: Vec<Condition>,
}

/// How a branch is.
#[derive(Clone, Debug, Default, Deserialize, Serialize, JsonSchema, PartialEq)]
#[serde(rename_all = "camelCase", default)]
pub struct BranchStatus {
    /// Its name.
    pub name: String,
    /// The commit that it is at.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub commit: Option<String>,
    /// etcd's revision of that.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub revision: Option<i64>,
    /// Commits of its remotes that are not merged yet.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub commits_behind: Option<i64>,
    /// The commit that was merged last.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub last_merge: Option<String>,
    /// When that was.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "crate::schema::time")]
    pub last_merge_time: Option<Time>,
    /// Keys and fields that were decided by the conflict resolution since the pod began.
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
