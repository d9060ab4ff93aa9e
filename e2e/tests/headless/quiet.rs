//! Without any activity no branch moves, except for a node's lease renewals.

use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::ensure;
use time::OffsetDateTime;
use trishanku::demo::{Kubectl, StandIn};
use trishanku_e2e::{Cluster, git, is_long, wait};

pub(crate) fn no_branch_moves_for_a_minute(cluster: &Arc<Cluster>) -> anyhow::Result<()> {
    stays(cluster, Duration::from_mins(1))
}

pub(crate) fn mesh_no_branch_moves_for_a_while(cluster: &Arc<Cluster>) -> anyhow::Result<()> {
    stays(cluster, if is_long() { Duration::from_mins(1) } else { Duration::from_secs(15) })
}

/// Five times as often as a kubelet, to take less time.
pub(crate) fn mesh_a_node_that_lives_changes_its_lease_and_nothing_else(cluster: &Arc<Cluster>) -> anyhow::Result<()> {
    lives(cluster, Duration::from_secs(2), Duration::from_secs(20))
}

/// As often as a kubelet.
pub(crate) fn a_node_that_lives_changes_its_lease_and_nothing_else(cluster: &Arc<Cluster>) -> anyhow::Result<()> {
    lives(cluster, Duration::from_secs(10), Duration::from_mins(1))
}

/// There is no node here, so no key may change (docs/design/headless.md).
fn stays(cluster: &Cluster, span: Duration) -> anyhow::Result<()> {
    cluster.wait_agreed()?;
    let (before, since) = (cluster.heads()?, Instant::now());
    while since.elapsed() < span {
        let now = cluster.heads()?;
        for ((name, from), (_, to)) in before.iter().zip(&now) {
            if from != to {
                let repository = cluster.heaven(name)?.repository;
                let new = git::run(&repository, &["log", "--stat", "--format=%h %cn %s", &format!("{from}..{to}")])?;
                ensure!(false, "{name} moved after {:?}:\n{new}", since.elapsed());
            }
        }
        std::thread::sleep(Duration::from_millis(500));
    }
    Ok(())
}

const LEASE: &str = "kube-node-lease/stand-in";

/// Renews the lease of a node, and creates it first.
fn renew(kubectl: &Kubectl) -> anyhow::Result<()> {
    let now = OffsetDateTime::now_utc();
    let (date, time) = (now.date(), now.time());
    let (month, day) = (u8::from(date.month()), date.day());
    let (hour, minute, second, micro) = time.as_hms_micro();
    let now = format!("{}-{month:02}-{day:02}T{hour:02}:{minute:02}:{second:02}.{micro:06}Z", date.year());
    let (namespace, name) = LEASE.split_once('/').unwrap_or_default();
    let lease = serde_json::json!({
        "apiVersion": "coordination.k8s.io/v1", "kind": "Lease", "metadata": {"namespace": namespace, "name": name},
        "spec": {"holderIdentity": name, "leaseDurationSeconds": 40, "renewTime": now},
    });
    kubectl.run_with(&["apply", "--server-side", "--filename=-"], &lease.to_string())?;
    Ok(())
}

/// A node renews its lease at this interval: every branch must get these commits, with this key alone, and at most as many
/// merges. On a busy machine two renewals may become one commit; the long form, which has the machine to itself, expects all.
fn lives(cluster: &Cluster, every: Duration, span: Duration) -> anyhow::Result<()> {
    let desk = cluster.plain_kubectl();
    let node = StandIn::ensure(&desk)?;
    renew(&desk)?;
    cluster.wait_agreed()?;
    let (before, since) = (cluster.heads()?, Instant::now());
    let mut renewals = 0_u32;
    while since.elapsed() < span {
        renew(&desk)?;
        renewals += 1;
        // Missed renewals are not caught up, as they would be too close together.
        std::thread::sleep(every);
    }
    let took = since.elapsed();
    cluster.wait_agreed()?;
    // The branches may have agreed before the last renewal arrived.
    let counted = wait::until("the renewals, and nothing else", || {
        let mut counted = Vec::new();
        for ((heaven, from), (_, to)) in before.iter().zip(&cluster.heads()?) {
            let repository = cluster.heaven(heaven)?.repository;
            let range = format!("{from}..{to}");
            let changed = git::run(&repository, &["diff", "--name-only", from, to])?;
            let log = || git::run(&repository, &["log", "--stat", "--format=%h %cn %s", &range]).unwrap_or_default();
            ensure!(changed.trim() == format!("leases/{LEASE}"), "{heaven} has changes of {changed}:\n{}", log());
            let count = |what: &str| -> anyhow::Result<u32> {
                Ok(git::run(&repository, &["rev-list", "--count", what, &range])?.trim().parse()?)
            };
            let (own, merges) = (count("--no-merges")?, count("--merges")?);
            let is_all = if is_long() { own == renewals } else { own > 0 && own <= renewals };
            ensure!(is_all && merges <= renewals, "{heaven}: {own} commits, {merges} merges:\n{}", log());
            counted.push(format!("{heaven}: {renewals} renewals in {took:?} made {own} commits and {merges} merges"));
        }
        Ok(Some(counted))
    })?;
    println!("{}", counted.join("\n"));
    desk.run(&["delete", "lease", "--namespace=kube-node-lease", "stand-in"])?;
    node.remove(&desk)?;
    Ok(())
}
