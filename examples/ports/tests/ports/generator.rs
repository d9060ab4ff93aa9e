//! The generator of maps.

use futures::channel::mpsc;
use k8s_openapi::api::core::v1::ConfigMap;
use kube::api::{DeleteParams, Patch, PatchParams, PostParams};
use kube::{Api, ResourceExt as _};
use ports::configmap_generator::{ConfigMapGenerator, ConfigMapGeneratorSpec, controller};
use serde_json::json;
use trishanku_testkit::wait;

use crate::support::{cluster, manager, run};

fn generator(name: &str, content: &str) -> ConfigMapGenerator {
    ConfigMapGenerator::new(name, ConfigMapGeneratorSpec { content: content.to_owned() })
}

#[tokio::test]
async fn each_object_has_a_map_with_its_content_whatever_happens_to_it() {
    let (cluster, namespace) = cluster::<ConfigMapGenerator>("generator").await;
    let generators: Api<ConfigMapGenerator> = Api::namespaced(cluster.client(), &namespace);
    let maps: Api<ConfigMap> = Api::namespaced(cluster.client(), &namespace);
    let foreign = json!({"metadata": {"name": "theirs"}, "data": {"content": "of a user"}});
    maps.create(&PostParams::default(), &serde_json::from_value(foreign).unwrap()).await.unwrap();
    let running = run(manager(cluster, &namespace).controller(controller()));

    let until = async |content: &str| {
        let has = |map: &ConfigMap| map.data.as_ref().is_some_and(|data| data["content"] == content);
        wait::until_object(&maps, "rain", content, has).await.unwrap()
    };
    for name in ["rain", "theirs"] {
        generators.create(&PostParams::default(), &generator(name, "1 mm")).await.unwrap();
    }
    let map = until("1 mm").await;
    assert_eq!((&*map.owner_references()[0].kind, &*map.owner_references()[0].name), ("ConfigMapGenerator", "rain"));
    let patch = |field: &str, content: &str| Patch::Merge(json!({field: {"content": content}}));
    generators.patch("rain", &PatchParams::default(), &patch("spec", "2 mm")).await.unwrap();
    until("2 mm").await;
    maps.patch("rain", &PatchParams::default(), &patch("data", "by hand")).await.unwrap();
    until("2 mm").await;
    maps.delete("rain", &DeleteParams::default()).await.unwrap();
    until("2 mm").await;
    // A map that exists already stays as it is.
    let theirs = maps.get("theirs").await.unwrap();
    assert_eq!((&*theirs.data.clone().unwrap()["content"], theirs.owner_references().len()), ("of a user", 0));
    running.stop().await;
}

#[tokio::test]
async fn a_tick_reconciles_all_objects_and_writes_nothing() {
    let (cluster, namespace) = cluster::<ConfigMapGenerator>("ticks").await;
    let generators: Api<ConfigMapGenerator> = Api::namespaced(cluster.client(), &namespace);
    let maps: Api<ConfigMap> = Api::namespaced(cluster.client(), &namespace);
    for name in ["a", "b", "c"] {
        generators.create(&PostParams::default(), &generator(name, "dry")).await.unwrap();
    }
    let (mut ticks, ticked) = mpsc::channel(1);
    let running = run(manager(cluster, &namespace).controller(controller().reconcile_all_on(ticked)));
    for name in ["a", "b", "c"] {
        wait::until_object(&maps, name, "it exists", |_| true).await.unwrap();
    }
    // The changes of the maps reconcile their owners.
    running.until_reconciled(3, || drop(ticks.try_send(()))).await;
    let writes =
        || cluster.audit().iter().filter(|entry| entry.namespace() == namespace && entry.has_written()).count();
    let before = writes();
    running.until_reconciled(6, || drop(ticks.try_send(()))).await;
    assert_eq!(writes(), before);
    running.stop().await;
}
