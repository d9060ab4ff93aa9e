//! Objects that do not match their type, because the schema is looser.

use std::sync::Arc;

use k8s_openapi::api::events::v1::Event;
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::{
    CustomResourceDefinition, CustomResourceValidation, JSONSchemaProps,
};
use kube::api::{DeleteParams, DynamicObject, ListParams, Patch, PatchParams, PostParams};
use kube::core::{ApiResource, GroupVersionKind};
use kube::{Api, Client, CustomResource, CustomResourceExt, ResourceExt};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use trishanku_framework::cache::Scope;
use trishanku_framework::metrics::Metrics;
use trishanku_framework::telemetry::Settings;
use trishanku_framework::{Action, Context, Controller, Manager, Reconciler};
use trishanku_testkit::{Fault, Proxy, Rule, TestCluster, wait};

use crate::support::{Log, Problem, run};
use crate::writer::Lines;

/// Holds water; its definition accepts everything.
#[derive(CustomResource, Clone, Debug, Deserialize, Serialize, JsonSchema)]
#[kube(group = "framework.test", version = "v1", kind = "Drum", namespaced)]
struct DrumSpec {
    level: i32,
}

fn loose_definition() -> CustomResourceDefinition {
    let mut definition = Drum::crd();
    let any = JSONSchemaProps {
        type_: Some("object".to_owned()),
        x_kubernetes_preserve_unknown_fields: Some(true),
        ..JSONSchemaProps::default()
    };
    for version in &mut definition.spec.versions {
        version.schema = Some(CustomResourceValidation { open_api_v3_schema: Some(any.clone()) });
    }
    definition
}

/// A reconciler that records each object.
struct Notes(Log);

impl Reconciler for Notes {
    type Object = Drum;
    type Error = Problem;

    async fn reconcile(&self, drum: Arc<Drum>, _: Context) -> Result<Action, Problem> {
        self.0.add(format!("{} at {}", drum.name_any(), drum.spec.level));
        Ok(Action::Change)
    }
}

fn drums(client: Client, namespace: &str) -> Api<DynamicObject> {
    let drum = ApiResource::from_gvk(&GroupVersionKind::gvk("framework.test", "v1", "Drum"));
    Api::namespaced_with(client, namespace, &drum)
}

async fn create(api: &Api<DynamicObject>, name: &str, level: Value) {
    let drum = json!({"apiVersion": "framework.test/v1", "kind": "Drum", "metadata": {"name": name}, "spec": {"level": level}});
    api.create(&PostParams::default(), &serde_json::from_value(drum).unwrap()).await.unwrap();
}

async fn set(api: &Api<DynamicObject>, name: &str, level: Value) {
    let patch = Patch::Merge(json!({"spec": {"level": level}}));
    api.patch(name, &PatchParams::default(), &patch).await.unwrap();
}

async fn left_out(metrics: &Metrics, count: usize) {
    let line = format!(r#"cache_unreadable_objects{{group="framework.test",kind="Drum"}} {count}"#);
    let counted = wait::until(line.clone(), async || {
        let text = metrics.text();
        if text.lines().any(|there| there == line) { Ok(()) } else { Err(text) }
    });
    counted.await.unwrap();
}

#[tokio::test]
async fn one_invalid_object_does_not_block_the_others() {
    let cluster = TestCluster::shared().await;
    cluster.install(&loose_definition()).await;
    let namespace = cluster.namespace("misfits").await;
    let (api, proxy) = (drums(cluster.client(), &namespace), Proxy::start(cluster).await);
    let (log, lines) = (Log::default(), Lines::default());
    let (subscriber, _telemetry) = Settings::new("drums").writer(lines.clone()).build().unwrap();
    let _of_this_thread = tracing::dispatcher::set_default(&subscriber);
    create(&api, "bad", json!("hidden")).await;
    create(&api, "good", json!(1)).await;

    let manager = Manager::with_scope(proxy.config(), Scope::namespaces([&namespace]))
        .controller(Controller::new("drum", Notes(log.clone())));
    let (health, metrics) = (manager.health(), manager.metrics());
    let running = run(manager);
    log.until(1, "good at 1").await;
    assert_eq!(health.ready(), Ok(()));
    left_out(&metrics, 1).await;
    let events: Api<Event> = Api::namespaced(cluster.client(), &namespace);
    let event = wait::until("an event about it", async || {
        let events = events.list(&ListParams::default()).await.map_err(|error| error.to_string())?;
        let unreadable = events.items.iter().find(|event| event.reason.as_deref() == Some("Unreadable"));
        unreadable.cloned().ok_or_else(|| format!("{:?}", events.items))
    });
    let event = event.await.unwrap();
    assert_eq!(event.regarding.unwrap().name.as_deref(), Some("bad"));
    let note = "not reconciled, because it does not match its type: spec.level: invalid type: string, expected i32";
    assert_eq!(event.note.as_deref(), Some(note));

    // An invalid object becomes valid, and a valid one invalid.
    set(&api, "bad", json!(2)).await;
    log.until(1, "bad at 2").await;
    left_out(&metrics, 0).await;
    set(&api, "good", json!("hidden")).await;
    left_out(&metrics, 1).await;

    // A list contains the same objects again.
    proxy.add(Rule::new(Fault::Status { code: 410, retry_after: None }).watches().times(1));
    let before = proxy.seen().len();
    proxy.cut();
    let listed = wait::until("another list", async || {
        let seen = proxy.seen();
        let lists = seen[before..]
            .iter()
            .filter(|seen| seen.uri.contains("/drums?") && seen.uri.contains("sendInitialEvents"))
            .count();
        if lists > 0 { Ok(()) } else { Err(format!("{:?}", &seen[before..])) }
    });
    listed.await.unwrap();
    create(&api, "last", json!(3)).await;
    log.until(1, "last at 3").await;
    let text = lines.text();
    let skipped: Vec<_> =
        text.lines().filter(|line| line.contains("skipped an object that its type cannot represent")).collect();
    assert_eq!(skipped.len(), 2, "{text}");
    assert!(
        skipped[0].contains("bad") && skipped[1].contains("good") && skipped[0].contains("spec.level"),
        "{skipped:?}"
    );
    assert!(!text.contains("hidden"), "{text}");

    api.delete("good", &DeleteParams::default()).await.unwrap();
    left_out(&metrics, 0).await;
    assert_eq!(log.all(), ["good at 1", "bad at 2", "last at 3"]);
    running.stop().await;
}
