//! Why kube-apiserver rejects a step, and what to do about it.

use kube::core::Status;
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
/// The end of an explanation with the remedy for fields that cannot be changed.
const RECREATE: &str = "this needs a deletion and a creation: give --recreate";
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

/// Returns the message of kube-apiserver; of a hidden kind, only the fields that it is about if it may quote their values.
pub(super) fn shown(status: &Status, is_hidden: bool) -> String {
    let Status { message, details, reason, code, .. } = status;
    // Those of kube-apiserver about missing objects, conflicts, quotas and rights quote none. A webhook may answer with any code.
    let is_of_webhook = message.contains("admission webhook");
    let is_about_rights = || {
        let texts = ["exceeded quota", "being terminated", " cannot "];
        *code == 403 && texts.iter().any(|text| message.contains(text))
    };
    if !is_hidden || !is_of_webhook && (matches!(code, 404 | 409) || is_about_rights()) {
        return message.clone();
    }
    let causes = details.iter().flat_map(|details| &details.causes).filter(|_| reason == "Invalid" && !is_of_webhook);
    let fields: Vec<&str> = causes.map(|cause| cause.field.as_str()).filter(|field| !field.is_empty()).collect();
    let about = if fields.is_empty() { reason.clone() } else { format!("{reason}: {}", fields.join(", ")) };
    format!("kube-apiserver rejects it ({about}); its message may quote hidden values, and is not shown")
}

/// Returns whether an update was rejected because of fields that cannot be changed.
pub(super) fn is_immutable(error: &ApiError) -> bool {
    error.code() == 422 && IMMUTABLE.iter().any(|part| error.message().contains(part))
}

/// Returns whether an object may be deleted and created again.
pub(super) fn may_recreate(identity: &ObjectRef) -> bool {
    !KEPT.iter().any(|(group, kind)| identity.is(group, kind))
}

/// Explains an update of a field that cannot be changed.
pub(super) fn immutable(identity: &ObjectRef, error: &ApiError) -> String {
    let remedy = if may_recreate(identity) {
        RECREATE
    } else {
        "only a deletion and a creation can do this, which would lose its data or content"
    };
    format!("{error}; {remedy}")
}

/// Returns whether an explanation is that of a field that cannot be changed, of an object that may be deleted and created again.
pub(super) fn needs_recreation(reason: &str) -> bool {
    reason.ends_with(RECREATE)
}

/// Explains why a step was rejected, with the remedy if it is known.
pub(super) fn explained(error: &ApiError) -> String {
    let text = error.message();
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
    format!("{error}{remedy}")
}

/// Removes what another Service has got meanwhile from a Service. Returns a note, or `None` if the error has another reason.
pub(super) fn without_allocation(error: &ApiError, service: &mut Value) -> Option<String> {
    let text = error.message();
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
    use serde_json::json;

    use super::*;

    fn rejected(code: u16, message: &str) -> ApiError {
        ApiError::Rejected { status: Status::failure(message, "Invalid").with_code(code).boxed(), is_hidden: false }
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
    fn messages_about_hidden_kinds_name_fields_only() {
        let message = "Vault.example.org \"a\" is invalid: spec.token: Invalid value: \"s3cret\": field is immutable";
        let details = json!({"causes": [{"field": "spec.token", "reason": "FieldValueInvalid", "message": "s3cret"}]});
        let mut status = Status::failure(message, "Invalid").with_code(422);
        status.details = Some(serde_json::from_value(details).expect("they are details"));
        let error = ApiError::Rejected { status: status.clone().boxed(), is_hidden: true };
        assert!(is_immutable(&error), "the remedy is known all the same");
        assert!(error.to_string().contains("spec.token") && !explained(&error).contains("s3cret"), "{error}");
        assert_eq!(shown(&status, false), message);
        let denied = |code, text: &str| shown(&Status::failure(text, "Forbidden").with_code(code), true);
        assert!(denied(403, "exceeded quota: count, requested: secrets=1").contains("secrets=1"));
        assert!(!denied(403, "admission webhook \"a.org\" denied the request: s3cret").contains("s3cret"));
        assert!(!denied(409, "admission webhook \"a.org\" denied the request: s3cret").contains("s3cret"));
        assert!(
            !denied(403, "user attempting to grant RBAC permissions not currently held: s3cret").contains("s3cret")
        );
        assert!(!denied(400, "s3cret").contains("s3cret"));
    }

    #[test]
    fn claims_are_never_recreated_and_the_reason_names_the_remedy() {
        let claim =
            ObjectRef { api_version: "v1".into(), kind: "PersistentVolumeClaim".into(), ..ObjectRef::default() };
        let job = ObjectRef { api_version: "batch/v1".into(), kind: "Job".into(), ..ObjectRef::default() };
        let error = rejected(422, "field is immutable");
        assert!(!may_recreate(&claim) && immutable(&claim, &error).contains("would lose its data"));
        assert!(may_recreate(&job) && immutable(&job, &error).ends_with("give --recreate"));
        assert!(needs_recreation(&immutable(&job, &error)) && !needs_recreation(&immutable(&claim, &error)));
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
