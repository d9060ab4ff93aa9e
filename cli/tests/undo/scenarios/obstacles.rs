//! What is in the way: immutable fields, finalizers, quotas, webhooks.

use std::process::Command;

use serde_json::{Value, json};

use crate::world::{World, deployment, map};

#[tokio::test]
async fn a_changed_role_reference_needs_a_recreation() {
    let world = World::new("immutable").await;
    let reference = |name: &str| json!({"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": name});
    let binding = |role: &str| json!({"metadata": {"name": "a"}, "roleRef": reference(role)});
    world.create("rolebindings", binding("view")).await;
    let then = world.revision().await;
    world.delete("rolebindings/a").await;
    world.create("rolebindings", binding("admin")).await;
    let line = format!("restore rolebinding/a -n NS --to={then}");
    world.ask(&format!("{line} --dry-run")).await.fails_with("would be rejected: ").fails_with("--recreate");
    world.run(&line).await.fails_with("give --recreate");
    assert_eq!(world.get("rolebindings/a").await["roleRef"], reference("admin"));
    world.ask(&format!("{line} --recreate --dry-run")).await.ok().says("it is deleted and created again");
    assert_eq!(world.get("rolebindings/a").await["roleRef"], reference("admin"));
    world.run(&format!("{line} --recreate")).await.ok().says("recreated RoleBinding").says(" --recreate ");
    assert_eq!(world.get("rolebindings/a").await["roleRef"], reference("view"));
}

#[tokio::test]
async fn what_an_object_owns_is_named_before_it_is_deleted() {
    let world = World::new("dependents").await;
    let since = world.revision().await;
    let owner = world.create("configmaps", map("owner", "4")).await;
    let mut dependent = map("owned", "4");
    let uid = owner["metadata"]["uid"].clone();
    dependent["metadata"]["ownerReferences"] =
        json!([{"apiVersion": "v1", "kind": "ConfigMap", "name": "owner", "uid": uid}]);
    world.create("configmaps", dependent).await;
    world.last_commit("configmaps/NS/owned").await;
    let ran = world.ask(&format!("undo --since={since} configmap/owner -n NS --dry-run")).await.ok();
    ran.says("it owns ConfigMap").says("/owned, which Kubernetes deletes with it");
    // On the page without its name: the user may not have the right to read it.
    let commit = world.first_commit("configmaps/NS/owner").await;
    let ui = crate::page::serve(&world, None, &[]).await;
    let namespace = &world.namespace;
    let preview = ui.client.page(&format!("/commit/{commit}/undo?object=configmaps/{namespace}/owner")).await;
    assert!(preview.body.contains("it owns another object, which Kubernetes deletes with it"), "{}", preview.body);
    assert!(!preview.body.contains("/owned"), "{}", preview.body);
    // What the plan deletes itself needs no note.
    let both = world.ask(&format!("undo --since={since} -n NS --dry-run")).await.ok();
    assert!(both.stdout.contains("2 to delete") && !both.stdout.contains("it owns"), "{}", both.stdout);
}

#[tokio::test]
async fn a_name_without_changes_is_reported() {
    let world = World::new("misspelt").await;
    world.create("configmaps", map("a", "4")).await;
    let since = world.revision().await;
    world.patch("configmaps/a", json!({"data": {"tea": "5"}})).await;
    let ran = world.ask(&format!("undo --since={since} configmap/a configmap/b -n NS --dry-run")).await.ok();
    let reported = format!("configmaps/{}/b has no changes in the selected history\n", world.namespace);
    assert_eq!((ran.stderr, ran.stdout.contains("1 to update")), (reported, true), "{}", ran.stdout);
    let ran = world.ask(&format!("undo --since={since} -n nosuch --dry-run")).await.ok();
    assert_eq!(ran.stderr, "namespace nosuch has no changes in the selected history\n", "{}", ran.stdout);
}

#[tokio::test]
async fn the_commit_with_which_a_shallow_clone_begins_cannot_be_undone() {
    let world = World::new("oldest").await;
    world.create("configmaps", map("a", "4")).await;
    world.patch("configmaps/a", json!({"data": {"tea": "5"}})).await;
    world.last_commit("configmaps/NS/a").await;
    let folder = tempfile::tempdir().expect("a folder");
    let clone = folder.path().join("clone.git");
    let git = |arguments: &[&str]| {
        let output = Command::new("git").arg("-C").arg(folder.path()).args(arguments).output();
        let output = output.expect("git is installed");
        assert!(output.status.success(), "{arguments:?}: {}", String::from_utf8_lossy(&output.stderr));
        String::from_utf8(output.stdout).expect("an ID").trim().to_owned()
    };
    git(&["init", "--quiet", "--bare", "clone.git"]);
    let from = format!("file://{}", world.repository().display());
    let references = ["heads/main", "gitcd/metadata/main"].map(|name| format!("refs/{name}:refs/{name}"));
    git(&["--git-dir=clone.git", "fetch", "--quiet", "--depth=1", &from, &references[0], &references[1]]);
    let tip = git(&["--git-dir=clone.git", "rev-parse", "refs/heads/main"]);
    let repo = clone.display();
    let ran = world.run(&format!("undo {tip} --repo={repo}")).await;
    let reported = format!("the history here begins with commit {}, so what it changed is not known", &tip[..10]);
    ran.fails_with(&reported).fails_with("git fetch --unshallow");
    assert_eq!(world.get("configmaps/a").await["data"]["tea"], "5");
}

