//! The output of commands.

use std::sync::Arc;
use std::time::{SystemTime, UNIX_EPOCH};

use anyhow::{Context, ensure};
use serde_json::Value;
use trishanku_e2e::{Cluster, git};

pub(crate) fn the_demo_shows_which_branch_did_what(cluster: &Arc<Cluster>) -> anyhow::Result<()> {
    let output = cluster.trishanku().args(["demo", "--json", "--replicas=4"]).output()?;
    ensure!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let said: Value = serde_json::from_slice(&output.stdout)?;
    let chapters = said["story"]["chapters"].as_array().context("the story has no chapters")?;
    let of = |what: &str| chapters.iter().find(|chapter| chapter["what"] == what);
    for (what, maker) in [
        ("create deployments", "desk"),
        ("create replicasets", "kube-controller-manager"),
        ("create pods", "kube-controller-manager"),
        ("update pods", "kube-scheduler"),
    ] {
        let chapter = of(what).with_context(|| format!("no chapter for {what}: {said:#}"))?;
        ensure!(chapter["heaven"] == maker, "{what} was done by {chapter}");
        ensure!(chapter["at_desk_seconds"].is_number(), "the desk never saw {chapter}");
    }
    // Verified with Git: who bound the pod.
    let scheduler = cluster.heaven("kube-scheduler")?;
    let commit =
        of("update pods").and_then(|chapter| chapter["first"].as_str()).context("the chapter has no commit")?;
    let shown = git::run(&scheduler.repository, &["show", "--format=%cn", commit])?;
    ensure!(shown.starts_with("kube-scheduler\n") && shown.contains("+    \"nodeName\": "), "{shown}");
    // All branches are merged: the commit is in each.
    let head = cluster.wait_agreed()?;
    for heaven in cluster.heavens()? {
        git::run(&heaven.repository, &["merge-base", "--is-ancestor", commit, &head])?;
    }
    status(cluster)
}

pub(crate) fn a_kept_demo_stays_when_others_run(cluster: &Arc<Cluster>) -> anyhow::Result<()> {
    let demo = |arguments: &[&str]| -> anyhow::Result<String> {
        let output = cluster.trishanku().args(["demo", "--json", "--replicas=1"]).args(arguments).output()?;
        ensure!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        let said: Value = serde_json::from_slice(&output.stdout)?;
        Ok(said["deployment"].as_str().context("the demo names no Deployment")?.to_owned())
    };
    let kept = demo(&["--keep"])?;
    let uid = |name: &str| cluster.kubectl(["get", "deployment", name, "--output=jsonpath={.metadata.uid}"]);
    let before = uid(&kept)?;
    let other = demo(&[])?;
    ensure!(other != kept, "both are called {kept}");
    ensure!(uid(&kept)? == before, "the Deployment {kept} was replaced");
    let pods = cluster.kubectl(["get", "pods", &format!("--selector=app={kept}"), "--output=name"])?;
    ensure!(pods.lines().count() == 1, "the Deployment {kept} has other pods: {pods}");
    let left = cluster.kubectl(["get", "deployments", "--output=name"])?;
    ensure!(!left.contains(&format!("/{other}\n")), "the Deployment {other} was not removed: {left}");
    let kubectl = cluster.plain_kubectl();
    kubectl.remove_deployment(&kept)?;
    kubectl.run(&["delete", "node", "stand-in", "--ignore-not-found"])?;
    Ok(())
}

pub(crate) fn mesh_the_demo_shows_which_branch_did_what(cluster: &Arc<Cluster>) -> anyhow::Result<()> {
    the_demo_shows_which_branch_did_what(cluster)
}

/// `status` and `graph` of branches that agree.
fn status(cluster: &Cluster) -> anyhow::Result<()> {
    let output = cluster.trishanku().args(["status", "--json"]).output()?;
    ensure!(output.status.success(), "{output:?}");
    let said: Value = serde_json::from_slice(&output.stdout)?;
    for heaven in said["heavens"].as_array().context("the cluster has no heavens")? {
        let name = &heaven["name"];
        ensure!(heaven["head"] == said["heavens"][0]["head"], "{name} is at another commit: {said:#}");
        for remote in heaven["remotes"].as_array().context("the heaven has no remotes")? {
            ensure!(remote["lag_commits"] == 0, "{name} is behind: {remote}");
            ensure!(remote["condition"].is_null() || remote["condition"] == "Synced", "{name}: {remote}");
        }
        ensure!(heaven["conflicts"].is_u64() && heaven["restarts"].is_u64(), "{name}: {heaven}");
        let merged =
            heaven["remotes"].as_array().into_iter().flatten().filter_map(|remote| remote["merged_at"].as_u64());
        let now = SystemTime::now().duration_since(UNIX_EPOCH)?.as_secs();
        ensure!(merged.max().is_some_and(|at| now.abs_diff(at) < 600), "{name} has never merged: {heaven}");
    }
    let table = cluster.trishanku().arg("status").output()?;
    let printed = String::from_utf8_lossy(&table.stdout).into_owned();
    for column in ["HEAVEN", "BRANCH", "BEHIND", "LAST MERGE", "CONFLICTS", "RESTARTS"] {
        ensure!(table.status.success() && printed.contains(column), "no {column} in {printed}");
    }
    let graph = cluster.trishanku().args(["graph", "--limit=200"]).output()?;
    let drawn = String::from_utf8_lossy(&graph.stdout).into_owned();
    ensure!(graph.status.success() && drawn.contains("merge") && drawn.contains("desk/data"), "{drawn}");
    history(cluster)
}

