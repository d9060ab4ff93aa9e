//! Whose edit is lost: programs repeat their writes, but a user's lost edit must be reported.

use std::collections::HashSet;

use super::value::{Map, Value, canonical};
use super::{absence, deletion};

/// Names of programs in `managedFields` without one of the endings.
const PROGRAMS: [&str; 4] = ["kube-apiserver", "kubelet", "kube-proxy", "kube-aggregator"];

/// Endings of the names of programs that repeat their writes.
const ENDINGS: [&str; 4] = ["controller", "manager", "scheduler", "operator"];

/// Labels of objects that every kube-apiserver creates for itself.
const AUTOMATIC: [&str; 2] = ["kube-aggregator.kubernetes.io/automanaged", "ipaddress.kubernetes.io/managed-by"];

/// Returns whether `changed` has a user's edit that the base lacks; without a base, a new object counts as one.
pub(super) fn has_edit_of_a_person(base: Option<&Value>, changed: &Value) -> bool {
    if is_automatic(changed) || content(base) == content(Some(changed)) {
        return false;
    }
    let before: HashSet<String> = base.map(entries).unwrap_or_default().iter().map(canonical).collect();
    let writers: Vec<&Value> = entries(changed).iter().filter(|entry| !before.contains(&canonical(entry))).collect();
    // Objects from Git or written through etcd have no entry.
    writers.is_empty() || writers.into_iter().filter(|entry| !is_of_status(entry)).any(|entry| !is_program(entry))
}

/// Returns whether a controller owns the object, or kube-apiserver created it by itself: no user's decision is involved.
pub(super) fn is_automatic(object: &Value) -> bool {
    let owners = object.at(&["metadata", "ownerReferences"]).and_then(Value::as_list).unwrap_or_default();
    let is_controller = |owner: &Value| owner.at(&["controller"]).and_then(Value::as_text).as_deref() == Some("true");
    owners.iter().any(is_controller)
        || AUTOMATIC.iter().any(|label| object.at(&["metadata", "labels", label]).is_some())
}

/// Returns whether a manager's entry is that of a program.
fn is_program(entry: &Value) -> bool {
    entry.at(&["manager"]).and_then(Value::as_text).is_some_and(|manager| is_name_of_program(&manager))
}

/// Returns whether a manager's name is that of a program.
pub(super) fn is_name_of_program(manager: &str) -> bool {
    PROGRAMS.contains(&manager) || ENDINGS.iter().any(|ending| manager.ends_with(ending))
}

fn is_of_status(entry: &Value) -> bool {
    entry.at(&["subresource"]).and_then(Value::as_text).as_deref() == Some("status")
}

fn entries(object: &Value) -> &[Value] {
    object.at(&["metadata", "managedFields"]).and_then(Value::as_list).unwrap_or_default()
}

/// Returns the desired state of an object: everything except `status` and bookkeeping.
fn content(object: Option<&Value>) -> Option<Map> {
    let mut map = object?.as_map()?.clone();
    map.remove("status");
    if let Some(Value::Map(metadata)) = map.get_mut("metadata") {
        ["managedFields", "generation", "resourceVersion", "deletionTimestamp", "deletionGracePeriodSeconds"]
            .into_iter()
            .for_each(|name| metadata.remove(name));
        if let Some(Value::List(finalizers)) = metadata.get_mut("finalizers") {
            finalizers.retain(|finalizer| !deletion::is_of_the_collector(finalizer));
        }
        let empty: Vec<String> =
            metadata.iter().filter(|(_, value)| absence::is_empty(value)).map(|(name, _)| name.into_owned()).collect();
        empty.iter().for_each(|name| metadata.remove(name));
    }
    Some(map)
}
