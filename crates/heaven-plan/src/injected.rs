//! A heaven beside pods that other controllers create; pure.

use serde_json::{Value, json};

use crate::HeavenParts;
use crate::plan::{EntryPoints, Images};
use crate::pod::{self, HeavenPod, PodError};
use crate::workload::Replicas;

/// Label of namespaces whose pods get a heaven; the value is the name of the `TrishankuHeaven`. On a pod, the value `false`
/// leaves the pod out.
pub const INJECT: &str = "controllers.trishanku.org/inject";

/// The folder of the kubeconfig in pods, unless the heaven sets a path.
const KUBECONFIG: &str = "/.trishanku/kubeconfig";

/// The replicas of an injected heaven are pods, whose names are unique in a namespace.
const PODS: Replicas = Replicas::Named { field: "metadata.name", has_claims: false };

/// Returns a heaven that sets `skip.app`, as it is beside a pod. Its plan refers to the pod's own fields.
pub fn parts<'s>(heaven: HeavenParts<'s>, pod: &'s Value) -> HeavenParts<'s> {
    HeavenParts { skips_app: false, kubeconfig_folder: Some(KUBECONFIG), pod_template: Some(pod), ..heaven }
}

/// Returns a pod with a heaven beside its containers. `heaven` is the result of [`parts`].
///
/// # Errors
/// [`PodError`] with the field and the solution.
pub fn of_pod(heaven: &HeavenParts<'_>, images: &Images, entry_points: &EntryPoints) -> Result<HeavenPod, PodError> {
    if heaven.user.is_none() {
        // Its kubeconfig would not exist, and pods would wait for it.
        return Err(PodError::NoUser);
    }
    pod::of_heaven(heaven, images, entry_points, PODS)
}

/// Checks a heaven that sets `skip.app` without a pod: against one that has no conflict.
///
/// # Errors
/// [`PodError`], as the webhook would reject every pod.
pub fn check(heaven: HeavenParts<'_>) -> Result<(), PodError> {
    let pod = json!({"spec": {"containers": [{"name": "app", "image": "app"}]}});
    of_pod(&parts(heaven, &pod), &Images::default(), &EntryPoints::default()).map(drop)
}

/// Returns the path of a field in a pod with the positions of list items, as in the errors of kube-apiserver: a path such as
/// `spec.containers[app].ports[8080]` has their names, which are unique in a template, but not understood by other programs.
/// If it ends with an item, the field with the name is added. Keys of maps, and items that the pod lacks, stay as they are.
pub fn positions(pod: &Value, path: &str) -> String {
    let (mut value, mut found, mut rest) = (Some(pod), String::new(), path);
    while let Some(end) = rest.find(['.', '[']) {
        let (field, after) = rest.split_at(end);
        found.push_str(field);
        value = descend(value, field);
        // A name can contain dots.
        if let Some((item, after)) = after.strip_prefix('[').and_then(|item| item.split_once(']')) {
            let position = position(value, item);
            found += &position.map_or_else(|| format!("[{item}]"), |(position, _)| format!("[{position}]"));
            if let Some((_, field)) = position.filter(|_| after.is_empty()) {
                found = format!("{found}.{field}");
            }
            value = value.and_then(|list| list.get(position?.0));
            rest = after;
        } else {
            found.push('.');
            rest = &after[1..];
        }
    }
    found + rest
}

fn descend<'v>(value: Option<&'v Value>, field: &str) -> Option<&'v Value> {
    // After an item, the rest of the path begins with a dot.
    if field.is_empty() { value } else { value?.get(field) }
}

/// Returns the position of a list's item with this name, and the field that has it: another one that is unique in its list, where items
/// of injections are known by that.
fn position(list: Option<&Value>, name: &str) -> Option<(usize, &'static str)> {
    let items = list?.as_array()?;
    let is = |item: &Value, field: &str| match &item[field] {
        Value::String(text) => text == name,
        Value::Number(number) => {
            // As in `53/UDP`.
            let protocol = item["protocol"].as_str().unwrap_or("TCP");
            *name == number.to_string() || *name == format!("{number}/{protocol}")
        }
        _ => false,
    };
    let by = |field: &'static str| Some((items.iter().position(|item| is(item, field))?, field));
    ["name", "mountPath", "containerPort"].into_iter().find_map(by)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_path_has_the_positions_of_the_items_that_it_names() {
        let pod = json!({
            "metadata": {"labels": {"a.b/c": "d"}},
            "spec": {
                "containers": [
                    {"name": "one"},
                    {
                        "name": "two.x", "env": [{"name": "A"}, {"name": "KUBECONFIG"}],
                        "ports": [{"containerPort": 53, "protocol": "UDP"}, {"containerPort": 53}, {"containerPort": 6443}],
                        "volumeMounts": [{"name": "v", "mountPath": "/a"}, {"name": "w", "mountPath": "/b.c"}],
                    },
                ],
                "volumes": [{"name": "w"}],
            },
        });
        for (path, expected) in [
            ("spec.containers[two.x].ports[6443]", "spec.containers[1].ports[2].containerPort"),
            ("spec.containers[two.x].ports[53/UDP].hostPort", "spec.containers[1].ports[0].hostPort"),
            ("spec.containers[two.x].env[KUBECONFIG].value", "spec.containers[1].env[1].value"),
            ("spec.containers[two.x].volumeMounts[/b.c]", "spec.containers[1].volumeMounts[1].mountPath"),
            ("spec.volumes[w]", "spec.volumes[0].name"),
            ("spec.containers[one]", "spec.containers[0].name"),
            // Keys of maps, and what the pod does not have.
            ("metadata.labels[a.b/c]", "metadata.labels[a.b/c]"),
            ("spec.initContainers[gitcd].ports[1]", "spec.initContainers[gitcd].ports[1]"),
            ("spec.containers[three].ports[53].hostPort", "spec.containers[three].ports[53].hostPort"),
            ("spec.hostNetwork", "spec.hostNetwork"),
            ("", ""),
        ] {
            assert_eq!(positions(&pod, path), expected, "{path}");
        }
    }
}
