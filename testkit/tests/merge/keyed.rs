//! Objects whose lists are maps by key, so that the fields of an item can be compared by path.

use gitcd::merge::schema::{ListKind, Node, Schemas};
use serde_json::{Map, Value};

/// Replaces each list that the schema merges by key with an object: its steps are like `[port=443,protocol="TCP"]`.
pub(crate) fn by_key(schemas: &Schemas, object: &Value) -> Value {
    let node = match (object["apiVersion"].as_str(), object["kind"].as_str()) {
        (Some(version), Some(kind)) => schemas.of(version, kind),
        _ => None,
    };
    replace(object, node)
}

/// Returns the schema of a step of a path in such an object.
pub(crate) fn below<'s>(node: &Node<'s>, step: &str) -> Option<Node<'s>> {
    if step.starts_with('[') { node.items() } else { node.field(step) }
}

fn replace(value: &Value, node: Option<Node<'_>>) -> Value {
    let Some(node) = node else { return value.clone() };
    match value {
        Value::Object(fields) => {
            let replaced = fields.iter().map(|(name, value)| (name.clone(), replace(value, node.field(name))));
            Value::Object(replaced.collect())
        }
        Value::Array(items) => {
            let Some(ListKind::Map(keys)) = node.list() else { return value.clone() };
            let step = |item: &Value| {
                let keys = keys.iter().map(|key| format!("{key}={}", item[key.as_str()])).collect::<Vec<_>>();
                format!("[{}]", keys.join(","))
            };
            let by_step: Map<String, Value> =
                items.iter().map(|item| (step(item), replace(item, node.items()))).collect();
            // Two items with one key stay in a list.
            if by_step.len() == items.len() { Value::Object(by_step) } else { value.clone() }
        }
        scalar => scalar.clone(),
    }
}
