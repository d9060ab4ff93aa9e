//! Heavens survive faults and changes around them.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Instant;

use anyhow::{Context, ensure};
use serde_json::{Value, json};
use trishanku_e2e::nodes::has_other;

use crate::beside;
use crate::headless::{CONTROLLERS, SCHEDULERS};
use crate::world::{Heaven, World, container_id, until};

/// A new pod starts only from the remote: the objects are the same, and no revision is reused.
pub(crate) fn the_pod_of_a_heaven_is_deleted_and_its_branch_goes_on(world: &Arc<World>) -> anyhow::Result<()> {
    let heaven = world.heaven("default", CONTROLLERS, "sample-k8s-admin")?;
    heaven.kubectl("create configmap before --from-literal=the=deletion")?;
    let before = heaven.object("configmap before")?;
    let uid = &before["metadata"]["uid"];
    until("the remote to have the object", || {
        let clone = world.file("look");
        if !clone.exists() {
            std::fs::create_dir(&clone)?;
            world.git(&clone, &["init", "--quiet", "--bare"])?;
        }
        world.git(&clone, &["fetch", "--quiet", "--depth=1", "REMOTE", "kcm/data"])?;
        world.git(&clone, &["show", "FETCH_HEAD:configmaps/default/before"]).map(Some)
    })?;
    let newest = revision(&heaven)?;
    drop(heaven);

    let selector = format!("--selector=controllers.trishanku.org/heaven={CONTROLLERS}");
    let pod = world.kubectl(&format!("get pods --output=name {selector}"))?;
    let begun = Instant::now();
    world.kubectl(&format!("delete {} --timeout=2m", pod.trim()))?;
    let rollout = format!("rollout status deployment/{CONTROLLERS}-heaven --timeout=4m");
    until("the new pod", || world.kubectl(&rollout).map(Some))?;
    eprintln!("deleted and ready again after {:?}", begun.elapsed());

    let heaven = world.heaven("default", CONTROLLERS, "sample-k8s-admin")?;
    let after = heaven.object("configmap before")?;
    ensure!(after["metadata"]["uid"] == *uid && after["data"]["the"] == "deletion", "{after}");
    let now = revision(&heaven)?;
    ensure!(now > newest, "revision {now} came after {newest}");
    heaven.kubectl("delete configmap before")?;
    Ok(())
}

/// Upgrades gitcd in a heaven's manifest, and back: its pod is replaced once each time, objects stay the same, and the heavens
/// keep working together.
pub(crate) fn a_component_is_upgraded_and_set_back_and_its_branch_goes_on(world: &Arc<World>) -> anyhow::Result<()> {
    const NEXT: &str = "ghcr.io/trishanku-org/gitcd:next";
    let heaven = world.heaven("default", CONTROLLERS, "sample-k8s-admin")?;
    heaven.kubectl("create configmap before --from-literal=the=upgrade")?;
    let before = heaven.object("configmap before")?;
    let mut newest = revision(&heaven)?;
    drop(heaven);
    let planned = templates(world)?;
    let patch = r#"kubectl patch trishankuheaven NAME --type=merge --patch='{"spec":{"gitcd":{"gitcdImage":{"image":"IMAGE"}}}}'"#;
    let back =
        r#"kubectl patch trishankuheaven NAME --type=merge --patch='{"spec":{"gitcd":{"gitcdImage":{"image":null}}}}'"#;
    // A Deployment's revision also counts a template that it had before.
    let replaced = || {
        let deployment = world.cluster().object(&format!("deployment {CONTROLLERS}-heaven"))?;
        let count = deployment["metadata"]["annotations"]["deployment.kubernetes.io/revision"].as_str();
        anyhow::Ok(count.context("the Deployment has no revision")?.parse::<u64>()?)
    };
    let first = replaced()?;
    for (step, (command, is_next)) in (1..).zip([(patch, true), (back, false)]) {
        let (begun, given) = (Instant::now(), [("NAME", CONTROLLERS), ("IMAGE", NEXT)]);
        for command in [command, "kubectl wait --for=condition=Ready trishankuheaven/NAME --timeout=4m"] {
            world.documented_with(command, &given, &World::source(""))?;
        }
        eprintln!("{} after {:?}", if is_next { "upgraded" } else { "set back" }, begun.elapsed());
        let pods =
            world.cluster().object(&format!("pods --selector=controllers.trishanku.org/heaven={CONTROLLERS}"))?;
        let pods = pods["items"].as_array().context("the list has no items")?;
        ensure!(pods.len() == 1, "{} pods exist", pods.len());
        let images: Vec<_> = (["initContainers", "containers"].iter())
            .flat_map(|list| pods[0]["spec"][list].as_array().into_iter().flatten())
            .filter_map(|container| container["image"].as_str())
            .filter(|image| image.starts_with("ghcr.io/trishanku-org/gitcd:"))
            .collect();
        ensure!(!images.is_empty() && images.iter().all(|image| (*image == NEXT) == is_next), "{images:?}");
        let count = replaced()? - first;
        ensure!(count == step, "after {step} changes the pod was replaced {count} times");
        let heaven = world.heaven("default", CONTROLLERS, "sample-k8s-admin")?;
        let after = heaven.object("configmap before")?;
        ensure!(after["metadata"]["uid"] == before["metadata"]["uid"] && after["data"] == before["data"], "{after}");
        let now = revision(&heaven)?;
        ensure!(now > newest, "revision {now} came after {newest}");
        newest = now;
        let took = beside::bound_there(&heaven)?;
        eprintln!("ten pods are created by this heaven and bound by the other in {took:?}");
    }
    ensure!(templates(world)? == planned, "the pod templates differ from before");
    world.heaven("default", CONTROLLERS, "sample-k8s-admin")?.kubectl("delete configmap before")?;
    Ok(())
}

