//! The whole life of a repository.

use axum::http::Method;
use kube::api::{DeleteParams, Patch, PatchParams};
use serde_json::json;
use trishanku_testkit::wait;

use crate::fake::{Fault, TOKEN};
use crate::world::{World, settings};

#[tokio::test]
async fn it_is_made_kept_as_it_should_be_and_left_when_its_object_goes() {
    let mut world = World::new(settings()).await;
    let all = json!({"organization": "example-org", "description": "d", "private": true, "topics": ["b", "A"]});
    world.apply("one", all).await;
    let object = world.is_ready("one").await;
    let (id, kept) = world.fake.repository("example-org", "one").unwrap();
    assert_eq!(
        (kept.private, kept.description.as_deref(), &kept.topics[..]),
        (true, Some("d"), &["a".to_owned(), "b".to_owned()][..])
    );
    let status = object.status.unwrap();
    assert_eq!((status.id, status.full_name.as_deref()), (Some(id), Some("example-org/one")));
    assert_eq!(status.clone_url.as_deref(), Some("https://github.test/example-org/one.git"));
    assert_eq!(status.html_url.as_deref(), Some("https://github.test/example-org/one"));
    assert_eq!(
        (status.default_branch.as_deref(), status.private, status.creation_started),
        (Some("main"), Some(true), None)
    );
    assert!(status.last_sync_time.is_some());
    let made = ["POST /orgs/example-org/repos 201", "PUT /repos/example-org/one/topics 200"];
    assert_eq!(world.fake.writes(), made);

    // Changes by others are reverted, with one write each, and checks without changes cost nothing.
    let unchanged = |fake: &crate::fake::Fake| fake.calls().iter().filter(|call| call.ends_with("304")).count() > 2;
    world.until("it was looked at again", unchanged).await;
    world.fake.edit(id, |kept| kept.description = Some("changed".to_owned()));
    world.fake.edit(id, |kept| kept.private = false);
    world.until("it is corrected", |fake| fake.repository("example-org", "one").unwrap().1.private).await;
    assert_eq!(world.fake.writes()[2..], ["PATCH /repos/example-org/one 200"]);
    world.fake.rename(id, "other");
    world.until("it has its name again", |fake| fake.repository("example-org", "one").is_some()).await;
    assert_eq!(world.fake.writes()[3..], ["PATCH /repos/example-org/other 200"]);
    assert_eq!(world.fake.repository("example-org", "one").unwrap().0, id);

    // Fields that the object leaves out are not changed.
    world.fake.edit(id, |kept| kept.branches = ["main", "kcm/data"].map(ToOwned::to_owned).into());
    world.fake.edit(id, |kept| kept.default_branch = "kcm/data".to_owned());
    let is_reported = async || {
        let status = world.objects().get("one").await.unwrap().status.unwrap();
        if status.default_branch.as_deref() == Some("kcm/data") { Ok(()) } else { Err("another") }
    };
    wait::until("its default branch", is_reported).await.unwrap();
    world
        .apply(
            "one",
            json!({"organization": "example-org", "private": true, "defaultBranch": "main", "archived": true}),
        )
        .await;
    world.is_ready("one").await;
    let kept = world.fake.repository("example-org", "one").unwrap().1;
    assert_eq!((kept.default_branch.as_str(), kept.archived, kept.description.as_deref()), ("main", true, Some("d")));
    // It is read-only now.
    world
        .apply("one", json!({"organization": "example-org", "private": true, "description": "e", "archived": true}))
        .await;
    let stalled = world.is("one", "Stalled", "True", "Archived").await;
    assert!(
        stalled.message.contains("description") && stalled.message.contains("spec.archived to false"),
        "{stalled:?}"
    );
    world
        .apply("one", json!({"organization": "example-org", "private": true, "description": "e", "archived": false}))
        .await;
    world.is_ready("one").await;
    assert_eq!(world.fake.repository("example-org", "one").unwrap().1.description.as_deref(), Some("e"));

    let writes = world.fake.writes().len();
    world.objects().delete("one", &DeleteParams::default()).await.unwrap();
    wait::until_gone(&world.objects(), "one").await.unwrap();
    assert!(world.fake.repository("example-org", "one").is_some() && world.fake.writes().len() == writes);
    world.stop().await;
}

