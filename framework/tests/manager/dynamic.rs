//! Kinds without a type.

use std::sync::Arc;

use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Condition;
use kube::api::{DeleteParams, DynamicObject, Patch, PatchParams, PostParams};
use kube::core::GroupVersionKind;
use kube::{Api, Client, ResourceExt};
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use trishanku_framework::apply::{Applied, ApplyError, ApplySet, Owned};
use trishanku_framework::cache::{Cache, Scope};
use trishanku_framework::status::{Conditions, Report, StatusWriter};
use trishanku_framework::{Action, Context, Controller, Error, Key, Kind, Manager, Reconciler};
use trishanku_testkit::{TestCluster, wait};

use crate::support::{Log, Running, run};

const GROUP: &str = "dynamic.test";
const USER: &str = "sluices-controller";

type Dynamic = Cache<DynamicObject>;

fn definition(kind: &str, plural: &str, scope: &str) -> CustomResourceDefinition {
    let anything = json!({"type": "object", "x-kubernetes-preserve-unknown-fields": true});
    serde_json::from_value(json!({
        "metadata": {"name": format!("{plural}.{GROUP}")},
        "spec": {
            "group": GROUP, "scope": scope,
            "names": {"kind": kind, "plural": plural},
            "versions": [{
                "name": "v1", "served": true, "storage": true, "subresources": {"status": {}},
                "schema": {"openAPIV3Schema": {"type": "object", "properties": {"spec": anything, "status": anything}}},
            }],
        },
    }))
    .unwrap()
}

async fn kind(client: &Client, group: &str, kind: &str) -> Kind<DynamicObject> {
    Kind::discover(client, &GroupVersionKind::gvk(group, "v1", kind)).await.unwrap()
}

fn object(name: &str, data: Value) -> DynamicObject {
    let mut object = DynamicObject { types: None, metadata: kube::api::ObjectMeta::default(), data };
    object.metadata.name = Some(name.to_owned());
    object
}

#[derive(Clone, Default, Deserialize, Serialize)]
#[serde(rename_all = "camelCase", default)]
struct Status {
    observed_generation: Option<i64>,
    conditions: Vec<Condition>,
}

impl Conditions for Status {
    fn conditions(&mut self) -> &mut Vec<Condition> {
        &mut self.conditions
    }

    fn observed_generation(&mut self) -> &mut Option<i64> {
        &mut self.observed_generation
    }
}

/// Applies a gate and a map for each sluice; all gates are closed in a drought.
struct Sluices {
    ours: Arc<Dynamic>,
    gates: Owned<DynamicObject>,
    maps: Owned<DynamicObject>,
    droughts: Arc<Dynamic>,
    status: StatusWriter,
    log: Log,
}

impl Sluices {
    async fn apply(&self, sluice: &DynamicObject, context: &Context) -> Result<usize, ApplyError> {
        let level = sluice.data["spec"]["level"].as_i64().unwrap_or_default();
        let open = level > 5 && self.droughts.is_empty();
        let mut set = ApplySet::of_kind(self.ours.kind(), sluice, context.client.clone(), USER);
        let name = context.key.name();
        let mut applied = vec![set.apply(object(name, json!({"spec": {"open": open}})), &self.gates).await?];
        if level > 0 {
            let map = object(name, json!({"data": {"level": level.to_string()}}));
            applied.push(set.apply(map, &self.maps).await?);
        }
        let pruned = set.prune(&self.maps).await?;
        Ok(applied.iter().filter(|applied| **applied == Applied::Written).count() + pruned)
    }
}

impl Reconciler for Sluices {
    type Object = DynamicObject;
    type Error = Error;

    async fn reconcile(&self, sluice: Arc<DynamicObject>, context: Context) -> Result<Action, Error> {
        let applied = self.apply(&sluice, &context).await;
        let before: Option<Status> = serde_json::from_value(sluice.data["status"].clone()).unwrap_or_default();
        let (status, report) = (before.clone().unwrap_or_default(), Report::of(&applied));
        self.status.write(&context.client, &self.ours, &*sluice, before.as_ref(), status, &report).await?;
        let round = sluice.annotations().get("round").map_or("0", String::as_str).to_owned();
        self.log.add(format!("round {round}: {} written", applied?));
        Ok(Action::Change)
    }

    fn finalizer(&self) -> Option<&str> {
        Some("dynamic.test/sluice")
    }
}

async fn start(cluster: &TestCluster, namespace: &str, log: &Log) -> Running {
    let client = cluster.client();
    let (sluice, gate, map, drought) = (
        kind(&client, GROUP, "Sluice").await,
        kind(&client, GROUP, "SluiceGate").await,
        kind(&client, "", "ConfigMap").await,
        kind(&client, GROUP, "Drought").await,
    );
    let mut config = cluster.config();
    config.auth_info.impersonate = Some(USER.to_owned());
    config.auth_info.impersonate_groups = Some(vec!["system:masters".to_owned()]);
    let manager = Manager::with_scope(config, Scope::namespaces([namespace]));
    let cache = |kind| manager.caches().cache_of(kind, None);
    let (sluices, droughts) = (cache(&sluice), cache(&drought));
    let (gates, maps) = (Owned::without_trigger(cache(&gate)), Owned::without_trigger(cache(&map)));
    let (status, log, all) = (StatusWriter::new(USER), log.clone(), sluices.clone());
    let reconciler = Sluices { ours: sluices, gates, maps, droughts, status, log };
    let controller = Controller::of_kind(sluice, "sluices", reconciler).owns_kind(&gate).owns_kind(&map);
    run(manager.controller(controller.watches_kind(&drought, move |_| all.keys())))
}