/// Without a remote or a graceful stop, acknowledged writes survive in the volume.
pub(crate) fn a_heaven_with_a_volume_claim_loses_nothing_with_its_pod(world: &Arc<World>) -> anyhow::Result<()> {
    const NAMESPACE: &str = "kept";
    let folder = world.cluster().folder(NAMESPACE)?;
    let volume = json!({
        "apiVersion": "v1", "kind": "PersistentVolume", "metadata": {"name": NAMESPACE},
        "spec": {
            "storageClassName": NAMESPACE, "capacity": {"storage": "1Gi"}, "accessModes": ["ReadWriteOnce"],
            "persistentVolumeReclaimPolicy": "Retain", "local": {"path": folder},
            "nodeAffinity": {"required": {"nodeSelectorTerms": [{"matchExpressions": [
                {"key": "kubernetes.io/hostname", "operator": "In", "values": [world.cluster().node()]},
            ]}]}},
        },
    });
    let manifest = std::fs::read_to_string(World::source("examples/first-heaven.yaml"))?;
    let mut manifest: Value = serde_saphyr::from_str(&manifest)?;
    manifest["metadata"]["namespace"] = NAMESPACE.into();
    manifest["spec"]["gitcd"] = json!({"storage": {"volumeClaim": {"size": "1Gi", "storageClassName": NAMESPACE}}});
    world.kubectl(&format!("create namespace {NAMESPACE}"))?;
    world.kubectl(&format!("label namespace {NAMESPACE} pod-security.kubernetes.io/enforce=restricted"))?;
    for object in [&volume, &manifest] {
        world.cluster().apply(&object.to_string())?;
    }
    world.until_condition(&format!("trishankuheaven first --namespace {NAMESPACE}"), "Ready")?;

    let heaven = world.heaven(NAMESPACE, "first", "first-admin")?;
    let pod = world.kubectl(&format!("get pods --namespace {NAMESPACE} --output=name"))?;
    let ours = |uid: &Value| -> anyhow::Result<bool> {
        let pods = world.cluster().object(&format!("pods --namespace {NAMESPACE}"))?;
        let pods = pods["items"].as_array().cloned().unwrap_or_default();
        let is_ready = |pod: &Value| {
            let conditions = pod["status"]["conditions"].as_array().into_iter().flatten();
            conditions.filter(|found| found["type"] == "Ready").any(|found| found["status"] == "True")
        };
        Ok(pods.iter().any(|pod| pod["metadata"]["uid"] != *uid && is_ready(pod)))
    };
    let found = world.cluster().object(&format!("{} --namespace {NAMESPACE}", pod.trim()))?;
    let (uid, gitcd) = (found["metadata"]["uid"].clone(), container_id(&found, "gitcd")?);
    heaven.kubectl("create configmap before --from-literal=the=deletion")?;
    let before = heaven.object("configmap before")?;
    // At once and by SIGKILL: a container of a deleted pod gets at least a second.
    let begun = Instant::now();
    world.cluster().faults().kill_container(&gitcd)?;
    world.kubectl(&format!("delete {} --namespace {NAMESPACE} --force --grace-period=0", pod.trim()))?;
    drop(heaven);
    until("the new pod", || Ok(ours(&uid)?.then_some(())))?;
    eprintln!("killed and ready again after {:?}", begun.elapsed());
    let heaven = world.heaven(NAMESPACE, "first", "first-admin")?;
    let after = heaven.object("configmap before")?;
    // It is the same store, at the same revision.
    ensure!(after["metadata"] == before["metadata"] && after["data"] == before["data"], "{before}\n{after}");
    drop(heaven);
    world.kubectl(&format!("delete trishankuheaven first --namespace {NAMESPACE} --timeout=2m"))?;
    world.kubectl(&format!("delete namespace {NAMESPACE} --timeout=2m"))?;
    world.kubectl(&format!("delete persistentvolume {NAMESPACE} --timeout=1m"))?;
    Ok(())
}

