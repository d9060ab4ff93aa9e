//! What people ask for, and what they are told.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::Condition;
use kube::{CustomResource, KubeSchema};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use trishanku_framework::status::{Conditions, conditions_schema};

/// Keeps a ConfigMap with a text.
#[derive(CustomResource, KubeSchema, Clone, Debug, Deserialize, Serialize)]
#[kube(group = "example.org", version = "v1alpha1", kind = "RainGauge", plural = "raingauges")]
#[kube(namespaced, status = "RainGaugeStatus")]
#[kube(printcolumn = r#"{"name":"Ready","type":"string","jsonPath":".status.conditions[?(@.type=='Ready')].status"}"#)]
pub struct RainGaugeSpec {
    /// What the ConfigMap says.
    #[x_kube(validation = Rule::new("self != ''").message("there is nothing to say"))]
    pub text: String,
}

/// What became of it.
#[derive(Clone, Debug, Default, Deserialize, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct RainGaugeStatus {
    /// Which generation of the object the conditions are about.
    pub observed_generation: Option<i64>,
    /// Whether it is as it should be, and why not.
    #[schemars(schema_with = "conditions_schema")]
    pub conditions: Vec<Condition>,
}

impl Conditions for RainGaugeStatus {
    fn conditions(&mut self) -> &mut Vec<Condition> {
        &mut self.conditions
    }

    fn observed_generation(&mut self) -> &mut Option<i64> {
        &mut self.observed_generation
    }
}