#[tokio::test]
async fn what_is_being_deleted_cannot_be_undeleted_yet() {
    let world = World::new("waits").await;
    let mut held = map("a", "4");
    held["metadata"]["finalizers"] = json!(["example.org/clean"]);
    world.create("configmaps", held).await;
    world.request_deletion("configmaps/a").await;
    world.ask("undelete configmap/a -n NS --dry-run").await.fails_with("waits for the finalizers example.org/clean");
    world.patch("configmaps/a", json!({"metadata": {"finalizers": null}})).await;
}

#[tokio::test]
async fn a_changed_selector_needs_a_recreation() {
    let world = World::new("selector").await;
    world.create("deployments", deployment("web", "web:1")).await;
    let then = world.revision().await;
    world.delete("deployments/web").await;
    let mut other = deployment("other", "web:2");
    other["metadata"]["name"] = "web".into();
    world.create("deployments", other).await;
    let line = format!("restore deploy/web -n NS --to={then}");
    world.run(&line).await.fails_with("give --recreate");
    world.run(&format!("{line} --recreate")).await.ok();
    let web = world.until("deployments/web", "its pods are requested", |web| web["status"]["replicas"] == 2).await;
    assert_eq!(web["spec"]["selector"]["matchLabels"], json!({"app": "web"}));
}

#[tokio::test]
async fn a_claim_is_never_recreated() {
    let world = World::new("claimed").await;
    let claim = |class: &str| {
        let spec = json!({"accessModes": ["ReadWriteOnce"], "storageClassName": class, "resources": {"requests": {"storage": "1Gi"}}});
        json!({"metadata": {"name": "data"}, "spec": spec})
    };
    world.create("persistentvolumeclaims", claim("slow")).await;
    let then = world.revision().await;
    world.delete("persistentvolumeclaims/data").await;
    let new = world.create("persistentvolumeclaims", claim("fast")).await;
    let ran = world.run(&format!("restore pvc/data -n NS --to={then} --recreate")).await;
    ran.fails_with("would lose its data or content");
    assert_eq!(world.get("persistentvolumeclaims/data").await["metadata"]["uid"], new["metadata"]["uid"]);
}

#[tokio::test]
async fn an_object_with_a_finalizer_comes_back_when_it_is_gone() {
    let world = World::new("finalizer").await;
    let mut held = map("a", "4");
    held["metadata"]["finalizers"] = json!(["example.org/clean"]);
    world.create("configmaps", held).await;
    let since = world.revision().await;
    world.request_deletion("configmaps/a").await;
    let line = format!("undo --since={since} cm/a -n NS");
    world.run(&line).await.fails_with("waits for the finalizers example.org/clean");
    world.patch("configmaps/a", json!({"metadata": {"finalizers": null}})).await;
    world.until("configmaps/a", "it is gone", Value::is_null).await;
    world.run(&line).await.ok();
    assert_eq!(world.get("configmaps/a").await["metadata"]["finalizers"], json!(["example.org/clean"]));
    // So that the namespace can be deleted.
    world.patch("configmaps/a", json!({"metadata": {"finalizers": null}})).await;
}

#[tokio::test]
async fn a_deletion_that_waits_for_a_finalizer_is_reported() {
    let world = World::new("held").await;
    let mut held = map("a", "4");
    held["metadata"]["finalizers"] = json!(["example.org/clean"]);
    world.create("configmaps", held).await;
    let commit = world.last_commit("configmaps/NS/a").await;
    world.run(&format!("undo {commit}")).await.ok().says("it is terminating until the finalizers example.org/clean");
    world.patch("configmaps/a", json!({"metadata": {"finalizers": null}})).await;
    world.until("configmaps/a", "it is gone", Value::is_null).await;
}

