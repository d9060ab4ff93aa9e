//! Heavens that do not reach one another for a while, and work on.

use std::sync::Arc;
use std::time::Duration;

use anyhow::ensure;
use rustix::process::Signal;
use trishanku::demo::StandIn;
use trishanku_e2e::{Cluster, wait};

const NAMES: [&str; 3] = ["desk", "kube-controller-manager", "kube-scheduler"];

pub(crate) fn both_sides_work_on_while_one_is_cut_off_and_agree_after(cluster: &Arc<Cluster>) -> anyhow::Result<()> {
    cut_off_while_both_work(cluster, "cut")
}

pub(crate) fn mesh_both_sides_work_on_while_one_is_cut_off_and_agree_after(
    cluster: &Arc<Cluster>,
) -> anyhow::Result<()> {
    cut_off_while_both_work(cluster, "cut")
}

/// The person is cut off and edits; the others go on with what they know: pods are made anew and bound.
fn cut_off_while_both_work(cluster: &Cluster, name: &str) -> anyhow::Result<()> {
    let kubectl = cluster.plain_kubectl();
    let node = StandIn::ensure(&kubectl)?;
    cluster.kubectl(["create", "deployment", name, "--image=none", "--replicas=2"])?;
    bound(cluster, "desk", name, 2)?;
    cluster.wait_agreed()?;
    // In a mesh the others pull from the desk, so the desk is out of their reach as well.
    let mut cut = vec![("desk".to_owned(), cluster.cut_off("desk")?)];
    if cluster.heaven("kube-scheduler")?.remotes.iter().any(|remote| remote.name == "desk") {
        for other in cluster.heavens()?.into_iter().map(|heaven| heaven.name).filter(|name| name != "desk") {
            cut.push((other.clone(), cut_from_desk(cluster, &other)?));
        }
    }
    // Git's configuration is read once a second.
    std::thread::sleep(Duration::from_millis(1500));
    cluster.kubectl(["create", "configmap", &format!("{name}-desk"), "--from-literal=side=desk"])?;
    cluster.kubectl(["annotate", "deployment", name, "person=was-here"])?;
    let select = format!("--selector=app={name}");
    let pods = cluster.kubectl_at("kube-scheduler", ["get", "pods", &select, "-o", "name"])?;
    let first = pods.lines().next().unwrap_or_default();
    cluster.kubectl_at("kube-scheduler", ["delete", first, "--force", "--grace-period=0"])?;
    bound(cluster, "kube-scheduler", name, 2)?;
    let unseen = cluster.kubectl_at("kube-scheduler", ["get", "configmaps", "-o", "name"])?;
    ensure!(!unseen.contains(&format!("{name}-desk")), "the desk is not cut off");
    let still = cluster.kubectl(["get", "pods", &select, "-o", "name"])?;
    ensure!(still.contains(first), "the desk is not cut off: {still}");
    for (heaven, remotes) in &cut {
        cluster.join_again(heaven, remotes)?;
    }
    cluster.wait_agreed()?;
    for heaven in NAMES {
        let maps = cluster.kubectl_at(heaven, ["get", "configmaps", "-o", "name"])?;
        ensure!(maps.contains(&format!("{name}-desk")), "{heaven} has only {maps}");
        let annotation = "--output=jsonpath={.metadata.annotations.person}";
        let person = cluster.kubectl_at(heaven, ["get", "deployment", name, annotation])?;
        ensure!(person == "was-here", "{heaven} has {person:?}");
        bound(cluster, heaven, name, 2)?;
        let pods = cluster.kubectl_at(heaven, ["get", "pods", &select, "-o", "name"])?;
        ensure!(!pods.contains(first), "{heaven} still has {first}");
    }
    kubectl.remove_deployment(name)?;
    node.remove(&kubectl)?;
    cluster.wait_agreed()?;
    Ok(())
}

fn cut_from_desk(cluster: &Cluster, heaven: &str) -> anyhow::Result<Vec<(String, String)>> {
    let all = cluster.cut_off(heaven)?;
    let (desk, others): (Vec<_>, Vec<_>) = all.into_iter().partition(|(key, _)| key == "remote.desk.url");
    cluster.join_again(heaven, &others)?;
    Ok(desk)
}

pub(crate) fn both_sides_work_on_while_the_merge_stands_still_and_agree_after(
    cluster: &Arc<Cluster>,
) -> anyhow::Result<()> {
    cluster.signal("cluster-automerge/gitcd", Signal::STOP)?;
    for heaven in NAMES {
        let map = format!("still-{heaven}");
        cluster.kubectl_at(heaven, ["create", "configmap", &map, "--from-literal=side=own"])?;
        // The same object on all sides: one of them wins everywhere.
        cluster.kubectl_at(heaven, ["create", "configmap", "same", &format!("--from-literal=side={heaven}")])?;
    }
    cluster.signal("cluster-automerge/gitcd", Signal::CONT)?;
    cluster.wait_agreed()?;
    let side = |heaven: &str| cluster.kubectl_at(heaven, ["get", "configmap", "same", "-o", "jsonpath={.data.side}"]);
    let winner = side("desk")?;
    ensure!(NAMES.contains(&winner.as_str()), "{winner:?}");
    for heaven in NAMES {
        ensure!(side(heaven)? == winner, "{heaven} has another one than {winner:?}");
        let maps = cluster.kubectl_at(heaven, ["get", "configmaps", "-o", "name"])?;
        for other in NAMES {
            ensure!(maps.contains(&format!("still-{other}")), "{heaven} has only {maps}");
        }
    }
    Ok(())
}

/// Waits until as many pods of an app have a node at a heaven.
fn bound(cluster: &Cluster, heaven: &str, app: &str, wanted: usize) -> anyhow::Result<()> {
    let select = format!("--selector=app={app}");
    let nodes = "--output=jsonpath={range .items[*]}{.spec.nodeName}{\"\\n\"}{end}";
    wait::until_true(&format!("{wanted} pods of {app} to have a node at {heaven}"), || {
        let nodes = cluster.kubectl_at(heaven, ["get", "pods", &select, nodes])?;
        Ok(nodes.lines().filter(|node| !node.is_empty()).count() == wanted)
    })
}
