//! A manager with two clusters.

use std::sync::Arc;

use k8s_openapi::api::core::v1::ConfigMap;
use kube::api::{Patch, PatchParams, PostParams};
use kube::{Api, CustomResourceExt, ResourceExt};
use serde_json::json;
use trishanku_framework::apply::Owned;
use trishanku_framework::cache::Scope;
use trishanku_framework::{
    Action, CleanedUp, Context, Controller, Error, Key, Kinds, Manager, Reconciler, Result, lease,
};
use trishanku_testkit::{Proxy, TestCluster, wait};

use crate::support::{Does, Log, Problem, Tank, cluster, controller, create, run, tanks};

type CleanUp = fn(Arc<Tank>) -> std::result::Result<CleanedUp, Problem>;

/// Applies a map for each tank of its cluster.
struct Mapped {
    maps: Owned<ConfigMap>,
    log: Log,
}

impl Reconciler for Mapped {
    type Object = Tank;
    type Error = Error;

    async fn reconcile(&self, tank: Arc<Tank>, context: Context) -> Result<Action> {
        let mut map = ConfigMap::default();
        map.metadata.name = Some(format!("of-{}", tank.name_any()));
        context.apply_set(&*tank).apply(map, &self.maps).await?;
        self.log.add(format!("there: {}", tank.name_any()));
        Ok(Action::Change)
    }
}

#[tokio::test]
async fn objects_of_one_cluster_are_reconciled_for_changes_in_another_and_so_are_its_own() {
    let (here, namespace) = cluster("clusters").await;
    let there = TestCluster::start().await.unwrap();
    there.install(&Tank::crd()).await;
    let log = Log::default();
    let mut manager = Manager::with_scope(here.config(), Scope::namespaces([&namespace]))
        .leader_election(lease::Settings::new(&namespace, "clusters"));
    let plant = manager.cluster("plant", &there.config(), Scope::namespaces(["default"])).unwrap();
    let waits = plant.client().apiserver_version().await.unwrap_err();
    assert!(waits.to_string().contains("lease"), "{waits}");
    let (logs, levels) = (log.clone(), plant.caches().cache::<ConfigMap>());
    let (read, namespaces) = (levels.clone(), namespace.clone());
    let logging = controller(move |tank: Arc<Tank>, _: Context| {
        let level = read.get(&Key::namespaced("default", &tank.name_any()));
        let level = level.and_then(|map| map.data.clone()?.get("level").cloned());
        logs.add(format!("here: {} at {level:?}", tank.name_any()));
        async { Ok(Action::Change) }
    })
    .watches_cached(&levels, move |change| vec![Key::namespaced(&namespaces, &change.object().name_any())]);
    let logs = log.clone();
    let mapped = Controller::set_up("there", move |kinds: &mut Kinds<'_>| Mapped { maps: kinds.owned(), log: logs });
    let running = run(manager.controller(logging).controller_in(&plant, mapped));

    create(&tanks(here.client(), &namespace), &["a"]).await;
    log.until(1, "here: a at None").await;
    let maps: Api<ConfigMap> = Api::namespaced(there.client(), "default");
    let mut map = ConfigMap::default();
    (map.metadata.name, map.data) = (Some("a".to_owned()), Some([("level".to_owned(), "7".to_owned())].into()));
    maps.create(&PostParams::default(), &map).await.unwrap();
    log.until(1, "here: a at Some(\"7\")").await;
    let patch = Patch::Merge(json!({"data": {"level": "8"}}));
    maps.patch("a", &PatchParams::default(), &patch).await.unwrap();
    log.until(1, "here: a at Some(\"8\")").await;

    create(&tanks(there.client(), "default"), &["b"]).await;
    log.until(1, "there: b").await;
    wait::until_object(&maps, "of-b", "it was applied there", |map| map.metadata.uid.is_some()).await.unwrap();
    let nothing = Api::<ConfigMap>::namespaced(here.client(), &namespace).get_opt("of-b").await.unwrap();
    assert_eq!(nothing, None);
    running.stop().await;
    let stopped = plant.client().apiserver_version().await.unwrap_err();
    assert!(stopped.to_string().contains("lease"), "{stopped}");
}

#[tokio::test]
async fn a_cluster_that_is_away_at_the_start_delays_only_what_depends_on_it() {
    let (cluster, namespace) = cluster("near").await;
    let far = cluster.namespace("far").await;
    let (proxy, log) = (Proxy::start(cluster).await, Log::default());
    proxy.partition();
    let mut manager = Manager::with_scope(cluster.config(), Scope::namespaces([&namespace]))
        .leader_election(lease::Settings::new(&namespace, "away"));
    let plant = manager.cluster("plant", &proxy.config(), Scope::namespaces([&far])).unwrap();
    let logging = |what: &'static str| {
        let logs = log.clone();
        move |tank: Arc<Tank>, _: Context| {
            logs.add(format!("{what}: {}", tank.name_any()));
            async { Ok(Action::Change) }
        }
    };
    let named = |name: &str, reconcile| Controller::new(name, Does { reconcile, clean_up: None::<CleanUp> });
    let (levels, near) = (plant.caches().cache::<ConfigMap>(), namespace.clone());
    let reads = named("reads", logging("reads"))
        .watches_cached(&levels, move |change| vec![Key::namespaced(&near, &change.object().name_any())]);
    let health = manager.health();
    let manager = manager.controller(named("here", logging("here"))).controller(reads);
    let running = run(manager.controller_in(&plant, named("there", logging("there"))));

    create(&tanks(cluster.client(), &namespace), &["a"]).await;
    create(&tanks(cluster.client(), &far), &["b"]).await;
    log.until(1, "here: a").await;
    assert_eq!(log.all(), ["here: a"]);
    let missing = ["cache/plant/ConfigMap", "cache/plant/Tank"].map(ToOwned::to_owned).to_vec();
    assert_eq!((health.ready(), health.alive()), (Err(missing), Ok(())));
    proxy.heal();
    log.until(1, "there: b").await;
    log.until(1, "reads: a").await;
    wait::until("it is ready", async || health.ready().map_err(|missing| missing.join(", "))).await.unwrap();
    running.stop().await;
}

#[tokio::test]
async fn a_manager_stops_while_a_cluster_is_away() {
    let (cluster, namespace) = cluster("stops").await;
    let (proxy, log) = (Proxy::start(cluster).await, Log::default());
    proxy.partition();
    let mut manager = Manager::with_scope(cluster.config(), Scope::namespaces([&namespace]));
    let plant = manager.cluster("plant", &proxy.config(), Scope::namespaces([&namespace])).unwrap();
    let logs = log.clone();
    let here = controller(move |_: Arc<Tank>, _: Context| {
        logs.add("here");
        async { Ok(Action::Change) }
    });
    let never = Does {
        reconcile: |_: Arc<Tank>, _: Context| std::future::ready(Ok(Action::Change)),
        clean_up: None::<CleanUp>,
    };
    let running = run(manager.controller(here).controller_in(&plant, Controller::new("there", never)));
    create(&tanks(cluster.client(), &namespace), &["a"]).await;
    log.until(1, "here").await;
    running.stop().await;
}
