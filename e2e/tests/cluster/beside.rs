//! How long a Deployment takes in a headless cluster in pods, compared with the cluster that runs these pods.

use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::{bail, ensure};
use serde_json::{Value, json};
use trishanku_e2e::nodes::kubectl::said;
use trishanku_e2e::wait::until_within;

use crate::headless::{CONTROLLERS, NODE, deployment, node};
use crate::world::{Heaven, PATIENCE, World};

const REPLICAS: usize = 10;
/// A taint of the stand-in node: only these replicas may be bound there, above all no other pod of the host cluster.
const TAINT: &str = "e2e.trishanku.org/beside";
/// A label of all objects created here.
const LABEL: &str = "beside";
/// Odd, for a median.
const TRIES: usize = 5;

/// kubectl at a cluster: its words, split at spaces, and its input.
type Kubectl<'k> = &'k dyn Fn(&str, &str) -> anyhow::Result<String>;

/// In turns, with a stand-in node of the same name. The durations are printed, but not judged: both clusters share this
/// machine.
pub(crate) fn ten_replicas_are_bound_in_pods_as_in_one_control_plane(world: &Arc<World>) -> anyhow::Result<()> {
    let heaven = world.heaven("default", CONTROLLERS, "sample-k8s-admin")?;
    let headless: Kubectl<'_> = &|words, input| heaven.kubectl_with(words, input);
    let central: Kubectl<'_> = &|words, input| said(world.cluster().kubectl_command().args(words.split(' ')), input);
    let sides = [StandIn::make("headless", headless)?, StandIn::make("central", central)?];
    let mut took = [Vec::new(), Vec::new()];
    for number in 0..TRIES {
        for (side, took) in sides.iter().zip(&mut took) {
            took.push(bound(side.kubectl, number)?);
        }
    }
    let [headless, central] = [0, 1].map(|side| {
        let took = &mut took[side];
        took.sort();
        eprintln!("from a Deployment to {REPLICAS} bound pods, {}: {took:?}", sides[side].name);
        took[TRIES / 2]
    });
    let times = headless.as_secs_f64() / central.as_secs_f64();
    eprintln!("p50 headless {headless:?}, central {central:?}: {times:.1} times");
    Ok(())
}

/// Measures it once, at a heaven whose controllers and schedulers work on merged branches.
pub(crate) fn bound_there(heaven: &Heaven<'_>) -> anyhow::Result<Duration> {
    let kubectl: Kubectl<'_> = &|words, input| heaven.kubectl_with(words, input);
    let stand_in = StandIn::make("headless", kubectl)?;
    bound(stand_in.kubectl, 0)
}

/// A node without kubelet. It is removed with all its objects however the scenario ends, as later scenarios have pods in the
/// same cluster.
struct StandIn<'k> {
    name: &'static str,
    kubectl: Kubectl<'k>,
}

impl<'k> StandIn<'k> {
    fn make(name: &'static str, kubectl: Kubectl<'k>) -> anyhow::Result<Self> {
        // Before its creation is acknowledged: the response may get lost.
        let stand_in = Self { name, kubectl };
        let mut node = node();
        node["spec"] = json!({"taints": [{"key": TAINT, "effect": "NoSchedule"}]});
        kubectl("apply --filename=-", &node.to_string())?;
        Ok(stand_in)
    }
}

impl Drop for StandIn<'_> {
    fn drop(&mut self) {
        // First the owners, which would create new pods; then the pods, which no kubelet stops.
        for words in [
            format!("delete deployments,replicasets --selector={LABEL} --timeout=30s"),
            format!("delete pods --selector={LABEL} --force --grace-period=0 --wait=false"),
            format!("delete node {NODE} --ignore-not-found --timeout=30s"),
        ] {
            if let Err(error) = (self.kubectl)(&words, "") {
                eprintln!("{}: cannot clean up: {error:#}", self.name);
            }
        }
    }
}

/// Shows where more pods than replicas come from: each pod with its owner and deletion, and the events of the owner.
fn surplus(kubectl: Kubectl<'_>, pods: &[Value]) -> String {
    if pods.len() <= REPLICAS {
        return String::new();
    }
    let lines = pods.iter().map(|pod| {
        let metadata = &pod["metadata"];
        let [name, created, deleted] =
            ["name", "creationTimestamp", "deletionTimestamp"].map(|field| metadata[field].as_str().unwrap_or("-"));
        format!("\n{name} of {} created {created} deleted {deleted}", metadata["ownerReferences"][0]["uid"])
    });
    let events = kubectl("get events --output=wide --field-selector=involvedObject.kind=ReplicaSet", "");
    let events = events.unwrap_or_else(|error| format!("cannot list events: {error:#}"));
    lines.chain([format!("\n{events}")]).collect()
}

/// Measures how long it takes until all replicas of a Deployment are bound; then deletes it.
fn bound(kubectl: Kubectl<'_>, number: usize) -> anyhow::Result<Duration> {
    // A kubelet's heartbeat: without it the node is soon considered lost.
    let status = json!({"status": node()["status"]}).to_string();
    kubectl(&format!("patch node {NODE} --subresource=status --type=merge --patch-file=/dev/stdin"), &status)?;
    let (name, begun) = (format!("ten-{number}"), Instant::now());
    let mut deployment = deployment(&name, REPLICAS);
    let template = &mut deployment["spec"]["template"];
    // In the host cluster, another node could run the pods.
    template["spec"]["nodeSelector"] = json!({"kubernetes.io/hostname": NODE});
    template["spec"]["tolerations"] = json!([{"key": TAINT, "operator": "Exists"}]);
    template["metadata"]["labels"][LABEL] = "yes".into();
    deployment["metadata"]["labels"][LABEL] = "yes".into();
    kubectl("create --filename=-", &deployment.to_string())?;
    let list = format!("get pods --selector=app={name} --output=json");
    until_within("all pods to be bound", PATIENCE, || {
        let pods: Value = serde_json::from_str(&kubectl(&list, "")?)?;
        let pods = pods["items"].as_array().cloned().unwrap_or_default();
        let bound = pods.iter().filter(|pod| pod["spec"]["nodeName"] == NODE).count();
        if bound != REPLICAS {
            bail!("{bound} of {} are bound{}", pods.len(), surplus(kubectl, &pods));
        }
        Ok(Some(()))
    })?;
    let took = begun.elapsed();
    kubectl(&format!("delete deployment {name}"), "")?;
    until_within("the Deployment's objects to be gone", PATIENCE, || {
        // No kubelet stops these pods.
        kubectl(&format!("delete pods --selector=app={name} --force --grace-period=0 --wait=false"), "")?;
        let left = kubectl(&format!("get replicasets,pods --selector=app={name} --output=name"), "")?;
        ensure!(left.is_empty(), "remaining: {left}");
        Ok(Some(()))
    })?;
    Ok(took)
}
