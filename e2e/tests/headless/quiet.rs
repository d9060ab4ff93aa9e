//! Nobody does anything: no branch moves.

use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::ensure;
use trishanku_e2e::{Cluster, git};

pub(crate) fn no_branch_moves_for_a_minute(cluster: &Arc<Cluster>) -> anyhow::Result<()> {
    stays(cluster, Duration::from_mins(1))
}

pub(crate) fn mesh_no_branch_moves_for_a_while(cluster: &Arc<Cluster>) -> anyhow::Result<()> {
    stays(cluster, Duration::from_secs(15))
}

/// There is no node here, so the list of keys that may change (docs/design/headless.md) is empty.
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
