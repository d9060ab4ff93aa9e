//! Measures a manager with 1,000 heavens: setting them up, a start when nothing has to change, and the time of a processor
//! while it only observes them. Exits with 1 if it uses too much memory or processor.
//!
//! The cluster has 10,000 Secrets of 100 KB that no heaven uses; `TRISHANKU_BENCH_SECRETS` sets another number.
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
use k8s_openapi::ByteString;
use k8s_openapi::api::core::v1::{Pod, Secret};
use kube::api::{Api, ListParams, Patch, PatchParams, PostParams};
use serde_json::json;
use trishanku_api::TrishankuHeaven;
use trishanku_heaven_plan::STATUS_PORT;
use trishanku_heaven_plan::workload::HEAVEN;
use trishanku_testkit::{TestCluster, wait};

use crate::process::{Manager, deploy, kubectl};

const HEAVENS: usize = 1_000;
/// The number of heavens that share certificates.
const GROUP: usize = 10;
const USER: &str = "system:serviceaccount:trishanku-system:trishanku-manager";
const PATIENCE: Duration = Duration::from_mins(10);
/// Limit of the manager's memory at any moment.
const MOST_MEBIBYTES: u64 = 150;
/// Limit of the processor time while nothing changes, in percent of a core.
const MOST_PERCENT: f64 = 5.0;
/// How long that is measured.
const OBSERVED: Duration = Duration::from_mins(1);
/// Secrets of others.
const SECRETS: usize = 10_000;
const SECRET_BYTES: usize = 100 << 10;

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

/// The processor time of a process.
fn cpu(process: u32) -> Duration {
    let text = std::fs::read_to_string(format!("/proc/{process}/stat")).unwrap();
    // After the name in parentheses, the fields start with the third one.
    let fields: Vec<_> = text.rsplit_once(')').unwrap().1.split_whitespace().collect();
    let ticks: u64 = [11, 12].iter().map(|at| fields[*at].parse::<u64>().unwrap()).sum();
    Duration::from_millis(ticks * 10)
}

/// Creates the Secrets of others, in a namespace of their own.
async fn fill(cluster: &TestCluster, count: usize) {
    let secrets: Api<Secret> = Api::namespaced(cluster.client(), &cluster.namespace("others").await);
    let data = ByteString(vec![b'x'; SECRET_BYTES]);
    let made = futures::stream::iter(0..count).for_each_concurrent(8, async |number| {
        let mut secret = Secret::default();
        secret.metadata.name = Some(format!("other-{number}"));
        secret.data = Some([("file".to_owned(), data.clone())].into());
        secrets.create(&PostParams::default(), &secret).await.unwrap();
    });
    made.await;
}

/// Gives every heaven a pod whose gitcd does not answer.
async fn add_pods(cluster: &TestCluster, namespace: &str) {
    let pods: Api<Pod> = Api::namespaced(cluster.client(), namespace);
    let made = futures::stream::iter(0..HEAVENS).for_each_concurrent(8, async |number| {
        let name = format!("heaven-{number}");
        let pod = json!({
            "metadata": {"name": name, "labels": {HEAVEN: name}, "annotations": {STATUS_PORT: "1"}},
            "spec": {"containers": [{"name": "a", "image": "a"}]},
        });
        pods.create(&PostParams::default(), &serde_json::from_value(pod).unwrap()).await.unwrap();
        let status = json!({"status": {"phase": "Running", "podIP": "127.0.0.1", "podIPs": [{"ip": "127.0.0.1"}]}});
        pods.patch_status(&name, &PatchParams::default(), &Patch::Merge(status)).await.unwrap();
    });
    made.await;
}

/// The manager's writes, by verb and resource.
fn writes(cluster: &TestCluster) -> BTreeMap<String, usize> {
    let mut writes = BTreeMap::new();
    for entry in cluster.audit().iter().filter(|entry| entry.user() == USER && entry.is_write()) {
        *writes.entry(format!("{} {}", entry.verb, entry.resource())).or_default() += 1;
    }
    writes
}

/// Runs a manager until it has reconciled all heavens and its queue is empty; returns its peak memory in MiB. If it is to
/// observe, returns its processor time after that, too, in percent of a core.
async fn run(cluster: &TestCluster, what: &str, observes: bool) -> (u64, f64) {
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
    let mut percent = 0.0;
    if observes {
        let (before, since) = (cpu(manager.id()), Instant::now());
        tokio::time::sleep(OBSERVED).await;
        percent = cpu(manager.id()).saturating_sub(before).as_secs_f64() / since.elapsed().as_secs_f64() * 100.0;
        println!("{what}: {percent:.1} % of a core for {OBSERVED:?}");
    }
    assert!(manager.end().await.success());
    (most, percent)
}

#[tokio::main]
async fn main() -> ExitCode {
    let cluster = TestCluster::start().await.unwrap();
    for part in ["crd", "default"] {
        let folder = deploy().join(part).display().to_string();
        let applied = kubectl(&cluster, &["apply", "--server-side", "--kustomize", &folder]);
        assert!(applied.status.success(), "{applied:?}");
    }
    let count = std::env::var("TRISHANKU_BENCH_SECRETS").map_or(SECRETS, |count| count.parse().unwrap());
    fill(&cluster, count).await;
    println!("{count} Secrets of {} KiB of others", SECRET_BYTES >> 10);
    let namespace = cluster.namespace("many").await;
    let heavens: Api<TrishankuHeaven> = Api::namespaced(cluster.client(), &namespace);
    let made = futures::stream::iter(0..HEAVENS).for_each_concurrent(8, async |number| {
        heavens.create(&PostParams::default(), &heaven(number)).await.unwrap();
    });
    made.await;
    let (first, _) = run(&cluster, "set up", false).await;
    // Finishes what the first one may have left.
    let (second, _) = run(&cluster, "restarted", false).await;
    let all = heavens.list(&ListParams::default()).await.unwrap().items;
    let set_up = all.iter().filter(|heaven| heaven.status.as_ref().is_some_and(|status| status.conditions.len() >= 3));
    assert_eq!(set_up.count(), HEAVENS, "not all are set up");
    let before = writes(&cluster);
    let (third, _) = run(&cluster, "restarted without changes", false).await;
    assert_eq!(before, writes(&cluster), "a restart without changes must not write");
    add_pods(&cluster, &namespace).await;
    let (fourth, percent) = run(&cluster, "observes pods", true).await;
    let most = first.max(second).max(third).max(fourth);
    println!("at most {most} MiB of {MOST_MEBIBYTES}, and {percent:.1} % of {MOST_PERCENT} % of a core");
    if most > MOST_MEBIBYTES || percent > MOST_PERCENT { ExitCode::FAILURE } else { ExitCode::SUCCESS }
}
