//! The controllers, which are the heaviest users of lists, watches and conditional writes.

use std::sync::Arc;

use anyhow::ensure;
use trishanku_e2e::{Cluster, wait};

pub(crate) fn a_deployment_gets_its_replica_set_and_pending_pods(cluster: &Arc<Cluster>) -> anyhow::Result<()> {
    cluster.namespace("workloads")?;
    let create = "create deployment web --image=nginx --replicas=3 -n workloads";
    cluster.kubectl(create.split(' '))?;
    let replicas = wait::until("the ReplicaSet to have created its pods", || {
        let list = cluster.object("replicasets -n workloads")?;
        let set = list["items"][0].clone();
        Ok((set["status"]["replicas"] == 3).then_some(set))
    })?;
    ensure!(replicas["metadata"]["ownerReferences"][0]["kind"] == "Deployment");
    let pods = wait::until("the scheduler to have processed the pods", || {
        let list = cluster.object("pods -n workloads -l app=web")?;
        let pods = list["items"].as_array().cloned().unwrap_or_default();
        let looked_at = |pod: &serde_json::Value| pod["status"]["conditions"][0]["reason"] == "Unschedulable";
        Ok((pods.len() == 3 && pods.iter().all(looked_at)).then_some(pods))
    })?;
    ensure!(pods.iter().all(|pod| pod["status"]["phase"] == "Pending"));
    // The change propagates to the pods again.
    cluster.kubectl("scale deployment web --replicas=1 -n workloads".split(' '))?;
    wait::until_true("two of the pods to be gone", || {
        let list = cluster.object("pods -n workloads -l app=web")?;
        Ok(list["items"].as_array().is_some_and(|pods| pods.len() == 1))
    })
}

pub(crate) fn dependents_go_with_their_owner_unless_orphaned(cluster: &Arc<Cluster>) -> anyhow::Result<()> {
    cluster.namespace("garbage")?;
    for name in ["background", "foreground", "orphan"] {
        let create = format!("create deployment {name} --image=nginx -n garbage");
        cluster.kubectl(create.split(' '))?;
        wait::until_true("its pod", || {
            let pods = cluster.object(&format!("pods -n garbage -l app={name}"))?;
            Ok(pods["items"].as_array().is_some_and(|pods| !pods.is_empty()))
        })?;
        let delete = format!("delete deployment {name} -n garbage --cascade={name}");
        cluster.kubectl(delete.split(' '))?;
    }
    for name in ["background", "foreground"] {
        cluster.wait_gone(&format!("replicasets,pods -n garbage -l app={name}"))?;
    }
    let orphans = cluster.object("replicasets,pods -n garbage -l app=orphan")?;
    let orphans = orphans["items"].as_array().map_or(0, Vec::len);
    ensure!(orphans == 2, "{orphans} of two orphans exist");
    Ok(())
}

pub(crate) fn an_object_with_a_finalizer_stays_until_it_is_removed(cluster: &Arc<Cluster>) -> anyhow::Result<()> {
    cluster.namespace("finalizers")?;
    let map = "\
apiVersion: v1
kind: ConfigMap
metadata:
  name: kept
  namespace: finalizers
  finalizers: [example.org/keep]
";
    cluster.kubectl_with(["create", "-f", "-"], map)?;
    cluster.kubectl("delete configmap kept -n finalizers --wait=false".split(' '))?;
    let kept = cluster.object("configmap kept -n finalizers")?;
    ensure!(kept["metadata"]["deletionTimestamp"].is_string());
    let patch = r#"{"metadata":{"finalizers":null}}"#;
    let args = ["patch", "configmap", "kept", "-n", "finalizers", "--type=merge", "-p", patch];
    cluster.kubectl(args)?;
    cluster.wait_gone("configmap kept -n finalizers")
}

pub(crate) fn a_deleted_namespace_takes_its_objects_along(cluster: &Arc<Cluster>) -> anyhow::Result<()> {
    cluster.namespace("doomed")?;
    cluster.kubectl("create configmap data --from-literal=a=b -n doomed".split(' '))?;
    cluster.kubectl("create deployment web --image=nginx -n doomed".split(' '))?;
    wait::until_true("the pod", || {
        let pods = cluster.object("pods -n doomed")?;
        Ok(pods["items"].as_array().is_some_and(|pods| !pods.is_empty()))
    })?;
    cluster.kubectl("delete namespace doomed --wait=false".split(' '))?;
    cluster.wait_gone("namespace doomed")?;
    let left = cluster.object("configmaps,deployments,replicasets,pods,serviceaccounts -n doomed")?;
    ensure!(left["items"].as_array().is_some_and(Vec::is_empty), "{left}");
    if Cluster::is_on_git() {
        wait::until_true("its files to be gone", || {
            let files = cluster.git(&["ls-tree", "-r", "--name-only", "refs/heads/main"])?;
            Ok(!files.lines().any(|path| path.contains("/doomed")))
        })?;
    }
    Ok(())
}
