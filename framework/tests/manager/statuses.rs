//! Statuses and events, as users see them.

use std::sync::Arc;

use k8s_openapi::api::events::v1::Event;
use kube::Api;
use kube::api::{ListParams, Patch, PatchParams};
use serde_json::json;
use trishanku_framework::cache::Scope;
use trishanku_framework::status::{Report, StatusWriter};
use trishanku_framework::{Action, Context, Manager};
use trishanku_testkit::wait;

use crate::support::{Log, Problem, Tank, cluster, controller, create, run, tanks};

/// Formats the conditions.
fn shown(tank: &Tank) -> Vec<String> {
    let conditions = tank.status.iter().flat_map(|status| &status.conditions);
    conditions.map(|condition| format!("{}={} {}", condition.type_, condition.status, condition.reason)).collect()
}

#[tokio::test]
async fn a_status_reports_success_and_failure_once_and_events_report_transitions() {
    let (cluster, namespace) = cluster("status").await;
    let (api, log) = (tanks(cluster.client(), &namespace), Log::default());
    let (logs, writer) = (log.clone(), Arc::new(StatusWriter::new("tank-controller")));
    let manager = Manager::with_scope(cluster.config(), Scope::namespaces([&namespace]));
    let cache = manager.caches().cache::<Tank>();
    let running = run(manager.controller(controller(move |tank: Arc<Tank>, context: Context| {
        let (logs, writer, cache) = (logs.clone(), writer.clone(), cache.clone());
        async move {
            let result = match tank.spec.level {
                0 => Ok(Action::Change),
                1 => Err(Problem::Broken),
                2 => Err(Problem::NoPump),
                _ => Err(Problem::Terminal),
            };
            let status = tank.status.clone().unwrap_or_default();
            let report = Report::of(&result);
            let written = writer.write(&context.client, &cache, &*tank, tank.status.as_ref(), status, &report).await?;
            logs.add(format!("level {}: {}", tank.spec.level, if written { "written" } else { "the same" }));
            result
        }
    })));
    create(&api, &["a"]).await;
    // Another controller sets a condition, too.
    let theirs = |reason: &str| {
        Patch::Apply(json!({
            "apiVersion": "framework.test/v1", "kind": "Tank", "metadata": {"name": "a"},
            "status": {"conditions": [{
                "type": "Leaks", "status": "False", "reason": reason, "message": "", "lastTransitionTime": "2026-01-01T00:00:00Z"
            }]}
        }))
    };
    api.patch_status("a", &PatchParams::apply("inspector"), &theirs("Tight")).await.unwrap();
    let expected = [
        (0, vec!["Ready=True Succeeded"]),
        (1, vec!["Ready=False Broken", "Reconciling=True Broken"]),
        (2, vec!["Ready=False NoPump", "Reconciling=True NoPump"]),
        (3, vec!["Ready=False Terminal", "Stalled=True Terminal"]),
        (0, vec!["Ready=True Succeeded"]),
        // Two conditions change in one write.
        (3, vec!["Ready=False Terminal", "Stalled=True Terminal"]),
    ];
    for (level, conditions) in expected {
        let patch = Patch::Merge(json!({"spec": {"level": level}}));
        api.patch("a", &PatchParams::default(), &patch).await.unwrap();
        let what = format!("{conditions:?}");
        let said = wait::until_object(&api, "a", &what, |tank: &Tank| {
            let mut shown = shown(tank);
            shown.retain(|condition| condition != "Leaks=False Tight");
            let current =
                tank.status.as_ref().is_some_and(|status| status.observed_generation == tank.metadata.generation);
            shown == conditions && current
        });
        let tank = said.await.unwrap();
        assert!(shown(&tank).contains(&"Leaks=False Tight".to_owned()), "{:?}", shown(&tank));
        if matches!(level, 1 | 2) {
            // It keeps failing, or waiting.
            log.until(2, &format!("level {level}: the same")).await;
        }
    }
    // The other controller still owns its condition, and need not force.
    api.patch_status("a", &PatchParams::apply("inspector"), &theirs("VeryTight")).await.unwrap();

    let events: Api<Event> = Api::namespaced(cluster.client(), &namespace);
    let published = wait::until("three events, two of them twice", async || {
        let list = events.list(&ListParams::default()).await.map_err(|error| error.to_string())?;
        let mut published: Vec<_> = list
            .iter()
            .map(|event| {
                let regarding = event.regarding.as_ref().and_then(|object| object.name.clone()).unwrap_or_default();
                let text = |text: &Option<String>| text.clone().unwrap_or_default();
                let times = event.series.as_ref().map_or(1, |series| series.count);
                format!("{} {} {regarding}: {times}", text(&event.type_), text(&event.reason))
            })
            .collect();
        published.sort();
        let expected = ["Normal Succeeded a: 2", "Warning Broken a: 1", "Warning Terminal a: 2"];
        if published == expected { Ok(()) } else { Err(format!("{published:?}")) }
    });
    published.await.unwrap();
    running.stop().await;
}
