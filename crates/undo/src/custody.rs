//! Which objects are left to their controllers.

use serde_json::Value;

use crate::document::text;
use crate::subject::ObjectRef;

/// Keys that kube-apiserver writes for itself.
const INTERNAL: [&str; 4] = ["masterleases/", "peerserverleases/", "ranges/", "internal.apiserver.k8s.io/"];

/// Kinds that programs write continuously or derive from others, by group.
const DERIVED: [(&str, &str); 10] = [
    ("", "Event"),
    ("events.k8s.io", "Event"),
    ("coordination.k8s.io", "Lease"),
    ("coordination.k8s.io", "LeaseCandidate"),
    ("storage.k8s.io", "CSINode"),
    ("storage.k8s.io", "CSIStorageCapacity"),
    ("storage.k8s.io", "VolumeAttachment"),
    ("networking.k8s.io", "IPAddress"),
    ("certificates.k8s.io", "CertificateSigningRequest"),
    ("resource.k8s.io", "ResourceSlice"),
];

/// Kinds whose objects are derived if a controller owns them, by group.
const OWNED: [(&str, &str); 6] = [
    ("", "Pod"),
    ("", "Endpoints"),
    ("apps", "ReplicaSet"),
    ("apps", "ControllerRevision"),
    ("batch", "Job"),
    ("discovery.k8s.io", "EndpointSlice"),
];

/// Labels and annotations of objects that a controller keeps by itself.
const MARKS: [(&str, &str); 5] = [
    ("labels", "endpointslice.kubernetes.io/managed-by"),
    ("labels", "endpoints.kubernetes.io/managed-by"),
    ("labels", "kube-aggregator.kubernetes.io/automanaged"),
    ("labels", "ipaddress.kubernetes.io/managed-by"),
    ("annotations", "endpoints.kubernetes.io/last-change-trigger-time"),
];

/// Returns whether kube-apiserver writes this key for itself, so that no object of the API is stored there.
pub fn is_internal(key: &str) -> bool {
    INTERNAL.iter().any(|prefix| key.starts_with(prefix))
}

/// Returns whether controllers create an object with this kind and name in every namespace.
pub fn is_in_every_namespace(object: &ObjectRef) -> bool {
    object.is("", "ServiceAccount") && object.name == "default"
        || object.is("", "ConfigMap") && object.name == "kube-root-ca.crt"
}

/// Returns the owner that controls an object, as `KIND NAME`.
pub fn controller(object: &Value) -> Option<String> {
    let owners = object.pointer("/metadata/ownerReferences")?.as_array()?;
    let owner = owners.iter().find(|owner| owner["controller"] == true)?;
    Some(format!("{} {}", text(owner, "/kind"), text(owner, "/name")))
}

/// Returns why an object is left to its controller; `None` if a plan may change it.
pub fn left_alone(key: &str, object: &Value) -> Option<String> {
    if is_internal(key) {
        return Some("kube-apiserver writes it for itself".to_owned());
    }
    let identity = ObjectRef::of(key, object);
    if DERIVED.iter().any(|(group, kind)| identity.is(group, kind)) {
        return Some("programs write it by themselves".to_owned());
    }
    if let Some(owner) = controller(object)
        && OWNED.iter().any(|(group, kind)| identity.is(group, kind))
    {
        return Some(format!("{owner} controls it"));
    }
    let has = |(part, name): &(&str, &str)| object["metadata"][part].get(name).is_some();
    if MARKS.iter().any(has) {
        return Some("a controller writes it by itself".to_owned());
    }
    if identity.is("", "Secret") && text(object, "/type") == "kubernetes.io/service-account-token" {
        return Some("its token is bound to the uid of a ServiceAccount; request a new token".to_owned());
    }
    None
}

/// Returns why an object that was deleted is not created again.
pub fn not_created(object: &Value) -> Option<&'static str> {
    let conditions = object.pointer("/status/conditions").and_then(Value::as_array);
    let is_finished = |condition: &Value| {
        matches!(text(condition, "/type"), "Complete" | "Failed") && text(condition, "/status") == "True"
    };
    match text(object, "/kind") {
        "Job" if conditions.is_some_and(|conditions| conditions.iter().any(is_finished)) => {
            Some("it had finished, and would run again")
        }
        "Pod" if matches!(text(object, "/status/phase"), "Succeeded" | "Failed") => {
            Some("it had finished, and would run again")
        }
        _ => None,
    }
}
