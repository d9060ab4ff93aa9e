//! Whether a template already has what would be injected.
//!
//! An apiserver adds defaults, and other webhooks add to what is injected. So an injected field must be present with its
//! value. Another field may be present only if it is a default, or known to be added by others without changing the meaning
//! of the injected ones.

use std::fmt;

use serde::Serialize;
use serde_json::{Value, json};

use crate::quantity;

/// Fields that may have any value if they are not injected: the cluster decides.
const FREE: [&str; 3] = ["imagePullPolicy", "resizePolicy", "resources"];

/// Maps to which others may add: quantities that a `LimitRange` sets.
const OPEN_MAPS: [&str; 3] = ["resources", "requests", "limits"];

/// Lists to which others may add, and the key of their elements: service account tokens, proxies' variables.
const OPEN_LISTS: [(&str, &str); 2] = [("env", "name"), ("volumeMounts", "mountPath")];

/// Quantities outside of these maps.
const QUANTITIES: [&str; 2] = ["sizeLimit", "divisor"];

/// Fields that an apiserver leaves out if they are false.
const LEFT_OUT: [&str; 3] = ["stdin", "stdinOnce", "tty"];

/// Returns whether an apiserver sets this value by default.
fn is_default(field: &str, value: &Value) -> bool {
    let default = match field {
        "terminationMessagePath" => json!("/dev/termination-log"),
        "terminationMessagePolicy" => json!("File"),
        "protocol" => json!("TCP"),
        "scheme" => json!("HTTP"),
        // Of a gRPC probe, of a host path.
        "service" | "type" => json!(""),
        "apiVersion" => json!("v1"),
        "timeoutSeconds" | "successThreshold" => json!(1),
        "periodSeconds" => json!(10),
        "failureThreshold" => json!(3),
        "defaultMode" => json!(0o644),
        "expirationSeconds" => json!(3600),
        // Of an environment variable with a resource, of a claim's template.
        "divisor" => json!("0"),
        "volumeMode" => json!("Filesystem"),
        "metadata" => json!({}),
        _ => return value.is_null() || value.as_array().is_some_and(Vec::is_empty),
    };
    *value == default
}

/// Returns whether an apiserver does not store this value.
fn is_left_out(field: &str, value: &Value) -> bool {
    value.as_array().is_some_and(Vec::is_empty) || (*value == json!(false) && LEFT_OUT.contains(&field))
}

/// A field that differs from the injected one, for readers: `image is "nginx"`.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Difference {
    /// Path of the field in its container or volume.
    pub(super) path: String,
    /// What was found there.
    pub(super) found: String,
}

impl fmt::Display for Difference {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "{} {}", self.path, self.found)
    }
}

/// Returns how `present` differs from `wanted`. Empty if it does not.
pub(super) fn differences<T: Serialize>(wanted: &T, present: &T) -> Vec<Difference> {
    let [wanted, present] =
        [wanted, present].map(|side| serde_json::to_value(side).expect("Kubernetes' types can be written as JSON"));
    let mut found = Vec::new();
    compare(&wanted, &present, &Place { path: String::new(), field: "" }, &mut found);
    found
}

struct Place<'a> {
    path: String,
    /// The last field of the path.
    field: &'a str,
}

impl Place<'_> {
    fn field<'a>(&self, field: &'a str) -> Place<'a> {
        let dot = if self.path.is_empty() { "" } else { "." };
        Place { path: format!("{}{dot}{field}", self.path), field }
    }

    fn element(&self, element: &str) -> Self {
        Place { path: format!("{}[{element}]", self.path), field: self.field }
    }

    fn found(&self, found: impl Into<String>) -> Difference {
        Difference { path: self.path.clone(), found: found.into() }
    }

    /// Describes a difference. Omits arguments and variables, which may be secrets, and large values.
    fn differs(&self, present: &Value) -> Difference {
        let is_secret =
            self.path.split(['.', '[']).any(|field| ["env", "args", "command", "httpHeaders"].contains(&field));
        if is_secret || present.is_object() || present.is_array() {
            return self.found("differs");
        }
        self.found(format!("is {present}"))
    }
}

fn compare(wanted: &Value, present: &Value, at: &Place<'_>, found: &mut Vec<Difference>) {
    match (wanted, present) {
        (Value::Object(wanted), Value::Object(present)) => {
            for (field, wanted) in wanted {
                let at = at.field(field);
                match present.get(field) {
                    Some(present) => compare(wanted, present, &at, found),
                    None if is_left_out(at.field, wanted) => {}
                    None => found.push(at.found("is missing")),
                }
            }
            let is_open = OPEN_MAPS.contains(&at.field);
            for (field, value) in present.iter().filter(|(field, _)| !is_open && !wanted.contains_key(*field)) {
                // Set for pods in the node's network.
                let is_host_port = field == "hostPort" && present.get("containerPort") == Some(value);
                let is_free = FREE.contains(&field.as_str()) || is_open_list(field) || is_host_port;
                if !is_free && !is_default(field, value) {
                    found.push(at.field(field).differs(value));
                }
            }
        }
        (Value::Array(wanted), Value::Array(present)) => lists(wanted, present, at, found),
        (Value::String(wanted), Value::String(present)) => {
            let is_quantity = OPEN_MAPS.iter().any(|map| at.path.ends_with(&format!("{map}.{}", at.field)));
            let is_same = if is_quantity || QUANTITIES.contains(&at.field) {
                quantity::is_same(wanted, present)
            } else {
                wanted == present
            };
            if !is_same {
                found.push(at.differs(&Value::String(present.clone())));
            }
        }
        (wanted, present) if wanted == present => {}
        (_, present) => found.push(at.differs(present)),
    }
}

