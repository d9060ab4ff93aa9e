//! Formats that the apiserver knows.

use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use serde_json::Value;

/// What schemars says of numbers, and nobody else knows; their bounds are in the schema besides.
const OF_RUST: [&str; 8] = ["int8", "int16", "uint", "uint8", "uint16", "uint32", "uint64", "uint128"];

/// The definition without formats that the apiserver warns of.
pub(super) fn known(mut definition: CustomResourceDefinition) -> CustomResourceDefinition {
    for version in &mut definition.spec.versions {
        let schema = version.schema.as_mut().and_then(|schema| schema.open_api_v3_schema.as_mut());
        let Some(schema) = schema else { continue };
        let known = serde_json::to_value(&*schema).map(|mut value| {
            remove(&mut value);
            value
        });
        // A schema is JSON, so it is there and back.
        if let Ok(known) = known.and_then(serde_json::from_value) {
            *schema = known;
        }
    }
    definition
}

fn remove(schema: &mut Value) {
    match schema {
        Value::Object(fields) => {
            // A property may have that name too; its schema is no text.
            if fields.get("format").and_then(Value::as_str).is_some_and(|format| OF_RUST.contains(&format)) {
                fields.shift_remove("format");
            }
            fields.values_mut().for_each(remove);
        }
        Value::Array(elements) => elements.iter_mut().for_each(remove),
        _ => {}
    }
}
