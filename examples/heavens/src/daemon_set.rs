//! A heaven for a `DaemonSet`: an agent with a kube-apiserver on each node, on the node's own branch.

use kube::CustomResource;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::Value;
use trishanku_api::{Gitcd, TrishankuHeavenStatus, pod_template_schema};
use trishanku_heaven::HeavenKind;
use trishanku_heaven_plan::workload::DaemonSets;
use trishanku_heaven_plan::{HeavenParts, User};

/// A `DaemonSet` of agents.
#[derive(CustomResource, JsonSchema, Clone, Debug, Deserialize, Serialize)]
#[serde(rename_all = "camelCase")]
#[kube(group = "heavens.example.org", version = "v1", kind = "DaemonSetHeaven", namespaced)]
#[kube(status = "TrishankuHeavenStatus", doc = "A DaemonSet whose pods have a kube-apiserver and a branch each.")]
#[kube(printcolumn = r#"{"name":"State","type":"string","jsonPath":".status.conditions[?(@.type=='Ready')].reason"}"#)]
pub(crate) struct DaemonSetHeavenSpec {
    /// The user of the agents.
    pub(crate) user_name: String,
    /// The branches and their remotes. `$(REPLICA)` in a branch is the name of the node.
    pub(crate) gitcd: Gitcd,
    /// Path of the kubeconfig in each container.
    pub(crate) kubeconfig_mount_path: String,
    /// Pod template of the `DaemonSet`.
    #[schemars(schema_with = "pod_template_schema")]
    pub(crate) pod_template: Value,
    /// Stops all pods.
    pub(crate) suspend: Option<bool>,
}

impl HeavenKind for DaemonSetHeaven {
    type Workload = DaemonSets;

    const LABEL: &'static str = "heavens.example.org/daemon-set";

    fn parts<'s>(&'s self, name: &'s str) -> HeavenParts<'s> {
        let spec = &self.spec;
        HeavenParts {
            user: Some(User { name: &spec.user_name, group: None }),
            gitcd: Some(&spec.gitcd),
            kubeconfig_path: Some(&spec.kubeconfig_mount_path),
            pod_template: Some(&spec.pod_template),
            suspended: (spec.suspend == Some(true)).then_some("spec.suspend is set"),
            ..HeavenParts::new(name)
        }
    }
}