#[tokio::test]
async fn a_kind_without_a_type_is_worked_with_as_one_that_has_one() {
    let cluster = TestCluster::shared().await;
    let (client, namespace) = (cluster.client(), cluster.namespace("dynamic").await);
    for (kind, plural, scope) in [
        ("Sluice", "sluices", "Namespaced"),
        ("SluiceGate", "sluicegates", "Namespaced"),
        ("Drought", "droughts", "Cluster"),
    ] {
        cluster.install(&definition(kind, plural, scope)).await;
    }
    let sluice = kind(&client, GROUP, "Sluice").await;
    let api = |kind: &Kind<DynamicObject>| -> Api<DynamicObject> { kind.api(client.clone(), Some(&namespace)) };
    let (sluices, gates, maps, droughts) = (
        api(&sluice),
        api(&kind(&client, GROUP, "SluiceGate").await),
        api(&kind(&client, "", "ConfigMap").await),
        api(&kind(&client, GROUP, "Drought").await),
    );
    let log = Log::default();
    let running = start(cluster, &namespace, &log).await;
    let mut wanted = object("s", json!({"spec": {"level": 7}}));
    wanted.types = Some(kube::api::TypeMeta { api_version: format!("{GROUP}/v1"), kind: "Sluice".to_owned() });
    sluices.create(&PostParams::default(), &wanted).await.unwrap();

    // Owned objects are created, and corrected when another client changes them. The finalizer is set, and the status is ready.
    let is_open = |open: bool| move |gate: &DynamicObject| gate.data["spec"]["open"] == open;
    let gate = wait::until_object(&gates, "s", "it is open", is_open(true)).await.unwrap();
    assert_eq!(gate.owner_references()[0].kind, "Sluice");
    let ready = |sluice: &DynamicObject| sluice.data["status"]["conditions"][0]["status"] == "True";
    let seen = wait::until_object(&sluices, "s", "it is ready", ready).await.unwrap();
    assert_eq!(seen.finalizers(), ["dynamic.test/sluice"]);
    let patch = Patch::Merge(json!({"spec": {"open": false}}));
    gates.patch("s", &PatchParams::default(), &patch).await.unwrap();
    wait::until_object(&gates, "s", "it is open again", is_open(true)).await.unwrap();

    // Nothing is written twice, not even by another manager, which has all objects from lists.
    let round = async |round: &str| {
        let patch = Patch::Merge(json!({"metadata": {"annotations": {"round": round}}}));
        sluices.patch("s", &PatchParams::default(), &patch).await.unwrap();
    };
    round("1").await;
    log.until(1, "round 1: 0 written").await;
    running.stop().await;
    let log = Log::default();
    let running = start(cluster, &namespace, &log).await;
    log.until(1, "round 1: 0 written").await;

    // A cluster-scoped object that the controller does not own.
    let mut drought = object("d", json!({"spec": {}}));
    drought.types = Some(kube::api::TypeMeta { api_version: format!("{GROUP}/v1"), kind: "Drought".to_owned() });
    droughts.create(&PostParams::default(), &drought).await.unwrap();
    wait::until_object(&gates, "s", "it is closed", is_open(false)).await.unwrap();
    droughts.delete("d", &DeleteParams::default()).await.unwrap();
    wait::until_object(&gates, "s", "it is open once more", is_open(true)).await.unwrap();

    // An object that is no longer desired is deleted, and in the end the sluice.
    assert!(maps.get_opt("s").await.unwrap().is_some());
    let patch = Patch::Merge(json!({"spec": {"level": 0}}));
    sluices.patch("s", &PatchParams::default(), &patch).await.unwrap();
    wait::until_gone(&maps, "s").await.unwrap();
    sluices.delete("s", &DeleteParams::default()).await.unwrap();
    wait::until_gone(&sluices, "s").await.unwrap();
    running.stop().await;
}

#[tokio::test]
async fn a_missing_kind_is_reported_and_one_under_another_name_is_awaited() {
    let cluster = TestCluster::shared().await;
    let client = cluster.client();
    for (group, kind) in [("nothing.test", "Pump"), ("apps", "Pump")] {
        let missing = Kind::<DynamicObject>::discover(&client, &GroupVersionKind::gvk(group, "v1", kind)).await;
        let message = missing.unwrap_err().to_string();
        assert!(message.contains(&format!("no Pump in {group}/v1: install its definition")), "{message}");
    }

    // A kind from an `ApiResource`, before the apiserver serves it.
    let late = definition("Late", "lates", "Namespaced");
    let resource = kube::core::discovery::ApiResource::from_gvk(&GroupVersionKind::gvk(GROUP, "v1", "Late"));
    let (late_kind, log) = (Kind::<DynamicObject>::new(resource, true), Log::default());
    let namespace = cluster.namespace("late").await;
    let manager = Manager::with_scope(cluster.config(), Scope::namespaces([&namespace]));
    let cache = manager.caches().cache_of(&late_kind, None);
    let running = run(manager.controller(Controller::of_kind(late_kind.clone(), "late", Seen(log.clone()))));
    cluster.install(&late).await;
    let mut object = object("a", json!({"spec": {}}));
    object.types = Some(kube::api::TypeMeta { api_version: format!("{GROUP}/v1"), kind: "Late".to_owned() });
    late_kind.api(client, Some(&namespace)).create(&PostParams::default(), &object).await.unwrap();
    log.until(1, "a").await;
    assert!(cache.get(&Key::namespaced(&namespace, "a")).is_some());
    running.stop().await;
}

struct Seen(Log);

impl Reconciler for Seen {
    type Object = DynamicObject;
    type Error = Error;

    async fn reconcile(&self, object: Arc<DynamicObject>, _: Context) -> Result<Action, Error> {
        self.0.add(object.name_any());
        Ok(Action::Change)
    }
}
