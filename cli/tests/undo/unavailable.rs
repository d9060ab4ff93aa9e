//! An aggregated API that does not respond, as that of metrics-server while its pods do not run.

use serde_json::{Value, json};

use crate::world::{World, map};

const API: &str = "/apis/dead.example.org/v1";
const UNREACHABLE: &str = "kube-apiserver cannot reach the API dead.example.org/v1";

/// On a cluster of its own: kube-controller-manager could delete no namespace meanwhile.
#[tokio::test]
async fn an_api_that_is_away_keeps_back_what_needs_it_and_nothing_else() {
    let world = World::alone("dead").await;
    world.create("configmaps", map("plain", "4")).await;
    let mut owned = map("owned", "4");
    owned["metadata"]["ownerReferences"] =
        json!([{"apiVersion": "dead.example.org/v1", "kind": "Thing", "name": "x", "uid": "1"}]);
    world.create("configmaps", owned).await;
    let created = world.first_commit("namespaces/NS").await;
    let before = world.revision_of(&created).await - 1;
    let since = world.revision().await;
    for object in ["configmaps/plain", "configmaps/owned"] {
        world.delete(object).await;
    }
    let spec = json!({
        "group": "dead.example.org", "version": "v1", "groupPriorityMinimum": 1000, "versionPriority": 15,
        "insecureSkipTLSVerify": true, "service": {"namespace": "default", "name": "none"},
    });
    world.create("apiservices", json!({"metadata": {"name": "v1.dead.example.org"}, "spec": spec})).await;
    world.until_so("the API is not reachable", async || world.is_answered(API, 503).await).await;

    let line = format!("undo --since={since} -n NS");
    let reason = format!("whether its owner Thing x exists is not known: {UNREACHABLE}");
    world.run(&line).await.fails_with(&reason).fails_with("delete its APIService, and run this again");
    assert_eq!(world.get("configmaps/plain").await["data"]["tea"], "4");
    assert!(world.get("configmaps/owned").await.is_null());

    // It is said before anything is changed that the namespace cannot be deleted.
    let creation = format!("undo --since={before} -n NS --dry-run");
    let reason = format!("what would be deleted with it is not known: {UNREACHABLE}");
    world.ask(&creation).await.fails_with(&reason);

    world.delete("apiservices/v1.dead.example.org").await;
    world.until_so("the API is gone", async || world.is_answered(API, 404).await).await;
    world.run(&line).await.ok().says("the reference to it is removed");
    assert_eq!(world.get("configmaps/owned").await["data"]["tea"], "4");
    assert_eq!(world.get("configmaps/owned").await["metadata"]["ownerReferences"], Value::Null);
    world.ask(&creation).await.ok().says("- Namespace");
}
