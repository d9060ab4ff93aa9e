//! Triggers of a reconcile, and what precedes the first one.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Duration;

use k8s_openapi::api::core::v1::ConfigMap;
use kube::api::{DeleteParams, ListParams, Patch, PatchParams, PostParams};
use kube::{Api, ResourceExt};
use serde_json::json;
use trishanku_framework::cache::Scope;
use trishanku_framework::{Action, CleanedUp, Context, Controller, Manager};
use trishanku_testkit::{Proxy, wait};

use crate::support::{Does, Log, Problem, Tank, cluster, controller, create, owned, run, tank, tanks};

/// Creates the map of each tank if it is missing.
fn maker(maps: Api<ConfigMap>) -> Controller<impl trishanku_framework::Reconciler<Object = crate::support::Tank>> {
    controller(move |tank, _| {
        let maps = maps.clone();
        async move {
            let name = tank.name_any();
            if maps.get_opt(&name).await?.is_none() {
                maps.create(&PostParams::default(), &owned(&tank, &name)).await?;
            }
            Ok(Action::Change)
        }
    })
    .owns::<ConfigMap>()
}

#[tokio::test]
async fn owned_objects_are_created_and_recreated_even_if_deleted_while_stopped() {
    let (cluster, namespace) = cluster("owns").await;
    let (proxy, maps) = (Proxy::start(cluster).await, Api::<ConfigMap>::namespaced(cluster.client(), &namespace));
    let manager = Manager::with_scope(proxy.config(), Scope::namespaces([&namespace]));
    let running = run(manager.controller(maker(maps.clone())));
    create(&tanks(cluster.client(), &namespace), &["a"]).await;
    let first = wait::until_object(&maps, "a", "it exists", |_| true).await.unwrap();

    maps.delete("a", &DeleteParams::default()).await.unwrap();
    let again = |other: &ConfigMap| {
        let uid = other.uid();
        move |map: &ConfigMap| map.uid() != uid
    };
    let second = wait::until_object(&maps, "a", "it exists again", again(&first)).await.unwrap();

    // The watch misses the deletion, and cannot resume.
    let expired = trishanku_testkit::Fault::Status { code: 410, retry_after: None };
    // Of tanks, and of maps.
    proxy.add(trishanku_testkit::Rule::new(expired).watches().times(2));
    proxy.partition();
    maps.delete("a", &DeleteParams::default()).await.unwrap();
    proxy.cut();
    proxy.heal();
    wait::until_object(&maps, "a", "it exists once more", again(&second)).await.unwrap();
    running.stop().await;
}

#[tokio::test]
async fn all_caches_are_full_before_the_first_reconcile_and_not_ready_before() {
    let (cluster, namespace) = cluster("synced").await;
    let (api, maps) = (tanks(cluster.client(), &namespace), Api::<ConfigMap>::namespaced(cluster.client(), &namespace));
    create(&api, &["a", "b", "c"]).await;
    let owner = api.get("a").await.unwrap();
    for name in ["x", "y"] {
        maps.create(&PostParams::default(), &owned(&owner, name)).await.unwrap();
    }
    let proxy = Proxy::start(cluster).await;
    let slow = trishanku_testkit::Fault::Delay(Duration::from_secs(1));
    proxy.add(trishanku_testkit::Rule::new(slow).path("/configmaps").times(1));
    let manager = Manager::with_scope(proxy.config(), Scope::namespaces([&namespace]));
    let (cache, health, log) = (manager.caches().cache::<ConfigMap>(), manager.health(), Log::default());
    let before = health.ready();
    let logs = log.clone();
    let running = run(manager.controller(
        controller(move |tank, _| {
            logs.add(format!("{} sees {}", tank.name_any(), cache.len()));
            async { Ok(Action::Change) }
        })
        .owns::<ConfigMap>(),
    ));
    assert_eq!(before, Err(vec!["start".to_owned()]));
    let not_ready = wait::until("the caches to be listed as not ready", async || match health.ready() {
        Err(awaited) if awaited.len() > 1 => Ok(awaited),
        other => Err(format!("{other:?}")),
    });
    let expected = ["cache/ConfigMap", "cache/Tank", "start"];
    assert!(not_ready.await.unwrap().iter().all(|what| expected.contains(&what.as_str())));
    for name in ["a", "b", "c"] {
        log.until(1, &format!("{name} sees 2")).await;
    }
    assert_eq!((log.all().len(), health.ready(), health.alive()), (3, Ok(()), Ok(())));
    running.stop().await;
}