#[tokio::test]
async fn it_is_the_users_without_an_organization_and_one_that_is_there_is_only_taken_if_that_is_said() {
    let mut world = World::new(settings()).await;
    world.apply("mine", json!({"organization": ""})).await;
    let status = world.is_ready("mine").await.status.unwrap();
    assert_eq!(status.full_name.as_deref(), Some("someone/mine"));
    let theirs = world.fake.plant("someone", "theirs");
    world.fake.edit(theirs, |kept| kept.private = true);
    world.apply("theirs", json!({"description": "d"})).await;
    let stalled = world.is("theirs", "Stalled", "True", "AlreadyExists").await;
    assert!(stalled.message.contains("spec.adopt"), "{stalled:?}");
    assert_eq!(world.fake.writes(), ["POST /user/repos 201"]);
    // Deleting the object leaves the repository alone: it was never adopted.
    world.apply("theirs", json!({"description": "d", "deletionPolicy": "Delete"})).await;
    world.objects().delete("theirs", &DeleteParams::default()).await.unwrap();
    wait::until_gone(&world.objects(), "theirs").await.unwrap();
    assert!(world.fake.repository("someone", "theirs").is_some());

    world.apply("theirs", json!({"description": "d", "adopt": true})).await;
    let status = world.is_ready("theirs").await.status.unwrap();
    let kept = world.fake.repository("someone", "theirs").unwrap().1;
    // Leaving out a field does not publish anything.
    assert_eq!((status.id, kept.description.as_deref(), kept.private), (Some(theirs), Some("d"), true));
    // Another repository of the same name is not adopted.
    world.fake.kingdom.lock().repositories.remove(&theirs);
    let other = world.fake.plant("someone", "theirs");
    let stalled = world.is("theirs", "Stalled", "True", "Replaced").await;
    assert!(stalled.message.contains(&other.to_string()), "{stalled:?}");
    // A repository that is gone is created again.
    let (mine, _) = world.fake.repository("someone", "mine").unwrap();
    world.fake.kingdom.lock().repositories.remove(&mine);
    world.until("it exists again", |fake| fake.repository("someone", "mine").is_some()).await;
    let again = world.fake.repository("someone", "mine").unwrap().0;
    let is_reported = async || {
        let id = world.objects().get("mine").await.unwrap().status.unwrap().id;
        if id == Some(again) { Ok(()) } else { Err(format!("{id:?}")) }
    };
    wait::until("its new id", is_reported).await.unwrap();
    world.stop().await;
}

#[tokio::test]
async fn one_that_the_token_may_not_see_is_not_forgotten() {
    let mut world = World::new(settings()).await;
    world.apply("one", json!({"deletionPolicy": "Delete"})).await;
    let id = world.is_ready("one").await.status.unwrap().id;
    let (number, _) = world.fake.repository("someone", "one").unwrap();
    world.fake.edit(number, |kept| (kept.private, kept.hidden) = (true, true));
    let stalled = world.is("one", "Stalled", "True", "NotVisible").await;
    assert!(stalled.message.contains("the token may not see it"), "{stalled:?}");
    let status = world.objects().get("one").await.unwrap().status.unwrap();
    assert_eq!((status.id, status.creation_started), (id, None));
    // Deletion does not treat it as gone.
    world.objects().delete("one", &DeleteParams::default()).await.unwrap();
    let object = async || {
        let object = world.objects().get("one").await.unwrap();
        if object.metadata.deletion_timestamp.is_some() { Ok(()) } else { Err("it is not being deleted") }
    };
    wait::until("it is being deleted", object).await.unwrap();
    world.is("one", "Stalled", "True", "NotVisible").await;
    world.fake.edit(number, |kept| kept.hidden = false);
    world.token(TOKEN).await;
    world.apply("one", json!({"deletionPolicy": "Delete", "description": "d"})).await;
    wait::until_gone(&world.objects(), "one").await.unwrap();
    assert!(world.fake.repository("someone", "one").is_none());
    // A replacement is as private as the repository that is gone.
    world.apply("two", json!({"private": true})).await;
    world.is_ready("two").await;
    world.apply("two", json!({})).await;
    world.is_ready("two").await;
    let (two, _) = world.fake.repository("someone", "two").unwrap();
    world.fake.kingdom.lock().repositories.remove(&two);
    world.until("it exists again", |fake| fake.repository("someone", "two").is_some()).await;
    assert!(world.fake.repository("someone", "two").unwrap().1.private);
    world.stop().await;
}

