//! The kind: its spec, and its status.

use k8s_openapi::jiff::Timestamp;
use kube::{CustomResource, KubeSchema};
use serde::{Deserialize, Serialize};
use trishanku_framework::status::ConditionedStatus;

/// A tank, in litres. Water is taken from it all the time, and comes in while its valve is open.
#[derive(CustomResource, KubeSchema, Clone, Debug, Deserialize, Serialize)]
#[kube(group = "plant.example.org", version = "v1", kind = "Tank", namespaced, status = "TankStatus")]
#[kube(doc = "A water tank with a valve.")]
#[kube(shortname = "tk", category = "plant")]
#[kube(printcolumn = r#"{"name":"Level","type":"number","jsonPath":".status.level"}"#)]
#[kube(printcolumn = r#"{"name":"Desired","type":"integer","jsonPath":".spec.desired"}"#)]
#[kube(printcolumn = r#"{"name":"State","type":"string","jsonPath":".status.conditions[?(@.type=='Ready')].reason"}"#)]
#[x_kube(validation = Rule::new("self.desired <= self.capacity").message("the desired level is above the rim"))]
pub(crate) struct TankSpec {
    /// Capacity in litres.
    #[schemars(range(min = 1))]
    #[x_kube(validation = Rule::new("self == oldSelf").message("a tank does not grow"))]
    pub(crate) capacity: u32,
    /// Desired level.
    pub(crate) desired: u32,
    /// Inflow per second while the valve is open.
    pub(crate) inflow: u32,
    /// Outflow per second.
    #[schemars(range(min = 1))]
    pub(crate) outflow: u32,
}

/// Observed state: the water, and the conditions.
pub(crate) type TankStatus = ConditionedStatus<Water>;

/// The water, as it was measured.
#[derive(Clone, Debug, Default, Deserialize, Serialize, schemars::JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub(crate) struct Water {
    /// Level in litres.
    pub(crate) level: f64,
    /// Time of the measurement.
    #[schemars(with = "Option<String>")]
    pub(crate) measured_at: Option<Timestamp>,
    /// Change per second since then.
    pub(crate) rate: f64,
}
