//! The kind: its spec, and its status.

use kube::{CustomResource, KubeSchema};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use trishanku_framework::impl_conditions;
use trishanku_framework::status::{Condition, conditions_schema};

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

/// Observed state.
#[derive(Clone, Debug, Default, Deserialize, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct RainGaugeStatus {
    /// Generation that the conditions are about.
    pub observed_generation: Option<i64>,
    /// Conditions of the object.
    #[schemars(schema_with = "conditions_schema")]
    pub conditions: Vec<Condition>,
}

impl_conditions!(RainGaugeStatus);
