//! Formats in schemas.

use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use serde_json::Value;

/// Formats that only schemars uses; the schema has their bounds, too.
const OF_RUST: [&str; 8] = ["int8", "int16", "uint", "uint8", "uint16", "uint32", "uint64", "uint128"];

/// Removes the formats that the apiserver warns about.
pub(super) fn known(mut definition: CustomResourceDefinition) -> CustomResourceDefinition {
    for version in &mut definition.spec.versions {
        let schema = version.schema.as_mut().and_then(|schema| schema.open_api_v3_schema.as_mut());
        let Some(schema) = schema else { continue };
        let known = serde_json::to_value(&*schema).map(|mut value| {
            remove(&mut value);
            value
        });
        // A schema is JSON, so both conversions succeed.
        if let Ok(known) = known.and_then(serde_json::from_value) {
            *schema = known;
        }
    }
    definition
}

fn remove(schema: &mut Value) {
    match schema {
        Value::Object(fields) => {
            // A property may have that name, too; its schema is not a string.
            if fields.get("format").and_then(Value::as_str).is_some_and(|format| OF_RUST.contains(&format)) {
                fields.shift_remove("format");
            }
            fields.values_mut().for_each(remove);
        }
        Value::Array(elements) => elements.iter_mut().for_each(remove),
        _ => {}
    }
}
