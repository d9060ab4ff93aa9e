//! The kind, and the desired state of an object: a `ConfigMap` and a `Secret`.

use k8s_openapi::ByteString;
use k8s_openapi::api::core::v1::{ConfigMap, Secret};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use kube::{CustomResource, ResourceExt};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use trishanku_framework::impl_conditions;
use trishanku_framework::status::{Condition, conditions_schema};

/// The field manager of all contestants.
pub const MANAGER: &str = "pairs";

/// The settings of a thing, from which its `ConfigMap` and its key are derived.
#[derive(CustomResource, Clone, Debug, PartialEq, Deserialize, Serialize, JsonSchema)]
#[kube(group = "bench.trishanku.org", version = "v1", kind = "Pair", namespaced, status = "PairStatus")]
pub struct PairSpec {
    /// A word.
    pub colour: String,
    /// A number.
    pub size: i64,
    /// A sentence.
    pub note: String,
}

/// Whether both objects exist.
#[derive(Clone, Debug, Default, PartialEq, Deserialize, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct PairStatus {
    /// The generation that the conditions describe.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub observed_generation: Option<i64>,
    /// `Ready`.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(schema_with = "conditions_schema")]
    pub conditions: Vec<Condition>,
}

impl_conditions!(PairStatus);

impl Pair {
    /// Returns one of the objects that are measured.
    pub fn numbered(number: usize) -> Self {
        let spec = PairSpec {
            colour: ["red", "green", "blue"][number % 3].to_owned(),
            size: number as i64,
            note: format!("Number {number} of many that are all alike, with a text as long as such texts often are."),
        };
        Self::new(&format!("pair-{number:06}"), spec)
    }

    /// Returns the desired `ConfigMap`, without an owner.
    pub fn settings(&self) -> ConfigMap {
        let PairSpec { colour, size, note } = &self.spec;
        let data = [("colour", colour.clone()), ("note", note.clone()), ("size", size.to_string())];
        let data = data.map(|(key, value)| (key.to_owned(), value));
        ConfigMap { metadata: self.metadata_of_owned(), data: Some(data.into()), ..ConfigMap::default() }
    }

    /// Returns the desired `Secret`, without an owner.
    pub fn key(&self) -> Secret {
        let key = format!("{}:{}", self.spec.colour, self.spec.size);
        let data = [("key".to_owned(), ByteString(key.into_bytes()))];
        Secret { metadata: self.metadata_of_owned(), data: Some(data.into()), ..Secret::default() }
    }

    fn metadata_of_owned(&self) -> ObjectMeta {
        ObjectMeta { name: Some(self.name_any()), namespace: self.namespace(), ..ObjectMeta::default() }
    }

    /// Returns whether its status is ready, for the current generation.
    pub fn is_ready(&self) -> bool {
        let (generation, status) = (self.metadata.generation, self.status.as_ref());
        status.is_some_and(|status| {
            let ready = |condition: &Condition| {
                condition.type_ == "Ready" && condition.status == "True" && condition.observed_generation == generation
            };
            generation.is_some() && status.observed_generation == generation && status.conditions.iter().any(ready)
        })
    }
}