/// The Git host loses its disk, and a clone replaces it: the heavens restore the state of that moment.
pub(crate) fn a_clone_is_a_backup_from_which_all_begin_again(world: &Arc<World>) -> anyhow::Result<()> {
    let heaven = world.heaven("default", CONTROLLERS, "sample-k8s-admin")?;
    heaven.kubectl("create configmap kept --from-literal=in=the-backup")?;
    let before = heaven.object("configmap kept")?;
    let newest = revision(&heaven)?;
    drop(heaven);
    let backup = world.file("backup");
    until("the upstream branch to have the object", || {
        if backup.exists() {
            std::fs::remove_dir_all(&backup)?;
        }
        std::fs::create_dir(&backup)?;
        world.git(&backup, &["clone", "--quiet", "--mirror", "REMOTE", "."])?;
        world.git(&backup, &["show", "upstream/data:configmaps/default/kept"]).map(Some)
    })?;

    let all = [("trishankuheaven", CONTROLLERS), ("trishankuheaven", SCHEDULERS), ("automatedmerge", "sample-k8s-kcm")];
    let suspend = |is: bool| {
        all.iter().try_for_each(|(kind, name)| {
            let patch = format!(r#"--patch='{{"spec":{{"suspend":{is}}}}}'"#);
            world.documented_for(&format!("kubectl patch {kind} NAME --type=merge {patch}"), name).map(drop)
        })
    };
    suspend(true)?;
    until("all pods to stop", || {
        let pods = world.kubectl("get pods --output=name")?;
        ensure!(pods.lines().all(|pod| pod.starts_with("pod/git-")), "{pods}");
        Ok(Some(()))
    })?;
    // Its disk is deleted with the pod.
    world.kubectl("delete pods --selector=app.kubernetes.io/name=git-host --timeout=1m")?;
    until("the new Git host", || world.kubectl("rollout status deployment/git --timeout=1m").map(Some))?;
    let empty = until("it to respond", || world.git(&backup, &["ls-remote", "REMOTE"]).map(Some))?;
    ensure!(empty.is_empty(), "it must be empty: {empty}");
    world.git(&backup, &["push", "--quiet", "--mirror", "REMOTE"])?;
    suspend(false)?;
    let begun = Instant::now();
    for (kind, name) in all {
        world.until_condition(&format!("{kind} {name}"), "Ready")?;
    }
    eprintln!("restored after {:?}", begun.elapsed());
    for heaven in world.heavens()? {
        // The other heaven gets it through the merge, a moment after it is ready.
        let after = until("the object to be back", || heaven.object("configmap kept").map(Some))?;
        ensure!(after["metadata"]["uid"] == before["metadata"]["uid"] && after["data"] == before["data"], "{after}");
        if heaven.name() == CONTROLLERS {
            let now = revision(&heaven)?;
            ensure!(now > newest, "revision {now} came after {newest}");
        }
    }
    world.heaven("default", CONTROLLERS, "sample-k8s-admin")?.kubectl("delete configmap kept")?;
    Ok(())
}

/// The revision of a heaven.
fn revision(heaven: &Heaven<'_>) -> anyhow::Result<u64> {
    let list: Value = serde_json::from_str(&heaven.kubectl("get --raw /api/v1/namespaces/default/configmaps")?)?;
    let revision = list["metadata"]["resourceVersion"].as_str().context("the list has no resource version")?;
    Ok(revision.parse()?)
}

/// Killed, upgraded and downgraded: its heavens' pods stay the same, and none of their containers restarts.
pub(crate) fn the_manager_is_killed_upgraded_and_downgraded_and_no_heaven_restarts(
    world: &Arc<World>,
) -> anyhow::Result<()> {
    let (before, planned) = (containers(world)?, templates(world)?);
    ensure!(!before.is_empty() && !planned.is_empty(), "no heavens exist");
    let manager = "--namespace trishanku-system";
    world.kubectl(&format!(
        "delete pods {manager} --selector=app.kubernetes.io/name=trishanku-manager --force --grace-period=0"
    ))?;
    let rollout = format!("rollout status deployment/trishanku-manager {manager} --timeout=2m");
    until("the new manager", || world.kubectl(&rollout).map(Some))?;
    // Another version is another pod with another image. `next` is the same program; `previous` is an older build, if one was
    // requested.
    let steps =
        ["next", "previous", "0.1.0"].into_iter().filter(|step| *step != "previous" || has_other(step, "manager"));
    for step in steps {
        let step = &format!("ghcr.io/trishanku-org/manager:{step}");
        world.kubectl(&format!("set image deployment/trishanku-manager {manager} manager={step}"))?;
        until(step, || world.kubectl(&rollout).map(Some))?;
        // A reconciled probe shows that it works, and that it has already processed the existing heavens.
        world.cluster().apply(PROBE)?;
        world.until_condition("trishankuheaven probe", "Ready")?;
        world.kubectl("delete trishankuheaven probe --timeout=1m")?;
        let rendered = templates(world)?;
        let is_other = |name: &&String| rendered.get(*name) != planned.get(*name);
        let others: Vec<_> = planned.keys().filter(is_other).map(String::as_str).collect();
        let advice = if step.ends_with(":previous") { OLDER } else { "" };
        ensure!(others.is_empty(), "{step} renders other pod templates of {}{advice}", others.join(", "));
    }
    let after = containers(world)?;
    let advice = if has_other("previous", "manager") { OLDER } else { "" };
    ensure!(before == after, "before {before:?}\nafter {after:?}{advice}");
    Ok(())
}

/// Advice if pods restart with another build: `previous` may render them differently, and then proves nothing.
const OLDER: &str = "\nif the older build renders pods differently, each pod is rightly replaced once: choose a later commit for PREVIOUS";

/// A heaven without a pod.
const PROBE: &str = r#"{"apiVersion": "controllers.trishanku.org.trishanku.org/v1alpha1", "kind": "TrishankuHeaven",
    "metadata": {"name": "probe", "namespace": "default"}, "spec": {"skip": {"app": true}}}"#;

