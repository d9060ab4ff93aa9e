//! Why kube-apiserver rejects a step, and what to do about it.

use serde_json::Value;
use trishanku_undo::ObjectRef;

use super::api::ApiError;

/// Kinds that are never deleted in order to be created again, since their content or data would be lost.
const KEPT: [(&str, &str); 4] = [
    ("", "Namespace"),
    ("", "PersistentVolume"),
    ("", "PersistentVolumeClaim"),
    ("apiextensions.k8s.io", "CustomResourceDefinition"),
];
/// Parts of messages about fields that cannot be changed.
const IMMUTABLE: [&str; 7] = [
    "immutable",
    "cannot change",
    "may not change",
    "may not be changed",
    "Forbidden: updates to",
    "Forbidden: pod updates",
    "may not be updated",
];

/// Returns whether an update was rejected because of fields that cannot be changed.
pub(super) fn is_immutable(error: &ApiError) -> bool {
    let text = error.to_string();
    error.code() == 422 && IMMUTABLE.iter().any(|part| text.contains(part))
}

/// Returns whether an object may be deleted and created again.
pub(super) fn may_recreate(identity: &ObjectRef) -> bool {
    !KEPT.iter().any(|(group, kind)| identity.is(group, kind))
}

/// Explains an update of a field that cannot be changed.
pub(super) fn immutable(identity: &ObjectRef, error: &ApiError) -> String {
    let remedy = if may_recreate(identity) {
        "this needs a deletion and a creation: give --recreate"
    } else {
        "only a deletion and a creation can do this, which would lose its data or content"
    };
    format!("{error}; {remedy}")
}

/// Explains why a step was rejected, with the remedy if it is known.
pub(super) fn explained(error: &ApiError) -> String {
    let text = error.to_string();
    let remedy = if error.code() == 403 && text.contains("exceeded quota") {
        "; raise the quota or delete other objects, and run this again"
    } else if error.code() == 403 && text.contains("being terminated") {
        "; wait until the namespace is gone, and run this again"
    } else if error.code() == 404 && text.starts_with("namespaces ") {
        "; undelete the namespace first"
    } else if matches!(error, ApiError::NotServed { .. }) {
        "; undelete its CustomResourceDefinition first, or use the version that it was stored with"
    } else {
        ""
    };
    format!("{text}{remedy}")
}

/// Removes what another Service has got meanwhile from a Service. Returns a note, or `None` if the error has another reason.
pub(super) fn without_allocation(error: &ApiError, service: &mut Value) -> Option<String> {
    let text = error.to_string();
    if service["kind"] != "Service" || error.code() != 422 || !text.contains("already allocated") {
        return None;
    }
    let spec = service["spec"].as_object_mut()?;
    if text.contains("spec.clusterIP") {
        let address = spec.shift_remove("clusterIP")?;
        spec.shift_remove("clusterIPs");
        return Some(format!(
            "its cluster IP {} is taken, so it has another one",
            address.as_str().unwrap_or_default()
        ));
    }
    let mut taken = Vec::new();
    for port in spec.get_mut("ports")?.as_array_mut()? {
        taken.extend(port.as_object_mut()?.shift_remove("nodePort"));
    }
    let health = spec.shift_remove("healthCheckNodePort");
    taken.extend(health);
    let ports: Vec<String> = taken.iter().map(ToString::to_string).collect();
    (!ports.is_empty()).then(|| format!("a node port of {} is taken, so it has others", ports.join(", ")))
}

#[cfg(test)]
mod tests {
    use kube::core::Status;
    use serde_json::json;

    use super::*;

    fn rejected(code: u16, message: &str) -> ApiError {
        ApiError::Rejected(Status::failure(message, "Invalid").with_code(code).boxed())
    }

    #[test]
    fn messages_about_immutable_fields_are_recognized() {
        for message in [
            "Deployment.apps \"a\" is invalid: spec.selector: Invalid value: {}: field is immutable",
            "RoleBinding \"a\" is invalid: roleRef: Invalid value: {}: cannot change roleRef",
            "Service \"a\" is invalid: spec.clusterIPs[0]: Invalid value: []: may not change once set",
            "StatefulSet.apps \"a\" is invalid: spec: Forbidden: updates to statefulset spec for fields other than",
            "Pod \"a\" is invalid: spec: Forbidden: pod updates may not change fields other than",
        ] {
            assert!(is_immutable(&rejected(422, message)), "{message}");
        }
        assert!(!is_immutable(&rejected(422, "spec.replicas: Invalid value: -1: must be greater than or equal to 0")));
        assert!(!is_immutable(&rejected(403, "field is immutable")));
    }

    #[test]
    fn claims_are_never_recreated_and_the_reason_names_the_remedy() {
        let claim =
            ObjectRef { api_version: "v1".into(), kind: "PersistentVolumeClaim".into(), ..ObjectRef::default() };
        let job = ObjectRef { api_version: "batch/v1".into(), kind: "Job".into(), ..ObjectRef::default() };
        let error = rejected(422, "field is immutable");
        assert!(!may_recreate(&claim) && immutable(&claim, &error).contains("would lose its data"));
        assert!(may_recreate(&job) && immutable(&job, &error).ends_with("give --recreate"));
    }

    #[test]
    fn taken_addresses_and_ports_are_given_up_one_after_the_other() {
        let mut service = json!({"kind": "Service", "spec": {
            "clusterIP": "10.0.0.7", "clusterIPs": ["10.0.0.7"], "ports": [{"port": 80, "nodePort": 30001}],
        }});
        let error = rejected(422, "spec.clusterIPs: Invalid value: provided IP is already allocated");
        let note = without_allocation(&error, &mut service).expect("the address is given up");
        assert!(note.contains("10.0.0.7") && service["spec"].get("clusterIPs").is_none(), "{note} {service}");
        assert_eq!(without_allocation(&error, &mut service), None, "it has none any more");
        let error = rejected(422, "spec.ports[0].nodePort: Invalid value: 30001: provided port is already allocated");
        let note = without_allocation(&error, &mut service).expect("the port is given up");
        assert!(note.contains("30001"), "{note}");
        assert_eq!(service, json!({"kind": "Service", "spec": {"ports": [{"port": 80}]}}));
    }
}