#[tokio::test]
async fn a_status_triggers_nothing_a_spec_and_an_annotation_do_and_a_pause_ends_with_a_change() {
    let (cluster, namespace) = cluster("triggers").await;
    let (api, log) = (tanks(cluster.client(), &namespace), Log::default());
    let logs = log.clone();
    let manager = Manager::with_scope(cluster.config(), Scope::namespaces([&namespace]));
    let running = run(manager.controller(
        controller(move |tank, _| {
            logs.add(format!("level {}", tank.spec.level));
            async { Ok(Action::Change) }
        })
        .paused_by("framework.test/paused"),
    ));
    create(&api, &["a"]).await;
    log.until(1, "level 0").await;
    let patch = async |patch: serde_json::Value| {
        api.patch("a", &PatchParams::default(), &Patch::Merge(patch)).await.unwrap();
    };
    let status = json!({"status": {"level": 7}});
    api.patch_status("a", &PatchParams::default(), &Patch::Merge(status)).await.unwrap();
    patch(json!({"spec": {"level": 1}})).await;
    log.until(1, "level 1").await;
    patch(json!({"metadata": {"annotations": {"framework.test/paused": "true"}}})).await;
    patch(json!({"spec": {"level": 2}})).await;
    patch(json!({"metadata": {"annotations": {"framework.test/paused": "false"}}, "spec": {"level": 3}})).await;
    log.until(1, "level 3").await;
    // A reconcile triggered by the status would have come before.
    assert_eq!(log.all(), ["level 0", "level 1", "level 3"]);
    running.stop().await;
}

#[tokio::test]
async fn only_the_namespaces_of_the_scope_are_watched_and_each_kind_once() {
    let (cluster, inside) = cluster("inside").await;
    let outside = cluster.namespace("outside").await;
    let (proxy, log) = (Proxy::start(cluster).await, Log::default());
    let logging = |name: &'static str| {
        let logs = log.clone();
        let reconcile = move |tank: Arc<Tank>, _: Context| {
            logs.add(format!("{name}: {}", tank.name_any()));
            async { Ok(Action::Change) }
        };
        Controller::new(name, Does { reconcile, clean_up: None::<fn(_) -> _> })
    };
    let manager = Manager::with_scope(proxy.config(), Scope::namespaces([&inside]));
    let running = run(manager.controller(logging("one")).controller(logging("other")));
    create(&tanks(cluster.client(), &outside), &["not-seen"]).await;
    create(&tanks(cluster.client(), &inside), &["seen"]).await;
    log.until(1, "one: seen").await;
    log.until(1, "other: seen").await;
    assert_eq!(log.all().len(), 2);
    let uris: Vec<_> = proxy.seen().into_iter().map(|seen| seen.uri).collect();
    assert!(uris.iter().all(|uri| uri.contains(&format!("/namespaces/{inside}/"))), "{uris:?}");
    assert_eq!(uris.len(), 1, "a watch that begins with a list: {uris:?}");
    running.stop().await;
}

#[tokio::test]
async fn an_object_stays_until_it_is_cleaned_up_after_however_often_that_fails() {
    let (cluster, namespace) = cluster("finalizer").await;
    let (api, log, works, tries) =
        (tanks(cluster.client(), &namespace), Log::default(), Arc::new(AtomicBool::new(false)), AtomicUsize::new(0));
    let (logs, cleaned, external) = (log.clone(), log.clone(), works.clone());
    let reconcile = move |_, _| {
        logs.add("reconciled");
        async { Ok::<_, Problem>(Action::Change) }
    };
    let clean_up = move |_| {
        cleaned.add("cleaning up");
        match (external.load(Ordering::SeqCst), tries.fetch_add(1, Ordering::SeqCst)) {
            (false, _) => Err(Problem::Broken),
            (true, tries) if tries < 6 => Ok(CleanedUp::NotYet(Duration::from_millis(10))),
            (true, _) => Ok(CleanedUp::Yes),
        }
    };
    let controller = Controller::new("test", Does { reconcile, clean_up: Some(clean_up) });
    let manager = Manager::with_scope(cluster.config(), Scope::namespaces([&namespace]));
    let running = run(manager.controller(controller));
    let mut held = tank("a");
    held.metadata.finalizers = Some(vec!["framework.test/somebody-else".to_owned()]);
    api.create(&PostParams::default(), &held).await.unwrap();
    wait::until_object(&api, "a", "it has both finalizers", |tank| tank.finalizers().len() == 2).await.unwrap();
    log.until(1, "reconciled").await;
    api.delete("a", &DeleteParams::default()).await.unwrap();
    log.until(3, "cleaning up").await;
    assert!(api.get("a").await.unwrap().finalizers().contains(&"framework.test/tank".to_owned()));
    works.store(true, Ordering::SeqCst);
    let others = |tank: &crate::support::Tank| tank.finalizers() == ["framework.test/somebody-else"];
    wait::until_object(&api, "a", "only the other finalizer is left", others).await.unwrap();
    let patch = Patch::Merge(json!({"metadata": {"finalizers": null}}));
    api.patch("a", &PatchParams::default(), &patch).await.unwrap();
    wait::until_gone(&api, "a").await.unwrap();
    assert_eq!(log.times("reconciled").len(), 1, "it is not reconciled while it is being deleted: {:?}", log.all());
    assert!(api.list(&ListParams::default()).await.unwrap().items.is_empty());
    running.stop().await;
}
