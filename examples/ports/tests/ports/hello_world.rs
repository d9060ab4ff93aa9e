//! The operator of hello clusters.

use k8s_openapi::api::apps::v1::StatefulSet;
use k8s_openapi::api::core::v1::{ConfigMap, Service, ServiceAccount};
use k8s_openapi::api::policy::v1::PodDisruptionBudget;
use kube::api::{Patch, PatchParams, PostParams};
use kube::{Api, Client, ResourceExt as _};
use ports::hello_world::{HelloCluster, PAUSED, controller};
use serde_json::{Value, json};
use trishanku_testkit::wait;

use crate::support::{Running, cluster, manager, run, until_condition};

struct World {
    client: Client,
    namespace: String,
    clusters: Api<HelloCluster>,
    servers: Api<StatefulSet>,
    running: Running,
}

impl World {
    async fn create(prefix: &str, servers: Value) -> Self {
        let (cluster, namespace) = cluster::<HelloCluster>(prefix).await;
        let client = cluster.client();
        let running = run(manager(cluster, &namespace).controller(controller()));
        let clusters: Api<HelloCluster> = Api::namespaced(client.clone(), &namespace);
        let spec = json!({
            "clusterConfig": {}, "image": {"productVersion": "0.1"}, "servers": servers, "recipient": "tide", "color": "blue",
        });
        let made = serde_json::from_value(json!({"metadata": {"name": "hello"}, "spec": spec})).unwrap();
        clusters.create(&PostParams::default(), &made).await.unwrap();
        let servers = Api::namespaced(client.clone(), &namespace);
        Self { client, namespace, clusters, servers, running }
    }

    async fn set(&self, spec: Value) {
        let patch = Patch::Merge(json!({"spec": spec}));
        self.clusters.patch("hello", &PatchParams::default(), &patch).await.unwrap();
    }

    async fn until(&self, status: &str, reason: &str) {
        until_condition(&self.clusters, "hello", "Ready", status, reason).await;
    }

    /// Does what kube-controller-manager and kubelets do when all servers of a group are ready.
    async fn get_ready(&self, group: &str) {
        let name = format!("hello-server-{group}");
        let servers = wait::until_object(&self.servers, &name, "it exists", |_| true).await.unwrap();
        let replicas = servers.spec.unwrap().replicas;
        let status = json!({
            "observedGeneration": servers.metadata.generation, "replicas": replicas, "readyReplicas": replicas,
            "updatedReplicas": replicas, "availableReplicas": replicas,
        });
        let patch = Patch::Merge(json!({"status": status}));
        self.servers.patch_status(&name, &PatchParams::default(), &patch).await.unwrap();
    }

    async fn until_replicas(&self, group: &str, wanted: i32) {
        let has = |servers: &StatefulSet| servers.spec.as_ref().is_some_and(|spec| spec.replicas == Some(wanted));
        let name = format!("hello-server-{group}");
        wait::until_object(&self.servers, &name, &format!("{wanted} replicas"), has).await.unwrap();
    }
}

#[tokio::test]
async fn each_role_group_has_its_objects_as_long_as_it_exists() {
    let world =
        World::create("groups", json!({"roleGroups": {"small": {"replicas": 1}, "large": {"replicas": 3}}})).await;
    world.get_ready("small").await;
    world.until("False", "RollingOut").await;
    world.get_ready("large").await;
    world.until("True", "ServersReady").await;
    let maps: Api<ConfigMap> = Api::namespaced(world.client.clone(), &world.namespace);
    let services: Api<Service> = Api::namespaced(world.client.clone(), &world.namespace);
    let budgets: Api<PodDisruptionBudget> = Api::namespaced(world.client.clone(), &world.namespace);
    let accounts: Api<ServiceAccount> = Api::namespaced(world.client.clone(), &world.namespace);
    let servers = world.servers.get("hello-server-large").await.unwrap();
    assert_eq!(servers.owner_references()[0].kind, "HelloCluster");
    assert_eq!(servers.spec.unwrap().replicas, Some(3));
    for name in ["hello", "hello-server-small", "hello-server-large"] {
        services.get(name).await.unwrap();
    }
    accounts.get("hello-serviceaccount").await.unwrap();
    budgets.get("hello-server").await.unwrap();
    let map = maps.get("hello-server-small").await.unwrap();
    assert!(map.data.unwrap()["application.properties"].contains("greeting.recipient=tide\n"));

    let budget = json!({"podDisruptionBudget": {"enabled": false}});
    world.set(json!({"servers": {"roleConfig": budget, "roleGroups": {"small": null}}})).await;
    wait::until_gone(&world.servers, "hello-server-small").await.unwrap();
    wait::until_gone(&maps, "hello-server-small").await.unwrap();
    wait::until_gone(&services, "hello-server-small").await.unwrap();
    wait::until_gone(&budgets, "hello-server").await.unwrap();
    world.until("True", "ServersReady").await;
    services.get("hello").await.unwrap();
    world.running.stop().await;
}

