//! Kinds with fields that kube-apiserver and controllers assign.

use serde_json::{Value, json};

use crate::world::{World, deployment, map};

fn service(name: &str, more: &Value) -> Value {
    let mut service = json!({"metadata": {"name": name}, "spec": {"ports": [{"port": 80}], "selector": {"app": name}}});
    service["spec"].as_object_mut().expect("a map").extend(more.as_object().expect("a map").clone());
    service
}

#[tokio::test]
async fn a_deleted_deployment_comes_back_and_makes_its_pods() {
    let world = World::new("workload").await;
    world.create("deployments", deployment("web", "web:1")).await;
    let old = world.until("deployments/web", "its pods are requested", |web| web["status"]["replicas"] == 2).await;
    world.delete("deployments/web").await;
    world.run("undelete deploy/web -n NS").await.ok();
    let new = world.until("deployments/web", "its pods are requested", |web| web["status"]["replicas"] == 2).await;
    assert_eq!(new["spec"], old["spec"]);
    assert_ne!(new["metadata"]["uid"], old["metadata"]["uid"]);
}

#[tokio::test]
async fn a_stateful_set_is_scaled_back() {
    let world = World::new("stateful").await;
    let labels = json!({"app": "db"});
    let spec = json!({
        "replicas": 1, "serviceName": "db", "selector": {"matchLabels": labels},
        "template": {"metadata": {"labels": labels}, "spec": {"containers": [{"name": "db", "image": "db:1"}]}},
    });
    world.create("statefulsets", json!({"metadata": {"name": "db"}, "spec": spec})).await;
    let since = world.revision().await;
    world.patch("statefulsets/db", json!({"spec": {"replicas": 3}})).await;
    world.until("statefulsets/db", "it is observed", |db| db["status"]["observedGeneration"] == 2).await;
    world.run(&format!("undo --since={since} sts/db -n NS")).await.ok();
    assert_eq!(world.get("statefulsets/db").await["spec"]["replicas"], 1);
}

#[tokio::test]
async fn a_service_comes_back_with_its_cluster_ip() {
    let world = World::new("service").await;
    let old = world.create("services", service("web", &json!({}))).await;
    world.delete("services/web").await;
    world.run("undelete svc/web -n NS").await.ok();
    assert_eq!(world.get("services/web").await["spec"]["clusterIP"], old["spec"]["clusterIP"]);
}

#[tokio::test]
async fn a_service_whose_cluster_ip_is_taken_gets_another_one() {
    let world = World::new("taken").await;
    let old = world.create("services", service("web", &json!({}))).await;
    world.delete("services/web").await;
    world.create("services", service("thief", &json!({"clusterIP": old["spec"]["clusterIP"]}))).await;
    let ran = world.run("undelete svc/web -n NS").await.ok();
    assert!(ran.stdout.contains("is taken, so it has another one"), "{}", ran.stdout);
    let new = world.get("services/web").await;
    assert!(new["spec"]["clusterIP"].is_string() && new["spec"]["clusterIP"] != old["spec"]["clusterIP"], "{new}");
}

#[tokio::test]
async fn a_service_whose_node_port_is_taken_gets_another_one() {
    let world = World::new("port").await;
    let old = world.create("services", service("web", &json!({"type": "NodePort"}))).await;
    let port = &old["spec"]["ports"][0]["nodePort"];
    world.delete("services/web").await;
    let thief = service("thief", &json!({"type": "NodePort", "ports": [{"port": 80, "nodePort": port}]}));
    world.create("services", thief).await;
    let ran = world.run("undelete svc/web -n NS").await.ok();
    assert!(ran.stdout.contains("a node port of"), "{}", ran.stdout);
    let new = world.get("services/web").await;
    assert_ne!(&new["spec"]["ports"][0]["nodePort"], port);
    assert_eq!(new["spec"]["clusterIP"], old["spec"]["clusterIP"]);
}

