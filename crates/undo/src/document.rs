//! Which parts of an object are its content, and which belong to kube-apiserver and to controllers.

use serde_json::{Map, Value};

/// Fields of `metadata` that kube-apiserver sets. Finalizers are those of the programs that clean up, so they are never changed on
/// an object that exists.
const OF_THE_SERVER: [&str; 9] = [
    "uid",
    "resourceVersion",
    "creationTimestamp",
    "generation",
    "managedFields",
    "selfLink",
    "deletionTimestamp",
    "deletionGracePeriodSeconds",
    "finalizers",
];

/// Annotations by which controllers remember their own state.
const OF_CONTROLLERS: [&str; 9] = [
    "deployment.kubernetes.io/revision",
    "deprecated.daemonset.template.generation",
    "control-plane.alpha.kubernetes.io/leader",
    "endpoints.kubernetes.io/last-change-trigger-time",
    "pv.kubernetes.io/bind-completed",
    "pv.kubernetes.io/bound-by-controller",
    "volume.beta.kubernetes.io/storage-provisioner",
    "volume.kubernetes.io/storage-provisioner",
    "volume.kubernetes.io/selected-node",
];

/// Fields that kube-apiserver or a controller assigns once, by group and kind.
const ASSIGNED: [(&str, &str, &[&str]); 6] = [
    ("", "Service", &["clusterIP", "clusterIPs"]),
    ("", "PersistentVolumeClaim", &["volumeName"]),
    ("", "PersistentVolume", &["claimRef"]),
    ("", "Pod", &["nodeName"]),
    ("", "Namespace", &["finalizers"]),
    ("batch", "Job", &["selector"]),
];

/// Returns the text at a JSON pointer; empty if there is none.
pub fn text<'v>(object: &'v Value, pointer: &str) -> &'v str {
    object.pointer(pointer).and_then(Value::as_str).unwrap_or_default()
}

/// Returns whether the object is being deleted.
pub fn is_terminating(object: &Value) -> bool {
    !text(object, "/metadata/deletionTimestamp").is_empty()
}

/// Returns whether two versions may be of the same object: neither has a uid that contradicts the other.
pub fn is_same(one: &Value, other: &Value) -> bool {
    let (one, other) = (text(one, "/metadata/uid"), text(other, "/metadata/uid"));
    one.is_empty() || other.is_empty() || one == other
}

/// Returns the content of an object: everything except its status and what kube-apiserver and controllers keep in its metadata.
#[must_use]
pub fn content(object: &Value) -> Value {
    let mut content = object.clone();
    if let Some(fields) = content.as_object_mut() {
        fields.shift_remove("status");
    }
    if let Some(metadata) = content.get_mut("metadata").and_then(Value::as_object_mut) {
        for name in OF_THE_SERVER {
            metadata.shift_remove(name);
        }
        if let Some(annotations) = metadata.get_mut("annotations").and_then(Value::as_object_mut) {
            annotations.retain(|name, _| !OF_CONTROLLERS.contains(&name.as_str()));
        }
        metadata.retain(|_, value| !is_empty(value));
    }
    content
}

fn is_empty(value: &Value) -> bool {
    match value {
        Value::Null => true,
        Value::Array(items) => items.is_empty(),
        Value::Object(fields) => fields.is_empty(),
        _ => false,
    }
}

/// Returns whether two versions have the same content.
pub fn is_alike(one: &Value, other: &Value) -> bool {
    content(one) == content(other)
}

/// Completes a desired content with what belongs to kube-apiserver and to controllers in the object that exists.
#[must_use]
pub fn over(current: &Value, desired: &Value) -> Value {
    let mut object = content(desired);
    if let (Some(fields), Some(status)) = (object.as_object_mut(), current.get("status")) {
        // Kinds without a status subresource would lose it.
        fields.insert("status".to_owned(), status.clone());
    }
    let annotations = current.pointer("/metadata/annotations").and_then(Value::as_object);
    let metadata = map(&mut object, "metadata");
    for name in OF_THE_SERVER {
        if let Some(value) = current["metadata"].get(name) {
            metadata.insert(name.to_owned(), value.clone());
        }
    }
    for name in OF_CONTROLLERS {
        if let Some(value) = annotations.and_then(|annotations| annotations.get(name)) {
            map_of(metadata, "annotations").insert(name.to_owned(), value.clone());
        }
    }
    keep_assigned(current, &mut object);
    object
}

/// Keeps fields that were assigned to the object that exists, and cannot be changed.
fn keep_assigned(current: &Value, object: &mut Value) {
    let is_service = text(object, "/kind") == "Service";
    let is_headless = |object: &Value| text(object, "/spec/clusterIP") == "None";
    if is_headless(current) != is_headless(object) {
        return;
    }
    for name in assigned(object) {
        let pointer = format!("/spec/{name}");
        // A Service of type ExternalName has no address to keep.
        if let Some(value) = current.pointer(&pointer).filter(|_| !is_service || object.pointer(&pointer).is_some()) {
            let value = value.clone();
            map(object, "spec").insert((*name).to_owned(), value);
        }
    }
}

/// Returns the fields of `spec` that are assigned once.
fn assigned(object: &Value) -> &'static [&'static str] {
    let group = text(object, "/apiVersion").split_once('/').map_or("", |(group, _)| group);
    let kind = text(object, "/kind");
    let of_kind = ASSIGNED.iter().find(|(of, name, _)| *of == group && *name == kind);
    of_kind.map_or(&[], |(.., names)| names)
}

/// Returns a field of an object as a map, which is created if it does not exist.
pub(crate) fn map<'v>(object: &'v mut Value, name: &str) -> &'v mut Map<String, Value> {
    if !object.is_object() {
        *object = Value::Object(Map::new());
    }
    map_of(object.as_object_mut().expect("it was made a map"), name)
}

fn map_of<'v>(fields: &'v mut Map<String, Value>, name: &str) -> &'v mut Map<String, Value> {
    let value = fields.entry(name).or_insert_with(|| Value::Object(Map::new()));
    if !value.is_object() {
        *value = Value::Object(Map::new());
    }
    value.as_object_mut().expect("it was made a map")
}
