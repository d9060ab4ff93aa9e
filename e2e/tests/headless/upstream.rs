//! Changes of the upstream repository.

use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::ensure;
use trishanku_e2e::headless::has_file;
use trishanku_e2e::{Cluster, git, is_long, wait};

const CLUSTER: &str = "refs/heads/cluster/data";

pub(crate) fn upstream_is_replaced_by_a_clone_of_itself(cluster: &Arc<Cluster>) -> anyhow::Result<()> {
    cluster.wait_agreed()?;
    let upstream = cluster.home().upstream();
    let old = upstream.with_extension("old");
    std::fs::rename(&upstream, &old)?;
    let (from, to) = (old.display().to_string(), upstream.display().to_string());
    git::run(cluster.scratch(), &["clone", "--quiet", "--mirror", &from, &to])?;
    seen_by_the_scheduler(cluster, "replaced")?;
    let head = cluster.wait_agreed()?;
    ensure!(git::run(&upstream, &["rev-parse", CLUSTER])?.trim() == head, "the new upstream is not followed");
    ensure!(has_file(&upstream, CLUSTER, "configmaps/default/replaced")?, "the new upstream lacks the object");
    std::fs::remove_dir_all(old)?;
    Ok(())
}

pub(crate) fn upstream_is_set_back_and_gets_the_newer_work_again(cluster: &Arc<Cluster>) -> anyhow::Result<()> {
    let before = cluster.wait_agreed()?;
    // The long form removes the work of ten minutes.
    let (span, since) = (if is_long() { Duration::from_mins(10) } else { Duration::ZERO }, Instant::now());
    let mut newer = Vec::new();
    while newer.is_empty() || since.elapsed() < span {
        let name = format!("newer-{}", newer.len());
        seen_by_the_scheduler(cluster, &name)?;
        newer.push(name);
    }
    cluster.wait_agreed()?;
    let upstream = cluster.home().upstream();
    git::run(&upstream, &["update-ref", CLUSTER, &before])?;
    // The next change restores what was removed.
    seen_by_the_scheduler(cluster, "afterwards")?;
    let head = cluster.wait_agreed()?;
    wait::until_true("upstream to be restored", || Ok(git::run(&upstream, &["rev-parse", CLUSTER])?.trim() == head))?;
    newer.push("afterwards".to_owned());
    for name in newer {
        ensure!(has_file(&upstream, CLUSTER, &format!("configmaps/default/{name}"))?, "{name} is lost");
        cluster.kubectl(["get", "configmap", &name])?;
    }
    Ok(())
}

/// Writes at the desk, and waits until the scheduler has it.
fn seen_by_the_scheduler(cluster: &Cluster, name: &str) -> anyhow::Result<()> {
    cluster.kubectl(["create", "configmap", name])?;
    wait::until_true(&format!("the scheduler to have {name}"), || {
        Ok(cluster.kubectl_at("kube-scheduler", ["get", "configmap", name, "-o", "name"])?.contains(name))
    })
}
