//! SIGKILL for the store, while objects are written and watched.

use std::collections::BTreeSet;
use std::sync::Arc;

use anyhow::{Context, ensure};
use trishanku_e2e::kubectl::config_maps;
use trishanku_e2e::watch::Watch;
use trishanku_e2e::{Cluster, wait};

const BATCH: usize = 10;
const BATCHES: usize = 9;

pub(crate) fn a_watch_goes_on_without_a_gap_when_the_store_is_killed(cluster: &Arc<Cluster>) -> anyhow::Result<()> {
    cluster.namespace("gapless")?;
    let watch = Watch::start(cluster, "/api/v1/namespaces/gapless/configmaps")?;
    let expected = write_while_killing(cluster, "gapless")?;
    let seen = watch.wait("all objects to be seen", |seen| {
        seen.events.iter().filter(|event| event.name.starts_with("kept-")).count() >= expected.len()
    })?;
    let added: Vec<_> = seen
        .events
        .iter()
        .filter(|event| event.name.starts_with("kept-"))
        .inspect(|event| assert_eq!(event.kind, "ADDED", "{event:?}"))
        .map(|event| event.name.clone())
        .collect();
    let names: BTreeSet<_> = added.iter().cloned().collect();
    ensure!(names.len() == added.len(), "seen twice: {added:?}");
    ensure!(names == expected, "seen {names:?}, written {expected:?}");
    let versions: Vec<_> = seen.events.iter().map(|event| event.version).collect();
    ensure!(versions.is_sorted_by(|a, b| a < b), "{versions:?}");
    Ok(())
}

pub(crate) fn acknowledged_objects_are_all_there_after_the_store_was_killed(
    cluster: &Arc<Cluster>,
) -> anyhow::Result<()> {
    cluster.namespace("kept")?;
    let expected = write_while_killing(cluster, "kept")?;
    let list = cluster.object("configmaps -n kept")?;
    let items = list["items"].as_array().context("the list has no items")?;
    let found: BTreeSet<_> = items
        .iter()
        .filter_map(|item| item["metadata"]["name"].as_str())
        .filter(|name| name.starts_with("kept-"))
        .map(str::to_owned)
        .collect();
    ensure!(found == expected, "found {found:?}, written {expected:?}");
    if Cluster::is_on_git() {
        wait::until_true("all objects to be committed", || {
            let tree = "refs/heads/main:configmaps/kept";
            let files = cluster.git(&["ls-tree", "--name-only", tree])?;
            let files: BTreeSet<_> = files.lines().map(str::to_owned).collect();
            Ok(expected.is_subset(&files))
        })?;
        cluster.git(&["fsck", "--full", "--strict", "--no-progress"])?;
    }
    Ok(())
}

/// Creates objects in batches and kills the store three times meanwhile; returns the names of all objects.
///
/// The API server is not restarted: it has to reconnect to the store by itself.
fn write_while_killing(cluster: &Cluster, namespace: &str) -> anyhow::Result<BTreeSet<String>> {
    let api_server = pid(cluster, "kube-apiserver")?;
    std::thread::scope(|scope| {
        let (batches, written) = std::sync::mpsc::sync_channel(0);
        let writer = scope.spawn(move || {
            for batch in 0..BATCHES {
                create(cluster, namespace, batch * BATCH..(batch + 1) * BATCH)?;
                // If the killer has failed, its error is the one to report.
                let _sent = batches.send(batch);
            }
            anyhow::Ok(())
        });
        let kill = || {
            for batch in written {
                if batch % 3 == 1 {
                    cluster.kill(cluster.store())?;
                    wait::until_true("the store to be back", || Ok(pid(cluster, cluster.store()).is_ok()))?;
                }
            }
            anyhow::Ok(())
        };
        let killed = kill();
        writer.join().ok().context("the writer panicked")??;
        killed
    })?;
    cluster.wait_ready()?;
    ensure!(pid(cluster, "kube-apiserver")? == api_server, "kube-apiserver was restarted");
    Ok((0..BATCHES * BATCH).map(|n| format!("kept-{n:04}")).collect())
}

/// Creates objects until all of them are acknowledged. One whose acknowledgement was lost already exists at the next try.
fn create(cluster: &Cluster, namespace: &str, numbers: std::ops::Range<usize>) -> anyhow::Result<()> {
    let mut numbers: Vec<_> = numbers.collect();
    wait::until_true("a batch to be written", || {
        let maps: Vec<_> = numbers.iter().map(|&n| config_maps("kept", n..n + 1)).collect();
        let args = ["create", "-n", namespace, "-f", "-"];
        let Err(error) = cluster.kubectl_with(args, &maps.join("---\n")) else {
            return Ok(true);
        };
        let error = format!("{error:#}");
        let exists = |n: &usize| error.contains(&format!("\"kept-{n:04}\" already exists"));
        numbers.retain(|n| !exists(n));
        Ok(numbers.is_empty())
    })
}

pub(crate) fn pid(cluster: &Cluster, component: &str) -> anyhow::Result<u32> {
    let report = trishanku::status::read(cluster.home())?;
    let found = report.components.iter().find(|c| c.name == component);
    found.and_then(|component| component.pid).with_context(|| format!("{component} is not running"))
}
