//! The privileges of pods.

use std::sync::Arc;

use anyhow::{Context, bail, ensure};
use serde_json::{Value, json};
use trishanku_e2e::nodes::kubectl::said;

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

/// A controller without any permission, in a namespace that enforces the restricted standard: no port of its pod gives it
/// more than kube-apiserver does, whatever certificates it has.
pub(crate) fn a_controller_reaches_no_store_past_its_role(world: &Arc<World>) -> anyhow::Result<()> {
    world.kubectl("create namespace narrow")?;
    world.kubectl("label namespace narrow pod-security.kubernetes.io/enforce=restricted")?;
    let mut app = restricted();
    // A program that stays, in an image with clients of gitcd and of Git.
    app["name"] = json!("app");
    app["image"] = json!(format!("ghcr.io/trishanku-org/gitcd:{}", env!("CARGO_PKG_VERSION")));
    app["command"] = json!(["gitcd", "host", "--root=/data", "--listen-urls=http://127.0.0.1:9999"]);
    app["volumeMounts"] = json!([
        {"name": "data", "mountPath": "/data"},
        {"name": "mine", "mountPath": "/mine"},
    ]);
    let heaven = json!({
        "apiVersion": "controllers.trishanku.org.trishanku.org/v1alpha1", "kind": "TrishankuHeaven",
        "metadata": {"name": "narrow", "namespace": "narrow"},
        "spec": {
            "certificates": {"controller": {"userName": "narrow"}},
            "eventsEtcd": {"local": {}},
            "app": {"podTemplate": {"spec": {
                "containers": [app],
                "volumes": [
                    {"name": "data", "emptyDir": {}},
                    {"name": "mine", "secret": {"secretName": "narrow-controller"}},
                ],
            }}},
        },
    });
    said(world.cluster().kubectl_command().args(["apply", "--filename=-"]), &heaven.to_string())?;
    world.kubectl("wait --for=condition=Ready trishankuheaven/narrow --namespace narrow --timeout=4m")?;

    let role = world.heaven("narrow", "narrow", "narrow-controller")?;
    let refused = role.kubectl("get secrets --all-namespaces");
    ensure!(refused.as_ref().is_err_and(|error| error.to_string().contains("orbidden")), "{refused:?}");
    let exec = |container: &str, words: &str| {
        world.kubectl(&format!("exec --namespace narrow deployment/narrow-heaven --container {container} -- {words}"))
    };
    // The defaults of gitcd's own container work.
    let status = exec("gitcd", "gitcd status")?;
    ensure!(status.contains("COMMIT LAG"), "{status}");
    let mine = "--cacert=/mine/ca.crt --cert=/mine/tls.crt --key=/mine/tls.key";
    for port in [2479, 2379, 2380] {
        for words in [format!("http://127.0.0.1:{port}"), format!("https://127.0.0.1:{port} {mine}")] {
            let said = exec("app", &format!("gitcd health --timeout=10s --endpoint={words}"));
            ensure!(said.is_err(), "{words} answers {said:?}");
        }
    }
    // It is there, but not for this container.
    let there = exec("app", "git hash-object /mine/tls.crt")?;
    ensure!(there.trim().len() == 40, "{there}");
    for file in ["/.trishanku/store/store-client.key", "/root/repo/HEAD"] {
        let said = exec("app", &format!("git hash-object {file}"));
        ensure!(said.as_ref().is_err_and(|error| error.to_string().contains("o such file")), "{file}: {said:?}");
    }
    drop(role);
    world.kubectl("delete trishankuheaven narrow --namespace narrow --timeout=2m")?;
    world.kubectl("delete namespace narrow --timeout=2m")?;
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
    said(&mut command, &pod.to_string()).map(drop)
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
