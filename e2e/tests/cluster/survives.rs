//! What happens to heavens when something else does.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Instant;

use anyhow::{Context, ensure};
use serde_json::Value;
use trishanku_e2e::nodes::has_other;

use crate::headless::{CONTROLLERS, SCHEDULERS};
use crate::world::{Heaven, World, until};

/// A new pod has nothing but what the remote has: the objects are the same, and no revision was there before.
pub(crate) fn the_pod_of_a_heaven_is_deleted_and_its_branch_goes_on(world: &Arc<World>) -> anyhow::Result<()> {
    let heaven = world.heaven("default", CONTROLLERS, "sample-k8s-admin")?;
    heaven.kubectl("create configmap before --from-literal=the=deletion")?;
    let before = heaven.object("configmap before")?;
    let uid = &before["metadata"]["uid"];
    until("the remote to have it", || {
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
    until("another pod", || world.kubectl(&rollout).map(Some))?;
    eprintln!("deleted and ready again after {:?}", begun.elapsed());

    let heaven = world.heaven("default", CONTROLLERS, "sample-k8s-admin")?;
    let after = heaven.object("configmap before")?;
    ensure!(after["metadata"]["uid"] == *uid && after["data"]["the"] == "deletion", "{after}");
    let now = revision(&heaven)?;
    ensure!(now > newest, "revision {now} came after {newest}");
    heaven.kubectl("delete configmap before")?;
    Ok(())
}

/// The Git host loses its disk, and a clone takes its place: all is as it was when that was made.
pub(crate) fn a_clone_is_a_backup_from_which_all_begin_again(world: &Arc<World>) -> anyhow::Result<()> {
    let heaven = world.heaven("default", CONTROLLERS, "sample-k8s-admin")?;
    heaven.kubectl("create configmap kept --from-literal=in=the-backup")?;
    let before = heaven.object("configmap kept")?;
    let newest = revision(&heaven)?;
    drop(heaven);
    let backup = world.file("backup");
    until("the branch upstream to have it", || {
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
    until("all to rest", || {
        let pods = world.kubectl("get pods --output=name")?;
        ensure!(pods.lines().all(|pod| pod.starts_with("pod/git-")), "{pods}");
        Ok(Some(()))
    })?;
    // Its disk goes with it.
    world.kubectl("delete pods --selector=app.kubernetes.io/name=git-host --timeout=1m")?;
    until("another Git host", || world.kubectl("rollout status deployment/git --timeout=1m").map(Some))?;
    let empty = until("it to answer", || world.git(&backup, &["ls-remote", "REMOTE"]).map(Some))?;
    ensure!(empty.is_empty(), "it has nothing: {empty}");
    world.git(&backup, &["push", "--quiet", "--mirror", "REMOTE"])?;
    suspend(false)?;
    let begun = Instant::now();
    for (kind, name) in all {
        world.until_condition(&format!("{kind} {name}"), "Ready")?;
    }
    eprintln!("restored after {:?}", begun.elapsed());
    for heaven in world.heavens()? {
        // The other one gets it by way of the merge, a moment after it is ready.
        let after = until("it to be there", || heaven.object("configmap kept").map(Some))?;
        ensure!(after["metadata"]["uid"] == before["metadata"]["uid"] && after["data"] == before["data"], "{after}");
        if heaven.name() == CONTROLLERS {
            let now = revision(&heaven)?;
            ensure!(now > newest, "revision {now} came after {newest}");
        }
    }
    world.heaven("default", CONTROLLERS, "sample-k8s-admin")?.kubectl("delete configmap kept")?;
    Ok(())
}

/// The revision that a heaven is at.
fn revision(heaven: &Heaven<'_>) -> anyhow::Result<u64> {
    let list: Value = serde_json::from_str(&heaven.kubectl("get --raw /api/v1/namespaces/default/configmaps")?)?;
    let revision = list["metadata"]["resourceVersion"].as_str().context("a list has a revision")?;
    Ok(revision.parse()?)
}

/// Killed, replaced by another version, and set back: its heavens' pods are the same, and none of their containers began anew.
pub(crate) fn the_manager_is_killed_upgraded_and_downgraded_and_no_heaven_restarts(
    world: &Arc<World>,
) -> anyhow::Result<()> {
    let (before, planned) = (containers(world)?, templates(world)?);
    ensure!(!before.is_empty() && !planned.is_empty(), "there are heavens");
    let manager = "--namespace trishanku-system";
    world.kubectl(&format!(
        "delete pods {manager} --selector=app.kubernetes.io/name=trishanku-manager --force --grace-period=0"
    ))?;
    let rollout = format!("rollout status deployment/trishanku-manager {manager} --timeout=2m");
    until("a manager in its place", || world.kubectl(&rollout).map(Some))?;
    // Another version is another pod with another image. That of `next` is the same program; `previous` is an older build, where one was asked for.
    let steps =
        ["next", "previous", "0.1.0"].into_iter().filter(|step| *step != "previous" || has_other(step, "manager"));
    for step in steps {
        let step = &format!("ghcr.io/trishanku-org/manager:{step}");
        world.kubectl(&format!("set image deployment/trishanku-manager {manager} manager={step}"))?;
        until(step, || world.kubectl(&rollout).map(Some))?;
        // It works when it has done something; what it found at its beginning it has looked at before that.
        world.cluster().apply(PROBE)?;
        world.until_condition("trishankuheaven probe", "Ready")?;
        world.kubectl("delete trishankuheaven probe --timeout=1m")?;
        let rendered = templates(world)?;
        let is_other = |name: &&String| rendered.get(*name) != planned.get(*name);
        let others: Vec<_> = planned.keys().filter(is_other).map(String::as_str).collect();
        let advice = if step.ends_with(":previous") { OLDER } else { "" };
        ensure!(others.is_empty(), "{step} renders another plan of {}{advice}", others.join(", "));
    }
    let after = containers(world)?;
    let advice = if has_other("previous", "manager") { OLDER } else { "" };
    ensure!(before == after, "before {before:?}\nafter {after:?}{advice}");
    Ok(())
}

/// What to do when pods begin anew because of another build: that of `previous` may do so, and then nothing is shown by it.
const OLDER: &str = "\nif the older build renders another plan of pods, each pod is replaced once, as it has to be: choose a later commit for PREVIOUS";

/// A heaven without a pod.
const PROBE: &str = r#"{"apiVersion": "controllers.trishanku.org.trishanku.org/v1alpha1", "kind": "TrishankuHeaven",
    "metadata": {"name": "probe", "namespace": "default"}, "spec": {"skip": {"app": true}}}"#;

/// The plan of every pod of the heavens and merges.
fn templates(world: &World) -> anyhow::Result<BTreeMap<String, Value>> {
    let mut found = BTreeMap::new();
    for label in ["heaven", "automated-merge"] {
        let deployments =
            world.cluster().object(&format!("deployments --selector=controllers.trishanku.org/{label}"))?;
        for deployment in deployments["items"].as_array().into_iter().flatten() {
            let name = deployment["metadata"]["name"].as_str().context("a Deployment has a name")?;
            found.insert(name.to_owned(), deployment["spec"]["template"].clone());
        }
    }
    Ok(found)
}

/// Every container of the heavens and merges, with its id and how often it began.
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