/// `log` and `diff` of objects, by their names in kubectl.
fn history(cluster: &Cluster) -> anyhow::Result<()> {
    for heaven in [&[][..], &["--heaven=kube-scheduler"]] {
        let output = cluster.trishanku().args(heaven).args(["log", "--json", "-p", "svc/kubernetes"]).output()?;
        ensure!(output.status.success(), "{output:?}");
        let log: Value = serde_json::from_slice(&output.stdout)?;
        let first = log.as_array().and_then(|log| log.last()).context("the Service has no history")?;
        ensure!(first["what"] == "create" && first["fields"].to_string().contains("clusterIP"), "{log:#}");
    }
    // Every heaven reports that it was the desk's, whichever kube-apiserver made the change.
    let output = cluster.trishanku().args(["--heaven=kube-scheduler", "log", "svc/kubernetes"]).output()?;
    let entries = String::from_utf8_lossy(&output.stdout).into_owned();
    ensure!(
        entries.lines().last().is_some_and(|first| first.contains("desk: system:apiserver (kube-apiserver")),
        "{entries}"
    );
    // Kinds that the store defines are resolved, also in a branch that started from another one.
    let unknown = cluster.trishanku().args(["--heaven=kube-scheduler", "log", "raingauge/nothing"]).output()?;
    let said = String::from_utf8_lossy(&unknown.stderr).into_owned();
    ensure!(!unknown.status.success() && said.contains("raingauge") && !said.contains("took over"), "{said}");
    let missing = cluster.trishanku().args(["log", "svc/nothing"]).output()?;
    let said = String::from_utf8_lossy(&missing.stderr).into_owned();
    ensure!(!missing.status.success() && said.contains("has kubernetes"), "{said}");
    let diff = cluster.trishanku().args(["diff", "--since=12h", "--json", "-n", "default"]).output()?;
    let changes: Value = serde_json::from_slice(&diff.stdout)?;
    let keys: Vec<_> = changes["keys"].as_array().into_iter().flatten().filter_map(|key| key["key"].as_str()).collect();
    ensure!(diff.status.code() == Some(1) && keys.contains(&"/registry/services/specs/default/kubernetes"), "{keys:?}");
    ensure!(keys.iter().all(|key| key.split('/').any(|part| part == "default")), "{keys:?}");
    Ok(())
}

pub(crate) fn it_goes_on_after_down_and_up(cluster: &Arc<Cluster>) -> anyhow::Result<()> {
    cluster.kubectl(["create", "configmap", "before", "--from-literal=a=1"])?;
    // A running cluster rejects further heavens with an error.
    let sample = cluster.scratch().join("sample.yaml");
    std::fs::write(&sample, include_str!("sample-controller.yaml"))?;
    let more = cluster.trishanku().args(["up", "--detach", "--filename"]).arg(&sample).output()?;
    let said = String::from_utf8_lossy(&more.stderr).into_owned();
    ensure!(!more.status.success() && said.contains("already running other manifests"), "{more:?}");
    // The last push must succeed: upstream has all of the desk's commits.
    cluster.down()?;
    let desk = cluster.heaven("desk")?;
    let own = git::run(&desk.repository, &["rev-parse", &desk.branch])?;
    let pushed = git::run(&cluster.home().upstream(), &["rev-parse", &desk.branch])?;
    ensure!(own == pushed, "the desk is at {own}, and upstream has {pushed} of it");
    cluster.up()?;
    for heaven in ["desk", "kube-controller-manager", "kube-scheduler"] {
        trishanku_e2e::wait::until_true("the ConfigMap to be back", || {
            Ok(cluster.kubectl_at(heaven, ["get", "configmap", "before", "-o", "name"])?.contains("before"))
        })?;
    }
    cluster.wait_agreed()?;
    Ok(())
}
