//! Deletions on one side that meet changes on the other.
//!
//! The result is one that some serial order of both sides' requests could have had. Since an update cannot bring an object back,
//! the change comes first and then the deletion. Sources: `k8s.io/apiserver/pkg/registry/rest/delete.go` (`BeforeDelete`),
//! `…/registry/generic/registry/store.go` (`markAsDeleting`), `pkg/registry/core/pod/strategy.go` (`CheckGracefulDelete`).

use std::collections::HashSet;

use super::absence;
use super::value::{Map, Value, canonical};

/// Finalizers that a `DELETE` request sets for the garbage collector. They alone do not keep an object that the other side
/// deleted: had that request come first, this one would have found no object.
const OF_THE_COLLECTOR: [&str; 2] = ["foregroundDeletion", "orphan"];

/// Applies the other side's deletion to `changed`, and returns what is left: finalizers that the change added must first be
/// removed by their owners, and a pod that the change bound to a node must be stopped by its kubelet. `None` if nothing is left.
pub(super) fn applied(base: Option<&Value>, changed: &Value) -> Option<Value> {
    let held_by = added_finalizers(base, changed);
    let grace = grace_of_new_binding(base, changed);
    if held_by.is_empty() && grace.is_none() {
        return None;
    }
    let Value::Map(mut object) = changed.clone() else { return None };
    let time = last_write(changed);
    let Some(Value::Map(metadata)) = object.get_mut("metadata") else { return None };
    if held_by.is_empty() {
        metadata.remove("finalizers");
    } else {
        metadata.set("finalizers", Value::List(held_by));
    }
    if !is_terminating(changed) {
        metadata.set("deletionTimestamp", time);
        metadata.set("deletionGracePeriodSeconds", Value::number(grace.unwrap_or(0)));
        // The start of a deletion is a new generation, of kinds that have generations.
        if let Some(generation) = generation(metadata).filter(|generation| *generation > 0) {
            metadata.set("generation", Value::number(generation.saturating_add(1)));
        }
    }
    Some(Value::Map(object))
}

/// Returns whether an object has a `deletionTimestamp`.
pub fn is_terminating(object: &Value) -> bool {
    object.given(&["metadata", "deletionTimestamp"]).is_some()
}

/// Returns the grace period, in seconds, of a pod that runs on a node; `None` if kube-apiserver would delete it immediately.
pub(super) fn grace_of_pod(object: &Map) -> Option<i64> {
    let text =
        |path: [&str; 2]| object.get(path[0])?.as_map()?.get(path[1])?.as_text().map(std::borrow::Cow::into_owned);
    let is_pod = |field: &str, wanted: &str| object.get(field).and_then(Value::as_text).as_deref() == Some(wanted);
    if !is_pod("kind", "Pod") || !is_pod("apiVersion", "v1") {
        return None;
    }
    let has_ended = matches!(text(["status", "phase"]).as_deref(), Some("Succeeded" | "Failed"));
    if !is_bound(object) || has_ended {
        return None;
    }
    // kube-apiserver sets this field on every pod, and treats a negative value as one second.
    let seconds = text(["spec", "terminationGracePeriodSeconds"]).and_then(|text| text.parse::<i64>().ok());
    match seconds.unwrap_or(DEFAULT_GRACE) {
        0 => None,
        seconds if seconds < 0 => Some(1),
        seconds => Some(seconds),
    }
}

/// The default of `terminationGracePeriodSeconds`.
const DEFAULT_GRACE: i64 = 30;

/// Returns the grace period of a pod that the change bound to a node. A pod bound before was deleted with its kubelet's consent,
/// or by force.
fn grace_of_new_binding(base: Option<&Value>, changed: &Value) -> Option<i64> {
    let was_bound = base.and_then(Value::as_map).is_some_and(is_bound);
    changed.as_map().filter(|_| !was_bound).and_then(grace_of_pod)
}

/// Returns whether a pod is bound to a node.
pub(super) fn is_bound(pod: &Map) -> bool {
    pod.get("spec").is_some_and(|spec| spec.given(&["nodeName"]).is_some())
}

/// Returns the finalizers that the change added. Those of the base were removed before the deletion.
fn added_finalizers(base: Option<&Value>, changed: &Value) -> Vec<Value> {
    let of = |object: &Value| -> Vec<Value> {
        let list = object.at(&["metadata", "finalizers"]).and_then(Value::as_list);
        list.unwrap_or_default().to_vec()
    };
    let before: HashSet<String> = base.map(of).unwrap_or_default().iter().map(canonical).collect();
    let mut added = of(changed);
    added.retain(|finalizer| !before.contains(&canonical(finalizer)));
    if added.iter().all(is_of_the_collector) { Vec::new() } else { added }
}

/// Returns whether a finalizer stands for the propagation policy of a `DELETE` request.
pub(super) fn is_of_the_collector(finalizer: &Value) -> bool {
    finalizer.as_text().is_some_and(|text| OF_THE_COLLECTOR.contains(&&*text))
}

fn generation(metadata: &Map) -> Option<i64> {
    metadata.get("generation")?.as_text()?.parse().ok()
}

/// Returns the last write time that the object records: the branches share no other time for the deletion.
fn last_write(object: &Value) -> Value {
    let managed = object.at(&["metadata", "managedFields"]).and_then(Value::as_list).unwrap_or_default();
    let created = object.at(&["metadata", "creationTimestamp"]);
    let times = managed.iter().filter_map(|entry| entry.at(&["time"])).chain(created);
    let times = times.filter(|time| !absence::is_empty(time) && time.as_text().is_some());
    let latest = times.max_by_key(|time| time.as_text().map(std::borrow::Cow::into_owned));
    latest.cloned().unwrap_or_else(|| Value::string("1970-01-01T00:00:00Z"))
}
