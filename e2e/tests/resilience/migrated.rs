//! `gitcd migrate` below a kube-apiserver that goes on.

use std::collections::BTreeSet;
use std::io;
use std::path::Path;
use std::process::{Child, Command};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Instant;

use anyhow::{Context, ensure};
use trishanku::plane::certs;
use trishanku::plane::state::Store;
use trishanku_e2e::kubectl::config_maps;
use trishanku_e2e::watch::Watch;
use trishanku_e2e::{Cluster, wait};

use crate::store_killed::pid;

/// kube-apiserver is not restarted, and its clients' watches have every object once and in order.
pub(crate) fn a_cluster_on_etcd_moves_to_gitcd_while_it_is_used(cluster: &Arc<Cluster>) -> anyhow::Result<()> {
    // The supervisor would start etcd again.
    cluster.kill_supervisor()?;
    let port = cluster.store_port()?;
    let api_server = pid(cluster, "kube-apiserver")?;
    cluster.namespace("moved")?;
    let watch = Watch::start(cluster, "/api/v1/namespaces/moved/configmaps")?;

    let folder = cluster.scratch().join("moved.git");
    let (stopped, mut gitcd) = (AtomicBool::new(false), None);
    let written = std::thread::scope(|scope| {
        let writer = scope.spawn(|| write_until(cluster, &stopped));
        let moved = (|| {
            println!("{}", migrate(cluster, port, &folder, &[])?.trim());
            let begun = Instant::now();
            println!("{}", migrate(cluster, port, &folder, &["--cut-over"])?.trim());
            cluster.kill(Store::Etcd.name())?;
            gitcd = Some(Running(serve(cluster, &folder, port)?));
            let first = config_maps("after", 0..1);
            wait::until_true("a write after the cut-over", || {
                Ok(cluster.kubectl_with(["apply", "-n", "moved", "-f", "-"], &first).is_ok())
            })?;
            println!("without writes for at most {:?}", begun.elapsed());
            anyhow::Ok(())
        })();
        stopped.store(true, Ordering::Relaxed);
        let written = writer.join().ok().context("the writer panicked")??;
        moved.map(|()| written)
    })?;
    ensure!(pid(cluster, "kube-apiserver")? == api_server, "kube-apiserver was restarted");
    let seen = watch.wait("all objects to be seen", |seen| {
        seen.events.iter().filter(|event| event.name.starts_with("moved-")).count() >= written.len()
    })?;
    let added: Vec<_> = seen.events.iter().filter(|event| event.name.starts_with("moved-")).collect();
    ensure!(added.iter().all(|event| event.kind == "ADDED"), "{added:?}");
    let names: BTreeSet<_> = added.iter().map(|event| event.name.clone()).collect();
    ensure!(names.len() == added.len() && names == written, "seen {added:?}, written {written:?}");
    let versions: Vec<_> = seen.events.iter().map(|event| event.version).collect();
    ensure!(versions.is_sorted_by(|a, b| a < b), "{versions:?}");
    ensure!(seen.resumed == 0, "the watch was interrupted {} times", seen.resumed);
    let listed = cluster.kubectl(["get", "configmaps", "-n", "moved", "-o", "name"])?;
    ensure!(written.iter().all(|name| listed.contains(name)), "{listed} lacks some of {written:?}");
    // With an open watch, or without a store, kube-apiserver takes a minute to stop.
    drop(watch);
    trishanku::down::down(cluster.home())?;
    Ok(())
}

/// Creates one object after the other; returns the names of those that were acknowledged.
fn write_until(cluster: &Cluster, stopped: &AtomicBool) -> anyhow::Result<BTreeSet<String>> {
    let mut written = BTreeSet::new();
    for number in 0.. {
        // At least one of each side of the cut-over, whenever that is.
        if stopped.load(Ordering::Relaxed) && number > 0 {
            break;
        }
        let object = config_maps("moved", number..number + 1);
        wait::until_true("an object to be written", || {
            let Err(error) = cluster.kubectl_with(["create", "-n", "moved", "-f", "-"], &object) else {
                return Ok(true);
            };
            // Its acknowledgement was lost.
            Ok(format!("{error:#}").contains("already exists"))
        })?;
        written.insert(format!("moved-{number:04}"));
    }
    Ok(written)
}

fn migrate(cluster: &Cluster, port: u16, folder: &Path, flags: &[&str]) -> anyhow::Result<String> {
    let keys = cluster.home().keys();
    let output = Command::new(cluster.program_under_test("gitcd"))
        .args(["migrate", "import", "--key-prefixes=/registry"])
        .arg(format!("--endpoints=https://127.0.0.1:{port}"))
        .arg("--cacert")
        .arg(certs::certificate(&keys, "store-ca"))
        .arg("--cert")
        .arg(certs::certificate(&keys, "store-client"))
        .arg("--key")
        .arg(certs::private_key(&keys, "store-client"))
        .arg("--repo")
        .arg(folder)
        .args(flags)
        .output()?;
    ensure!(output.status.success(), "gitcd migrate: {}", String::from_utf8_lossy(&output.stderr));
    Ok(String::from_utf8(output.stdout)?)
}

fn serve(cluster: &Cluster, folder: &Path, port: u16) -> io::Result<Child> {
    let keys = cluster.home().keys();
    Command::new(cluster.program_under_test("gitcd"))
        .args(["serve", "--key-prefixes=/registry"])
        .arg(format!("--listen-urls=https://127.0.0.1:{port}"))
        .arg("--repo")
        .arg(folder)
        .arg("--tls-cert")
        .arg(certs::certificate(&keys, "store"))
        .arg("--tls-key")
        .arg(certs::private_key(&keys, "store"))
        .arg("--tls-trusted-ca-certs")
        .arg(certs::certificate(&keys, "store-ca"))
        .spawn()
}

/// A process that is killed when it is dropped.
struct Running(Child);

impl Drop for Running {
    fn drop(&mut self) {
        // It may have exited.
        let _ended = self.0.kill();
        let _ended = self.0.wait();
    }
}