fn is_open_list(field: &str) -> bool {
    OPEN_LISTS.iter().any(|(list, _)| *list == field)
}

fn lists(wanted: &[Value], present: &[Value], at: &Place<'_>, found: &mut Vec<Difference>) {
    if let Some((_, key)) = OPEN_LISTS.iter().find(|(list, _)| *list == at.field) {
        for wanted in wanted {
            let of = &wanted[*key];
            let at = at.element(of.as_str().unwrap_or_default());
            // If several have the same name, the last one counts.
            match present.iter().rfind(|present| present[*key] == *of) {
                Some(present) => compare(wanted, present, &at, found),
                None => found.push(at.found("is missing")),
            }
        }
    } else if wanted.len() == present.len() {
        for (index, (wanted, present)) in wanted.iter().zip(present).enumerate() {
            compare(wanted, present, &at.element(&index.to_string()), found);
        }
    } else {
        found.push(at.found(format!("has {} elements", present.len())));
    }
}

#[cfg(test)]
mod tests {
    use k8s_openapi::api::core::v1::{Container, Volume};
    use serde::de::DeserializeOwned;

    use super::*;

    fn found<T: Serialize + DeserializeOwned>(wanted: &Value, present: &Value) -> Vec<String> {
        let [wanted, present] =
            [wanted, present].map(|side| serde_json::from_value::<T>(side.clone()).expect("the object is valid"));
        differences(&wanted, &present).iter().map(ToString::to_string).collect()
    }

    #[test]
    fn defaults_and_what_others_add_make_no_difference() {
        let wanted = json!({
            "name": "a", "image": "a:1", "env": [{"name": "X", "value": "1"}],
            "ports": [{"containerPort": 80, "name": "web"}], "resources": {"requests": {"cpu": "1000m"}},
            "readinessProbe": {"httpGet": {"path": "/", "port": 80}},
        });
        let present = json!({
            "name": "a", "image": "a:1", "imagePullPolicy": "IfNotPresent",
            "env": [{"name": "PROXY", "value": "y"}, {"name": "X", "value": "1"}],
            "ports": [{"containerPort": 80, "name": "web", "protocol": "TCP", "hostPort": 80}],
            "resources": {"requests": {"cpu": "1", "memory": "1Gi"}, "limits": {"cpu": "2"}},
            "readinessProbe": {
                "httpGet": {"path": "/", "port": 80, "scheme": "HTTP"},
                "timeoutSeconds": 1, "periodSeconds": 10, "successThreshold": 1, "failureThreshold": 3,
            },
            "terminationMessagePath": "/dev/termination-log", "terminationMessagePolicy": "File",
            "volumeMounts": [{"name": "token", "mountPath": "/var/run/secrets/kubernetes.io/serviceaccount"}],
        });
        assert_eq!(found::<Container>(&wanted, &present), [""; 0]);
    }

    #[test]
    fn what_changes_the_meaning_is_a_difference_even_if_all_that_is_wanted_is_there() {
        let wanted = json!({"name": "a", "image": "a:1", "env": [{"name": "X"}], "volumeMounts": [{"name": "v", "mountPath": "/v"}]});
        for (field, value, expected) in [
            ("image", json!("b:1"), "image is \"b:1\""),
            ("command", json!(["sh"]), "command differs"),
            ("livenessProbe", json!({"exec": {"command": ["curl"]}}), "livenessProbe differs"),
            ("args", json!(["--password=x"]), "args differs"),
            ("env", json!([{"name": "X", "value": "secret"}]), "env[X].value differs"),
            ("env", json!([]), "env[X] is missing"),
            ("env", json!([{"name": "X"}, {"name": "X", "value": "last counts"}]), "env[X].value differs"),
            ("envFrom", json!([{"secretRef": {"name": "s"}}]), "envFrom differs"),
            (
                "volumeMounts",
                json!([{"name": "v", "mountPath": "/v", "readOnly": true}]),
                "volumeMounts[/v].readOnly is true",
            ),
            ("volumeMounts", json!([{"name": "w", "mountPath": "/v"}]), "volumeMounts[/v].name is \"w\""),
            ("securityContext", json!({"privileged": true}), "securityContext differs"),
            ("restartPolicy", json!("Always"), "restartPolicy is \"Always\""),
            ("terminationMessagePath", json!("/tmp/x"), "terminationMessagePath is \"/tmp/x\""),
        ] {
            let mut present = wanted.clone();
            present[field] = value;
            assert_eq!(found::<Container>(&wanted, &present), [expected]);
        }
    }

    #[test]
    fn values_that_may_be_secrets_are_not_printed() {
        let with = |token: &str| {
            json!({
                "name": "a", "args": [token], "env": [{"name": "X", "value": token}],
                "startupProbe": {"exec": {"command": ["curl", token]}},
            })
        };
        let expected = ["args[0] differs", "env[X].value differs", "startupProbe.exec.command[1] differs"];
        assert_eq!(found::<Container>(&with("mine"), &with("theirs")), expected);
    }

    #[test]
    fn a_volume_of_another_source_is_another_one() {
        let [dir, secret] = [
            json!({"name": "v", "emptyDir": {}}),
            json!({"name": "v", "secret": {"secretName": "s", "defaultMode": 420}}),
        ];
        assert_eq!(found::<Volume>(&dir, &secret), ["emptyDir is missing", "secret differs"]);
        assert_eq!(found::<Volume>(&json!({"name": "v", "secret": {"secretName": "s"}}), &secret), [""; 0]);
        let [half, other] = ["512Mi", "0.5Gi"].map(|limit| json!({"name": "v", "emptyDir": {"sizeLimit": limit}}));
        assert_eq!(found::<Volume>(&half, &other), [""; 0]);
    }
}
