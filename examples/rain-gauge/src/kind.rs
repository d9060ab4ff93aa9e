//! The kind: its spec, and its status.

use kube::{CustomResource, KubeSchema};
use serde::{Deserialize, Serialize};
use trishanku_framework::status::ConditionedStatus;

/// Keeps a ConfigMap with a text.
#[derive(CustomResource, KubeSchema, Clone, Debug, Deserialize, Serialize)]
#[kube(group = "example.org", version = "v1alpha1", kind = "RainGauge", plural = "raingauges")]
#[kube(doc = "Keeps a ConfigMap with a text.")]
#[kube(namespaced, status = "RainGaugeStatus")]
#[kube(printcolumn = r#"{"name":"Ready","type":"string","jsonPath":".status.conditions[?(@.type=='Ready')].status"}"#)]
pub struct RainGaugeSpec {
    /// Text of the ConfigMap.
    #[x_kube(validation = Rule::new("self != ''").message("must not be empty"))]
    pub text: String,
}

/// The conditions of an object, which the controller writes. For more fields, see `ConditionedStatus`.
pub type RainGaugeStatus = ConditionedStatus;
