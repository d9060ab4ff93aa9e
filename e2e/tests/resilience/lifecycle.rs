//! Starts, stops, and everything in between.

use std::collections::BTreeMap;
use std::net::TcpListener;
use std::sync::Arc;

use anyhow::{Context, ensure};
use serde_json::Value;
use trishanku::plane::State;
use trishanku::status::{self, Health};
use trishanku_e2e::{Cluster, Options, wait};

pub(crate) fn everything_continues_with_the_same_data_after_a_restart(cluster: &Arc<Cluster>) -> anyhow::Result<()> {
    cluster.namespace("lasting")?;
    cluster.kubectl("create configmap it --from-literal=is=here -n lasting".split(' '))?;
    cluster.kubectl("create deployment web --image=nginx -n lasting".split(' '))?;
    wait::until_true("the pod", || {
        let pods = cluster.object("pods -n lasting")?;
        Ok(pods["items"].as_array().is_some_and(|pods| !pods.is_empty()))
    })?;
    let kubeconfig = std::fs::read(cluster.home().kubeconfig())?;
    let map = cluster.object("configmap it -n lasting")?;
    let before = identities(cluster)?;
    cluster.down()?;
    ensure!(status::read(cluster.home())?.health == Health::Stopped);
    cluster.up()?;
    let after = identities(cluster)?;
    let lost: Vec<_> = before.iter().filter(|(k, v)| after.get(*k) != Some(v)).collect();
    ensure!(lost.is_empty(), "lost or recreated: {lost:?}");
    // This object is unchanged, including its version.
    ensure!(cluster.object("configmap it -n lasting")? == map);
    // Ports and certificates are the same, so a copied kubeconfig still works.
    ensure!(std::fs::read(cluster.home().kubeconfig())? == kubeconfig);
    // It is also writable.
    cluster.kubectl("scale deployment web --replicas=2 -n lasting".split(' '))?;
    wait::until_true("the controllers to work", || {
        let pods = cluster.object("pods -n lasting")?;
        Ok(pods["items"].as_array().is_some_and(|pods| pods.len() == 2))
    })
}

/// Kind, namespace, name and UID of many objects.
fn identities(cluster: &Cluster) -> anyhow::Result<BTreeMap<[String; 3], String>> {
    let kinds = "namespaces,configmaps,serviceaccounts,services,deployments,replicasets,pods,clusterroles,roles,priorityclasses,flowschemas";
    let list = cluster.object(&format!("{kinds} -A"))?;
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    let items = list["items"].as_array().context("the list has no items")?;
    let identity = |item: &Value| {
        let meta = &item["metadata"];
        let key = [text(&item["kind"]), text(&meta["namespace"]), text(&meta["name"])];
        (key, text(&meta["uid"]))
    };
    Ok(items.iter().map(identity).collect())
}

pub(crate) fn a_killed_component_is_started_again(cluster: &Arc<Cluster>) -> anyhow::Result<()> {
    for component in ["kube-scheduler", "kube-apiserver", "kube-controller-manager"] {
        let before = restarts(cluster, component)?;
        cluster.kill(component)?;
        wait::until_true(&format!("a restart of {component} to be counted"), || {
            Ok(restarts(cluster, component)? > before)
        })?;
        cluster.wait_ready()?;
    }
    // The controllers and the scheduler have reconnected to the API server.
    cluster.namespace("again")?;
    cluster.kubectl("create deployment web --image=nginx -n again".split(' '))?;
    wait::until_true("the scheduler to process the pod", || {
        let pods = cluster.object("pods -n again")?;
        Ok(pods["items"][0]["status"]["conditions"][0]["reason"] == "Unschedulable")
    })
}

fn restarts(cluster: &Cluster, component: &str) -> anyhow::Result<u32> {
    let report = status::read(cluster.home())?;
    let found = report.components.into_iter().find(|c| c.name == component);
    Ok(found.context("the component is not reported")?.restarts)
}

pub(crate) fn a_second_up_is_refused_while_one_runs(cluster: &Arc<Cluster>) -> anyhow::Result<()> {
    let second = cluster.trishanku().arg("up").output()?;
    ensure!(second.status.code() == Some(1));
    let printed = String::from_utf8(second.stderr)?;
    ensure!(printed.contains("already runs") && printed.contains("trishanku down"), "{printed}");
    ensure!(status::read(cluster.home())?.health == Health::Ready);
    // With `--detach`, a running control plane is what was requested.
    let detached = cluster.trishanku().args(["up", "--detach"]).output()?;
    ensure!(detached.status.success());
    Ok(())
}