/// The pod templates of all heavens and merges.
fn templates(world: &World) -> anyhow::Result<BTreeMap<String, Value>> {
    let mut found = BTreeMap::new();
    for label in ["heaven", "automated-merge"] {
        let deployments =
            world.cluster().object(&format!("deployments --selector=controllers.trishanku.org/{label}"))?;
        for deployment in deployments["items"].as_array().into_iter().flatten() {
            let name = deployment["metadata"]["name"].as_str().context("the Deployment has no name")?;
            found.insert(name.to_owned(), deployment["spec"]["template"].clone());
        }
    }
    Ok(found)
}

/// The containers of all heavens and merges, with ID and restart count.
fn containers(world: &World) -> anyhow::Result<BTreeMap<String, String>> {
    let mut found = BTreeMap::new();
    for label in ["heaven", "automated-merge"] {
        let pods = world.cluster().object(&format!("pods --selector=controllers.trishanku.org/{label}"))?;
        for pod in pods["items"].as_array().into_iter().flatten() {
            for list in ["initContainerStatuses", "containerStatuses"] {
                for container in pod["status"][list].as_array().into_iter().flatten() {
                    let name = format!("{}/{}", pod["metadata"]["name"], container["name"]);
                    found.insert(name, format!("{} {}", container["containerID"], container["restartCount"]));
                }
            }
        }
    }
    Ok(found)
}
