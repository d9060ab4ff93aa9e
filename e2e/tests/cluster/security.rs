//! What pods are allowed.

use std::sync::Arc;

use anyhow::{Context, bail, ensure};
use serde_json::{Value, json};

use crate::world::World;

/// All that is injected passes the restricted standard. What is published with a pod template of its own, which says nothing of users and capabilities, is
/// the exception: it stays as its author wrote it.
pub(crate) fn all_that_is_injected_is_restricted_and_the_exceptions_are_those_of_users(
    world: &Arc<World>,
) -> anyhow::Result<()> {
    let theirs = ["kcm", "kube-scheduler"];
    let pods = world.cluster().object("pods")?;
    let mut refused = Vec::new();
    for pod in pods["items"].as_array().context("a list has items")? {
        let name = pod["metadata"]["name"].as_str().unwrap_or_default();
        if let Err(said) = admitted(world, pod["spec"].clone()) {
            let said = format!("{said:#}");
            ensure!(said.contains("PodSecurity"), "{name}: {said}");
            // Containers that are wrong are named.
            ensure!(theirs.iter().any(|container| said.contains(&format!("\"{container}\""))), "{name}: {said}");
            refused.push(name.to_owned());
        }
        let mut ours = pod["spec"].clone();
        let containers = ours["containers"].as_array_mut().context("a pod has containers")?;
        containers.retain(|container| !theirs.iter().any(|name| container["name"] == *name));
        if containers.is_empty() {
            containers.push(restricted());
        }
        admitted(world, ours).with_context(|| format!("{name}, without what is its user's"))?;
    }
    ensure!(refused.len() == theirs.len(), "refused are {refused:?}");
    Ok(())
}

/// A trial in a namespace that takes restricted pods alone.
fn admitted(world: &World, mut spec: Value) -> anyhow::Result<()> {
    let Some(fields) = spec.as_object_mut() else { bail!("a pod has a spec") };
    // What the cluster has put in.
    for field in ["nodeName", "serviceAccount", "serviceAccountName", "tolerations", "priority", "preemptionPolicy"] {
        fields.remove(field);
    }
    let pod = json!({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "trial", "namespace": "trishanku-system"}, "spec": spec});
    let mut command = world.cluster().kubectl_command();
    command.args(["create", "--dry-run=server", "--filename=-"]);
    trishanku_e2e::nodes::kubectl::said(&mut command, &pod.to_string()).map(drop)
}

fn restricted() -> Value {
    json!({
        "name": "restricted", "image": "registry.k8s.io/pause:3.10.1",
        "securityContext": {
            "runAsNonRoot": true, "runAsUser": 65532, "allowPrivilegeEscalation": false,
            "capabilities": {"drop": ["ALL"]}, "seccompProfile": {"type": "RuntimeDefault"},
        },
    })
}
