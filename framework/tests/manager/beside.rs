//! What triggers or runs beside the watches of controllers.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicI64, Ordering};
use std::time::Duration;

use futures::StreamExt;
use futures::channel::mpsc;
use k8s_openapi::jiff::Timestamp;
use kube::api::{Patch, PatchParams};
use kube::core::DynamicObject;
use serde_json::json;
use trishanku_framework::cache::Scope;
use trishanku_framework::{Action, Context, Key, Kind, Manager, RunError, lease};

use crate::support::{Log, Tank, cluster, controller, create, run, tanks};

#[tokio::test]
async fn a_key_of_a_stream_reconciles_its_object_and_the_end_of_a_stream_ends_nothing() {
    let (cluster, namespace) = cluster("stream").await;
    let (api, log) = (tanks(cluster.client(), &namespace), Log::default());
    create(&api, &["tank", "other"]).await;
    let (manager, logs) = (Manager::with_scope(cluster.config(), Scope::namespaces([&namespace])), log.clone());
    let (keys, received) = mpsc::unbounded();
    let running = run(manager.controller(
        controller(move |_: Arc<Tank>, context: Context| {
            logs.add(context.key.name());
            async { Ok(Action::Change) }
        })
        .reconcile_on(futures::stream::empty())
        .reconcile_on(received.map(|name: &str| Key::namespaced("plant", name)).map({
            let namespace = namespace.clone();
            move |key: Key| Key::namespaced(&namespace, key.name())
        })),
    ));
    log.until(1, "tank").await;
    log.until(1, "other").await;
    for _ in 0..2 {
        let before = log.times("tank").len();
        keys.unbounded_send("absent").unwrap();
        keys.unbounded_send("tank").unwrap();
        log.until(before + 1, "tank").await;
    }
    drop(keys);
    create(&api, &["third"]).await;
    log.until(1, "third").await;
    assert_eq!((log.times("tank").len(), log.times("other").len(), log.times("absent").len()), (3, 1, 0));
    running.stop().await;
}

#[tokio::test]
async fn a_tick_reconciles_all_objects_by_the_clock_of_the_controller() {
    let (cluster, namespace) = cluster("ticks").await;
    let (api, log) = (tanks(cluster.client(), &namespace), Log::default());
    create(&api, &["one", "other"]).await;
    let (seconds, logs) = (Arc::new(AtomicI64::new(100)), log.clone());
    let (clock, (ticks, ticked)) = (seconds.clone(), mpsc::unbounded());
    let at = |seconds: i64| Timestamp::from_second(seconds).unwrap();
    let reconcile = move |_: Arc<Tank>, context: Context| {
        let due = [at(160), at(40)].map(|time| context.at(time));
        logs.add(format!("{} at {}: {due:?}", context.key.name(), context.now().as_second()));
        async { Ok(Action::Change) }
    };
    let controller = controller(reconcile)
        .wall_clock(move || at(clock.load(Ordering::SeqCst)))
        .reconcile_all_on(futures::stream::empty())
        .reconcile_all_on(ticked);
    let running = run(Manager::with_scope(cluster.config(), Scope::namespaces([&namespace])).controller(controller));
    for name in ["one", "other"] {
        log.until(1, &format!("{name} at 100: [After(60s), After(0ns)]")).await;
    }
    seconds.store(150, Ordering::SeqCst);
    ticks.unbounded_send(()).unwrap();
    for name in ["one", "other"] {
        log.until(1, &format!("{name} at 150: [After(10s), After(0ns)]")).await;
    }
    assert_eq!(log.all().len(), 4);
    running.stop().await;
}

#[tokio::test]
async fn changes_that_a_predicate_refuses_trigger_nothing_and_a_stream_still_does() {
    let (cluster, namespace) = cluster("predicate").await;
    let (api, log) = (tanks(cluster.client(), &namespace), Log::default());
    create(&api, &["first"]).await;
    let (manager, logs) = (Manager::with_scope(cluster.config(), Scope::namespaces([&namespace])), log.clone());
    let (keys, received) = mpsc::unbounded();
    let running = run(manager.controller(
        controller(move |tank: Arc<Tank>, context: Context| {
            logs.add(format!("{} {}", context.key.name(), tank.spec.level));
            async { Ok(Action::Change) }
        })
        .predicate(|change| change.after.is_some_and(|tank| tank.spec.level % 2 == 1))
        .reconcile_on(received),
    ));
    // At the start of a term, all are.
    log.until(1, "first 0").await;
    let level = async |name: &str, level: i32| {
        let patch = Patch::Merge(json!({"spec": {"level": level}}));
        api.patch(name, &PatchParams::default(), &patch).await.unwrap();
    };
    create(&api, &["second"]).await;
    level("first", 2).await;
    level("first", 3).await;
    log.until(1, "first 3").await;
    level("second", 1).await;
    log.until(1, "second 1").await;
    level("second", 4).await;
    keys.unbounded_send(Key::namespaced(&namespace, "first")).unwrap();
    log.until(2, "first 3").await;
    assert_eq!(log.all(), ["first 0", "first 3", "second 1", "first 3"]);
    running.stop().await;
}

#[tokio::test]
async fn a_runnable_has_the_lease_and_may_finish_when_the_manager_stops() {
    let (cluster, namespace) = cluster("runnable").await;
    let (log, finished) = (Log::default(), Arc::new(AtomicBool::new(false)));
    let manager = Manager::with_scope(cluster.config(), Scope::namespaces([&namespace]))
        .leader_election(lease::Settings::new(&namespace, "runnable"));
    let (logs, is_finished) = (log.clone(), finished.clone());
    let running = run(manager.runnable("short", |_, _| async {}).runnable("long", move |client, term| {
        let (logs, is_finished) = (logs.clone(), is_finished.clone());
        async move {
            logs.add(format!("sent: {}", client.apiserver_version().await.is_ok()));
            term.ended().await;
            logs.add(format!("over: {}", term.is_over()));
            is_finished.store(true, Ordering::SeqCst);
        }
    }));
    log.until(1, "sent: true").await;
    running.stop().await;
    assert!(finished.load(Ordering::SeqCst), "the manager waits for it");
    assert_eq!(log.all(), ["sent: true", "over: true"]);
}

#[tokio::test]
async fn kinds_that_cannot_be_listed_in_time_are_named() {
    let (cluster, namespace) = cluster("unsynced").await;
    let manager = Manager::with_scope(cluster.config(), Scope::namespaces([&namespace]));
    let kind = |name: &str, plural: &str| {
        let gvk = kube::core::GroupVersionKind::gvk("absent.test", "v1", name);
        Kind::<DynamicObject>::new(kube::core::discovery::ApiResource::from_gvk_with_plural(&gvk, plural), true)
    };
    let (well, drain) = (
        manager.caches().cache_of(&kind("Well", "wells"), None),
        manager.caches().cache_of(&kind("Drain", "drains"), None),
    );
    let served = manager.caches().cache::<Tank>();
    let error = manager.sync_limit(Duration::from_secs(3)).run(std::future::pending()).await.unwrap_err();
    assert!(matches!(&error, RunError::NotSynced { kinds, .. } if kinds[..] == ["Drain", "Well"]), "{error}");
    assert!(error.to_string().contains("Drain, Well; check that they exist"), "{error}");
    drop((well, drain, served));
}