#[tokio::test]
async fn a_service_that_was_recreated_keeps_its_new_address_when_it_is_restored() {
    let world = World::new("address").await;
    let old = world.create("services", service("web", &json!({}))).await;
    let then = world.revision().await;
    world.delete("services/web").await;
    world.create("services", service("thief", &json!({"clusterIP": old["spec"]["clusterIP"]}))).await;
    let new = world.create("services", service("web", &json!({"ports": [{"port": 81}]}))).await;
    world.run(&format!("restore svc/web -n NS --to={then}")).await.ok();
    let web = world.get("services/web").await;
    assert_eq!((&web["spec"]["clusterIP"], &web["spec"]["ports"][0]["port"]), (&new["spec"]["clusterIP"], &json!(80)));
}

#[tokio::test]
async fn a_claim_finds_its_released_volume_again() {
    let world = World::new("claim").await;
    let volume = format!("pv-{}", world.namespace);
    let spec = json!({
        "capacity": {"storage": "1Gi"}, "accessModes": ["ReadWriteOnce"], "persistentVolumeReclaimPolicy": "Retain",
        "storageClassName": "none", "hostPath": {"path": "/tmp/none"},
    });
    world.create("persistentvolumes", json!({"metadata": {"name": volume}, "spec": spec})).await;
    let spec = json!({
        "accessModes": ["ReadWriteOnce"], "storageClassName": "none", "volumeName": volume,
        "resources": {"requests": {"storage": "1Gi"}},
    });
    world.create("persistentvolumeclaims", json!({"metadata": {"name": "data"}, "spec": spec})).await;
    let is_bound = |claim: &Value| claim["status"]["phase"] == "Bound";
    world.until("persistentvolumeclaims/data", "it is bound", is_bound).await;
    world.delete("persistentvolumeclaims/data").await;
    let ran = world.run("undelete pvc/data -n NS").await.ok();
    assert!(ran.stdout.contains(&format!("its volume {volume} still exists")), "{}", ran.stdout);
    // What the note says.
    let unclaimed = json!({"spec": {"claimRef": {"uid": null, "resourceVersion": null}}});
    world.patch(&format!("persistentvolumes/{volume}"), unclaimed).await;
    world.until("persistentvolumeclaims/data", "it is bound again", is_bound).await;
    world.delete("persistentvolumeclaims/data").await;
    world.delete(&format!("persistentvolumes/{volume}")).await;
    world.run("undelete pvc/data -n NS").await.ok().says("the data of its volume");
    assert!(world.get("persistentvolumeclaims/data").await["spec"]["volumeName"].is_null());
}

#[tokio::test]
async fn a_suspended_job_comes_back_with_a_selector_of_its_own() {
    let world = World::new("job").await;
    let template = json!({"spec": {"restartPolicy": "Never", "containers": [{"name": "a", "image": "a:1"}]}});
    let old =
        world.create("jobs", json!({"metadata": {"name": "a"}, "spec": {"suspend": true, "template": template}})).await;
    world.delete("jobs/a").await;
    world.run("undelete job/a -n NS").await.ok().says("it starts anew");
    let new = world.get("jobs/a").await;
    assert_ne!(new["spec"]["selector"], old["spec"]["selector"]);
    assert_eq!(new["spec"]["suspend"], true);
}

