//! The repository as seen with stock Git.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use anyhow::{Context, ensure};
use trishanku_e2e::kubectl::config_maps;
use trishanku_e2e::{Cluster, git, wait};

pub(crate) fn the_log_reads_like_an_audit_log(cluster: &Arc<Cluster>) -> anyhow::Result<()> {
    cluster.namespace("audit")?;
    let path = "configmaps/audit/decision";
    // Each change is committed before the next, so that each has a commit of its own for this path.
    cluster.kubectl("create configmap decision --from-literal=go=no -n audit".split(' '))?;
    wait::until("the creation to be committed", || cluster.committed(path))?;
    let yes = ["-n", "audit", "--type=merge", "-p", r#"{"data":{"go":"yes"}}"#];
    cluster.kubectl(["patch", "configmap", "decision"].into_iter().chain(yes))?;
    wait::until_true("the update to be committed", || {
        let text = cluster.committed(path)?.unwrap_or_default();
        Ok(text.contains(r#""go": "yes""#))
    })?;
    cluster.kubectl("delete configmap decision -n audit".split(' '))?;
    wait::until_true("the deletion to be committed", || Ok(cluster.committed(path)?.is_none()))?;

    let log = cluster.git(&["log", "--format=%s%x00%b%x00%cn%x01", "refs/heads/main", "--", path])?;
    let commits: Vec<_> = log.split('\u{1}').map(str::trim).filter(|c| !c.is_empty()).collect();
    ensure!(commits.len() == 3, "{commits:?}");
    for (commit, verb) in commits.iter().zip(["delete", "update", "create"]) {
        let [subject, body, committer] = commit.split('\0').collect::<Vec<_>>()[..] else {
            anyhow::bail!("{commit:?}");
        };
        // Other scenarios write concurrently, so a commit may contain more than this change; a subject names six groups.
        let alone = format!("{verb} {path}");
        let groups: Vec<&str> = subject.split(", ").collect();
        let is_cut_short = groups.len() == 7 && groups[6].starts_with("and ") && groups[6].ends_with(" more");
        let is_named = subject == alone || subject.contains(&format!("{verb} ")) || is_cut_short;
        ensure!(is_named, "{subject:?} does not mention {alone:?}");
        ensure!(body.lines().any(|line| line.starts_with("Revision: ")), "{body:?}");
        ensure!(committer.trim() == "trishanku", "{committer:?}");
    }
    // Every subject of the log has this form,
    // except for the first commit, which creates the branch,
    // and for merges and external commits.
    let own = ["--min-parents=1", "--max-parents=1", "--committer=trishanku"];
    let oneline = cluster.git(&[&["log"], &own[..], &["--format=%s", "refs/heads/main"]].concat())?;
    for subject in oneline.lines() {
        // Of more than six groups, the last words are "and N more".
        let is_write = |part: &str| ["create ", "update ", "delete ", "and "].iter().any(|verb| part.starts_with(verb));
        ensure!(subject.split(", ").all(is_write), "{subject:?}");
    }
    Ok(())
}

pub(crate) fn an_object_is_json_with_one_field_a_line(cluster: &Arc<Cluster>) -> anyhow::Result<()> {
    cluster.kubectl("create deployment hello --image=nginx".split(' '))?;
    let path = "deployments/default/hello";
    let text = wait::until("the deployment to be committed", || cluster.committed(path))?;
    let value: serde_json::Value = serde_json::from_str(&text).context("it is not JSON")?;
    ensure!(value["kind"] == "Deployment" && value["metadata"]["name"] == "hello");
    ensure!(text == format!("{value:#}\n"), "it is not one field a line:\n{text}");
    // Git has what the API server serves, once it has caught up with the controllers.
    wait::until_true("the newest version to be committed", || {
        let text = cluster.committed(path)?.unwrap_or_default();
        let committed: serde_json::Value = serde_json::from_str(&text)?;
        let served = cluster.object("deployment hello -n default --show-managed-fields")?;
        // The resource version is the store's revision, and not stored in the object.
        Ok(committed["status"] == served["status"]
            && committed["spec"] == served["spec"]
            && committed["metadata"]["uid"] == served["metadata"]["uid"]
            && committed["metadata"]["managedFields"] == served["metadata"]["managedFields"])
    })
}

pub(crate) fn what_is_renewed_all_the_time_is_not_committed(cluster: &Arc<Cluster>) -> anyhow::Result<()> {
    cluster.namespace("quiet")?;
    cluster.kubectl("create deployment events --image=nginx -n quiet".split(' '))?;
    wait::until_true("events about it", || {
        let events = cluster.object("events -n quiet")?;
        Ok(events["items"].as_array().is_some_and(|events| !events.is_empty()))
    })?;
    let lease = wait::until("the API server's own lease", || {
        let leases = cluster.kubectl("get leases -n kube-system -o name".split(' '))?;
        let own = leases.lines().find_map(|name| name.split_once("/apiserver-"));
        Ok(own.map(|(_, id)| format!("leases/kube-system/apiserver-{id}")))
    })?;
    wait::until("the deployment to be committed", || cluster.committed("deployments/quiet/events"))?;
    for path in ["events", &lease, "masterleases", "peerserverleases"] {
        let log = cluster.git(&["log", "--oneline", "refs/heads/main", "--", path])?;
        ensure!(log.is_empty(), "{path} is in the history:\n{log}");
    }
    Ok(())
}

pub(crate) fn fsck_is_clean_while_writes_go_on(cluster: &Arc<Cluster>) -> anyhow::Result<()> {
    cluster.namespace("busy")?;
    let done = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let writer = scope.spawn(|| {
            for round in 0.. {
                if done.load(Ordering::SeqCst) {
                    return Ok(round);
                }
                let maps = config_maps(&format!("round-{}", round % 3), 0..15);
                let apply = ["apply", "--server-side", "--force-conflicts", "-n", "busy", "-f", "-"];
                cluster.kubectl_with(apply, &maps)?;
                if round % 3 == 2 {
                    cluster.kubectl("delete configmaps --all -n busy --wait=false".split(' '))?;
                }
            }
            anyhow::Ok(0)
        });
        let checked = check_while_history_grows(cluster);
        done.store(true, Ordering::SeqCst);
        let rounds = writer.join().ok().context("the writer panicked")??;
        checked?;
        ensure!(rounds > 0, "nothing was written while checking");
        Ok(())
    })
}

/// Runs three checks, with new commits in between.
fn check_while_history_grows(cluster: &Cluster) -> anyhow::Result<()> {
    let head = || cluster.git(&["rev-parse", "refs/heads/main"]);
    let mut last = head()?;
    for _ in 0..3 {
        last = wait::until("another commit", || {
            let now = head()?;
            Ok((now != last).then_some(now))
        })?;
        let printed = cluster.git(&["fsck", "--full", "--strict", "--no-dangling", "--no-progress"])?;
        ensure!(printed.is_empty(), "{printed}");
    }
    Ok(())
}

pub(crate) fn a_plain_clone_has_the_objects_as_files(cluster: &Arc<Cluster>) -> anyhow::Result<()> {
    cluster.namespace("cloned")?;
    cluster.kubectl("create configmap it --from-literal=is=here -n cloned".split(' '))?;
    let path = "configmaps/cloned/it";
    let committed = wait::until("the ConfigMap to be committed", || cluster.committed(path))?;
    let repository = cluster.home().repository();
    let repository = repository.to_str().context("the path is not UTF-8")?;
    git::run(cluster.scratch(), &["clone", "--quiet", repository, "clone"])?;
    let clone = cluster.scratch().join("clone");
    ensure!(std::fs::read_to_string(clone.join(path))? == committed);
    ensure!(git::run(&clone, &["status", "--porcelain"])?.is_empty());
    ensure!(git::run(&clone, &["branch", "--show-current"])?.trim() == "main");
    Ok(())
}
