//! Objects, namespaces, and definitions with their objects, as they were.

use serde_json::{Value, json};

use crate::world::{World, deployment, map};

#[tokio::test]
async fn an_object_is_restored_whole() {
    let world = World::new("restore").await;
    world.create("deployments", deployment("web", "web:1")).await;
    let then = world.revision().await;
    world.patch("deployments/web", json!({"metadata": {"labels": {"a": "b"}}, "spec": {"replicas": 7}})).await;
    world.patch("deployments/web", json!({"spec": {"minReadySeconds": 5}})).await;
    world.run(&format!("restore deploy/web -n NS --to={then}")).await.ok().says("updated Deployment");
    let web = world.get("deployments/web").await;
    assert_eq!((&web["spec"]["replicas"], &web["spec"]["minReadySeconds"]), (&json!(2), &Value::Null));
    assert!(web["metadata"]["labels"].is_null());
    world.run(&format!("restore deploy/web -n NS --to={then}")).await.ok();
}

#[tokio::test]
async fn a_restore_prunes_what_was_created_since_only_if_asked() {
    let world = World::new("prune").await;
    world.create("configmaps", map("a", "4")).await;
    let then = world.revision().await;
    world.create("configmaps", map("new", "4")).await;
    world.delete("configmaps/a").await;
    world.run(&format!("restore -n NS --to={then}")).await.ok().says("--prune deletes it");
    assert_eq!(world.get("configmaps/a").await["data"]["tea"], "4");
    assert!(world.get("configmaps/new").await.is_object());
    world.run(&format!("restore -n NS --to={then} --prune")).await.ok();
    assert!(world.get("configmaps/new").await.is_null());
    assert!(world.get("configmaps/kube-root-ca.crt").await.is_null(), "no controller publishes it here");
}

#[tokio::test]
async fn a_namespace_comes_back_with_its_content() {
    let world = World::new("space").await;
    world.patch(&format!("namespaces/{}", world.namespace), json!({"metadata": {"labels": {"team": "tea"}}})).await;
    world.create("serviceaccounts", json!({"metadata": {"name": "robot"}})).await;
    world.create("roles", json!({"metadata": {"name": "reader"}, "rules": [{"apiGroups": [""], "resources": ["pods"], "verbs": ["get"]}]})).await;
    let binding = json!({
        "metadata": {"name": "robot"},
        "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "Role", "name": "reader"},
        "subjects": [{"kind": "ServiceAccount", "name": "robot", "namespace": world.namespace}],
    });
    world.create("rolebindings", binding).await;
    world.create("configmaps", map("a", "4")).await;
    world.create("deployments", deployment("web", "web:1")).await;
    let web = world.until("deployments/web", "its pods are requested", |web| web["status"]["replicas"] == 2).await;
    let namespace = format!("namespaces/{}", world.namespace);
    let old = world.get(&namespace).await;
    world.delete(&namespace).await;
    let ran = world.run("undelete ns/NS").await.ok();
    assert!(ran.stdout.contains("left to controllers") && ran.stdout.contains("controls it"), "{}", ran.stdout);
    let new = world.get(&namespace).await;
    assert_eq!(new["metadata"]["labels"]["team"], "tea");
    assert_ne!(new["metadata"]["uid"], old["metadata"]["uid"]);
    for object in
        ["serviceaccounts/robot", "serviceaccounts/default", "roles/reader", "rolebindings/robot", "configmaps/a"]
    {
        assert!(world.get(object).await.is_object(), "{object}");
    }
    let again = world.until("deployments/web", "its pods are requested", |web| web["status"]["replicas"] == 2).await;
    assert_eq!(again["spec"], web["spec"]);
}

