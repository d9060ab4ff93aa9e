//! How long a Deployment takes in a headless cluster in pods, beside the cluster that these pods run in.

use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::ensure;
use serde_json::{Value, json};
use trishanku_e2e::nodes::kubectl::said;
use trishanku_e2e::wait::until_within;

use crate::headless::{CONTROLLERS, IMAGE, NODE, node};
use crate::world::{PATIENCE, World};

const REPLICAS: usize = 10;
/// Odd, so that one of them is the middle.
const TRIES: usize = 5;

/// kubectl somewhere: its words, split at spaces, and its input.
type Kubectl<'k> = &'k dyn Fn(&str, &str) -> anyhow::Result<String>;

/// By turns, on a node of the same name where nothing runs. What it takes is told, and not judged: both share this machine.
pub(crate) fn ten_replicas_are_bound_in_pods_as_in_one_control_plane(world: &Arc<World>) -> anyhow::Result<()> {
    let heaven = world.heaven("default", CONTROLLERS, "sample-k8s-admin")?;
    let headless: Kubectl<'_> = &|words, input| heaven.kubectl_with(words, input);
    let central: Kubectl<'_> = &|words, input| said(world.cluster().kubectl_command().args(words.split(' ')), input);
    let mut sides = [("headless", headless, Vec::new()), ("central", central, Vec::new())];
    for (_, kubectl, _) in &sides {
        kubectl("apply --filename=-", &node().to_string())?;
    }
    for number in 0..TRIES {
        for (_, kubectl, took) in &mut sides {
            took.push(bound(*kubectl, number)?);
        }
    }
    let [headless, central] = sides.map(|(side, kubectl, mut took)| {
        kubectl(&format!("delete node {NODE}"), "")?;
        took.sort();
        eprintln!("from a Deployment to {REPLICAS} bound pods, {side}: {took:?}");
        Ok::<_, anyhow::Error>(took[TRIES / 2])
    });
    let (headless, central) = (headless?, central?);
    let times = headless.as_secs_f64() / central.as_secs_f64();
    eprintln!("p50 headless {headless:?}, central {central:?}: {times:.1} times");
    Ok(())
}

/// How long it takes until all replicas of a Deployment have a node. It is deleted afterwards.
fn bound(kubectl: Kubectl<'_>, number: usize) -> anyhow::Result<Duration> {
    // As kubelet would: for longer than some seconds no node is believed to be there.
    let status = json!({"status": node()["status"]}).to_string();
    kubectl(&format!("patch node {NODE} --subresource=status --type=merge --patch-file=/dev/stdin"), &status)?;
    let (name, begun) = (format!("ten-{number}"), Instant::now());
    kubectl("create --filename=-", &deployment(&name).to_string())?;
    let list = format!("get pods --selector=app={name} --output=json");
    until_within("all to have a node", PATIENCE, || {
        let pods: Value = serde_json::from_str(&kubectl(&list, "")?)?;
        let pods = pods["items"].as_array().cloned().unwrap_or_default();
        let bound = pods.iter().filter(|pod| pod["spec"]["nodeName"] == NODE).count();
        ensure!(bound == REPLICAS, "{bound} of {} are bound", pods.len());
        Ok(Some(()))
    })?;
    let took = begun.elapsed();
    kubectl(&format!("delete deployment {name}"), "")?;
    until_within("all of it to be gone", PATIENCE, || {
        // Nobody else ends what does not run.
        kubectl(&format!("delete pods --selector=app={name} --force --grace-period=0 --wait=false"), "")?;
        let left = kubectl(&format!("get replicasets,pods --selector=app={name} --output=name"), "")?;
        ensure!(left.is_empty(), "left are {left}");
        Ok(Some(()))
    })?;
    Ok(took)
}

fn deployment(name: &str) -> Value {
    let labels = json!({"app": name});
    json!({
        "apiVersion": "apps/v1", "kind": "Deployment",
        "metadata": {"name": name, "namespace": "default", "labels": labels},
        "spec": {
            "replicas": REPLICAS,
            "selector": {"matchLabels": labels},
            "template": {
                "metadata": {"labels": labels},
                "spec": {
                    "nodeSelector": {"kubernetes.io/hostname": NODE},
                    "containers": [{"name": "app", "image": IMAGE}],
                },
            },
        },
    })
}
