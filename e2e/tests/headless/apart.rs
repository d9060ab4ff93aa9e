//! Heavens that cannot reach one another for a while, and keep working.

use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::{Context, ensure};
use rustix::process::Signal;
use serde_json::Value;
use trishanku::demo::StandIn;
use trishanku_e2e::{Cluster, is_long, wait};

pub(crate) const NAMES: [&str; 3] = ["desk", "kube-controller-manager", "kube-scheduler"];

pub(crate) fn both_sides_work_on_while_one_is_cut_off_and_agree_after(cluster: &Arc<Cluster>) -> anyhow::Result<()> {
    cut_off_while_both_work(cluster, "cut")
}

pub(crate) fn mesh_both_sides_work_on_while_one_is_cut_off_and_agree_after(
    cluster: &Arc<Cluster>,
) -> anyhow::Result<()> {
    cut_off_while_both_work(cluster, "cut")
}

/// The desk is cut off and edits; the others keep working with what they know: pods are replaced and bound.
fn cut_off_while_both_work(cluster: &Cluster, name: &str) -> anyhow::Result<()> {
    let kubectl = cluster.plain_kubectl();
    let node = StandIn::ensure(&kubectl)?;
    cluster.kubectl(["create", "deployment", name, "--image=none", "--replicas=2"])?;
    bound(cluster, "desk", name, 2)?;
    cluster.wait_agreed()?;
    // In a mesh the others pull from the desk, so they are cut off from it as well.
    let mut cut = vec![("desk".to_owned(), cluster.cut_off("desk")?)];
    if cluster.heaven("kube-scheduler")?.remotes.iter().any(|remote| remote.name == "desk") {
        for other in cluster.heavens()?.into_iter().map(|heaven| heaven.name).filter(|name| name != "desk") {
            cut.push((other.clone(), cut_from_desk(cluster, &other)?));
        }
    }
    for (heaven, remotes) in &cut {
        wait_cut(cluster, heaven, remotes)?;
    }
    cluster.kubectl(["create", "configmap", &format!("{name}-desk"), "--from-literal=side=desk"])?;
    cluster.kubectl(["annotate", "deployment", name, "person=was-here"])?;
    let select = format!("--selector=app={name}");
    let pods = cluster.kubectl_at("kube-scheduler", ["get", "pods", &select, "-o", "name"])?;
    let first = pods.lines().next().unwrap_or_default();
    cluster.kubectl_at("kube-scheduler", ["delete", first, "--force", "--grace-period=0"])?;
    bound(cluster, "kube-scheduler", name, 2)?;
    let unseen = cluster.kubectl_at("kube-scheduler", ["get", "configmaps", "-o", "name"])?;
    ensure!(!unseen.contains(&format!("{name}-desk")), "the desk must be cut off");
    let still = cluster.kubectl(["get", "pods", &select, "-o", "name"])?;
    ensure!(still.contains(first), "the desk must be cut off: {still}");
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

/// The remotes of a heaven with their URLs.
type Remotes = Vec<(String, String)>;

/// Makes the remotes of a heaven unreachable, and waits until it has noticed.
pub(crate) fn cut_off(cluster: &Cluster, heaven: &str) -> anyhow::Result<Remotes> {
    let remotes = cluster.cut_off(heaven)?;
    wait_cut(cluster, heaven, &remotes)?;
    Ok(remotes)
}

/// Waits until a heaven reports these remotes as unreachable. Writes at all heavens make it try.
fn wait_cut(cluster: &Cluster, heaven: &str, remotes: &Remotes) -> anyhow::Result<()> {
    let mut number = 0;
    wait::until_true(&format!("{heaven} to be cut off"), || {
        number += 1;
        for name in NAMES {
            let annotation = format!("nudged-{name}={heaven}-{number}");
            cluster.kubectl_at(name, ["annotate", "--overwrite", "namespace", "default", &annotation])?;
        }
        // It fails as long as anything is unhealthy.
        let output = cluster.trishanku().args(["status", "--json"]).output()?;
        let said: Value = serde_json::from_slice(&output.stdout)?;
        let heavens = said["heavens"].as_array().context("the cluster has no heavens")?;
        let found = heavens.iter().find(|one| one["name"] == heaven).context("the heaven is not listed")?;
        let is_cut = |remote: &Value| remote["condition"].as_str().is_some_and(|condition| condition != "Synced");
        let is_meant = |remote: &Value| {
            remotes.iter().any(|(key, _)| *key == format!("remote.{}.url", remote["name"].as_str().unwrap_or("")))
        };
        let meant: Vec<_> =
            found["remotes"].as_array().into_iter().flatten().filter(|remote| is_meant(remote)).collect();
        Ok(!meant.is_empty() && meant.into_iter().all(is_cut))
    })
}

/// Each heaven is cut off in turn: users edit, pods are created and bound, as far as that works without it.
pub(crate) fn each_heaven_in_turn_is_cut_off_while_all_work_on(cluster: &Arc<Cluster>) -> anyhow::Result<()> {
    let span = if is_long() { Duration::from_mins(2) } else { Duration::ZERO };
    let kubectl = cluster.plain_kubectl();
    for heaven in NAMES {
        let name = format!("without-{heaven}");
        let node = StandIn::ensure(&kubectl)?;
        cluster.wait_agreed()?;
        let cut = cut_off(cluster, heaven)?;
        cluster.kubectl(["create", "deployment", &name, "--image=none", "--replicas=3"])?;
        let since = Instant::now();
        let mut rounds = 0;
        while rounds == 0 || since.elapsed() < span {
            for own in NAMES {
                cluster.kubectl_at(own, ["create", "configmap", &format!("{name}-{own}-{rounds}")])?;
            }
            node.beat(&kubectl)?;
            rounds += 1;
        }
        // Its changes are not seen elsewhere, and its work is not done.
        let other = if heaven == "desk" { "kube-scheduler" } else { "desk" };
        let maps = cluster.kubectl_at(other, ["get", "configmaps", "-o", "name"])?;
        ensure!(!maps.contains(&format!("{name}-{heaven}-0")), "{heaven} must be cut off: {maps}");
        let nodes = "--output=jsonpath={range .items[*]}({.spec.nodeName}){end}";
        let pods = |wanted: &'static str| {
            wait::until_true(&format!("the pods to be {wanted:?} without {heaven}"), || {
                Ok(cluster.kubectl(["get", "pods", &format!("--selector=app={name}"), nodes])? == wanted)
            })
        };
        pods(if heaven == "kube-scheduler" { "()()()" } else { "" })?;
        cluster.join_again(heaven, &cut)?;
        let node = StandIn::ensure(&kubectl)?;
        for at in NAMES {
            bound(cluster, at, &name, 3)?;
        }
        cluster.wait_agreed()?;
        for at in NAMES {
            let maps = cluster.kubectl_at(at, ["get", "configmaps", "-o", "name"])?;
            for (own, round) in NAMES.into_iter().flat_map(|own| (0..rounds).map(move |round| (own, round))) {
                let map = format!("configmap/{name}-{own}-{round}");
                ensure!(maps.lines().any(|line| line == map), "{at} has lost {map}");
            }
        }
        kubectl.remove_deployment(&name)?;
        node.remove(&kubectl)?;
        cluster.wait_agreed()?;
    }
    Ok(())
}

