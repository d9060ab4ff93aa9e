//! Converts responses of a kube-apiserver into files of a branch and findings.

use gitcd_merge::admit::Finding;
use gitcd_merge::value::{Map, Value};
use serde_json::Value as Json;

use super::Verdict;

/// Fields of `metadata` that a file keeps, because a dry run generates new values for them.
const OWN: [&str; 5] = ["uid", "resourceVersion", "creationTimestamp", "managedFields", "selfLink"];

/// Returns an object as JSON; `None` if the value is not an object with a name.
pub(super) fn as_json(object: &[u8]) -> Option<Json> {
    let (value, _) = Value::parse(object)?;
    value.given(&["metadata", "name"])?;
    serde_json::from_slice(&value.write(gitcd_merge::value::Syntax::Json)).ok()
}

/// Removes fields from the metadata.
pub(super) fn forget(object: &mut Json, fields: &[&str]) {
    if let Some(metadata) = object["metadata"].as_object_mut() {
        metadata.retain(|name, _| !fields.contains(&name.as_str()));
    }
}

/// Returns the result for an object that the API server would store as `answer`.
pub(super) fn verdict(object: &[u8], answer: &Json, is_new: bool) -> Verdict {
    let (Some((Value::Map(own), syntax)), Some((Value::Map(mut answer), _))) =
        (Value::parse(object), Value::parse(answer.to_string().as_bytes()))
    else {
        return Verdict::Accepted;
    };
    let keep = |answer: &mut Map, own: &Map, name: &str| match own.get(name) {
        Some(value) => answer.set(name, value.clone()),
        None => answer.remove(name),
    };
    if let (Some(Value::Map(metadata)), Some(Value::Map(before))) = (answer.get_mut("metadata"), own.get("metadata")) {
        OWN.iter().for_each(|name| keep(metadata, before, name));
        if before.get("generation").is_some() {
            keep(metadata, before, "generation");
        }
    }
    if !is_new {
        // The API server ignores the status in an update.
        keep(&mut answer, &own, "status");
    }
    let mut completed = own.clone();
    overlay(&mut completed, &answer);
    if completed == own {
        Verdict::Accepted
    } else {
        Verdict::Completed(Value::Map(completed).write_over(syntax, object).into())
    }
}

/// Sets the content of a map to that of `target`, and keeps its order of fields.
fn overlay(map: &mut Map, target: &Map) {
    let gone: Vec<String> =
        map.iter().map(|(name, _)| name.into_owned()).filter(|name| target.get(name).is_none()).collect();
    for name in gone {
        // The API server omits empty fields.
        if map.get(&name).is_some_and(|value| !is_empty(value)) {
            map.remove(&name);
        }
    }
    for (name, value) in target.iter() {
        match map.get_mut(&name) {
            Some(own) => overlay_value(own, value),
            None => map.set(&name, value.clone()),
        }
    }
}

fn overlay_value(own: &mut Value, target: &Value) {
    match (own, target) {
        (Value::Map(own), Value::Map(target)) => overlay(own, target),
        (Value::List(own), Value::List(target)) if own.len() == target.len() => {
            own.iter_mut().zip(target).for_each(|(own, target)| overlay_value(own, target));
        }
        (own, target) if own != target => *own = target.clone(),
        _ => {}
    }
}

fn is_empty(value: &Value) -> bool {
    match value {
        Value::Scalar(text) => matches!(&**text, "null" | "\"\"" | "false" | "0"),
        Value::List(items) => items.is_empty(),
        Value::Map(map) => map.iter().all(|(_, value)| is_empty(value)),
    }
}

/// Returns the causes of a `Status` by field, else its message.
pub(super) fn findings(status: &Json) -> Vec<Finding> {
    let causes = status["details"]["causes"].as_array().map(Vec::as_slice).unwrap_or_default();
    let of_fields: Vec<Finding> = causes
        .iter()
        .filter_map(|cause| {
            let (field, message) = (cause["field"].as_str()?, cause["message"].as_str()?);
            (!field.is_empty()).then(|| Finding::of_field(field, message))
        })
        .collect();
    if !of_fields.is_empty() {
        return of_fields;
    }
    let message = status["message"].as_str().filter(|message| !message.is_empty());
    vec![Finding::whole(message.unwrap_or("kube-apiserver gave no reason"))]
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    const FILE: &str = "# the shop\napiVersion: v1\nkind: Service\nmetadata:\n  name: shop  # a name\n  namespace: shop\n  uid: u\nspec:\n  ports:\n    - port: 80\n  externalIPs: []\n";

    #[test]
    fn defaults_of_the_api_server_are_added_and_comments_stay() {
        let answer = json!({"apiVersion": "v1", "kind": "Service",
            "metadata": {"name": "shop", "namespace": "shop", "uid": "another", "resourceVersion": "1", "managedFields": [{}], "generation": 1},
            "spec": {"ports": [{"port": 80, "protocol": "TCP", "targetPort": 80}], "clusterIP": "10.0.0.7"}, "status": {"loadBalancer": {}}});
        let Verdict::Completed(file) = verdict(FILE.as_bytes(), &answer, true) else { panic!("not completed") };
        let text = std::str::from_utf8(&file).unwrap();
        for kept in ["# the shop\n", "name: shop  # a name\n", "uid: u\n", "externalIPs: []\n"] {
            assert!(text.contains(kept), "{text}");
        }
        let (value, _) = Value::parse(&file).unwrap();
        assert_eq!(value.given(&["spec", "clusterIP"]).as_deref(), Some("10.0.0.7"));
        assert_eq!(value.given(&["metadata", "resourceVersion"]), None);
        assert_eq!(value.at(&["metadata", "managedFields"]), None);
        assert!(value.at(&["status", "loadBalancer"]).is_some());
        // A second dry run of the result adds nothing.
        assert_eq!(verdict(&file, &answer, true), Verdict::Accepted);
    }

    #[test]
    fn an_update_leaves_the_status_to_the_merge() {
        let answer = json!({"apiVersion": "v1", "kind": "Service", "metadata": {"name": "shop", "namespace": "shop", "uid": "u"},
            "spec": {"ports": [{"port": 80}]}, "status": {"loadBalancer": {}}});
        assert_eq!(verdict(FILE.as_bytes(), &answer, false), Verdict::Accepted);
    }

    #[test]
    fn causes_are_reported_with_their_fields() {
        let status = json!({"message": "all of it", "details": {"causes": [
            {"field": "spec.ports[0].port", "message": "Invalid value: 0: must be between 1 and 65535"}]}});
        let reason =
            gitcd_merge::admit::reason(&findings(&status), FILE.as_bytes(), gitcd_merge::secrecy::Exposure::Open);
        assert_eq!(reason, "line 10: spec.ports[0].port: Invalid value: 0: must be between 1 and 65535");
        let whole = findings(&json!({"message": "denied by policy"}));
        assert_eq!(gitcd_merge::admit::reason(&whole, b"", gitcd_merge::secrecy::Exposure::Open), "denied by policy");
    }
}
