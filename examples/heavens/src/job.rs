//! A heaven for a Job: a program that runs to completion, such as an import into a cluster without other controllers.

use kube::CustomResource;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::Value;
use trishanku_api::{Gitcd, TrishankuHeavenStatus, pod_template_schema};
use trishanku_heaven::HeavenKind;
use trishanku_heaven_plan::names::Certificates;
use trishanku_heaven_plan::workload::Jobs;
use trishanku_heaven_plan::{HeavenParts, User};

/// A Job with the identity of a heaven.
#[derive(CustomResource, JsonSchema, Clone, Debug, Deserialize, Serialize)]
#[serde(rename_all = "camelCase")]
#[kube(group = "heavens.example.org", version = "v1", kind = "JobHeaven", namespaced)]
#[kube(status = "TrishankuHeavenStatus", doc = "A Job with its own kube-apiserver on its own Git branch.")]
#[kube(printcolumn = r#"{"name":"State","type":"string","jsonPath":".status.conditions[?(@.type=='Ready')].reason"}"#)]
pub(crate) struct JobHeavenSpec {
    /// The heaven whose certificates are used. They are its Secrets, with default names.
    pub(crate) certificates_of: String,
    /// The branch, and its remotes.
    pub(crate) gitcd: Gitcd,
    /// Path of the kubeconfig in each container.
    pub(crate) kubeconfig_mount_path: String,
    /// Pod template of the Job.
    #[schemars(schema_with = "pod_template_schema")]
    pub(crate) pod_template: Value,
}

impl HeavenKind for JobHeaven {
    type Workload = Jobs;

    const LABEL: &'static str = "heavens.example.org/job";

    fn parts<'s>(&'s self, name: &'s str) -> HeavenParts<'s> {
        let spec = &self.spec;
        HeavenParts {
            certificates: Certificates::new(&spec.certificates_of),
            // The other heaven issues and renews them.
            skips_certificates: true,
            user: Some(User { name: &spec.certificates_of, group: None }),
            gitcd: Some(&spec.gitcd),
            kubeconfig_path: Some(&spec.kubeconfig_mount_path),
            pod_template: Some(&spec.pod_template),
            ..HeavenParts::new(name)
        }
    }
}
