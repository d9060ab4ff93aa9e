//! Edits of objects: by commit, by user, since a moment; and the undo of an undo.

use serde_json::{Value, json};

use crate::world::{World, deployment, map};

#[tokio::test]
async fn an_edit_is_undone_later_edits_stay_and_the_undo_is_undone() {
    let world = World::new("edit").await;
    world.create("configmaps", map("a", "4")).await;
    world.patch("configmaps/a", json!({"data": {"tea": "5"}})).await;
    let commit = world.last_commit("configmaps/NS/a").await;
    world.patch("configmaps/a", json!({"data": {"salt": "9"}})).await;
    let made = world.commits(&format!("undo {commit}")).await;
    assert_eq!(world.get("configmaps/a").await["data"], json!({"tea": "4", "salt": "9"}));
    let [undo] = &made[..] else { panic!("one commit: {made:?}") };
    assert_eq!(*undo, world.last_commit("configmaps/NS/a").await);
    world.run(&format!("undo {undo}")).await.ok().says("updated ConfigMap");
    assert_eq!(world.get("configmaps/a").await["data"], json!({"tea": "5", "salt": "9"}));
}

#[tokio::test]
async fn the_hint_hides_the_kinds_that_the_undo_has_hidden() {
    let world = World::new("hint").await;
    world.create("configmaps", map("a", "4")).await;
    world.patch("configmaps/a", json!({"data": {"tea": "5"}})).await;
    let commit = world.last_commit("configmaps/NS/a").await;
    let ran = world.run(&format!("undo {commit} --secret-kinds=ConfigMap,example.org/*")).await.ok();
    let hint = ran.stdout.lines().find(|line| line.starts_with("To undo this: ")).expect("there is a hint");
    assert!(hint.contains(" --secret-kinds 'ConfigMap,example.org/*' "), "{hint}");
    assert!(ran.stdout.contains("(secret) → (secret)"), "{}", ran.stdout);
}

#[tokio::test]
async fn a_field_that_was_edited_later_stays_and_is_reported() {
    let world = World::new("later").await;
    world.create("configmaps", map("a", "4")).await;
    world.patch("configmaps/a", json!({"data": {"tea": "5", "salt": "1"}})).await;
    let commit = world.last_commit("configmaps/NS/a").await;
    world.patch("configmaps/a", json!({"data": {"tea": "6"}})).await;
    world.run(&format!("undo {commit}")).await.ok().says("stays, edited later: data.tea kept \"6\", lost \"4\"");
    assert_eq!(world.get("configmaps/a").await["data"], json!({"tea": "6"}));
}

#[tokio::test]
async fn several_commits_are_undone_together_in_any_order() {
    let world = World::new("several").await;
    world.create("configmaps", map("a", "1")).await;
    let mut commits = Vec::new();
    for tea in ["2", "3", "4"] {
        world.patch("configmaps/a", json!({"data": {"tea": tea}})).await;
        commits.push(world.last_commit("configmaps/NS/a").await);
    }
    world.run(&format!("undo {} {} {}", commits[1], commits[2], &commits[0][..12])).await.ok();
    assert_eq!(world.get("configmaps/a").await["data"]["tea"], "1");
}

#[tokio::test]
async fn a_rollout_is_undone_and_its_controllers_follow() {
    let world = World::new("rollout").await;
    world.create("deployments", deployment("web", "web:1")).await;
    world.until("deployments/web", "its first version is rolled out", observed).await;
    world.patch("deployments/web", json!({"spec": {"replicas": 3}})).await;
    let since = world.revision().await;
    let template = json!({"spec": {"template": {"spec": {"containers": [{"name": "app", "image": "web:broken"}]}}}});
    world.patch("deployments/web", template).await;
    let commit = world.last_commit("deployments/NS/web").await;
    let of_two = |web: &Value| web["metadata"]["annotations"]["deployment.kubernetes.io/revision"] == "2";
    world.until("deployments/web", "the broken version is rolled out", of_two).await;
    // The commit may already have been followed by one of the controller.
    let ran = world.run(&format!("undo --since={since} deploy/web -n NS")).await.ok();
    assert!(!ran.stdout.contains("status"), "{commit}: {}", ran.stdout);
    let web = world.get("deployments/web").await;
    assert_eq!(web["spec"]["template"]["spec"]["containers"][0]["image"], "web:1");
    assert_eq!(web["spec"]["replicas"], 3);
    let of_three = |web: &Value| web["metadata"]["annotations"]["deployment.kubernetes.io/revision"] == "3";
    world.until("deployments/web", "the controller rolls it back", of_three).await;
}

fn observed(object: &Value) -> bool {
    object["status"]["observedGeneration"] == object["metadata"]["generation"]
        && object["metadata"]["annotations"]["deployment.kubernetes.io/revision"] == "1"
}

#[tokio::test]
async fn a_creation_is_undone_by_a_deletion_and_comes_back() {
    let world = World::new("creation").await;
    world.create("deployments", deployment("web", "web:1")).await;
    let commit = world.first_commit("deployments/NS/web").await;
    world.until("deployments/web", "its controller has seen it", observed).await;
    let since = world.revision_of(&commit).await - 1;
    let created = world.commits(&format!("undo --since={since} deploy/web -n NS")).await;
    assert!(world.until("deployments/web", "it is gone", Value::is_null).await.is_null());
    world.run(&format!("undo {}", created.join(" "))).await.ok().says("created Deployment");
    world.until("deployments/web", "its controller has seen it", |web| web["status"]["observedGeneration"] == 1).await;
}

