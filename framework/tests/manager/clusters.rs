//! A manager with two clusters.

use std::sync::Arc;

use k8s_openapi::api::core::v1::ConfigMap;
use kube::api::{Patch, PatchParams, PostParams};
use kube::{Api, CustomResourceExt, ResourceExt};
use serde_json::json;
use trishanku_framework::apply::Owned;
use trishanku_framework::cache::Scope;
use trishanku_framework::{Action, Context, Controller, Error, Key, Kinds, Manager, Reconciler, Result, lease};
use trishanku_testkit::{TestCluster, wait};

use crate::support::{Log, Tank, cluster, controller, create, run, tanks};

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
    let (logs, levels) = (log.clone(), plant.cache::<ConfigMap>());
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
