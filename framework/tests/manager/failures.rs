//! Reconciles that fail, hang, panic or wait.

use std::collections::BTreeSet;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use kube::ResourceExt;
use kube::api::{Patch, PatchParams};
use serde_json::json;
use trishanku_framework::cache::Scope;
use trishanku_framework::{Action, Manager};

use crate::support::{Log, Problem, cluster, controller, create, run, tanks};

#[tokio::test]
async fn objects_that_fail_panic_or_hang_are_retried_and_starve_no_others() {
    let (cluster, namespace) = cluster("failing").await;
    let (api, log) = (tanks(cluster.client(), &namespace), Log::default());
    let (logs, busy) = (log.clone(), Arc::new(Mutex::new(BTreeSet::new())));
    let manager = Manager::with_scope(cluster.config(), Scope::namespaces([&namespace]));
    let reconcile = move |tank: Arc<crate::support::Tank>, _| {
        let (logs, busy, name) = (logs.clone(), busy.clone(), tank.name_any());
        async move {
            logs.add(&name);
            assert!(busy.lock().unwrap().insert(name.clone()), "never two at once for {name}");
            let _done = Done(busy, name.clone());
            tokio::task::yield_now().await;
            match name.as_str() {
                "fails" => Err(Problem::Broken),
                "panics" => panic!("on purpose"),
                "hangs" => std::future::pending().await,
                _ => Ok(Action::Change),
            }
        }
    };
    let metrics = manager.metrics();
    let running = run(manager.controller(controller(reconcile).concurrency(2).time_limit(Duration::from_millis(300))));
    create(&api, &["fails", "panics", "hangs"]).await;
    for name in ["fails", "panics", "hangs"] {
        log.until(4, name).await;
    }
    for name in ["good", "better", "best"] {
        create(&api, &[name]).await;
        log.until(1, name).await;
    }
    assert!(log.times("fails").len() < 200, "no hot loop");
    running.stop().await;
    let text = metrics.text();
    let figure = |name: &str| {
        let name = format!("controller_runtime_{name} ");
        let mut values = text.lines().filter_map(|line| line.strip_prefix(&name)?.parse::<u64>().ok());
        values.next_back().unwrap_or_else(|| panic!("no {name} in {text}"))
    };
    let of = r#"{controller="test"}"#;
    assert_eq!(figure(&format!("reconcile_panics_total{of}")) as usize, log.times("panics").len());
    assert!(figure(&format!("reconcile_errors_total{of}")) >= 12);
    assert!(figure(r#"reconcile_total{controller="test",result="success"}"#) >= 3);
    assert_eq!(figure(&format!("active_workers{of}")), 0);
}

struct Done(Arc<Mutex<BTreeSet<String>>>, String);

impl Drop for Done {
    fn drop(&mut self) {
        self.0.lock().unwrap().remove(&self.1);
    }
}

#[tokio::test]
async fn what_cannot_succeed_waits_for_a_change_and_what_waits_looks_again() {
    let (cluster, namespace) = cluster("hopeless").await;
    let (api, log) = (tanks(cluster.client(), &namespace), Log::default());
    let logs = log.clone();
    let manager = Manager::with_scope(cluster.config(), Scope::namespaces([&namespace]));
    let running = run(manager.controller(controller(move |tank, context| {
        logs.add(format!("{} {} {}", tank.name_any(), tank.spec.level, context.failures));
        async move {
            match (tank.name_any().as_str(), tank.spec.level) {
                ("hopeless", 0) => Err(Problem::Terminal),
                ("waits", _) => Err(Problem::NoPump),
                _ => Ok(Action::Change),
            }
        }
    })));
    create(&api, &["hopeless", "waits"]).await;
    log.until(4, "waits 0 0").await;
    assert_eq!(log.times("hopeless 0 0").len(), 1);
    let patch = Patch::Merge(json!({"spec": {"level": 1}}));
    api.patch("hopeless", &PatchParams::default(), &patch).await.unwrap();
    log.until(1, "hopeless 1 0").await;
    running.stop().await;
}

#[tokio::test]
async fn a_stop_lets_what_is_under_way_end_and_starts_nothing() {
    let (cluster, namespace) = cluster("drain").await;
    let (api, log) = (tanks(cluster.client(), &namespace), Log::default());
    let logs = log.clone();
    let manager = Manager::with_scope(cluster.config(), Scope::namespaces([&namespace]));
    let reconcile = move |tank: Arc<crate::support::Tank>, _| {
        let logs = logs.clone();
        async move {
            logs.add(format!("{} begins", tank.name_any()));
            // A reconcile that takes a while.
            tokio::time::sleep(Duration::from_secs(3)).await;
            logs.add(format!("{} ends", tank.name_any()));
            Ok(Action::Change)
        }
    };
    let running = run(manager.controller(controller(reconcile).concurrency(1)));
    create(&api, &["a"]).await;
    log.until(1, "a begins").await;
    // Waits for a slot, and is never started.
    create(&api, &["b"]).await;
    running.stop().await;
    assert_eq!(log.all(), ["a begins", "a ends"]);
}

#[tokio::test]
async fn neither_again_at_once_nor_a_resync_all_the_time_runs_hot() {
    let (cluster, namespace) = cluster("zero").await;
    let log = Log::default();
    let logs = log.clone();
    let again = controller(move |tank: Arc<crate::support::Tank>, _| {
        let name = tank.name_any();
        logs.add(name.clone());
        async move { Ok(if name == "again" { Action::After(Duration::ZERO) } else { Action::Change }) }
    });
    let manager = Manager::with_scope(cluster.config(), Scope::namespaces([&namespace]))
        .controller(again.resync(Some(Duration::ZERO)));
    let metrics = manager.metrics();
    let running = run(manager);
    create(&tanks(cluster.client(), &namespace), &["again", "once"]).await;
    log.until(6, "again").await;
    let times = log.times("again");
    // 50 ms, doubling up to 400, less at most a quarter.
    for (pair, least) in times.windows(2).zip([37, 75, 150, 300, 300]) {
        assert!(pair[1] - pair[0] >= Duration::from_millis(least), "{times:?}");
    }
    assert_eq!(log.times("once").len(), 1, "{:?}", log.all());
    assert!(metrics.text().contains(r#"{controller="test",result="requeue"}"#), "{}", metrics.text());
    assert!(metrics.text().contains(r#"controller_runtime_reconcile_errors_total{controller="test"} 0"#));
    running.stop().await;
}
