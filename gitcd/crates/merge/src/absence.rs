//! Absent values: in an object's metadata, `null`, `""`, `[]` and `{}` mean the same as a missing field.
//!
//! Source: Kubernetes API conventions, *Optional vs. Required*; the fields of `ObjectMeta` are all `omitempty`.

use super::value::{Map, Value};

/// Returns whether a value means the same as its absence, where the API does not distinguish them.
pub(super) fn is_empty(value: &Value) -> bool {
    match value {
        Value::Scalar(text) => matches!(&**text, "null" | "\"\""),
        Value::List(items) => items.is_empty(),
        Value::Map(map) => map.is_empty(),
    }
}

/// Removes empty fields of `metadata`.
///
/// Looks at each field of `metadata`; modifies the object only if one of them is empty.
pub(super) fn normalized(object: Value) -> Value {
    let Some(metadata) = object.at(&["metadata"]).and_then(Value::as_map) else { return object };
    if !metadata.iter().any(|(_, value)| is_empty(value)) {
        return object;
    }
    let mut kept = Map::default();
    for at in 0..metadata.iter().len() {
        let (name, value) = metadata.field(at);
        if !is_empty(value) {
            kept.push(name, value.clone());
        }
    }
    let Value::Map(mut map) = object else { return object };
    map.set("metadata", Value::Map(kept));
    Value::Map(map)
}
