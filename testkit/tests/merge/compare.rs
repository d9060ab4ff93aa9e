//! Compares a merge with kube-apiserver's result for the same requests in sequence.

use serde_json::{Map, Value};

/// A counter of changes to a `DaemonSet`'s template, which kube-apiserver maintains like the generation.
const TEMPLATE_GENERATION: &str = "deprecated.daemonset.template.generation";

/// Removes what differs between two runs of the same requests. `base` is the object that both sides started from.
pub(crate) fn normal(value: Option<&[u8]>, base: &Value) -> Option<Value> {
    let mut object: Value = serde_json::from_slice(value?).expect("what is stored is JSON");
    let uid = object["metadata"]["uid"].as_str().unwrap_or_default().to_owned();
    let is_base = base["metadata"]["uid"] == uid;
    if !is_base && !uid.is_empty() {
        object = serde_json::from_str(&object.to_string().replace(&uid, "another")).expect("a uid has no quotes");
    }
    times(&mut object);
    let metadata = object["metadata"].as_object_mut()?;
    for name in ["namespace", "creationTimestamp", "generation", "resourceVersion"] {
        metadata.remove(name);
    }
    metadata.remove("managedFields");
    // An empty field equals an absent one.
    metadata.retain(|_, value| {
        !value.as_array().is_some_and(Vec::is_empty) && !value.as_object().is_some_and(Map::is_empty)
    });
    if let Some(annotations) = metadata.get_mut("annotations").and_then(Value::as_object_mut) {
        annotations.shift_remove(TEMPLATE_GENERATION);
    }
    if object["kind"] == "Service" {
        allocations(&mut object, base, is_base);
    }
    Some(object)
}

/// Returns why the generation of a merged object is wrong: a side has the same or a later one, with another content.
pub(crate) fn wrong_generation(merged: Option<&[u8]>, sides: [Option<&str>; 2]) -> Option<String> {
    let read = |value: &[u8]| serde_json::from_slice::<Value>(value).expect("what is stored is JSON");
    let merged = read(merged?);
    let number = |object: &Value| object["metadata"]["generation"].as_i64();
    let content = |object: &Value| {
        let mut object = object.clone();
        let fields = object.as_object_mut().expect("objects are stored");
        ["metadata", "status"].into_iter().for_each(|name| drop(fields.shift_remove(name)));
        object
    };
    for side in sides.into_iter().flatten().map(|side| read(side.as_bytes())) {
        if side["metadata"]["uid"] != merged["metadata"]["uid"] {
            continue;
        }
        let (Some(of_side), Some(of_merged)) = (number(&side), number(&merged)) else { continue };
        if of_merged < of_side {
            return Some("an earlier generation".to_owned());
        }
        if of_merged == of_side && content(&side) != content(&merged) {
            return Some("one generation for two contents".to_owned());
        }
    }
    None
}

/// Replaces times from kube-apiserver's clock. Times in requests are in 2001.
fn times(value: &mut Value) {
    match value {
        Value::String(text)
            if text.len() >= 20 && text.ends_with('Z') && text.as_bytes()[10] == b'T' && !text.starts_with("2001-") =>
        {
            "now".clone_into(text);
        }
        Value::Array(items) => items.iter_mut().for_each(times),
        Value::Object(fields) => fields.values_mut().for_each(times),
        _ => {}
    }
}

/// Replaces addresses and ports that kube-apiserver chose. By chance, another object can get those of the base, which was deleted.
fn allocations(object: &mut Value, base: &Value, is_base: bool) {
    let before = if is_base { base["spec"]["ports"].to_string() } else { String::new() };
    for port in object["spec"]["ports"].as_array_mut().into_iter().flatten() {
        if let Some(chosen) = port.get_mut("nodePort")
            && !before.contains(&chosen.to_string())
        {
            *chosen = "chosen".into();
        }
    }
    let is_kept = is_base && object["spec"]["clusterIP"] == base["spec"]["clusterIP"];
    if !is_kept && object["spec"]["clusterIP"] != "None" {
        object["spec"]["clusterIP"] = "chosen".into();
        object["spec"]["clusterIPs"] = "chosen".into();
    }
}

/// A field that differs.
#[derive(Clone, Debug)]
pub(crate) struct Difference {
    pub(crate) path: String,
    pub(crate) merged: Option<Value>,
    pub(crate) serial: Option<Value>,
}

/// Returns the fields in which two objects differ.
pub(crate) fn differences(merged: Option<&Value>, serial: Option<&Value>) -> Vec<Difference> {
    let mut found = Vec::new();
    walk(merged, serial, String::new(), &mut found);
    found
}

fn walk(merged: Option<&Value>, serial: Option<&Value>, path: String, found: &mut Vec<Difference>) {
    if merged == serial {
        return;
    }
    match (merged, serial) {
        (Some(Value::Object(one)), Some(Value::Object(other))) => fields(one, other, &path, found),
        _ => found.push(Difference { path, merged: merged.cloned(), serial: serial.cloned() }),
    }
}

fn fields(merged: &Map<String, Value>, serial: &Map<String, Value>, path: &str, found: &mut Vec<Difference>) {
    let added = serial.keys().filter(|name| !merged.contains_key(*name));
    for name in merged.keys().chain(added) {
        let below = if path.is_empty() { name.clone() } else { format!("{path}.{name}") };
        walk(merged.get(name), serial.get(name), below, found);
    }
}

/// Sorts the items of all lists.
pub(crate) fn sorted(value: &Value) -> Value {
    match value {
        Value::Array(items) => {
            let mut items: Vec<Value> = items.iter().map(sorted).collect();
            items.sort_by_key(canonical);
            Value::Array(items)
        }
        Value::Object(fields) => {
            Value::Object(fields.iter().map(|(name, value)| (name.clone(), sorted(value))).collect())
        }
        scalar => scalar.clone(),
    }
}

/// Returns a text that does not depend on the order of fields.
pub(crate) fn canonical(value: &Value) -> String {
    match value {
        Value::Array(items) => format!("[{}]", items.iter().map(canonical).collect::<Vec<_>>().join(",")),
        Value::Object(fields) => {
            let mut fields: Vec<_> =
                fields.iter().map(|(name, value)| format!("{name:?}:{}", canonical(value))).collect();
            fields.sort();
            format!("{{{}}}", fields.join(","))
        }
        scalar => scalar.to_string(),
    }
}
