//! Caches of some objects of a kind.

use std::sync::Arc;

use k8s_openapi::api::core::v1::Secret;
use kube::api::{DeleteParams, PostParams};
use kube::{Api, ResourceExt};
use serde_json::json;
use trishanku_framework::cache::{Scope, Selector};
use trishanku_framework::{Action, Context, Controller, Manager, Reconciler};
use trishanku_testkit::{TestCluster, wait};

use crate::support::{Log, run};

struct Notes(Log);

impl Reconciler for Notes {
    type Object = Secret;
    type Error = kube::Error;

    async fn reconcile(&self, secret: Arc<Secret>, _: Context) -> Result<Action, kube::Error> {
        self.0.add(secret.name_any());
        Ok(Action::Change)
    }
}

#[tokio::test]
async fn only_objects_with_a_field_are_cached_and_reconciled() {
    let cluster = TestCluster::shared().await;
    let namespace = cluster.namespace("selected").await;
    let api: Api<Secret> = Api::namespaced(cluster.client(), &namespace);
    let log = Log::default();
    let create = async |name: &str, of_type: &str, labels: serde_json::Value| {
        let secret = json!({"metadata": {"name": name, "labels": labels}, "type": of_type});
        api.create(&PostParams::default(), &serde_json::from_value(secret).unwrap()).await.unwrap();
    };
    create("ours", "example.org/tank", json!({"app": "tank"})).await;
    create("of-another-type", "Opaque", json!({"app": "tank"})).await;
    create("of-another-app", "example.org/tank", json!({})).await;
    let manager = Manager::with_scope(cluster.config(), Scope::namespaces([&namespace]));
    let selector = Selector::labels("app=tank").and_fields("type=example.org/tank");
    let cache = manager.caches().cache_selecting::<Secret>(selector.clone());
    let running = run(manager.controller(Controller::new("notes", Notes(log.clone())).selecting(selector)));
    log.until(1, "ours").await;
    create("later-of-another-type", "Opaque", json!({"app": "tank"})).await;
    create("later", "example.org/tank", json!({"app": "tank"})).await;
    log.until(1, "later").await;
    assert_eq!(log.all(), ["ours", "later"]);
    api.delete("ours", &DeleteParams::default()).await.unwrap();
    let gone = wait::until("its deletion is noticed", async || match cache.len() {
        1 => Ok(()),
        more => Err(more),
    });
    gone.await.unwrap();
    running.stop().await;
}