#[tokio::test]
async fn what_had_the_name_once_is_not_adopted() {
    let mut world = World::new(settings()).await;
    let theirs = world.fake.plant("someone", "former");
    world.fake.rename(theirs, "theirs");
    world.apply("former", json!({"adopt": true, "deletionPolicy": "Delete"})).await;
    let stalled = world.is("former", "Stalled", "True", "Renamed").await;
    assert!(stalled.message.contains("someone/theirs"), "{stalled:?}");
    world.objects().delete("former", &DeleteParams::default()).await.unwrap();
    wait::until_gone(&world.objects(), "former").await.unwrap();
    assert!(world.fake.repository("someone", "theirs").is_some() && world.fake.writes().is_empty());
    world.stop().await;
}

#[tokio::test]
async fn an_end_is_the_one_that_was_asked_for() {
    let mut world = World::new(settings()).await;
    for (name, policy) in [("retained", "Retain"), ("archived", "Archive"), ("deleted", "Delete")] {
        world.apply(name, json!({"deletionPolicy": policy})).await;
        world.is_ready(name).await;
    }
    for name in ["retained", "archived", "deleted"] {
        world.objects().delete(name, &DeleteParams::default()).await.unwrap();
        wait::until_gone(&world.objects(), name).await.unwrap();
    }
    let archived = |name: &str| world.fake.repository("someone", name).map(|(_, kept)| kept.archived);
    assert_eq!(["retained", "archived", "deleted"].map(archived), [Some(false), Some(true), None]);

    // A token without delete permission: the condition reports it, and another policy ends the deletion.
    world.fake.kingdom.lock().tokens.insert(TOKEN.to_owned(), ("someone".to_owned(), false));
    world.apply("kept", json!({"deletionPolicy": "Delete"})).await;
    world.is_ready("kept").await;
    let needs =
        [("x-accepted-oauth-scopes", "delete_repo"), ("x-oauth-scopes", "repo"), ("x-ratelimit-remaining", "4000")];
    world.fake.refuse(&Method::DELETE, "/repos/someone/kept", 1, 403, &needs, "Must have admin rights to Repository.");
    world.objects().delete("kept", &DeleteParams::default()).await.unwrap();
    let stalled = world.is("kept", "Stalled", "True", "PermissionMissing").await;
    assert!(stalled.message.contains("one of the scopes delete_repo and has repo"), "{stalled:?}");
    let patch = json!({"spec": {"deletionPolicy": "Retain"}});
    world.objects().patch("kept", &PatchParams::default(), &Patch::Merge(patch)).await.unwrap();
    wait::until_gone(&world.objects(), "kept").await.unwrap();
    assert!(world.fake.repository("someone", "kept").is_some());
    world.stop().await;
}

#[tokio::test]
async fn one_whose_making_was_not_answered_is_known_again_and_not_made_twice() {
    let mut world = World::new(settings()).await;
    world.fake.fail(Method::POST, "/user/repos", Fault::DoneInSilence);
    world.apply("silent", json!({"description": "d"})).await;
    let unready = world.is("silent", "Ready", "False", "GitHubUnreachable").await;
    assert!(unready.message.contains("no response within 2s"), "{unready:?}");
    let (id, _) = world.fake.repository("someone", "silent").unwrap();
    assert_eq!(world.is_ready("silent").await.status.unwrap().id, Some(id));
    assert_eq!(world.fake.writes(), ["POST /user/repos 0"]);
    // After a change without response, the repository is looked up before the next write.
    world.fake.fail(Method::PATCH, "/repos/someone/silent", Fault::DoneInSilence);
    world.apply("silent", json!({"description": "e"})).await;
    world.is_ready("silent").await;
    assert_eq!(world.fake.writes(), ["POST /user/repos 0", "PATCH /repos/someone/silent 0"]);
    world.stop().await;
}

#[tokio::test]
async fn a_branch_that_is_to_be_the_default_one_is_waited_for() {
    let mut world = World::new(settings()).await;
    world.apply("one", json!({"defaultBranch": "cluster/data", "archived": true, "description": "d"})).await;
    let waiting = world.is("one", "Ready", "False", "DefaultBranchNotFound").await;
    assert!(waiting.message.contains("cluster/data"), "{waiting:?}");
    let (id, kept) = world.fake.repository("someone", "one").unwrap();
    assert!(!kept.archived, "nothing could be pushed to it");
    world.fake.edit(id, |kept| kept.branches.extend(["cluster/data".to_owned()]));
    world.is_ready("one").await;
    let kept = world.fake.repository("someone", "one").unwrap().1;
    assert_eq!((kept.default_branch.as_str(), kept.archived), ("cluster/data", true));
    assert_eq!(world.fake.writes().len(), 3, "{:?}", world.fake.writes());
    world.stop().await;
}
