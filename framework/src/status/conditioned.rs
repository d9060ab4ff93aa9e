//! The status of a kind: its own fields, and what every controller reports.

use std::ops::{Deref, DerefMut};

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::{Condition, Conditions, conditions_schema};

/// A status with the fields of `S`, and with `observedGeneration` and `conditions`, which the controller writes.
///
/// In JSON and in the schema, the fields of `S` are beside the other two. In Rust, a status is used like an `S`. A kind without
/// fields of its own has just a `ConditionedStatus`. `S` must not have fields with the two names.
///
/// ```
/// use kube::CustomResource;
/// use schemars::JsonSchema;
/// use serde::{Deserialize, Serialize};
/// use trishanku_framework::status::ConditionedStatus;
///
/// #[derive(CustomResource, Clone, Debug, Deserialize, Serialize, JsonSchema)]
/// #[kube(group = "example.org", version = "v1", kind = "Tank", namespaced, status = "TankStatus")]
/// struct TankSpec {}
///
/// type TankStatus = ConditionedStatus<Water>;
///
/// #[derive(Clone, Debug, Default, Deserialize, Serialize, JsonSchema)]
/// #[serde(default)]
/// struct Water {
///     level: i32,
/// }
///
/// let mut status = TankStatus::default();
/// status.level = 7;
/// assert_eq!(serde_json::to_value(&status)?, serde_json::json!({"level": 7}));
/// # Ok::<(), serde_json::Error>(())
/// ```
///
/// It is a `#[serde(flatten)]` of `S`, with its limits: no `#[serde(deny_unknown_fields)]` in `S`, and no maps whose keys are numbers,
/// which serde cannot deserialize there (`invalid type: string "1", expected i32`): use `BTreeMap<String, _>`. Where that is not enough, write
/// the two fields into a status of your own, and use [`impl_conditions`](crate::impl_conditions).
#[derive(Clone, Debug, Default, PartialEq, Deserialize, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
// `kubectl explain` shows this, and not the text for developers.
#[schemars(description = "Observed state.")]
pub struct ConditionedStatus<S = NoFields> {
    /// The fields of the kind.
    #[serde(flatten)]
    pub fields: S,
    /// Generation that the conditions are about.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub observed_generation: Option<i64>,
    /// Conditions of the object.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(schema_with = "conditions_schema")]
    pub conditions: Vec<Condition>,
}

/// No fields: of the status of a kind that has only conditions.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize, Serialize, JsonSchema)]
pub struct NoFields {}

impl<S> Conditions for ConditionedStatus<S> {
    fn conditions(&mut self) -> &mut Vec<Condition> {
        &mut self.conditions
    }

    fn observed_generation(&mut self) -> &mut Option<i64> {
        &mut self.observed_generation
    }
}

impl<S> Deref for ConditionedStatus<S> {
    type Target = S;

    fn deref(&self) -> &S {
        &self.fields
    }
}

impl<S> DerefMut for ConditionedStatus<S> {
    fn deref_mut(&mut self) -> &mut S {
        &mut self.fields
    }
}

#[cfg(test)]
mod tests {
    use k8s_openapi::apimachinery::pkg::apis::meta::v1::MicroTime;
    use schemars::schema_for;
    use serde_json::{Value, json};

    use super::*;

    #[derive(Clone, Debug, Default, PartialEq, Deserialize, Serialize, JsonSchema)]
    #[serde(rename_all = "camelCase", default)]
    struct Water {
        /// Level in litres.
        level: f64,
        #[schemars(with = "Option<String>")]
        measured_at: Option<MicroTime>,
    }

    #[test]
    fn its_json_has_the_fields_of_both_side_by_side_and_is_read_back() {
        let condition = json!({
            "type": "Ready", "status": "True", "reason": "Full", "message": "", "lastTransitionTime": "2026-01-01T00:00:00Z",
        });
        let text = json!({
            "level": 7.5, "measuredAt": "2026-01-01T00:00:00.250000Z", "observedGeneration": 3, "conditions": [condition],
        });
        let status: ConditionedStatus<Water> = serde_json::from_value(text.clone()).unwrap();
        assert_eq!((status.level, status.observed_generation, status.conditions.len()), (7.5, Some(3), 1));
        assert_eq!(serde_json::to_value(&status).unwrap(), text);
        let empty: ConditionedStatus<Water> = serde_json::from_str("{}").unwrap();
        assert_eq!(empty, ConditionedStatus::default());
        let unknown: ConditionedStatus = serde_json::from_value(json!({"ofAnotherWriter": 1})).unwrap();
        assert_eq!(serde_json::to_value(&unknown).unwrap(), json!({}));
    }

    #[test]
    fn its_schema_has_the_fields_of_both_side_by_side() {
        let names = |schema: &Value| {
            let properties = schema["properties"].as_object().unwrap();
            let mut names: Vec<_> = properties.keys().cloned().collect();
            names.sort();
            names
        };
        let schema = schema_for!(ConditionedStatus<Water>).to_value();
        assert_eq!(names(&schema), ["conditions", "level", "measuredAt", "observedGeneration"]);
        assert_eq!(schema["properties"]["level"]["description"], "Level in litres.");
        assert_eq!(schema["description"], "Observed state.");
        let schema = schema_for!(ConditionedStatus).to_value();
        assert_eq!((names(&schema).len(), &schema["type"]), (2, &json!("object")));
        for key in ["allOf", "anyOf", "additionalProperties", "unevaluatedProperties", "required"] {
            assert_eq!(schema.get(key), None, "{key}");
        }
    }
}
