//! Prepares an object that is created again, and lists what does not come back.

use std::collections::BTreeSet;

use serde_json::{Value, json};

use crate::document::{content, map, text};
use crate::subject::ObjectRef;

/// Finalizers that only request how an object is deleted.
const OF_A_DELETION: [&str; 2] = ["foregroundDeletion", "orphan"];
/// Labels that the Job controller sets to the uid of a Job.
const OF_A_JOB: [&str; 2] = ["controller-uid", "batch.kubernetes.io/controller-uid"];

/// Returns the object to create, with notes on what does not come back. `volumes` are the names of existing `PersistentVolumes`.
pub fn prepared(identity: &ObjectRef, old: &Value, volumes: &BTreeSet<String>) -> (Value, Vec<String>) {
    let mut object = content(old);
    let mut notes = Vec::new();
    let finalizers = old.pointer("/metadata/finalizers").and_then(Value::as_array).into_iter().flatten();
    let finalizers: Vec<_> =
        finalizers.filter(|name| !name.as_str().is_some_and(|name| OF_A_DELETION.contains(&name))).cloned().collect();
    if !finalizers.is_empty() {
        map(&mut object, "metadata").insert("finalizers".to_owned(), finalizers.into());
    }
    match (identity.group(), &*identity.kind) {
        ("", "Namespace") => {
            map(&mut object, "spec").shift_remove("finalizers");
        }
        ("", "ServiceAccount") => notes.push("tokens that were issued for it stay invalid".to_owned()),
        ("", "Service") => notes.extend(of_service(old)),
        ("", "PersistentVolumeClaim") => notes.push(of_claim(&mut object, volumes)),
        ("", "PersistentVolume") => {
            if let Some(claim) = object.pointer_mut("/spec/claimRef").and_then(Value::as_object_mut) {
                // Without them, a claim with the same name is bound again.
                claim.shift_remove("uid");
                claim.shift_remove("resourceVersion");
            }
            notes.push("the data is what the storage still has".to_owned());
        }
        ("", "Pod") => {
            map(&mut object, "spec").shift_remove("nodeName");
            notes.push("it starts anew, on a node that the scheduler chooses".to_owned());
        }
        ("batch", "Job") => {
            of_job(&mut object);
            notes.push("it starts anew".to_owned());
        }
        ("apiextensions.k8s.io", "CustomResourceDefinition") => {
            notes.push("its objects come back only if they are in this plan".to_owned());
        }
        _ => {}
    }
    (object, notes)
}

fn of_service(old: &Value) -> Option<String> {
    let is_external = text(old, "/spec/type") == "LoadBalancer";
    is_external.then(|| "its load balancer may get another address".to_owned())
}

fn of_claim(object: &mut Value, volumes: &BTreeSet<String>) -> String {
    let volume = text(object, "/spec/volumeName").to_owned();
    if volumes.contains(&volume) {
        return format!(
            "its volume {volume} still exists: to bind it again, remove the old claim with \
             `kubectl patch pv {volume} --type=merge -p '{{\"spec\":{{\"claimRef\":{{\"uid\":null,\"resourceVersion\":null}}}}}}'`"
        );
    }
    map(object, "spec").shift_remove("volumeName");
    if volume.is_empty() { "it had no volume".to_owned() } else { format!("the data of its volume {volume} is lost") }
}

fn of_job(object: &mut Value) {
    if object.pointer("/spec/manualSelector") == Some(&json!(true)) {
        return;
    }
    map(object, "spec").shift_remove("selector");
    for pointer in ["/metadata/labels", "/spec/template/metadata/labels"] {
        if let Some(labels) = object.pointer_mut(pointer).and_then(Value::as_object_mut) {
            labels.retain(|name, _| !OF_A_JOB.contains(&name.as_str()));
        }
    }
}