#[tokio::test]
async fn rights_come_back_together() {
    let world = World::new("rights").await;
    world.create("serviceaccounts", json!({"metadata": {"name": "robot"}})).await;
    let rules = json!([{"apiGroups": [""], "resources": ["pods"], "verbs": ["get"]}]);
    world.create("roles", json!({"metadata": {"name": "reader"}, "rules": rules})).await;
    let reference = json!({"apiGroup": "rbac.authorization.k8s.io", "kind": "Role", "name": "reader"});
    let subjects = json!([{"kind": "ServiceAccount", "name": "robot", "namespace": world.namespace}]);
    world
        .create("rolebindings", json!({"metadata": {"name": "robot"}, "roleRef": reference, "subjects": subjects}))
        .await;
    let then = world.revision().await;
    for object in ["rolebindings/robot", "roles/reader", "serviceaccounts/robot"] {
        world.delete(object).await;
    }
    let ran = world.run(&format!("restore -n NS --to={then}")).await.ok();
    let at = |text: &str| ran.stdout.rfind(text).unwrap_or_else(|| panic!("{text}: {}", ran.stdout));
    assert!(at("created ServiceAccount") < at("created Role ") && at("created Role ") < at("created RoleBinding"));
    assert_eq!(world.get("roles/reader").await["rules"], rules);
    assert!(ran.stdout.contains("tokens that were issued for it stay invalid"), "{}", ran.stdout);
}

#[tokio::test]
async fn a_cluster_role_and_its_binding_are_undone() {
    let world = World::new("clusterrole").await;
    let name = world.namespace.clone();
    let rules = |verb: &str| json!([{"apiGroups": [""], "resources": ["pods"], "verbs": [verb]}]);
    world.create("clusterroles", json!({"metadata": {"name": name}, "rules": rules("get")})).await;
    world.patch(&format!("clusterroles/{name}"), json!({"rules": rules("*")})).await;
    let commit = world.last_commit(&format!("clusterroles/{name}")).await;
    world.run(&format!("undo {commit}")).await.ok().says("~ ClusterRole");
    assert_eq!(world.get(&format!("clusterroles/{name}")).await["rules"], rules("get"));
}

#[tokio::test]
async fn owned_objects_follow_their_owner_and_are_not_collected() {
    let world = World::new("owned").await;
    let owner = world.create("configmaps", map("owner", "4")).await;
    let reference =
        json!([{"apiVersion": "v1", "kind": "ConfigMap", "name": "owner", "uid": owner["metadata"]["uid"]}]);
    let mut dependent = map("owned", "5");
    dependent["metadata"]["ownerReferences"] = reference;
    world.create("configmaps", dependent).await;
    let since = world.revision().await;
    world.delete("configmaps/owner").await;
    world.until("configmaps/owned", "it is collected", Value::is_null).await;
    world.run(&format!("undelete -n NS --since={since}")).await.ok();
    let (owner, dependent) = (world.get("configmaps/owner").await, world.get("configmaps/owned").await);
    assert_eq!(dependent["metadata"]["ownerReferences"][0]["uid"], owner["metadata"]["uid"]);
    // Alone, without its owner, it does not wait to be collected.
    world.delete("configmaps/owner").await;
    world.until("configmaps/owned", "it is collected", Value::is_null).await;
    world.run("undelete cm/owned -n NS").await.ok().says("the reference to it is removed");
    assert!(world.get("configmaps/owned").await["metadata"]["ownerReferences"].is_null());
}

#[tokio::test]
async fn a_policy_and_a_budget_are_restored() {
    let world = World::new("policy").await;
    let policy = |port: u16| json!({"metadata": {"name": "a"}, "spec": {"podSelector": {}, "ingress": [{"ports": [{"port": port}]}]}});
    world.create("networkpolicies", policy(80)).await;
    let budget =
        json!({"metadata": {"name": "a"}, "spec": {"minAvailable": 1, "selector": {"matchLabels": {"app": "a"}}}});
    world.create("poddisruptionbudgets", budget).await;
    let then = world.revision().await;
    world.patch("networkpolicies/a", json!({"spec": policy(8080)["spec"]})).await;
    world.delete("poddisruptionbudgets/a").await;
    world.run(&format!("restore -n NS --to={then}")).await.ok();
    assert_eq!(world.get("networkpolicies/a").await["spec"]["ingress"][0]["ports"][0]["port"], 80);
    assert_eq!(world.get("poddisruptionbudgets/a").await["spec"]["minAvailable"], 1);
}
