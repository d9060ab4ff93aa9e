//! SIGKILL for each process in turn, while objects are written at two heavens.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use anyhow::{Context, ensure};
use trishanku::plane::State;
use trishanku_e2e::{Cluster, wait};

pub(crate) fn every_process_is_killed_in_turn_and_nothing_acknowledged_is_lost(
    cluster: &Arc<Cluster>,
) -> anyhow::Result<()> {
    each_is_killed(cluster, 10)
}

pub(crate) fn mesh_every_process_is_killed_in_turn_and_nothing_acknowledged_is_lost(
    cluster: &Arc<Cluster>,
) -> anyhow::Result<()> {
    // There is no merge, and one more controller.
    each_is_killed(cluster, 12)
}

fn each_is_killed(cluster: &Cluster, count: usize) -> anyhow::Result<()> {
    let components: Vec<String> =
        State::load(&cluster.home().state_file())?.components.into_iter().map(|component| component.name).collect();
    ensure!(components.len() == count, "{components:?}");
    let is_over = AtomicBool::new(false);
    let written = std::thread::scope(|scope| {
        let writers = ["desk", "kube-scheduler"].map(|heaven| scope.spawn(|| write(cluster, heaven, &is_over)));
        let killed = components.iter().try_for_each(|component| {
            cluster.kill(component)?;
            wait::until_true(&format!("{component} to be back"), || {
                let report = trishanku::status::read(cluster.home())?;
                Ok(report.components.iter().any(|c| c.name == *component && c.pid.is_some() && c.restarts > 0))
            })?;
            cluster.wait_ready()
        });
        is_over.store(true, Ordering::Relaxed);
        let written: Vec<_> =
            writers.into_iter().map(|writer| writer.join().ok().context("a writer panicked")).collect();
        killed?;
        written.into_iter().collect::<anyhow::Result<Vec<_>>>()
    })?;
    let expected: BTreeSet<String> = written.into_iter().flatten().collect();
    ensure!(expected.len() > 20, "too few objects were written: {expected:?}");
    cluster.wait_agreed()?;
    // The branches may have agreed before the last push.
    wait::until("all acknowledged objects at every heaven", || {
        for heaven in ["desk", "kube-controller-manager", "kube-scheduler"] {
            let found = cluster.kubectl_at(heaven, ["get", "configmaps", "-o", "name"])?;
            let found: BTreeSet<String> = found.lines().map(|line| line.replace("configmap/", "")).collect();
            let lost: Vec<_> = expected.difference(&found).collect();
            ensure!(lost.is_empty(), "{heaven} has lost {lost:?}");
        }
        Ok(Some(()))
    })
}

/// Creates objects one after the other; returns the acknowledged ones.
fn write(cluster: &Cluster, heaven: &str, is_over: &AtomicBool) -> Vec<String> {
    let mut acknowledged = Vec::new();
    for number in 0.. {
        if is_over.load(Ordering::Relaxed) {
            break;
        }
        let name = format!("killed-{heaven}-{number}");
        // While the heaven's own processes are down, writes are not acknowledged.
        if cluster.kubectl_at(heaven, ["create", "configmap", &name, "--request-timeout=5s"]).is_ok() {
            acknowledged.push(name);
        }
    }
    acknowledged
}