#[tokio::test]
async fn an_object_with_edits_of_others_since_its_creation_is_not_deleted() {
    let world = World::new("edited").await;
    world.create("configmaps", map("a", "4")).await;
    let commit = world.last_commit("configmaps/NS/a").await;
    world.patch("configmaps/a", json!({"data": {"salt": "9"}})).await;
    world.run(&format!("undo {commit}")).await.fails_with("it was edited since its creation");
    assert_eq!(world.get("configmaps/a").await["data"]["salt"], "9");
}

#[tokio::test]
async fn only_the_changes_of_one_user_are_undone() {
    let world = World::new("user").await;
    world.create("configmaps", map("a", "4")).await;
    let since = world.revision().await;
    world.patch("configmaps/a", json!({"data": {"tea": "5"}})).await;
    world.patch_as("helm", "configmaps/a", json!({"data": {"salt": "9"}})).await;
    world.run(&format!("undo --since={since} --by=no-such-user -n NS")).await.fails_with("but by ");
    world.run(&format!("undo --since={since} --by=helm -n NS")).await.ok();
    assert_eq!(world.get("configmaps/a").await["data"], json!({"tea": "5"}));
}

#[tokio::test]
async fn everything_in_a_namespace_is_undone_since_a_moment() {
    let world = World::new("since").await;
    world.create("configmaps", map("edited", "4")).await;
    world.create("configmaps", map("deleted", "4")).await;
    let since = world.revision().await;
    world.patch("configmaps/edited", json!({"data": {"tea": "5"}})).await;
    world.delete("configmaps/deleted").await;
    world.create("configmaps", map("created", "4")).await;
    let ran = world.run(&format!("undo --since={since} -n NS")).await.ok();
    ran.says("1 to create, 1 to update, 1 to delete");
    assert_eq!(world.get("configmaps/edited").await["data"]["tea"], "4");
    assert_eq!(world.get("configmaps/deleted").await["data"]["tea"], "4");
    assert!(world.get("configmaps/created").await.is_null());
}

#[tokio::test]
async fn a_dry_run_prints_fields_and_rejections_and_changes_nothing() {
    let world = World::new("dry").await;
    world.create("secrets", json!({"metadata": {"name": "s"}, "stringData": {"password": "old-password"}})).await;
    let since = world.revision().await;
    world.patch("secrets/s", json!({"stringData": {"password": "new-password"}})).await;
    let ran = world.ask(&format!("undo --since={since} -n NS --dry-run")).await.ok();
    assert!(ran.stdout.contains("~ data.password: (secret) → (secret)"), "{}", ran.stdout);
    let secret = world.get("secrets/s").await;
    // base64 of new-password
    assert_eq!(secret["data"]["password"], "bmV3LXBhc3N3b3Jk");
    let json = world.ask(&format!("undo --since={since} -n NS --dry-run --json")).await.ok().json();
    assert_eq!((&json["dryRun"], &json["steps"][0]["action"]), (&json!(true), &json!("update")));
    assert!(!json.to_string().contains("b2xkLXBhc3N3b3Jk"), "{json}");
    world.ask(&format!("undo --since={since} -n NS")).await.fails_with("give --yes, or --dry-run");
    assert_eq!(world.get("secrets/s").await, secret);
}

/// Such an update has no field manager.
#[tokio::test]
async fn the_commit_of_an_undo_that_only_removes_a_field_is_named() {
    let world = World::new("removes").await;
    world.create("configmaps", map("a", "4")).await;
    world.patch("configmaps/a", json!({"data": {"salt": "9"}})).await;
    let commit = world.last_commit("configmaps/NS/a").await;
    let made = world.commits(&format!("undo {commit} configmap/a -n NS")).await;
    assert_eq!(world.get("configmaps/a").await["data"], json!({"tea": "4"}));
    assert_eq!(made, [world.last_commit("configmaps/NS/a").await]);
}

/// kube-apiserver reads the options of a deletion from its body only.
#[tokio::test]
async fn a_dry_run_and_a_preview_delete_nothing() {
    let world = World::new("drydelete").await;
    world.create("configmaps", map("older", "4")).await;
    let since = world.revision().await;
    let created = world.create("configmaps", map("a", "4")).await;
    let commit = world.last_commit("configmaps/NS/a").await;
    for line in [format!("undo --since={since} -n NS"), format!("restore -n NS --to={since} --prune")] {
        world.ask(&format!("{line} --dry-run")).await.ok().says("1 to delete");
        assert_eq!(world.get("configmaps/a").await, created, "{line}");
    }
    // Writes of other scenarios may be in the same commit.
    let plan = world.ask(&format!("undo {commit} configmap/a -n NS --dry-run")).await.ok();
    assert!(plan.stdout.contains("1 to delete"), "{}", plan.stdout);
    assert_eq!(world.get("configmaps/a").await, created);
    let ui = crate::page::serve(&world, None, &[]).await;
    let preview = ui.client.page(&format!("/commit/{commit}/undo?object=configmaps/{}/a", world.namespace)).await;
    assert!(preview.body.contains("delete"), "{}", preview.body);
    assert_eq!(world.get("configmaps/a").await, created);
    world.run(&format!("undo --since={since} -n NS")).await.ok();
    assert!(world.get("configmaps/a").await.is_null());
}

#[tokio::test]
async fn errors_name_what_is_wrong_and_what_to_do() {
    let world = World::new("errors").await;
    world.run("undo").await.fails_with("name commits, or give --since");
    world.run("undo 0123456789abcdef").await.fails_with("there is no commit \"0123456789abcdef\"");
    world.run("undo prices --since=10m").await.fails_with("objects as KIND/NAME");
    world.run("undelete cm/nothing -n NS").await.fails_with("was never deleted on this branch");
    world.run("undelete nosuchkind/a -n NS").await.fails_with("there is no kind \"nosuchkind\"");
    world.run("restore --all --to=1970-01-01").await.fails_with("is before the first revision");
}
