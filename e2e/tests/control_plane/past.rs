//! `trishanku at`: a command with a kube-apiserver on the past.

use std::sync::Arc;

use anyhow::{Context, ensure};
use serde_json::Value;
use trishanku_e2e::{Cluster, git, wait};

pub(crate) fn kubectl_shows_the_past_and_cannot_change_it(cluster: &Arc<Cluster>) -> anyhow::Result<()> {
    cluster.namespace("past")?;
    cluster.kubectl("create configmap prices --from-literal=tea=3 -n past".split(' '))?;
    let path = "configmaps/past/prices";
    wait::until("the creation to be committed", || cluster.committed(path))?;
    let log = cluster.trishanku().args(["log", "--json", "cm/prices", "-n", "past"]).output()?;
    let log: Value = serde_json::from_slice(&log.stdout)?;
    let created = log[0]["revision"].as_i64().context("the log has no revision")?.to_string();
    cluster.kubectl("create configmap later --from-literal=tea=4 -n past".split(' '))?;
    cluster.kubectl("delete configmap prices -n past".split(' '))?;
    wait::until("the deletion to be committed", || Ok(cluster.committed(path)?.is_none().then_some(())))?;

    let at = |words: &str| -> anyhow::Result<(bool, String, String)> {
        let output = cluster.trishanku().args(["at", &created]).args(words.split(' ')).output()?;
        let text = |bytes: Vec<u8>| String::from_utf8(bytes);
        Ok((output.status.success(), text(output.stdout)?, text(output.stderr)?))
    };
    let (is_done, found, said) = at("kubectl get configmaps -n past -o name")?;
    ensure!(is_done && found.lines().any(|line| line == "configmap/prices"), "{found}{said}");
    ensure!(!found.contains("later") && said.contains(&format!("revision {created}")), "{found}{said}");
    let (is_done, found, said) = at("kubectl delete configmap prices -n past")?;
    ensure!(!is_done && said.contains("reader-of-the-past") && said.contains("Forbidden"), "{found}{said}");
    // The code is that of the command.
    let coded = cluster.trishanku().args(["at", &created, "sh", "-c", "exit 3"]).output()?;
    ensure!(coded.status.code() == Some(3), "{coded:?}");

    // Nothing is left of it, and the present is as before.
    let folders = std::fs::read_dir(cluster.home().past())?.count();
    ensure!(folders == 0, "{folders} folders are left");
    let now = cluster.kubectl(["get", "configmaps", "-n", "past", "--output=name"])?;
    ensure!(now.contains("configmap/later") && !now.contains("prices"), "{now}");
    git::run(&cluster.home().repository(), &["fsck", "--connectivity-only"])?;

    let early = cluster.trishanku().args(["at", "1970-01-01", "kubectl", "get", "nodes"]).output()?;
    let said = String::from_utf8(early.stderr)?;
    ensure!(!early.status.success() && said.contains("before the first revision"), "{said}");
    let never = cluster.trishanku().args(["at", "someday", "kubectl", "get", "nodes"]).output()?;
    let said = String::from_utf8(never.stderr)?;
    ensure!(!never.status.success() && said.contains("\"someday\" is not a moment: give a revision"), "{said}");
    ensure!(!said.contains("--help") && !said.contains("--at"), "{said}");
    Ok(())
}
