//! What counts as absent: in an object's metadata `null`, `""`, `[]` and `{}` say what a missing field says.
//!
//! Source: Kubernetes API conventions, *Optional vs. Required*; the fields of `ObjectMeta` are all `omitempty`.

use super::value::{Map, Value};

/// Whether a value says no more than its absence, where the API makes no difference between the two.
pub(super) fn is_empty(value: &Value) -> bool {
    match value {
        Value::Scalar(text) => matches!(&**text, "null" | "\"\""),
        Value::List(items) => items.is_empty(),
        Value::Map(map) => map.is_empty(),
    }
}

/// The object without fields of `metadata` that are there and empty.
///
/// Costs a look at each field of `metadata`, and a copy of the object if one of them is empty.
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