fn cut_from_desk(cluster: &Cluster, heaven: &str) -> anyhow::Result<Remotes> {
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
        // The same object on all sides: one version wins everywhere.
        cluster.kubectl_at(heaven, ["create", "configmap", "same", &format!("--from-literal=side={heaven}")])?;
    }
    cluster.signal("cluster-automerge/gitcd", Signal::CONT)?;
    cluster.wait_agreed()?;
    let side = |heaven: &str| cluster.kubectl_at(heaven, ["get", "configmap", "same", "-o", "jsonpath={.data.side}"]);
    let winner = side("desk")?;
    ensure!(NAMES.contains(&winner.as_str()), "{winner:?}");
    for heaven in NAMES {
        ensure!(side(heaven)? == winner, "{heaven} has a version other than {winner:?}");
        let maps = cluster.kubectl_at(heaven, ["get", "configmaps", "-o", "name"])?;
        for other in NAMES {
            ensure!(maps.contains(&format!("still-{other}")), "{heaven} has only {maps}");
        }
    }
    Ok(())
}

/// Waits until a heaven has this number of bound pods of an app.
fn bound(cluster: &Cluster, heaven: &str, app: &str, wanted: usize) -> anyhow::Result<()> {
    let select = format!("--selector=app={app}");
    let nodes = "--output=jsonpath={range .items[*]}{.spec.nodeName}{\"\\n\"}{end}";
    wait::until_true(&format!("{wanted} pods of {app} to be bound at {heaven}"), || {
        let nodes = cluster.kubectl_at(heaven, ["get", "pods", &select, nodes])?;
        Ok(nodes.lines().filter(|node| !node.is_empty()).count() == wanted)
    })
}
