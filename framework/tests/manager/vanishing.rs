//! A kind that is deleted while its controller runs, and created again.

use std::sync::Arc;
use std::time::{Duration, Instant};

use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kube::api::{DeleteParams, Patch, PatchParams, PostParams};
use kube::{Api, CustomResource, CustomResourceExt, ResourceExt};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::json;
use trishanku_framework::cache::Scope;
use trishanku_framework::{Action, Context, Controller, Manager, Reconciler};
use trishanku_testkit::audit::Entry;
use trishanku_testkit::{TestCluster, wait};

use crate::support::{Log, run};

/// A kind that no other test uses, so that it can be deleted.
#[derive(CustomResource, Clone, Debug, Default, Deserialize, Serialize, JsonSchema)]
#[kube(group = "vanishing.test", version = "v1", kind = "Barrel", namespaced)]
struct BarrelSpec {
    level: i32,
}

struct Barrels(Log);

impl Reconciler for Barrels {
    type Object = Barrel;
    type Error = kube::Error;

    async fn reconcile(&self, barrel: Arc<Barrel>, context: Context) -> Result<Action, kube::Error> {
        // Written every second, so a reconcile fails while the kind is gone.
        let api: Api<Barrel> = Api::namespaced(context.client, context.key.namespace().unwrap_or_default());
        let patch = Patch::Merge(json!({"metadata": {"uid": barrel.metadata.uid, "annotations": {"seen": "yes"}}}));
        api.patch(context.key.name(), &PatchParams::default(), &patch).await?;
        self.0.add(format!("{} {}", barrel.name_any(), barrel.uid().unwrap_or_default()));
        Ok(Action::After(Duration::from_secs(1)))
    }
}

/// Returns the requests of the controller.
fn calls(cluster: &TestCluster, user: &str) -> Vec<Entry> {
    let mut calls = cluster.audit();
    // A watch has an entry for its start, and one for its end.
    calls.retain(|entry| entry.user() == user && !(entry.verb == "watch" && entry.stage == "ResponseComplete"));
    calls
}

#[tokio::test]
async fn a_kind_that_goes_is_asked_for_less_and_less_often_and_worked_with_when_it_is_back() {
    let cluster = TestCluster::shared().await;
    let (namespace, user, log) = (cluster.namespace("vanishing").await, "barrels", Log::default());
    cluster.install(&Barrel::crd()).await;
    let mut config = cluster.config();
    config.auth_info.impersonate = Some(user.to_owned());
    config.auth_info.impersonate_groups = Some(vec!["system:masters".to_owned()]);
    let manager = Manager::with_scope(config, Scope::namespaces([&namespace]));
    let (cache, health) = (manager.caches().cache::<Barrel>(), manager.health());
    let running = run(manager.controller(Controller::new("barrels", Barrels(log.clone()))));
    let api: Api<Barrel> = Api::namespaced(cluster.client(), &namespace);
    let barrel = async |name: &str| {
        let barrel = Barrel::new(name, BarrelSpec::default());
        api.create(&PostParams::default(), &barrel).await.unwrap().uid().unwrap()
    };
    let (first, other) = (barrel("a").await, barrel("b").await);
    log.until(2, &format!("a {first}")).await;
    log.until(2, &format!("b {other}")).await;

    let kinds: Api<CustomResourceDefinition> = Api::all(cluster.client());
    kinds.delete(Barrel::crd_name(), &DeleteParams::default()).await.unwrap();
    wait::until_gone(&kinds, Barrel::crd_name()).await.unwrap();
    let (gone, before) = (Instant::now(), calls(cluster, user).len());
    // The test counts requests over time.
    tokio::time::sleep(Duration::from_secs(8)).await;
    let while_gone = calls(cluster, user).split_off(before);
    let per_second = while_gone.len() as f64 / gone.elapsed().as_secs_f64();
    println!("{} calls in {:?} for a kind that is gone", while_gone.len(), gone.elapsed());
    // Half a second, doubling, and the retries of objects that are still in the cache.
    assert!(per_second < 2.0, "{per_second} calls a second: {while_gone:?}");
    assert!(cache.is_empty(), "the objects are gone with their kind: {:?}", cache.keys());
    assert_eq!((health.ready(), health.alive()), (Ok(()), Ok(())), "a missing kind does not affect the health");

    cluster.install(&Barrel::crd()).await;
    let second = barrel("a").await;
    let back = Instant::now();
    log.until(2, &format!("a {second}")).await;
    println!("reconciled again {:?} after it was back", back.elapsed());
    assert_eq!(cache.len(), 1, "{:?}", cache.keys());
    let (old, new) = (log.times(&format!("a {first}")), log.times(&format!("a {second}")));
    assert!(old.last() < new.first(), "no reconcile of a deleted object");
    running.stop().await;
}