#[tokio::test]
async fn a_definition_comes_back_with_its_objects() {
    let world = World::new("definition").await;
    let name = world.install("gauges", "Gauge").await;
    let gauge = |name: &str, more: Value| {
        let mut gauge = json!({"apiVersion": "gauges.example.org/v1", "kind": "Gauge", "metadata": {"name": name}, "spec": {"millimetres": 7}});
        gauge["metadata"].as_object_mut().expect("a map").extend(more.as_object().expect("a map").clone());
        gauge
    };
    let owner = world.create("gauges", gauge("roof", json!({}))).await;
    let reference = json!([{"apiVersion": "gauges.example.org/v1", "kind": "Gauge", "name": "roof", "uid": owner["metadata"]["uid"]}]);
    world.create("gauges", gauge("gutter", json!({"ownerReferences": reference}))).await;
    let definition = format!("customresourcedefinitions/{name}");
    world.delete(&definition).await;
    world.run(&format!("undelete crd/{name}")).await.ok().says("created Gauge");
    let roof = world.get("gauges/roof").await;
    let gutter = world.get("gauges/gutter").await;
    assert_eq!(gutter["spec"]["millimetres"], 7);
    assert_eq!(gutter["metadata"]["ownerReferences"][0]["uid"], roof["metadata"]["uid"]);
    assert_ne!(roof["metadata"]["uid"], owner["metadata"]["uid"]);
}

#[tokio::test]
async fn the_creation_of_a_definition_is_undone_only_with_its_objects() {
    let world = World::new("defined").await;
    let since = world.revision().await;
    let name = world.install("barrels", "Barrel").await;
    let commit = world.last_commit(&format!("apiextensions.k8s.io/customresourcedefinitions/{name}")).await;
    let barrel = json!({"apiVersion": "barrels.example.org/v1", "kind": "Barrel", "metadata": {"name": "a"}});
    world.create("barrels", barrel).await;
    world.run(&format!("undo --since={since} crd/{name}")).await.fails_with("would be deleted with it");
    assert!(world.get("barrels/a").await.is_object(), "{commit}");
    world.run(&format!("undo --since={since} crd/{name} barrel/a -n NS")).await.ok();
    world.until(&format!("customresourcedefinitions/{name}"), "it is gone", Value::is_null).await;
}

#[tokio::test]
async fn the_creation_of_a_namespace_is_not_undone_over_objects_of_others() {
    let world = World::new("created").await;
    world.create("configmaps", map("a", "4")).await;
    let namespace = world.namespace.clone();
    let created = world.first_commit(&format!("namespaces/{namespace}")).await;
    world.run(&format!("undo {created}")).await.fails_with("would be deleted with it");
    assert!(world.get("configmaps/a").await.is_object());
}

#[tokio::test]
async fn what_was_deleted_in_a_namespace_since_a_moment_comes_back() {
    let world = World::new("deleted").await;
    let since = world.revision().await;
    // Created and deleted since: neither state has them.
    for name in ["a", "b"] {
        world.create("configmaps", map(name, "4")).await;
    }
    world.patch("configmaps/a", json!({"data": {"tea": "5"}})).await;
    world.delete("configmaps/a").await;
    world.run(&format!("undelete -n NS --since={since}")).await.ok().says("1 to create, 0 to update, 0 to delete");
    assert_eq!(world.get("configmaps/a").await["data"]["tea"], "5");
}

#[tokio::test]
async fn an_object_that_exists_is_not_undeleted_over_it() {
    let world = World::new("again").await;
    world.create("configmaps", map("a", "4")).await;
    world.delete("configmaps/a").await;
    world.create("configmaps", map("a", "9")).await;
    world.run("undelete cm/a -n NS").await.ok().says("it was created again since, and stays");
    assert_eq!(world.get("configmaps/a").await["data"]["tea"], "9");
}

#[tokio::test]
async fn everything_is_planned_as_it_was_without_objects_of_controllers() {
    let world = World::new("all").await;
    world.create("configmaps", map("a", "4")).await;
    let then = world.revision().await;
    world.patch("configmaps/a", json!({"data": {"tea": "5"}})).await;
    let ran = world.ask(&format!("restore --all --to={then} --dry-run --json")).await;
    let json = ran.json();
    let steps = json["steps"].as_array().expect("the steps");
    let own = steps.iter().find(|step| step["object"]["namespace"] == world.namespace.as_str()).expect("the map");
    assert_eq!((&own["action"], &own["object"]["name"]), (&json!("update"), &json!("a")));
    let is_written = |step: &&Value| ["create", "update", "delete"].iter().any(|word| step["action"] == *word);
    let kinds = ["Lease", "Event", "EndpointSlice", "ReplicaSet", "Pod"];
    assert!(
        !steps.iter().filter(is_written).any(|step| kinds.iter().any(|kind| step["object"]["kind"] == *kind)),
        "{json}"
    );
}