pub(crate) fn one_in_the_background_stays_until_down(cluster: &Arc<Cluster>) -> anyhow::Result<()> {
    cluster.down()?;
    let up = cluster.trishanku().args(["up", "--detach"]).output()?;
    let printed = String::from_utf8(up.stdout)?;
    ensure!(up.status.success() && printed.contains("Ready in"), "{printed}");
    let shown = cluster.trishanku().args(["status", "--json"]).output()?;
    ensure!(shown.status.success());
    let shown: Value = serde_json::from_slice(&shown.stdout)?;
    ensure!(shown["health"] == "ready" && shown["store"]["revision"].as_u64() > Some(1), "{shown}");
    cluster.kubectl(["get", "namespaces"])?;
    let down = cluster.trishanku().arg("down").output()?;
    ensure!(down.status.success());
    ensure!(status::read(cluster.home())?.health == Health::Stopped);
    let shown = cluster.trishanku().arg("status").output()?;
    ensure!(shown.status.code() == Some(3));
    cluster.up()
}

pub(crate) fn what_a_killed_supervisor_leaves_is_ended_by_the_next_up(cluster: &Arc<Cluster>) -> anyhow::Result<()> {
    let left = orphan(cluster)?;
    cluster.up()?;
    ensure!(left.iter().all(|process| !process.is_alive()));
    cluster.kubectl(["get", "namespaces"])?;
    Ok(())
}

pub(crate) fn what_a_killed_supervisor_leaves_is_ended_by_down(cluster: &Arc<Cluster>) -> anyhow::Result<()> {
    let left = orphan(cluster)?;
    let down = cluster.trishanku().arg("down").output()?;
    ensure!(down.status.success());
    let printed = String::from_utf8(down.stdout)?;
    ensure!(printed.contains("its supervisor was gone"), "{printed}");
    ensure!(left.iter().all(|process| !process.is_alive()));
    ensure!(status::read(cluster.home())?.health == Health::Stopped);
    cluster.up()
}

/// Kills the supervisor; returns the processes that it leaves behind.
fn orphan(cluster: &Cluster) -> anyhow::Result<Vec<trishanku::plane::Identity>> {
    let state = State::load(&cluster.home().state_file())?;
    cluster.kill_supervisor()?;
    let left: Vec<_> = state.components.into_iter().filter_map(|c| c.process).collect();
    ensure!(left.len() == 4 && left.iter().all(trishanku::plane::Identity::is_alive));
    ensure!(status::read(cluster.home())?.health == Health::Orphaned);
    Ok(left)
}

pub(crate) fn a_taken_port_is_replaced_and_the_data_stays(cluster: &Arc<Cluster>) -> anyhow::Result<()> {
    cluster.kubectl("create configmap stays --from-literal=a=b".split(' '))?;
    let ports = |cluster: &Cluster| {
        let state = State::load(&cluster.home().state_file())?;
        state.ports.context("the control plane has no ports")
    };
    let before = ports(cluster)?;
    cluster.down()?;
    let taken = TcpListener::bind(("127.0.0.1", before.store))?;
    cluster.up()?;
    drop(taken);
    let after = ports(cluster)?;
    ensure!(after.store != before.store && after.apiserver == before.apiserver);
    cluster.kubectl(["get", "configmap", "stays"])?;
    Ok(())
}

pub(crate) fn protobuf_objects_continue_beside_json_ones(cluster: &Arc<Cluster>) -> anyhow::Result<()> {
    cluster.kubectl("create configmap as-json --from-literal=a=b".split(' '))?;
    cluster.down()?;
    let protobuf = Options { storage_media_type: Some("application/vnd.kubernetes.protobuf"), ..Options::default() };
    cluster.up_with(&protobuf)?;
    cluster.kubectl("create configmap as-protobuf --from-literal=a=b".split(' '))?;
    cluster.kubectl("create deployment as-protobuf --image=nginx".split(' '))?;
    wait::until_true("the controllers to work with protobuf", || {
        let pods = cluster.object("pods -l app=as-protobuf")?;
        Ok(pods["items"].as_array().is_some_and(|pods| !pods.is_empty()))
    })?;
    let read = cluster.object("configmaps as-json as-protobuf")?;
    ensure!(read["items"].as_array().is_some_and(|maps| maps.len() == 2));
    if Cluster::is_on_git() {
        // Kubernetes' protobuf starts with this prefix; it is stored byte by byte.
        let path = "refs/heads/main:configmaps/default/as-protobuf";
        wait::until_true("the ConfigMap to be committed", || {
            let size = cluster.git(&["cat-file", "-s", path])?;
            Ok(size.trim().parse::<usize>()? > 4)
        })?;
        cluster.git(&["fsck", "--full", "--strict", "--no-progress"])?;
    }
    Ok(())
}
