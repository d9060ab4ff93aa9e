//! Measures a manager with 1,000 heavens: setting them up, and a start when nothing has to change. Exits with 1 if it
//! uses too much memory.
//!
//! ```console
//! $ make bench-heavens
//! ```
#![expect(clippy::unwrap_used, reason = "a failed measurement panics")]

#[path = "../tests/manager/process.rs"]
#[allow(dead_code, reason = "the tests use more of it")]
mod process;

use std::collections::BTreeMap;
use std::process::ExitCode;
use std::time::{Duration, Instant};

use futures::StreamExt as _;
use kube::api::{Api, ListParams, PostParams};
use serde_json::json;
use trishanku_api::TrishankuHeaven;
use trishanku_testkit::{TestCluster, wait};

use crate::process::{Manager, deploy, kubectl};

const HEAVENS: usize = 1_000;
/// The number of heavens that share certificates.
const GROUP: usize = 10;
const USER: &str = "system:serviceaccount:trishanku-system:trishanku-manager";
const PATIENCE: Duration = Duration::from_mins(10);
/// Limit of the manager's memory at any moment.
const MOST_MEBIBYTES: u64 = 150;

fn heaven(number: usize) -> TrishankuHeaven {
    let shared = |what: &str| format!("group-{}-{what}", number / GROUP);
    let own = |what: &str| format!("heaven-{number}/{what}");
    let image = "registry.example.org/controller:1";
    let container = json!({"name": "controller", "image": image, "args": ["--kubeconfig=/etc/kubeconfig"]});
    let remote = json!({"repo": "https://git.example.org/cluster.git", "public": false, "branches": {"data": "main"}});
    let manifest = json!({
        "metadata": {"name": format!("heaven-{number}")},
        "spec": {
            "certificates": {
                "certificateAuthoritySecretName": shared("ca"), "serviceAccountsSecretName": shared("sa"),
                "kubernetesSecretName": shared("server"), "adminSecretName": shared("admin"),
                "controller": {"userName": format!("system:controller-{number}")},
            },
            "gitcd": {
                "git": {"branches": {"data": own("data"), "metadata": own("metadata")}, "remotes": [remote]},
                "pull": {"tickerDuration": "15s"},
            },
            "app": {"kubeconfigMountPath": "/etc/kubeconfig", "podTemplate": {"spec": {"containers": [container]}}},
        },
    });
    serde_json::from_value(manifest).unwrap()
}

/// The sum of a metric's values whose labels contain all of these words.
fn sum(figures: &str, name: &str, words: &[&str]) -> u64 {
    let is = |line: &&str| line.starts_with(name) && words.iter().all(|word| line.contains(word));
    let values = figures.lines().filter(is).filter_map(|line| line.rsplit(' ').next()?.parse::<f64>().ok());
    values.sum::<f64>() as u64
}

/// The present and peak memory of a process, in MiB.
fn memory(process: u32) -> (u64, u64) {
    let text = std::fs::read_to_string(format!("/proc/{process}/status")).unwrap();
    let value = |field: &str| {
        let line = text.lines().find(|line| line.starts_with(field)).unwrap();
        line.split_whitespace().nth(1).unwrap().parse::<u64>().unwrap().div_ceil(1024)
    };
    (value("VmRSS:"), value("VmHWM:"))
}

/// The manager's writes, by verb and resource.
fn writes(cluster: &TestCluster) -> BTreeMap<String, usize> {
    let mut writes = BTreeMap::new();
    for entry in cluster.audit().iter().filter(|entry| entry.user() == USER && entry.is_write()) {
        *writes.entry(format!("{} {}", entry.verb, entry.resource())).or_default() += 1;
    }
    writes
}

/// Runs a manager until it has reconciled all heavens and its queue is empty; returns its peak memory in MiB.
async fn run(cluster: &TestCluster, what: &str) -> u64 {
    let begun = Instant::now();
    let manager = Manager::start(cluster, USER, &["--metrics-secure=false"]);
    let settled = async || {
        let figures = manager.page(8080, "/metrics").await;
        let total = "controller_runtime_reconcile_total{";
        let of = |result| sum(&figures, total, &["controller=\"trishankuheaven\"", result]);
        let (done, waiting) =
            (of("result=\"success\"") + of("result=\"requeue_after\""), sum(&figures, "workqueue_depth{", &[]));
        let is_busy = sum(&figures, "controller_runtime_active_workers{", &[]) > 0;
        if done >= HEAVENS as u64 && waiting == 0 && !is_busy { Ok(()) } else { Err(format!("{done}, {waiting}")) }
    };
    wait::until_within(PATIENCE, what, settled).await.unwrap();
    let (took, (now, most)) = (begun.elapsed(), memory(manager.id()));
    println!("{what}: {took:.1?}, {now} MiB, at most {most} MiB; written so far: {:?}", writes(cluster));
    assert!(manager.end().await.success());
    most
}

#[tokio::main]
async fn main() -> ExitCode {
    let cluster = TestCluster::start().await.unwrap();
    for part in ["crd", "default"] {
        let folder = deploy().join(part).display().to_string();
        let applied = kubectl(&cluster, &["apply", "--server-side", "--kustomize", &folder]);
        assert!(applied.status.success(), "{applied:?}");
    }
    let namespace = cluster.namespace("many").await;
    let heavens: Api<TrishankuHeaven> = Api::namespaced(cluster.client(), &namespace);
    let made = futures::stream::iter(0..HEAVENS).for_each_concurrent(8, async |number| {
        heavens.create(&PostParams::default(), &heaven(number)).await.unwrap();
    });
    made.await;
    let first = run(&cluster, "set up").await;
    // Finishes what the first one may have left.
    let second = run(&cluster, "restarted").await;
    let all = heavens.list(&ListParams::default()).await.unwrap().items;
    let set_up = all.iter().filter(|heaven| heaven.status.as_ref().is_some_and(|status| status.conditions.len() >= 3));
    assert_eq!(set_up.count(), HEAVENS, "not all are set up");
    let before = writes(&cluster);
    let third = run(&cluster, "restarted without changes").await;
    assert_eq!(before, writes(&cluster), "a restart without changes must not write");
    let most = first.max(second).max(third);
    println!("at most {most} MiB of {MOST_MEBIBYTES}");
    if most > MOST_MEBIBYTES { ExitCode::FAILURE } else { ExitCode::SUCCESS }
}
