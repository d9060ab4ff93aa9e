//! Heavens beside the pods of a labelled namespace, by the steps of the documentation.

use std::sync::Arc;

use anyhow::{Context, ensure};
use serde_json::{Value, json};

use crate::world::{World, until};

const NAMESPACE: &str = "shop";

/// A Deployment of two replicas, without a word of Trishanku in it: each pod gets a kube-apiserver on a branch of its own. What
/// does not fit is refused with a reason that its `ReplicaSet` shows.
pub(crate) fn pods_of_a_labelled_namespace_get_heavens(world: &Arc<World>) -> anyhow::Result<()> {
    world.documented("kubectl apply --server-side --kustomize deploy/kustomize/overlays/injection")?;
    world
        .documented("kubectl rollout status deployment/trishanku-manager --namespace trishanku-system --timeout=3m")?;
    for command in [
        "kubectl wait --for=jsonpath='{.webhooks[0].name}'=pods.controllers.trishanku.org mutatingwebhookconfiguration/trishanku.trishanku-system --timeout=1m",
        "kubectl create namespace shop",
        "kubectl apply --namespace shop --filename examples/injected-heaven.yaml",
        "kubectl wait --for=condition=CertificatesReady trishankuheaven/shop --namespace shop --timeout=2m",
        "kubectl label namespace shop controllers.trishanku.org/inject=shop",
    ] {
        world.documented(command)?;
    }
    let image = "registry.k8s.io/pause:3.10.1";
    let labels = json!({"app": "web"});
    let deployment = json!({
        "apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": "web", "namespace": NAMESPACE},
        "spec": {"replicas": 2, "selector": {"matchLabels": labels}, "template": {
            "metadata": {"labels": labels},
            "spec": {"containers": [{"name": "app", "image": image}]},
        }},
    });
    world.cluster().apply(&deployment.to_string())?;
    let pods = until("two ready pods with a heaven each", || {
        let pods = world.cluster().object(&format!("pods --namespace {NAMESPACE} --selector=app=web"))?;
        let pods = pods["items"].as_array().cloned().unwrap_or_default();
        ensure!(pods.iter().all(has_heaven), "a pod has no heaven");
        let is_ready = |pod: &&Value| {
            let conditions = pod["status"]["conditions"].as_array().cloned().unwrap_or_default();
            conditions.iter().any(|found| found["type"] == "Ready" && found["status"] == "True")
        };
        Ok((pods.len() == 2 && pods.iter().filter(is_ready).count() == 2).then_some(pods))
    })?;
    let names: Vec<_> = pods.iter().filter_map(|pod| pod["metadata"]["name"].as_str()).collect();
    let [first, second] = names[..] else { anyhow::bail!("{names:?}") };

    let [one, other] =
        [first, second].map(|pod| world.heaven_in(NAMESPACE, "shop", "shop-admin", &format!("pod/{pod}")));
    let (one, other) = (one?, other?);
    one.kubectl("create configmap mine --from-literal=pod=first")?;
    let found = other.kubectl("get configmap mine --ignore-not-found --output=name")?;
    ensure!(found.is_empty(), "the other pod has it, too: {found}");
    until("the commit in the branch of the pod", || {
        let log = world.kubectl(&format!(
            "exec --namespace {NAMESPACE} {first} --container gitcd -- gitcd log --repo=/root/repo \
             --data-reference-names=default=refs/heads/shop/{first} \
             --metadata-reference-names=default=refs/gitcd/metadata/shop/{first} configmaps/default/mine"
        ))?;
        Ok(log.contains("create").then_some(()))
    })?;
    drop((one, other));

    // A container with the name of one of the heaven's: the ReplicaSet says why it has no pods.
    world.kubectl(&format!("create deployment clash --image={image} --namespace {NAMESPACE}"))?;
    let patch = json!([{"op": "replace", "path": "/spec/template/spec/containers/0/name", "value": "gitcd"}]);
    world.kubectl(&format!("patch deployment clash --namespace {NAMESPACE} --type=json --patch={patch}"))?;
    until("the reason in the events", || {
        let events = world.cluster().object(&format!("events --namespace {NAMESPACE}"))?;
        let events = events["items"].as_array().cloned().unwrap_or_default();
        let messages = events.iter().filter_map(|event| event["message"].as_str());
        Ok(messages.into_iter().any(|said| said.contains("does not fit into the pod")).then_some(()))
    })?;

    world.kubectl(&format!("delete namespace {NAMESPACE} --timeout=3m"))?;
    world.documented("kubectl apply --server-side --kustomize deploy/kustomize/default")?;
    world
        .documented("kubectl rollout status deployment/trishanku-manager --namespace trishanku-system --timeout=3m")
        .context("the manager without the webhook")?;
    world.documented("kubectl delete --kustomize deploy/kustomize/components/injection")?;
    world.documented("kubectl delete secret trishanku-webhooks --namespace trishanku-system").map(drop)
}

fn has_heaven(pod: &Value) -> bool {
    let containers = pod["spec"]["initContainers"].as_array().cloned().unwrap_or_default();
    containers.iter().any(|container| container["name"] == "kube-apiserver")
}
