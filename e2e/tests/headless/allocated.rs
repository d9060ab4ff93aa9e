//! Two branches allocate the same address and port concurrently.

use std::sync::Arc;

use anyhow::{Context, ensure};
use serde_json::Value;
use trishanku_e2e::{Cluster, wait};

use crate::apart;

const ADDRESS: &str = "10.32.0.77";
const PORT: u64 = 30077;

fn service(name: &str) -> String {
    format!(
        r#"{{"apiVersion": "v1", "kind": "Service", "metadata": {{"name": "{name}"}}, "spec": {{
            "type": "NodePort", "clusterIP": "{ADDRESS}", "selector": {{"app": "{name}"}}, "ports": [{{"port": 80, "nodePort": {PORT}}}]
        }}}}"#
    )
}

fn at(cluster: &Cluster, heaven: &str, what: &[&str]) -> anyhow::Result<Value> {
    Ok(serde_json::from_str(&cluster.kubectl_at(heaven, [&["get", "--output=json"][..], what].concat())?)?)
}

/// The rank that decides which Service keeps it: creation time, then uid.
fn rank(service: &Value) -> (String, String) {
    let text = |field: &str| service["metadata"][field].as_str().unwrap_or_default().to_owned();
    (text("creationTimestamp"), text("uid"))
}

pub(crate) fn what_two_branches_gave_away_at_once_is_one_service_s_and_the_other_gets_others(
    cluster: &Arc<Cluster>,
) -> anyhow::Result<()> {
    cluster.wait_agreed()?;
    let cut = apart::cut_off(cluster, "desk")?;
    cluster.kubectl_with(["create", "--filename=-"], &service("one"))?;
    let file = cluster.scratch().join("other.json");
    std::fs::write(&file, service("other"))?;
    let filename = format!("--filename={}", file.display());
    cluster.kubectl_at("kube-scheduler", ["create", &filename])?;
    let (one, other) =
        (at(cluster, "desk", &["service", "one"])?, at(cluster, "kube-scheduler", &["service", "other"])?);
    ensure!(
        one["spec"]["clusterIP"] == ADDRESS && other["spec"]["clusterIP"] == ADDRESS,
        "the heavens must be cut off"
    );
    let (owner, loser) = if rank(&one) < rank(&other) { (one, other) } else { (other, one) };
    let name = |service: &Value| service["metadata"]["name"].as_str().unwrap_or_default().to_owned();
    cluster.join_again("desk", &cut)?;

    let repaired = wait::until("the losing Service to be reallocated", || {
        let now = at(cluster, "desk", &["service", &name(&loser)])?;
        let spec = &now["spec"];
        let has_others =
            spec["clusterIP"].as_str().is_some_and(|address| address.starts_with("10.32.") && address != ADDRESS)
                && spec["ports"][0]["nodePort"].as_u64().is_some_and(|port| port != PORT);
        Ok(has_others.then_some(now))
    })?;
    ensure!(repaired["metadata"]["uid"] == loser["metadata"]["uid"], "the Service was replaced: {repaired}");
    ensure!(repaired["spec"]["type"] == "NodePort" && repaired["spec"]["externalName"].is_null(), "{repaired}");
    ensure!(repaired["spec"]["selector"] == loser["spec"]["selector"], "{repaired}");
    ensure!(repaired["metadata"]["annotations"].is_null(), "{repaired}");
    cluster.wait_agreed()?;
    for heaven in apart::NAMES {
        let kept = at(cluster, heaven, &["service", &name(&owner)])?;
        ensure!(
            kept["spec"] == owner["spec"] && kept["metadata"]["uid"] == owner["metadata"]["uid"],
            "{heaven}: {kept}"
        );
        let address = repaired["spec"]["clusterIP"].as_str().context("the Service has no address")?;
        for (address, service) in [(ADDRESS, &owner), (address, &loser)] {
            // A kube-apiserver that has the address before its Service removes it as leaked, and adds it again later.
            wait::until(&format!("{address} to be registered at {heaven}"), || {
                let registered = at(cluster, heaven, &["ipaddress", address]).ok();
                Ok(registered.filter(|found| found["spec"]["parentRef"]["name"] == name(service)))
            })?;
        }
    }
    cluster.kubectl(["delete", "service", "one", "other"])?;
    cluster.wait_agreed()?;
    Ok(())
}
