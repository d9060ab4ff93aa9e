//! Objects that are read when they are needed, and what ends with a controller's term.

use std::sync::Arc;

use k8s_openapi::api::core::v1::{ConfigMap, Secret};
use kube::api::{DeleteParams, Patch, PatchParams, PostParams};
use kube::{Api, ResourceExt};
use serde_json::json;
use trishanku_framework::apply::{ApplySet, Owned, PART_OF};
use trishanku_framework::cache::Scope;
use trishanku_framework::{Action, Context, Failure, Key, Manager};
use trishanku_testkit::wait;

use crate::support::{Log, Tank, cluster, controller, create, run, tanks};

#[tokio::test]
async fn an_object_is_read_when_it_is_needed_and_again_when_it_changed() {
    let (cluster, namespace) = cluster("needed").await;
    let (api, log) = (tanks(cluster.client(), &namespace), Log::default());
    let secrets: Api<Secret> = Api::namespaced(cluster.client(), &namespace);
    let secret = |name: &str| -> Secret {
        serde_json::from_value(json!({"metadata": {"name": name}, "stringData": {"level": "0"}})).unwrap()
    };
    for name in ["used", "other"] {
        secrets.create(&PostParams::default(), &secret(name)).await.unwrap();
    }
    let manager = Manager::with_scope(cluster.config(), Scope::namespaces([&namespace]));
    let (on_demand, logs, there) = (manager.caches().cache_on_demand::<Secret>(), log.clone(), namespace.clone());
    let (metadata, used) = (on_demand.metadata().clone(), Key::namespaced(&namespace, "used"));
    let tank_of_secret =
        move |key: Key| if key.name() == "used" { vec![Key::namespaced(&there, "tank")] } else { vec![] };
    let watched = metadata.clone();
    let running = run(manager.controller(
        controller(move |_: Arc<Tank>, context: Context| {
            let (on_demand, logs, used) = (on_demand.clone(), logs.clone(), used.clone());
            async move {
                for _ in 0..3 {
                    let secret = on_demand.get(&context.client, &used).await?;
                    let level = |secret: Arc<Secret>| secret.data.as_ref().and_then(|data| data.get("level").cloned());
                    let level = secret.and_then(level).map(|level| String::from_utf8(level.0).unwrap());
                    logs.add(level.unwrap_or_else(|| "gone".to_owned()));
                }
                Ok(Action::Change)
            }
        })
        .watches_cached(&watched, move |change| tank_of_secret(Key::of(change.object()))),
    ));
    create(&api, &["tank"]).await;
    log.until(3, "0").await;
    let patch = Patch::Merge(json!({"stringData": {"level": "1"}}));
    secrets.patch("used", &PatchParams::default(), &patch).await.unwrap();
    log.until(3, "1").await;
    secrets.delete("used", &DeleteParams::default()).await.unwrap();
    log.until(3, "gone").await;
    running.stop().await;

    let other = metadata.get(&Key::namespaced(&namespace, "other")).expect("the metadata of all is cached");
    assert!(other.uid().is_some() && other.labels().is_empty());
    let entries = cluster.audit();
    let reads = entries.iter().filter(|entry| entry.verb == "get" && entry.resource() == "secrets");
    let reads: Vec<_> =
        reads.filter(|entry| entry.namespace() == namespace).map(trishanku_testkit::audit::Entry::name).collect();
    assert_eq!(reads, ["used", "used"], "once for each version");
}

#[tokio::test]
async fn of_objects_with_certain_labels_one_that_lost_them_is_still_ours_and_one_of_others_is_left_alone() {
    let (cluster, namespace) = cluster("labels").await;
    let (api, log) = (tanks(cluster.client(), &namespace), Log::default());
    let maps: Api<ConfigMap> = Api::namespaced(cluster.client(), &namespace);
    let map = |name: &str, level: &str| -> ConfigMap {
        serde_json::from_value(json!({"metadata": {"name": name}, "data": {"level": level}})).unwrap()
    };
    let theirs = maps.create(&PostParams::default(), &map("theirs", "7")).await.unwrap();
    let manager = Manager::with_scope(cluster.config(), Scope::namespaces([&namespace]));
    let ours = manager.caches().cache_selecting::<ConfigMap>(PART_OF);
    let (cache, logs) = (Owned::without_trigger(ours.clone()), log.clone());
    let running = run(manager.controller(
        controller(move |tank: Arc<Tank>, context: Context| {
            let (cache, logs) = (cache.clone(), logs.clone());
            async move {
                let mut set = ApplySet::of(&*tank, context.client.clone(), "test");
                let applied = set.apply(map("ours", "0"), &cache).await;
                logs.add(format!("ours: {:?}", applied.map_err(|error| error.to_string())));
                let refused = set.apply(map("theirs", "0"), &cache).await;
                logs.add(format!("theirs: {:?}", refused.map_err(|error| error.reason())));
                Ok(Action::Change)
            }
        })
        .owns_cached(&ours),
    ));
    create(&api, &["tank"]).await;
    log.until(1, "ours: Ok(Written)").await;
    log.until(1, "theirs: Err(\"NotOurs\")").await;
    // Another manager owns the field from then on.
    let patch = Patch::Merge(json!({"metadata": {"labels": {PART_OF: null}}, "data": {"level": "1"}}));
    maps.patch("ours", &PatchParams::default(), &patch).await.unwrap();
    let is_back = |map: &ConfigMap| {
        let level = map.data.as_ref().and_then(|data| data.get("level"));
        level.is_some_and(|level| level == "0") && map.labels().contains_key(PART_OF)
    };
    wait::until_object(&maps, "ours", "it is as it was", is_back).await.unwrap();
    assert_eq!(maps.get("theirs").await.unwrap(), theirs);
    running.stop().await;
}

#[tokio::test]
async fn what_a_reconcile_starts_can_end_with_the_term() {
    let (cluster, namespace) = cluster("term").await;
    let (api, log) = (tanks(cluster.client(), &namespace), Log::default());
    let (manager, logs) = (Manager::with_scope(cluster.config(), Scope::namespaces([&namespace])), log.clone());
    let running = run(manager.controller(controller(move |_: Arc<Tank>, context: Context| {
        let (logs, term) = (logs.clone(), context.term.clone());
        assert!(!term.is_over());
        tokio::spawn(async move {
            logs.add("begun");
            term.ended().await;
            assert!(term.is_over());
            logs.add("ended");
        });
        async { Ok(Action::Change) }
    })));
    create(&api, &["tank"]).await;
    log.until(1, "begun").await;
    assert_eq!(log.all(), ["begun"]);
    running.stop().await;
    wait::until(
        "the end",
        async || if log.times("ended").len() == 1 { Ok(()) } else { Err(format!("{:?}", log.all())) },
    )
    .await
    .unwrap();
}
