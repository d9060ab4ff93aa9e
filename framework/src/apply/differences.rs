//! Differences between the desired and the live object.

use std::collections::HashSet;

use serde_json::Value;

use crate::quantity;

/// A field that differs from the desired state.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Difference {
    /// Path of the field: `spec.template.spec.containers[app].image`.
    pub path: String,
    /// The live value; `None` if the field is absent.
    pub is: Option<Value>,
    /// The desired value.
    pub wanted: Value,
}

/// Returns the fields of `wanted` that `live` lacks, or has with another value. Fields that only `live` has do not count.
///
/// Lists whose elements have unique names (mounts: paths) are compared by name, because the server may add elements of its
/// own; others by position. An empty map or list equals an absent one.
pub fn differences(wanted: &Value, live: &Value) -> Vec<Difference> {
    let mut found = Vec::new();
    compare(wanted, Some(live), &mut String::new(), &mut found);
    found
}

fn compare(wanted: &Value, live: Option<&Value>, path: &mut String, found: &mut Vec<Difference>) {
    match (wanted, live) {
        (Value::Null, None | Some(Value::Null)) => {}
        (Value::Object(wanted), None) if wanted.is_empty() => {}
        (Value::Array(wanted), None) if wanted.is_empty() => {}
        (Value::Object(wanted), Some(Value::Object(live))) => {
            for (field, wanted) in wanted {
                let separator = if path.is_empty() { "" } else { "." };
                within(path, &format!("{separator}{field}"), |path| compare(wanted, live.get(field), path, found));
            }
        }
        (Value::Array(wanted), Some(Value::Array(live))) => lists(wanted, live, path, found),
        (wanted, Some(live)) if same(wanted, live) || same_amount(wanted, live, path) => {}
        (wanted, live) => {
            found.push(Difference { path: path.clone(), is: live.cloned(), wanted: wanted.clone() });
        }
    }
}

fn lists(wanted: &[Value], live: &[Value], path: &mut String, found: &mut Vec<Difference>) {
    if let Some(key) = KEYS.into_iter().find(|key| is_key(key, wanted)) {
        for element in wanted {
            let theirs = live.iter().find(|theirs| theirs.get(key) == element.get(key));
            let of = element[key].as_str().unwrap_or_default();
            within(path, &format!("[{of}]"), |path| compare(element, theirs, path, found));
        }
    } else if wanted.len() == live.len() {
        for (index, (element, theirs)) in wanted.iter().zip(live).enumerate() {
            within(path, &format!("[{index}]"), |path| compare(element, Some(theirs), path, found));
        }
    } else {
        let (is, wanted) = (Some(Value::Array(live.to_vec())), Value::Array(wanted.to_vec()));
        found.push(Difference { path: path.clone(), is, wanted });
    }
}

/// Fields that identify the elements of a list, if all have them: a volume may be mounted at two paths.
pub(super) const KEYS: [&str; 2] = ["mountPath", "name"];

pub(super) fn is_key(key: &str, elements: &[Value]) -> bool {
    let mut seen = HashSet::new();
    let is_name =
        |element: &Value| element.get(key).and_then(Value::as_str).is_some_and(|name| seen.insert(name.to_owned()));
    !elements.is_empty() && elements.iter().all(is_name)
}

/// Returns whether two quantities are equal. The apiserver rewrites quantities, so a comparison of text would apply some for
/// ever.
fn same_amount(wanted: &Value, live: &Value, path: &str) -> bool {
    let is_quantity =
        path.contains("resources.requests.") || path.contains("resources.limits.") || path.ends_with(".sizeLimit");
    // Users write `cpu: 1` too.
    let text = |value: &Value| match value {
        Value::String(text) => Some(text.clone()),
        Value::Number(number) => Some(number.to_string()),
        _ => None,
    };
    is_quantity && text(wanted).zip(text(live)).is_some_and(|(wanted, live)| quantity::is_same(&wanted, &live))
}

/// Returns whether two values are equal. Numbers have several forms, and as floats, large integers may be equal that are not.
pub(super) fn same(wanted: &Value, live: &Value) -> bool {
    let is_floating = wanted.is_f64() || live.is_f64();
    wanted == live || is_floating && wanted.as_f64().is_some_and(|number| live.as_f64() == Some(number))
}

