//! Caches that are added while the manager runs.

use std::sync::Arc;

use k8s_openapi::api::core::v1::ConfigMap;
use kube::api::{Patch, PatchParams, PostParams};
use kube::{Api, ResourceExt};
use serde_json::json;
use trishanku_framework::cache::Scope;
use trishanku_framework::{Action, Context, Manager};
use trishanku_testkit::Proxy;

use crate::support::{Log, Tank, cluster, controller, create, run, tanks};

fn map(name: &str) -> ConfigMap {
    let mut map = ConfigMap::default();
    map.metadata.name = Some(name.to_owned());
    map
}

#[tokio::test]
async fn a_kind_is_watched_from_the_moment_that_a_reconcile_needs_it() {
    let (cluster, namespace) = cluster("added").await;
    let (proxy, log) = (Proxy::start(cluster).await, Log::default());
    let maps: Api<ConfigMap> = Api::namespaced(cluster.client(), &namespace);
    maps.create(&PostParams::default(), &map("first")).await.unwrap();
    let manager = Manager::with_scope(proxy.config(), Scope::namespaces([&namespace]));
    let (caches, logs) = (manager.caches(), log.clone());
    let running = run(manager.controller(controller(move |tank: Arc<Tank>, _: Context| {
        let (caches, logs) = (caches.clone(), logs.clone());
        async move {
            if tank.spec.level == 0 {
                logs.add("no maps are needed");
                return Ok(Action::Change);
            }
            let maps = caches.cache::<ConfigMap>();
            if !maps.is_synced() {
                return Ok(Action::After(std::time::Duration::from_millis(20)));
            }
            let mut names: Vec<_> =
                maps.all().iter().map(|map| map.name_any()).filter(|name| !name.starts_with("kube-")).collect();
            names.sort();
            logs.add(format!("maps: {names:?}"));
            let told = logs.clone();
            maps.follow(move |change| told.add(format!("map {}", change.object().name_any())));
            Ok(Action::Change)
        }
    })));
    let api = tanks(cluster.client(), &namespace);
    create(&api, &["a"]).await;
    log.until(1, "no maps are needed").await;
    let of_maps = || proxy.seen().iter().filter(|seen| seen.uri.contains("/configmaps")).count();
    assert_eq!(of_maps(), 0);
    let patch = Patch::Merge(json!({"spec": {"level": 1}}));
    api.patch("a", &PatchParams::default(), &patch).await.unwrap();
    log.until(1, "maps: [\"first\"]").await;
    maps.create(&PostParams::default(), &map("second")).await.unwrap();
    log.until(1, "map second").await;
    assert_eq!(of_maps(), 1, "{:?}", proxy.seen());
    running.stop().await;
}
