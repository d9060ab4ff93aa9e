//! Completes objects as kube-apiserver does before it checks them.

use serde_json::Value;

/// Applies the defaults of a structural schema, and removes fields that are null but not nullable, as
/// [kube-apiserver does](https://kubernetes.io/docs/tasks/extend-kubernetes/custom-resources/custom-resource-definitions/#defaulting-and-nullable).
pub(crate) fn complete(value: &mut Value, schema: &Value) {
    match value {
        Value::Object(fields) => {
            for (name, below) in schema["properties"].as_object().into_iter().flatten() {
                if let Some(default) = below.get("default")
                    && fields.get(name).is_none_or(|given| is_pruned(given, below))
                {
                    fields.insert(name.clone(), default.clone());
                }
            }
            let below = |name: &str| schema["properties"].get(name).or_else(|| schema.get("additionalProperties"));
            fields.retain(|name, field| below(name).is_none_or(|below| !is_pruned(field, below)));
            for (name, field) in fields {
                if let Some(below) = below(name) {
                    complete(field, below);
                }
            }
        }
        Value::Array(items) => items.iter_mut().for_each(|item| complete(item, &schema["items"])),
        _ => {}
    }
}

/// Whether a field is null, and its schema does not allow that.
fn is_pruned(value: &Value, schema: &Value) -> bool {
    value.is_null() && schema.is_object() && schema["nullable"] != true
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn defaults_are_applied_at_every_depth_and_nulls_are_removed() {
        let schema = json!({"properties": {
            "a": {"default": 1},
            "b": {"default": {"x": 2}, "properties": {"x": {}, "y": {"default": 3}}},
            "c": {"items": {"properties": {"z": {"default": 4}}}},
            "d": {"nullable": true},
            "e": {"additionalProperties": {"type": "string"}},
            "f": {"type": "string"},
        }});
        let mut value =
            json!({"a": null, "c": [{}, {"z": 5}], "d": null, "e": {"k": null, "l": ""}, "f": null, "g": null});
        complete(&mut value, &schema);
        let expected = json!({
            "a": 1, "b": {"x": 2, "y": 3}, "c": [{"z": 4}, {"z": 5}], "d": null, "e": {"l": ""}, "g": null,
        });
        assert_eq!(value, expected);
    }
}