#[tokio::test]
async fn a_stopped_cluster_has_no_servers_and_a_paused_one_does_not_change() {
    let world = World::create("operations", json!({"roleGroups": {"default": {"replicas": 2}}})).await;
    world.until_replicas("default", 2).await;
    world.set(json!({"clusterOperation": {"stopped": true}})).await;
    world.until_replicas("default", 0).await;
    world.get_ready("default").await;
    world.until("False", "Stopped").await;
    let paused = json!({"clusterOperation": {"stopped": false, "reconciliationPaused": true}, "recipient": "ebb"});
    world.set(paused).await;
    until_condition(&world.clusters, "hello", PAUSED, "True", "Paused").await;
    // A cluster that is created later is reconciled: so the first one would have been, too.
    let mut other = world.clusters.get("hello").await.unwrap();
    (other.metadata, other.status) = (kube::api::ObjectMeta::default(), None);
    other.metadata.name = Some("other".to_owned());
    other.spec.cluster_operation.reconciliation_paused = false;
    world.clusters.create(&PostParams::default(), &other).await.unwrap();
    until_condition(&world.clusters, "other", "Ready", "False", "RollingOut").await;
    let maps: Api<ConfigMap> = Api::namespaced(world.client.clone(), &world.namespace);
    let recipient = async |name: &str| maps.get(name).await.unwrap().data.unwrap()["application.properties"].clone();
    assert!(recipient("hello-server-default").await.contains("greeting.recipient=tide"));
    assert!(recipient("other-server-default").await.contains("greeting.recipient=ebb"));
    world.until_replicas("default", 0).await;
    // What was known before the pause stays.
    world.until("False", "Stopped").await;
    world.set(json!({"clusterOperation": {"reconciliationPaused": false}})).await;
    world.until_replicas("default", 2).await;
    until_condition(&world.clusters, "hello", PAUSED, "False", "NotPaused").await;
    assert!(recipient("hello-server-default").await.contains("greeting.recipient=ebb"));
    world.running.stop().await;
}

#[tokio::test]
async fn an_invalid_group_changes_nothing_and_a_number_that_is_not_set_is_left_alone() {
    let world = World::create("invalid", json!({"roleGroups": {"default": {}}})).await;
    world.until_replicas("default", 1).await;
    // An autoscaler decides.
    let scale = Patch::Merge(json!({"spec": {"replicas": 5}}));
    world.servers.patch("hello-server-default", &PatchParams::default(), &scale).await.unwrap();
    let wrong = json!({"config": {"gracefulShutdownTimeout": "soon"}});
    world.set(json!({"image": {"productVersion": "0.2"}, "servers": {"roleGroups": {"wrong": wrong}}})).await;
    until_condition(&world.clusters, "hello", "Stalled", "True", "InvalidConfig").await;
    let image = |servers: &StatefulSet| {
        let pod = servers.spec.as_ref().unwrap().template.spec.as_ref().unwrap();
        pod.containers[0].image.clone().unwrap_or_default()
    };
    assert!(image(&world.servers.get("hello-server-default").await.unwrap()).ends_with(":0.1"));
    world.set(json!({"servers": {"roleGroups": {"wrong": null}}})).await;
    let updated = |servers: &StatefulSet| image(servers).ends_with(":0.2");
    wait::until_object(&world.servers, "hello-server-default", "its image is new", updated).await.unwrap();
    world.until_replicas("default", 5).await;
    world.set(json!({"servers": null})).await;
    until_condition(&world.clusters, "hello", "Stalled", "True", "NoServers").await;
    world.running.stop().await;
}
