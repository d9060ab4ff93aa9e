//! Objects that are deleted during a reconcile or a cleanup.

use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use kube::ResourceExt;
use kube::api::{DeleteParams, Patch, PatchParams};
use serde_json::json;
use tokio::sync::Semaphore;
use trishanku_framework::cache::{Cache, Scope};
use trishanku_framework::queue::Backoff;
use trishanku_framework::status::Report;
use trishanku_framework::{Action, CleanedUp, Context, Controller, Key, Manager, StatusReconciler};
use trishanku_testkit::wait;

use crate::support::{Does, Log, Problem, Tank, TankStatus, cluster, controller, create, run, tanks};

/// Waits until the object is not in the cache.
async fn until_forgotten(cache: &Cache<Tank>, key: &Key) {
    let forgotten = wait::until(format!("{key} to leave the cache"), async || match cache.get(key) {
        None => Ok(()),
        Some(tank) => Err(format!("{:?}", tank.metadata)),
    });
    forgotten.await.unwrap();
}

#[tokio::test]
async fn a_reconcile_whose_object_goes_fails_once_and_another_of_that_name_begins_anew() {
    let (cluster, namespace) = cluster("going").await;
    let (api, log, permit) = (tanks(cluster.client(), &namespace), Log::default(), Arc::new(Semaphore::new(0)));
    let manager = Manager::with_scope(cluster.config(), Scope::namespaces([&namespace]));
    let (cache, metrics) = (manager.caches().cache::<Tank>(), manager.metrics());
    let (logs, permits) = (log.clone(), permit.clone());
    let running = run(manager.controller(controller(move |tank: Arc<Tank>, context: Context| {
        let (logs, permits) = (logs.clone(), permits.clone());
        async move {
            let uid = tank.uid().unwrap_or_default();
            logs.add(format!("{uid} begins"));
            permits.acquire().await.expect("the semaphore is never closed").forget();
            let api = tanks(context.client, &tank.namespace().unwrap_or_default());
            let patch = Patch::Merge(json!({"metadata": {"uid": uid}, "status": {"level": 1}}));
            let written = api.patch_status(&tank.name_any(), &PatchParams::default(), &patch).await;
            logs.add(format!("{uid} {}", if written.is_ok() { "is written" } else { "is not there" }));
            written.map(|_| Action::Change).map_err(Problem::Api)
        }
    })));
    create(&api, &["a"]).await;
    let first = api.get("a").await.unwrap().uid().unwrap();
    log.until(1, &format!("{first} begins")).await;
    api.delete("a", &DeleteParams::default()).await.unwrap();
    until_forgotten(&cache, &Key::namespaced(&namespace, "a")).await;
    permit.add_permits(1);
    log.until(1, &format!("{first} is not there")).await;
    // The retry finds that the object is gone.
    let succeeded = r#"reconcile_total{controller="test",result="success"} 1"#;
    let forgotten = wait::until("the retry to find no object", async || {
        let text = metrics.text();
        if text.contains(succeeded) { Ok(()) } else { Err(text) }
    });
    forgotten.await.unwrap();

    create(&api, &["a"]).await;
    let second = api.get("a").await.unwrap().uid().unwrap();
    permit.add_permits(1);
    log.until(1, &format!("{second} is written")).await;
    assert_eq!(log.times(&format!("{first} begins")).len(), 1, "{:?}", log.all());
    assert_eq!(log.all().len(), 4, "{:?}", log.all());
    running.stop().await;
}

#[tokio::test]
async fn an_object_is_cleaned_up_after_when_the_reconcile_that_was_under_way_has_ended() {
    let (cluster, namespace) = cluster("ending-reconcile").await;
    let (api, log, permit) = (tanks(cluster.client(), &namespace), Log::default(), Arc::new(Semaphore::new(0)));
    let (logs, cleaned, permits) = (log.clone(), log.clone(), permit.clone());
    let reconcile = move |_: Arc<Tank>, _: Context| {
        let (logs, permits) = (logs.clone(), permits.clone());
        async move {
            logs.add("begins");
            permits.acquire().await.expect("the semaphore is never closed").forget();
            logs.add("ends");
            Ok::<_, Problem>(Action::Change)
        }
    };
    let clean_up = move |_: Arc<Tank>| {
        cleaned.add("cleans up");
        Ok(CleanedUp::Yes)
    };
    let manager = Manager::with_scope(cluster.config(), Scope::namespaces([&namespace]));
    let cache = manager.caches().cache::<Tank>();
    let running = run(manager.controller(Controller::new("test", Does { reconcile, clean_up: Some(clean_up) })));
    create(&api, &["a"]).await;
    log.until(1, "begins").await;
    api.delete("a", &DeleteParams::default()).await.unwrap();
    let key = Key::namespaced(&namespace, "a");
    let going = wait::until("the deletion to reach the cache", async || {
        cache.get(&key).filter(|tank| tank.metadata.deletion_timestamp.is_some()).ok_or("it has not")
    });
    going.await.unwrap();
    assert_eq!(log.all(), ["begins"], "never two at once");
    permit.add_permits(1);
    wait::until_gone(&api, "a").await.unwrap();
    assert_eq!(log.all(), ["begins", "ends", "cleans up"]);
    running.stop().await;
}

