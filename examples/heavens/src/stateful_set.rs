//! A heaven for a `StatefulSet`: each replica has a kube-apiserver on a branch of its own.

use kube::CustomResource;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::Value;
use trishanku_api::{Gitcd, TrishankuHeavenStatus, pod_template_schema};
use trishanku_heaven::HeavenKind;
use trishanku_heaven_plan::workload::StatefulSets;
use trishanku_heaven_plan::{HeavenParts, User};

/// A `StatefulSet` of controllers.
#[derive(CustomResource, JsonSchema, Clone, Debug, Deserialize, Serialize)]
#[serde(rename_all = "camelCase")]
#[kube(group = "heavens.example.org", version = "v1", kind = "StatefulSetHeaven", namespaced)]
#[kube(status = "TrishankuHeavenStatus", doc = "A StatefulSet whose replicas have a kube-apiserver and a branch each.")]
#[kube(printcolumn = r#"{"name":"State","type":"string","jsonPath":".status.conditions[?(@.type=='Ready')].reason"}"#)]
pub(crate) struct StatefulSetHeavenSpec {
    /// The number of replicas.
    pub(crate) replicas: i32,
    /// The user of the controllers.
    pub(crate) user_name: String,
    /// The branches and their remotes. `$(REPLICA)` in a branch is the name of the pod.
    pub(crate) gitcd: Gitcd,
    /// Path of the kubeconfig in each container.
    pub(crate) kubeconfig_mount_path: String,
    /// Pod template of the `StatefulSet`.
    #[schemars(schema_with = "pod_template_schema")]
    pub(crate) pod_template: Value,
}

impl HeavenKind for StatefulSetHeaven {
    type Workload = StatefulSets;

    const LABEL: &'static str = "heavens.example.org/stateful-set";

    fn parts<'s>(&'s self, name: &'s str) -> HeavenParts<'s> {
        let spec = &self.spec;
        HeavenParts {
            user: Some(User { name: &spec.user_name, group: None }),
            gitcd: Some(&spec.gitcd),
            kubeconfig_path: Some(&spec.kubeconfig_mount_path),
            pod_template: Some(&spec.pod_template),
            replicas: spec.replicas,
            ..HeavenParts::new(name)
        }
    }
}
