//! Changes that merges brought from other branches.

use serde_json::{Value, json};

use crate::world::{World, map};

/// Bob deletes it on a branch of his own, while Ann edits it here: the merge deletes it.
#[tokio::test]
async fn a_merged_deletion_is_undone_with_the_edits_of_this_branch() {
    let world = World::new("merged").await;
    for name in ["a", "b"] {
        world.create("configmaps", map(name, "4")).await;
    }
    let since = world.revision().await;
    let base = world.last_commit("configmaps/NS/b").await;
    let mut deletions = Vec::new();
    for name in ["a", "b"] {
        let object = format!("configmaps/{name}");
        world.patch(&object, json!({"data": {"salt": "9"}})).await;
        deletions.push(world.merge_of("Bob", &base, &format!("configmaps/NS/{name}"), |_| None).await);
        world.until(&object, "it is deleted", Value::is_null).await;
    }
    world.run(&format!("undo --since={since} --by=Bob cm/a -n NS")).await.ok().says("created ConfigMap");
    assert_eq!(world.get("configmaps/a").await["data"], json!({"tea": "4", "salt": "9"}));
    world.run(&format!("undo {}", deletions[1])).await.ok().says("created ConfigMap");
    assert_eq!(world.get("configmaps/b").await["data"], json!({"tea": "4", "salt": "9"}));
}

/// Both branches edited it before one of them deleted it.
#[tokio::test]
async fn only_the_deletion_of_another_branch_is_undone() {
    let world = World::new("onlydeletion").await;
    world.create("configmaps", map("a", "4")).await;
    let base = world.last_commit("configmaps/NS/a").await;
    let since = world.revision().await;
    let key = "configmaps/NS/a";
    let edit =
        world.commit_of("Jane", &base, key, |text| Some(text.replace(r#""tea": "4""#, r#""milk": "1", "tea": "4""#)));
    world.patch("configmaps/a", json!({"data": {"salt": "9"}})).await;
    world.merge_of("Bob", &edit, key, |_| None).await;
    world.until("configmaps/a", "it is deleted", Value::is_null).await;
    world.run(&format!("undo --since={since} --by=Bob -n NS")).await.ok();
    assert_eq!(world.get("configmaps/a").await["data"], json!({"tea": "4", "salt": "9", "milk": "1"}));
}
