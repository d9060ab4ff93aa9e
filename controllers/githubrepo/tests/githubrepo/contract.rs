//! Every request and response conforms to GitHub's published `OpenAPI` description.

use kube::api::DeleteParams;
use serde_json::json;
use trishanku_testkit::wait;

use crate::fake::Fake;
use crate::prism::Prism;
use crate::world::{World, settings};

#[tokio::test]
async fn a_whole_life_is_spoken_as_described() {
    let fake = Fake::start().await;
    let Some(prism) = Prism::before(&fake.url) else { return };
    let mut world = World::at(fake, prism.url.clone(), settings()).await;
    let all = json!({
        "organization": "example-org", "description": "d", "private": true, "topics": ["b", "a"], "defaultBranch": "kcm/data", "deletionPolicy": "Delete",
    });
    world.apply("one", all.clone()).await;
    world.is("one", "Ready", "False", "DefaultBranchNotFound").await;
    let (id, _) = world.fake.repository("example-org", "one").unwrap();
    world.fake.edit(id, |kept| kept.branches.extend(["kcm/data".to_owned()]));
    world.is_ready("one").await;
    // Prism would reject requests to the fake that do not conform.
    world.until("it is asked conditionally", |fake| fake.calls().iter().any(|call| call.ends_with("304"))).await;
    world.fake.edit(id, |kept| kept.description = None);
    world.until("it is corrected", |fake| fake.repository("example-org", "one").unwrap().1.description.is_some()).await;
    world.is_ready("one").await;
    world.apply("mine", json!({"description": "of a user", "archived": true, "deletionPolicy": "Retain"})).await;
    world.is_ready("mine").await;
    world.objects().delete("one", &DeleteParams::default()).await.unwrap();
    wait::until_gone(&world.objects(), "one").await.unwrap();
    let writes = [
        "POST /orgs/example-org/repos 201",
        "PUT /repos/example-org/one/topics 200",
        "PATCH /repos/example-org/one 200",
        "PATCH /repos/example-org/one 200",
        "POST /user/repos 201",
        "PATCH /repos/someone/mine 200",
        "DELETE /repos/example-org/one 204",
    ];
    assert_eq!(world.fake.writes(), writes);
    // Errors conform as well.
    world.apply("bad", json!({"organization": "nobody"})).await;
    world.is("bad", "Stalled", "True", "NotFoundOnGitHub").await;
    world.stop().await;
}

#[tokio::test]
async fn examples_of_the_description_are_understood() {
    let Some(prism) = Prism::mock() else { return };
    let mut world = World::at(Fake::start().await, prism.url.clone(), settings()).await;
    // The mock's only repository always exists under another name, so it is found to belong to others, and left
    // unchanged.
    world.apply("hello-world", json!({"organization": "octocat"})).await;
    let stalled = world.is("hello-world", "Stalled", "True", "AlreadyExists").await;
    assert!(stalled.message.contains("octocat/Hello-World"), "{stalled:?}");
    // The mock accepts a change only if it conforms.
    world
        .apply(
            "hello-world",
            json!({"organization": "octocat", "adopt": true, "description": "d", "private": true, "topics": ["a"]}),
        )
        .await;
    let adopted = async || {
        let status = world.objects().get("hello-world").await.unwrap().status.unwrap_or_default();
        if status.id == Some(1_296_269) { Ok(()) } else { Err(format!("{status:?}")) }
    };
    wait::until("it is adopted", adopted).await.unwrap();
    world.stop().await;
}