#[tokio::test]
async fn a_quota_in_the_way_is_reported_and_a_second_run_continues() {
    let world = World::new("quota").await;
    for name in ["a", "b", "c"] {
        world.create("secrets", json!({"metadata": {"name": name}, "stringData": {"k": "v"}})).await;
    }
    world.create("configmaps", map("a", "4")).await;
    let then = world.revision().await;
    for name in ["secrets/a", "secrets/b", "secrets/c", "configmaps/a"] {
        world.delete(name).await;
    }
    let quota = |secrets: &str| json!({"metadata": {"name": "q"}, "spec": {"hard": {"count/secrets": secrets}}});
    world.create("resourcequotas", quota("1")).await;
    world.until("resourcequotas/q", "it is counted", |q| q["status"]["used"]["count/secrets"] == "0").await;
    let line = format!("restore -n NS --to={then}");
    let ran = world.run(&line).await.fails_with("exceeded quota: q").fails_with("raise the quota");
    assert!(ran.stdout.contains("created ConfigMap"), "{}", ran.stdout);
    let mut existing = 0;
    for name in ["secrets/a", "secrets/b", "secrets/c"] {
        existing += usize::from(world.get(name).await.is_object());
    }
    assert_eq!(existing, 1);
    world.ask(&format!("{line} --dry-run")).await.fails_with("would be rejected: ");
    world.patch("resourcequotas/q", json!({"spec": quota("5")["spec"]})).await;
    world.until("resourcequotas/q", "it is counted", |q| q["status"]["hard"]["count/secrets"] == "5").await;
    world.run(&line).await.ok().says("2 to create");
    for name in ["secrets/a", "secrets/b", "secrets/c"] {
        assert!(world.get(name).await.is_object(), "{name}");
    }
}

#[tokio::test]
async fn a_webhook_that_rejects_everything_is_deleted_first() {
    let world = World::new("webhook").await;
    world.create("configmaps", map("a", "4")).await;
    let since = world.revision().await;
    world.patch("configmaps/a", json!({"data": {"tea": "5"}})).await;
    let name = format!("hook.{}.example.org", world.namespace);
    let hook = json!({
        "name": name, "failurePolicy": "Fail", "sideEffects": "None", "admissionReviewVersions": ["v1"], "timeoutSeconds": 1,
        "namespaceSelector": {"matchLabels": {"kubernetes.io/metadata.name": world.namespace}},
        "clientConfig": {"url": "https://127.0.0.1:9/none"},
        "rules": [{"apiGroups": [""], "apiVersions": ["v1"], "operations": ["*"], "resources": ["configmaps"]}],
    });
    world.create("validatingwebhookconfigurations", json!({"metadata": {"name": name}, "webhooks": [hook]})).await;
    world.until_rejected("configmaps", map("b", "1")).await;
    let line = format!("undo --since={since} validatingwebhookconfiguration/{name} cm/a -n NS");
    world.run_until_ok(&line).await;
    assert!(world.get(&format!("validatingwebhookconfigurations/{name}")).await.is_null());
    assert_eq!(world.get("configmaps/a").await["data"]["tea"], "4");
}

#[tokio::test]
async fn objects_of_a_namespace_that_is_terminating_wait_for_it() {
    let world = World::new("terminating").await;
    let mut held = map("held", "4");
    held["metadata"]["finalizers"] = json!(["example.org/clean"]);
    world.create("configmaps", held).await;
    world.create("configmaps", map("a", "4")).await;
    let then = world.revision().await;
    let namespace = format!("namespaces/{}", world.namespace);
    world.request_deletion(&namespace).await;
    world.until("configmaps/a", "it is gone", Value::is_null).await;
    world.run(&format!("restore -n NS --to={then}")).await.fails_with("being terminated");
    world.patch("configmaps/held", json!({"metadata": {"finalizers": null}})).await;
    world.until(&namespace, "it is gone", Value::is_null).await;
    world.run(&format!("restore -n NS --to={then}")).await.ok();
    assert_eq!(world.get("configmaps/a").await["data"]["tea"], "4");
    world.patch("configmaps/held", json!({"metadata": {"finalizers": null}})).await;
}

#[tokio::test]
async fn a_priority_class_with_another_value_is_recreated() {
    let world = World::new("priority").await;
    let class = |value: i32| json!({"metadata": {"name": world.namespace}, "value": value});
    world.create("priorityclasses", class(7)).await;
    let then = world.revision().await;
    world.delete(&format!("priorityclasses/{}", world.namespace)).await;
    world.create("priorityclasses", class(8)).await;
    world.run(&format!("restore pc/NS --to={then} --recreate")).await.ok();
    assert_eq!(world.get(&format!("priorityclasses/{}", world.namespace)).await["value"], 7);
}