/// An external pump that the cleanup has to give back. It may be out of order.
#[derive(Default)]
struct Pump {
    works: AtomicBool,
    held: AtomicUsize,
    asked: Mutex<Vec<Instant>>,
}

impl Pump {
    fn give_back(&self) -> Result<CleanedUp, Problem> {
        self.asked.lock().unwrap().push(Instant::now());
        if !self.works.load(Ordering::SeqCst) {
            return Err(Problem::Broken);
        }
        self.held.store(0, Ordering::SeqCst);
        Ok(CleanedUp::Yes)
    }
}

struct Pumps {
    pump: Arc<Pump>,
}

impl StatusReconciler for Pumps {
    type Object = Tank;
    type Error = Problem;

    async fn reconcile(&self, _: Arc<Tank>, status: &mut TankStatus, _: Context) -> Result<(Report, Action), Problem> {
        self.pump.held.store(1, Ordering::SeqCst);
        status.level += 1;
        Ok((Report::ready("Pumping", ""), Action::Change))
    }

    fn finalizer(&self) -> Option<&str> {
        Some("framework.test/pump")
    }

    async fn clean_up(
        &self,
        _: Arc<Tank>,
        status: &mut TankStatus,
        _: Context,
    ) -> Result<(Report, CleanedUp), Problem> {
        // A new level each time, so that the object's version changes.
        status.level += 1;
        self.pump.give_back().map(|cleaned_up| (Report::unchanged(), cleaned_up))
    }
}

#[tokio::test]
async fn an_object_whose_clean_up_fails_stays_says_why_is_tried_less_and_less_often_and_goes_at_last() {
    let (cluster, namespace) = cluster("pump").await;
    let (api, pump) = (tanks(cluster.client(), &namespace), Arc::new(Pump::default()));
    let manager = Manager::with_scope(cluster.config(), Scope::namespaces([&namespace]));
    let pumps = Pumps { pump: pump.clone() };
    let backoff = Backoff { first: Duration::from_millis(100), most: Duration::from_secs(1) };
    let running = run(manager.controller(Controller::with_status("pumps", |_| pumps).backoff(backoff)));
    create(&api, &["a"]).await;
    let says = |reason: &'static str| {
        move |tank: &Tank| {
            let conditions = tank.status.as_ref().map(|status| status.conditions.as_slice()).unwrap_or_default();
            conditions.iter().any(|condition| condition.type_ == "Ready" && condition.reason == reason)
        }
    };
    wait::until_object(&api, "a", "it pumps", says("Pumping")).await.unwrap();
    api.delete("a", &DeleteParams::default()).await.unwrap();
    let broken = wait::until_object(&api, "a", "its status has the reason", says("Broken")).await.unwrap();
    let conditions = broken.status.as_ref().unwrap().conditions.iter();
    let shown: Vec<_> = conditions
        .map(|condition| format!("{}={}: {}", condition.type_, condition.status, condition.message))
        .collect();
    assert_eq!(shown, ["Ready=False: it does not work", "Reconciling=True: it does not work"]);

    let asked = || pump.asked.lock().unwrap().clone();
    let tries = wait::until("six tries", async || {
        let asked = asked();
        if asked.len() >= 6 { Ok(asked) } else { Err(asked.len()) }
    });
    // 100 ms, doubling up to a second, less at most a quarter.
    for (pair, least) in tries.await.unwrap().windows(2).zip([75, 150, 300, 600, 750]) {
        assert!(pair[1] - pair[0] >= Duration::from_millis(least), "{:?} after at least {least} ms", pair[1] - pair[0]);
    }
    assert_eq!(api.get("a").await.unwrap().finalizers(), ["framework.test/pump"]);
    assert_eq!(pump.held.load(Ordering::SeqCst), 1);

    pump.works.store(true, Ordering::SeqCst);
    wait::until_gone(&api, "a").await.unwrap();
    assert_eq!(pump.held.load(Ordering::SeqCst), 0);
    running.stop().await;
}