pub(super) fn within(path: &mut String, step: &str, inside: impl FnOnce(&mut String)) {
    let length = path.len();
    path.push_str(step);
    inside(path);
    path.truncate(length);
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn paths(wanted: &Value, live: &Value) -> Vec<String> {
        differences(wanted, live).into_iter().map(|difference| difference.path).collect()
    }

    #[test]
    fn only_what_is_wanted_counts() {
        let live = json!({"spec": {"replicas": 1, "strategy": {"type": "RollingUpdate"}, "paused": false, "serial": 9_007_199_254_740_992_u64}, "status": {}});
        for (wanted, expected) in [
            (json!({"spec": {"replicas": 1}}), vec![]),
            (json!({"spec": {"replicas": 1.0, "selector": {}, "volumes": []}}), vec![]),
            (json!({"spec": {"replicas": 2}}), vec!["spec.replicas"]),
            // As floats, these are equal.
            (json!({"spec": {"serial": 9_007_199_254_740_993_u64}}), vec!["spec.serial"]),
            (json!({"spec": {"replicas": 1, "paused": null}}), vec!["spec.paused"]),
            (json!({"spec": {"strategy": {"type": "Recreate"}}, "more": {"a": 1}}), vec!["spec.strategy.type", "more"]),
        ] {
            assert_eq!(paths(&wanted, &live), expected, "{wanted}");
        }
    }

    #[test]
    fn quantities_are_the_same_however_they_are_written() {
        let resources = |cpu: Value, memory: &str| json!({"c": [{"name": "a", "resources": {"requests": {"cpu": cpu}, "limits": {"memory": memory}}}], "v": {"sizeLimit": memory}});
        let live = resources(json!("1"), "1Gi");
        assert_eq!(paths(&resources(json!("1000m"), "1024Mi"), &live), [""; 0]);
        assert_eq!(paths(&resources(json!(1), "1Gi"), &live), [""; 0]);
        assert_eq!(paths(&resources(json!("1001m"), "1Gi"), &live), ["c[a].resources.requests.cpu"]);
        assert_eq!(
            paths(&json!({"version": "1.0"}), &json!({"version": "1"})),
            ["version"],
            "not everything is a quantity"
        );
    }

    #[test]
    fn lists_are_compared_by_name_where_there_are_names() {
        let live = json!({
            "c": [{"name": "injected"}, {"name": "app", "image": "1", "policy": "Always"}], "args": ["a", "b"],
            "mounts": [{"name": "v", "mountPath": "/a"}, {"name": "v", "mountPath": "/b"}],
            "rules": [{"name": "r", "port": 1}, {"name": "r", "port": 2}],
        });
        for (wanted, expected) in [
            (json!({"c": [{"name": "app", "image": "1"}], "args": ["a", "b"]}), vec![]),
            (json!({"c": [{"name": "app", "image": "2"}]}), vec!["c[app].image"]),
            (json!({"c": [{"name": "other"}]}), vec!["c[other]"]),
            (json!({"args": ["a", "c"]}), vec!["args[1]"]),
            (json!({"args": ["a"]}), vec!["args"]),
            (json!({"args": []}), vec!["args"]),
            (json!({"mounts": [{"name": "v", "mountPath": "/b"}, {"name": "v", "mountPath": "/a"}]}), vec![]),
            (json!({"mounts": [{"name": "w", "mountPath": "/b"}]}), vec!["mounts[/b].name"]),
            (json!({"rules": [{"name": "r", "port": 1}, {"name": "r", "port": 2}]}), vec![]),
            (json!({"rules": [{"name": "r", "port": 1}, {"name": "r", "port": 3}]}), vec!["rules[1].port"]),
        ] {
            assert_eq!(paths(&wanted, &live), expected, "{wanted}");
        }
        let found = differences(&json!({"args": ["a", "c"]}), &live);
        assert_eq!((&found[0].is, &found[0].wanted), (&Some(json!("b")), &json!("c")));
    }
}