/// The plan deletes the content first. What it could not delete, or another client created meanwhile, keeps the namespace.
#[tokio::test]
async fn a_namespace_stays_while_something_in_it_cannot_be_deleted() {
    let since = World::new("before").await.revision().await;
    let world = World::new("kept").await;
    world.create("configmaps", map("a", "4")).await;
    let name = format!("hook.{}.example.org", world.namespace);
    let hook = json!({
        "name": name, "failurePolicy": "Fail", "sideEffects": "None", "admissionReviewVersions": ["v1"], "timeoutSeconds": 1,
        "namespaceSelector": {"matchLabels": {"kubernetes.io/metadata.name": world.namespace}},
        "objectSelector": {"matchExpressions": [{"key": "app", "operator": "DoesNotExist"}]},
        "clientConfig": {"url": "https://127.0.0.1:9/none"},
        "rules": [{"apiGroups": [""], "apiVersions": ["v1"], "operations": ["DELETE"], "resources": ["configmaps"]}],
    });
    world.create("validatingwebhookconfigurations", json!({"metadata": {"name": name}, "webhooks": [hook]})).await;
    world.until_deletion_rejected("configmaps/a").await;
    let line = format!("undo --since={since} -n NS");
    world.run(&line).await.fails_with("would be deleted with it");
    let namespace = format!("namespaces/{}", world.namespace);
    assert!(world.get(&namespace).await["metadata"]["deletionTimestamp"].is_null());
    assert!(world.get("configmaps/a").await.is_object());
    world.delete(&format!("validatingwebhookconfigurations/{name}")).await;
    world.run_until_ok(&line).await;
    world.until(&namespace, "it is gone", Value::is_null).await;
}

#[tokio::test]
async fn an_owner_that_is_recreated_owns_what_comes_back() {
    let world = World::new("reowned").await;
    let reference = |name: &str| json!({"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": name});
    let binding = |role: &str| json!({"metadata": {"name": "a"}, "roleRef": reference(role)});
    let owner = world.create("rolebindings", binding("view")).await;
    let mut dependent = map("owned", "5");
    dependent["metadata"]["ownerReferences"] = json!([{
        "apiVersion": "rbac.authorization.k8s.io/v1", "kind": "RoleBinding", "name": "a", "uid": owner["metadata"]["uid"],
    }]);
    world.create("configmaps", dependent).await;
    let then = world.revision().await;
    world.delete("rolebindings/a").await;
    world.until("configmaps/owned", "it is collected", Value::is_null).await;
    world.create("rolebindings", binding("admin")).await;
    world.run(&format!("restore rolebinding/a cm/owned -n NS --to={then} --recreate")).await.ok();
    let (owner, dependent) = (world.get("rolebindings/a").await, world.get("configmaps/owned").await);
    assert_eq!(dependent["metadata"]["ownerReferences"][0]["uid"], owner["metadata"]["uid"]);
}

/// By kind alone, the `ConfigMap` would come first, and be collected with the old owner.
#[tokio::test]
async fn an_owner_is_recreated_before_what_it_owns_is_created() {
    let world = World::new("owner-first").await;
    let owner = world.create("deployments", deployment("web", "web:1")).await;
    let mut dependent = map("owned", "5");
    dependent["metadata"]["ownerReferences"] = json!([
        {"apiVersion": "apps/v1", "kind": "Deployment", "name": "web", "uid": owner["metadata"]["uid"]},
    ]);
    world.create("configmaps", dependent).await;
    let then = world.revision().await;
    world.delete("deployments/web").await;
    world.until("configmaps/owned", "it is collected", Value::is_null).await;
    let mut other = deployment("other", "web:2");
    other["metadata"]["name"] = "web".into();
    world.create("deployments", other).await;
    world.run(&format!("restore deploy/web cm/owned -n NS --to={then} --recreate")).await.ok();
    let (owner, dependent) = (world.get("deployments/web").await, world.get("configmaps/owned").await);
    assert_eq!(owner["spec"]["selector"]["matchLabels"]["app"], "web");
    assert_eq!(dependent["metadata"]["ownerReferences"][0]["uid"], owner["metadata"]["uid"]);
}

#[tokio::test]
async fn names_may_contain_what_urls_do_not() {
    let world = World::new("names").await;
    let name = format!("{}?read#1 é", world.namespace);
    let rules = json!([{"apiGroups": [""], "resources": ["pods"], "verbs": ["get"]}]);
    world.create("clusterroles", json!({"metadata": {"name": name}, "rules": rules})).await;
    let escaped = format!("clusterroles/{}%3Fread%231%20%C3%A9", world.namespace);
    assert_eq!(world.get(&escaped).await["metadata"]["name"], name.as_str());
    let creation = world.first_commit(&format!("clusterroles/{name}")).await;
    let deletion = world.commits(&format!("undo {creation}")).await.join(" ");
    world.until(&escaped, "it is gone", Value::is_null).await;
    world.run(&format!("undo {deletion}")).await.ok().says("created ClusterRole");
    assert_eq!(world.get(&escaped).await["rules"], rules);
}
