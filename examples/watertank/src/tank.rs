//! What people ask for, and what they are told.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::{Condition, MicroTime};
use kube::{CustomResource, KubeSchema};
use serde::{Deserialize, Serialize};
use trishanku_framework::status::{Conditions, conditions_schema};

/// A tank, in litres. Water is taken from it all the time, and comes in while its valve is open.
#[derive(CustomResource, KubeSchema, Clone, Debug, Deserialize, Serialize)]
#[kube(group = "plant.example.org", version = "v1", kind = "Tank", namespaced, status = "TankStatus")]
#[kube(shortname = "tk", category = "plant")]
#[kube(printcolumn = r#"{"name":"Level","type":"number","jsonPath":".status.level"}"#)]
#[kube(printcolumn = r#"{"name":"Desired","type":"integer","jsonPath":".spec.desired"}"#)]
#[kube(printcolumn = r#"{"name":"State","type":"string","jsonPath":".status.conditions[?(@.type=='Ready')].reason"}"#)]
#[x_kube(validation = Rule::new("self.desired <= self.capacity").message("the desired level is above the rim"))]
pub(crate) struct TankSpec {
    /// How many litres it holds.
    #[schemars(range(min = 1))]
    #[x_kube(validation = Rule::new("self == oldSelf").message("a tank does not grow"))]
    pub(crate) capacity: u32,
    /// How many should be in it.
    pub(crate) desired: u32,
    /// How many come in each second while the valve is open.
    pub(crate) inflow: u32,
    /// How many are taken out each second.
    #[schemars(range(min = 1))]
    pub(crate) outflow: u32,
}

/// What was seen last.
#[derive(Clone, Debug, Default, Deserialize, Serialize, schemars::JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub(crate) struct TankStatus {
    /// How many litres were in it.
    pub(crate) level: f64,
    /// When that was so.
    #[schemars(with = "Option<String>")]
    pub(crate) measured_at: Option<MicroTime>,
    /// By how many litres it rises each second since then.
    pub(crate) rate: f64,
    /// Which generation of the object the conditions are about.
    pub(crate) observed_generation: Option<i64>,
    /// Whether the level is as it should be, and why not.
    #[schemars(schema_with = "conditions_schema")]
    pub(crate) conditions: Vec<Condition>,
}

impl Conditions for TankStatus {
    fn conditions(&mut self) -> &mut Vec<Condition> {
        &mut self.conditions
    }

    fn observed_generation(&mut self) -> &mut Option<i64> {
        &mut self.observed_generation
    }
}
