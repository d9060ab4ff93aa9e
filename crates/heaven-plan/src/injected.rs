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
    let (mut value, mut found, mut rest, mut list) = (Some(pod), String::new(), path, "");
    while let Some(end) = rest.find(['.', '[']) {
        let (field, after) = rest.split_at(end);
        found.push_str(field);
        value = descend(value, field);
        // After an item, the rest of the path begins with a dot.
        if !field.is_empty() {
            list = field;
        }
        // A name can contain dots.
        if let Some((item, after)) = after.strip_prefix('[').and_then(|item| item.split_once(']')) {
            let position = position(value, list, item);
            found += &position.map_or_else(|| format!("[{item}]"), |(position, _)| format!("[{position}]"));
            if let Some((_, Some(field))) = position.filter(|_| after.is_empty()) {
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

/// Returns the position of the item of `list` that a path names, and the field by which it does; `None` for a position.
fn position(items: Option<&Value>, list: &str, name: &str) -> Option<(usize, Option<&'static str>)> {
    let items = items?.as_array()?;
    let by = |field: &'static str, is: &dyn Fn(&Value) -> bool| Some((items.iter().position(is)?, Some(field)));
    let found = match list {
        // Several mounts can be of one volume.
        "volumeMounts" => by("mountPath", &|mount| mount["mountPath"] == name),
        "volumeDevices" => by("devicePath", &|device| device["devicePath"] == name),
        "ports" => by("containerPort", &|port| is_port(port, name)),
        _ => None,
    };
    let found = found.or_else(|| by("name", &|item| list != "volumeMounts" && item["name"] == name));
    found.or_else(|| Some((name.parse().ok().filter(|position| *position < items.len())?, None)))
}

/// Returns whether a port is `53`, `53/UDP`, or `9000:53/UDP` with its port of the node, or `10.0.0.1:9000:53`.
fn is_port(port: &Value, name: &str) -> bool {
    let protocol = port["protocol"].as_str().unwrap_or("TCP");
    let (wanted, of_protocol) = name.split_once('/').unwrap_or((name, "TCP"));
    let (on_node, number) = wanted.rsplit_once(':').map_or((None, wanted), |(node, number)| (Some(node), number));
    let host_port = || match port["hostIP"].as_str() {
        Some(address) => format!("{address}:{}", port["hostPort"]),
        None => port["hostPort"].to_string(),
    };
    protocol == of_protocol
        && number.parse::<i64>().is_ok_and(|number| port["containerPort"] == number)
        && on_node.is_none_or(|on_node| host_port() == on_node)
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
                "initContainers": [{
                    "name": "i", "args": ["a"], "ports": [
                        {"containerPort": 80},
                        {"containerPort": 80, "name": "web"},
                        {"containerPort": 80, "hostPort": 9000},
                        {"containerPort": 80, "hostPort": 9000, "hostIP": "10.0.0.1"},
                    ],
                    "volumeMounts": [{"name": "w", "mountPath": "/w"}, {"name": "v", "mountPath": "w"}],
                }],
                "volumes": [{"name": "w"}],
            },
        });
        for (path, expected) in [
            ("spec.containers[two.x].ports[6443]", "spec.containers[1].ports[2].containerPort"),
            ("spec.containers[two.x].ports[53/UDP].hostPort", "spec.containers[1].ports[0].hostPort"),
            ("spec.containers[two.x].env[KUBECONFIG].value", "spec.containers[1].env[1].value"),
            ("spec.containers[two.x].volumeMounts[/b.c]", "spec.containers[1].volumeMounts[1].mountPath"),
            ("spec.volumes[w]", "spec.volumes[0].name"),
            // The second mount has the path that is the name of the first.
            ("spec.initContainers[i].volumeMounts[w]", "spec.initContainers[0].volumeMounts[1].mountPath"),
            // Ports with one number.
            ("spec.initContainers[i].ports[80]", "spec.initContainers[0].ports[0].containerPort"),
            ("spec.initContainers[i].ports[web]", "spec.initContainers[0].ports[1].name"),
            ("spec.initContainers[i].ports[9000:80].hostPort", "spec.initContainers[0].ports[2].hostPort"),
            ("spec.initContainers[i].ports[10.0.0.1:9000:80]", "spec.initContainers[0].ports[3].containerPort"),
            ("spec.initContainers[i].ports[2].hostPort", "spec.initContainers[0].ports[2].hostPort"),
            ("spec.initContainers[i].args[0]", "spec.initContainers[0].args[0]"),
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
