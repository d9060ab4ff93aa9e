//! The privileges of pods.

use std::sync::Arc;

use anyhow::{Context, bail, ensure};
use serde_json::{Value, json};

use crate::world::World;

/// All injected containers meet the restricted standard. A published pod template that says nothing of users and capabilities
/// is the exception: it stays as its author wrote it.
pub(crate) fn all_that_is_injected_is_restricted_and_the_exceptions_are_those_of_users(
    world: &Arc<World>,
) -> anyhow::Result<()> {
    let theirs = ["kcm", "kube-scheduler"];
    let pods = world.cluster().object("pods")?;
    let mut refused = Vec::new();
    for pod in pods["items"].as_array().context("the list has no items")? {
        let name = pod["metadata"]["name"].as_str().unwrap_or_default();
        if let Err(said) = admitted(world, pod["spec"].clone()) {
            let said = format!("{said:#}");
            ensure!(said.contains("PodSecurity"), "{name}: {said}");
            // The error names the containers that violate the standard.
            ensure!(theirs.iter().any(|container| said.contains(&format!("\"{container}\""))), "{name}: {said}");
            refused.push(name.to_owned());
        }
        let mut ours = pod["spec"].clone();
        let containers = ours["containers"].as_array_mut().context("the pod has no containers")?;
        containers.retain(|container| !theirs.iter().any(|name| container["name"] == *name));
        if containers.is_empty() {
            containers.push(restricted());
        }
        admitted(world, ours).with_context(|| format!("{name} without its user's containers"))?;
    }
    ensure!(refused.len() == theirs.len(), "refused: {refused:?}");
    Ok(())
}

/// Dry-runs a pod in a namespace that enforces the restricted standard.
fn admitted(world: &World, mut spec: Value) -> anyhow::Result<()> {
    let Some(fields) = spec.as_object_mut() else { bail!("the pod has no spec") };
    // Fields that the cluster has added.
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
