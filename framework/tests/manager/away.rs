//! An apiserver that is down for a while.

use std::sync::Arc;
use std::time::{Duration, Instant};

use kube::api::{Patch, PatchParams};
use kube::{CustomResourceExt, ResourceExt};
use serde_json::json;
use tokio::sync::watch;
use trishanku_framework::cache::Scope;
use trishanku_framework::{Action, Context, Manager};
use trishanku_testkit::{Fault, Proxy, Rule, TestCluster, wait};

use crate::leases::settings;
use crate::support::{Log, Problem, Tank, cluster, controller, create, run, tanks};

/// How long it is down; the variable overrides it.
const AWAY: Duration = Duration::from_secs(15);
const VARIABLE: &str = "FRAMEWORK_TEST_AWAY_SECONDS";
const NAMESPACE: &str = "default";
const TANKS: usize = 10;

fn away() -> Duration {
    let seconds = std::env::var(VARIABLE).ok().map(|text| text.parse().expect("a number of seconds"));
    seconds.map_or(AWAY, Duration::from_secs)
}

/// Writes the level of each tank into its status every second. At level 7 it first waits for `open`.
fn writer(proxy: &Proxy, log: &Log, open: watch::Receiver<bool>) -> Manager {
    let log = log.clone();
    let manager = Manager::with_scope(proxy.config(), Scope::namespaces([NAMESPACE]));
    let reconcile = move |tank: Arc<Tank>, context: Context| {
        let (log, mut open) = (log.clone(), open.clone());
        async move {
            let (name, level) = (tank.name_any(), tank.spec.level);
            if level == 7 && !*open.borrow() {
                log.add("waits");
                open.wait_for(|open| *open).await.expect("the test holds the sender");
                log.add("goes on");
            }
            let patch = Patch::Merge(json!({"status": {"level": level}}));
            let api = tanks(context.client, NAMESPACE);
            api.patch_status(&name, &PatchParams::default(), &patch).await.map_err(Problem::Api)?;
            log.add(format!("{name} at {level}"));
            Ok(Action::After(Duration::from_secs(1)))
        }
    };
    manager.leader_election(settings(NAMESPACE, "one")).controller(controller(reconcile))
}

#[tokio::test]
async fn an_apiserver_that_is_away_is_asked_seldom_and_nothing_old_is_done_when_it_is_back() {
    let cluster = TestCluster::start().await.unwrap();
    cluster.install(&Tank::crd()).await;
    let (proxy, api) = (Proxy::start(&cluster).await, tanks(cluster.client(), NAMESPACE));
    let (log, (gate, open)) = (Log::default(), watch::channel(false));
    let manager = writer(&proxy, &log, open);
    let metrics = manager.metrics();
    let leads = async |leads: bool| {
        let line = format!(r#"leader_election_master_status{{name="tank"}} {}"#, u8::from(leads));
        let reported = wait::until(format!("{line:?}"), async || {
            let text = metrics.text();
            if text.contains(&line) { Ok(()) } else { Err(text) }
        });
        reported.await.unwrap();
    };
    let running = run(manager);
    let names: Vec<_> = (0..TANKS).map(|number| format!("tank-{number}")).collect();
    create(&api, &names.iter().map(String::as_str).collect::<Vec<_>>()).await;
    for name in &names {
        log.until(2, &format!("{name} at 0")).await;
    }
    let set_level = async |name: &str, level: i32| {
        let patch = Patch::Merge(json!({"spec": {"level": level}}));
        api.patch(name, &PatchParams::default(), &patch).await.unwrap();
    };
    // This reconcile is running when the apiserver goes down, and would write when it is back.
    set_level("tank-0", 7).await;
    log.until(1, "waits").await;

    cluster.kill_apiserver().await;
    let (gone, before) = (Instant::now(), proxy.seen().len());
    leads(false).await;
    // The test counts requests over time.
    tokio::time::sleep(away().saturating_sub(gone.elapsed())).await;
    let (calls, while_gone) = (proxy.seen().len() - before, gone.elapsed());
    println!("{calls} calls to an apiserver that was away for {while_gone:?}");
    // Before the lease is lost, each tank is retried a few times. After that, there are a watch and the lease, which is read
    // five times a second.
    let bound = TANKS as f64 * 10.0 + while_gone.as_secs_f64() * 6.0;
    assert!((calls as f64) < bound, "{calls} calls in {while_gone:?}");

    gate.send_replace(true);
    cluster.start_apiserver().await.unwrap();
    let back = Instant::now();
    for name in &names {
        set_level(name, 3).await;
    }
    leads(true).await;
    for name in &names {
        log.until(2, &format!("{name} at 3")).await;
        let now = |tank: &Tank| tank.status.as_ref().is_some_and(|status| status.level == 3);
        wait::until_object(&api, name, "its status is current", now).await.unwrap();
    }
    println!("every status was current {:?} after the apiserver was back", back.elapsed());
    let all = log.all();
    assert!(!all.contains(&"goes on".to_owned()), "the running reconcile ended with the lease: {all:?}");
    for name in &names {
        let (old, new) = (log.times(&format!("{name} at 0")), log.times(&format!("{name} at 3")));
        assert!(old.last() < new.first(), "{name} went back to its old level");
    }
    running.stop().await;
}

#[tokio::test]
async fn who_leads_again_begins_with_what_is_there_although_its_watch_was_left_alone() {
    let (cluster, namespace) = cluster("again").await;
    let (proxy, api, log) = (Proxy::start(cluster).await, tanks(cluster.client(), &namespace), Log::default());
    let logs = log.clone();
    let manager = Manager::with_scope(proxy.config(), Scope::namespaces([&namespace]));
    let manager =
        manager.leader_election(settings(&namespace, "one")).controller(controller(move |tank: Arc<Tank>, _| {
            logs.add(format!("{} at {}", tank.name_any(), tank.spec.level));
            async { Ok::<_, Problem>(Action::Change) }
        }));
    let metrics = manager.metrics();
    let running = run(manager);
    create(&api, &["a"]).await;
    log.until(1, "a at 0").await;

    let before = proxy.seen().len();
    proxy.add(Rule::new(Fault::Status { code: 500, retry_after: None }));
    proxy.cut();
    // After four refusals, the watch is retried after three seconds at the earliest; the lease is checked every 0.2.
    let refused = wait::until("four refused watches, and a lost lease", async || {
        let watches = proxy.seen().iter().skip(before).filter(|seen| seen.watch).count();
        let lost = metrics.text().contains(r#"leader_election_master_status{name="tank"} 0"#);
        // A watch that was being opened may have succeeded before the cut.
        if watches == 0 {
            proxy.cut();
        }
        if watches >= 4 && lost { Ok(()) } else { Err(format!("{watches} watches, lost: {lost}")) }
    });
    refused.await.unwrap();
    let patch = Patch::Merge(json!({"spec": {"level": 1}}));
    api.patch("a", &PatchParams::default(), &patch).await.unwrap();
    proxy.clear();
    log.until(1, "a at 1").await;
    assert_eq!(log.all(), ["a at 0", "a at 1"]);
    running.stop().await;
}
