//! Heavens of other kinds than `TrishankuHeaven`, as docs/write-a-heaven.md describes them.

use std::process::{Child, Stdio};
use std::sync::Arc;

use anyhow::ensure;
use trishanku_e2e::nodes::kubectl::said;
use trishanku_e2e::programs;

use crate::world::{World, until};

const NAMESPACE: &str = "workloads";

/// The program of the example, which ends with the scenario.
struct Controllers(Child);

impl Drop for Controllers {
    fn drop(&mut self) {
        // It may have ended by itself.
        let _ended = self.0.kill();
        let _reaped = self.0.wait();
    }
}

/// The manifest of the documentation: two replicas of a `StatefulSet` and a pod of a `DaemonSet`, each with a branch of its own.
pub(crate) fn replicas_and_nodes_have_branches_of_their_own(world: &Arc<World>) -> anyhow::Result<()> {
    let (cluster, program) = (world.cluster(), programs::folder()?.join("workload-heavens"));
    world.kubectl(&format!("create namespace {NAMESPACE}"))?;
    let definitions = said(cluster.command(&program).arg("crd"), "")?;
    said(cluster.kubectl_command().args(["apply", "--server-side", "--filename=-"]), &definitions)?;
    let mut command = cluster.command(&program);
    command.env("KUBECONFIG", cluster.kubeconfig()).stdin(Stdio::null());
    for address in ["METRICS_BIND_ADDRESS", "HEALTH_PROBE_BIND_ADDRESS", "DEBUG_BIND_ADDRESS"] {
        command.env(address, "0");
    }
    let controllers = Controllers(command.spawn()?);
    let manifest = World::source("examples/heavens/agents.yaml").display().to_string();
    world.kubectl(&format!("apply --namespace {NAMESPACE} --filename {manifest}"))?;
    world.until_condition(&format!("statefulsetheaven agents --namespace {NAMESPACE}"), "Ready")?;
    world.until_condition(&format!("daemonsetheaven nodes --namespace {NAMESPACE}"), "Ready")?;

    // A write at one replica is in its own branch, and nowhere else.
    let [first, second] = ["agents-heaven-0", "agents-heaven-1"];
    let heaven = world.heaven_in(NAMESPACE, "agents", "agents-admin", &format!("pod/{first}"))?;
    heaven.kubectl("create configmap mine --from-literal=replica=first")?;
    let log = |pod: &str, branch: &str, what: &str| {
        world.kubectl(&format!(
            "exec --namespace {NAMESPACE} {pod} --container gitcd -- gitcd log --repo=/root/repo \
             --data-reference-names=default=refs/heads/{branch} \
             --metadata-reference-names=default=refs/gitcd/metadata/{branch} {what}"
        ))
    };
    until("the commit in the branch of the replica", || {
        let log = log(first, &format!("agents/{first}"), "configmaps/default/mine")?;
        Ok(log.contains("create").then_some(()))
    })?;
    let other = world.heaven_in(NAMESPACE, "agents", "agents-admin", &format!("pod/{second}"))?;
    let found = other.kubectl("get configmap mine --ignore-not-found --output=name")?;
    ensure!(found.is_empty(), "the other replica has it, too: {found}");
    let commits = log(second, &format!("agents/{second}"), "--limit=1")?;
    ensure!(commits.lines().count() > 1, "{commits}");

    // The branch of a pod of the DaemonSet has the name of its node.
    let pods =
        cluster.object(&format!("pods --namespace {NAMESPACE} --selector=heavens.example.org/daemon-set=nodes"))?;
    let pod = &pods["items"][0];
    let text = |pointer: &str| pod.pointer(pointer).and_then(|value| value.as_str()).unwrap_or_default().to_owned();
    let (name, node) = (text("/metadata/name"), text("/spec/nodeName"));
    ensure!(!node.is_empty(), "{pod}");
    let commits = log(&name, &format!("nodes/{node}"), "--limit=1")?;
    ensure!(commits.lines().count() > 1, "{commits}");

    drop((heaven, other));
    for heaven in ["statefulsetheaven agents", "daemonsetheaven nodes"] {
        world.kubectl(&format!("delete {heaven} --namespace {NAMESPACE} --timeout=2m"))?;
    }
    drop(controllers);
    world.kubectl(&format!("delete namespace {NAMESPACE} --timeout=3m"))?;
    let kinds =
        ["statefulsetheavens", "daemonsetheavens", "jobheavens"].map(|kind| format!("{kind}.heavens.example.org"));
    world.kubectl(&format!("delete customresourcedefinitions {}", kinds.join(" "))).map(drop)
}
