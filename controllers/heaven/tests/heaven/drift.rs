//! Changes by others to managed objects.

use k8s_openapi::api::apps::v1::Deployment;
use k8s_openapi::api::core::v1::{ConfigMap, Secret};
use kube::api::{DeleteParams, Patch, PatchParams};
use serde_json::json;
use trishanku_testkit::wait;

use crate::world::{World, spec};

#[tokio::test]
async fn what_was_made_is_put_right_and_what_others_added_stays() {
    let mut world = World::new().await;
    world.apply("a", &spec()).await;
    world.is("a", "Ready", "False", "NotObserved").await;
    let merge = |patch: serde_json::Value| Patch::Merge(patch);

    let patch = json!({"metadata": {"labels": {"theirs": "stays"}}, "spec": {
        "replicas": 7, "strategy": {"type": "RollingUpdate", "rollingUpdate": {"maxSurge": 3}},
        "template": {"spec": {"schedulerName": "theirs", "containers": [{"name": "app", "image": "other:1"}]}},
    }});
    world.deployments().patch("a-heaven", &PatchParams::default(), &merge(patch)).await.unwrap();
    let mended = |deployment: &Deployment| {
        let spec = deployment.spec.as_ref().unwrap();
        let strategy = spec.strategy.as_ref().unwrap();
        let pod = spec.template.spec.as_ref().unwrap();
        spec.replicas == Some(1)
            && strategy.type_.as_deref() == Some("Recreate")
            && strategy.rolling_update.is_none()
            && pod.containers[0].image.as_deref() == Some("app:1")
            && pod.init_containers.as_ref().is_some_and(|sidecars| sidecars.len() == 3)
    };
    let deployment = wait::until_object(&world.deployments(), "a-heaven", "it is corrected", mended).await.unwrap();
    assert_eq!(deployment.metadata.labels.as_ref().unwrap()["theirs"], "stays");
    assert_eq!(deployment.spec.unwrap().template.spec.unwrap().scheduler_name.as_deref(), Some("theirs"));

    let patch = json!({"data": {"gitcd.yaml": "verbosity: 9", "theirs": "stays"}});
    world.maps().patch("a-entrypoints", &PatchParams::default(), &merge(patch)).await.unwrap();
    let mended = |map: &ConfigMap| map.data.as_ref().unwrap()["gitcd.yaml"].ends_with("verbosity: 0\n");
    let map = wait::until_object(&world.maps(), "a-entrypoints", "it is corrected", mended).await.unwrap();
    assert_eq!(map.data.unwrap()["theirs"], "stays");

    let before = world.secret("a-controller").await;
    let patch = json!({"data": {"kubeconfig": "eA==", "theirs": "c3RheXM="}});
    world.secrets().patch("a-controller", &PatchParams::default(), &merge(patch)).await.unwrap();
    let mended = |secret: &Secret| secret.data.as_ref().unwrap()["kubeconfig"].0 == before["kubeconfig"];
    let secret = wait::until_object(&world.secrets(), "a-controller", "it is corrected", mended).await.unwrap();
    assert_eq!(secret.data.unwrap()["theirs"].0, b"stays");

    // Deleted objects are created again.
    world.maps().delete("a-entrypoints", &DeleteParams::default()).await.unwrap();
    world.deployments().delete("a-heaven", &DeleteParams::background()).await.unwrap();
    wait::until_object(&world.maps(), "a-entrypoints", "it is back", |_: &ConfigMap| true).await.unwrap();
    wait::until_object(&world.deployments(), "a-heaven", "it is back", |_: &Deployment| true).await.unwrap();
    world.stop().await;
}

#[tokio::test]
async fn objects_of_other_owners_are_left_alone_and_reported() {
    let mut world = World::new().await;
    let map: ConfigMap =
        serde_json::from_value(json!({"metadata": {"name": "a-entrypoints"}, "data": {"x": "theirs"}})).unwrap();
    world.maps().create(&kube::api::PostParams::default(), &map).await.unwrap();
    world.apply("a", &spec()).await;
    let ready = world.is("a", "Ready", "False", "NotOurs").await;
    assert!(ready.message.contains("a-entrypoints") && ready.message.contains("another name"), "{ready:?}");
    assert_eq!(world.maps().get("a-entrypoints").await.unwrap().data.unwrap()["x"], "theirs");
    world.stop().await;
}

#[tokio::test]
async fn a_quantity_that_the_apiserver_writes_otherwise_is_not_sent_again() {
    let mut world = World::new().await;
    let mut spec = spec();
    let resources = json!({"requests": {"cpu": "1000m", "memory": "1024Mi"}, "limits": {"memory": "1.5Gi"}});
    spec["gitcd"] = json!({"resources": resources, "storage": {"sizeLimit": "1024Mi"}});
    spec["apiserver"] = json!({"resources": {"requests": {"cpu": "1000m"}}});
    spec["app"]["podTemplate"]["spec"]["containers"][0]["resources"] = resources;
    world.apply("a", &spec).await;
    world.is("a", "Ready", "False", "NotObserved").await;
    let settled = world.deployments().get("a-heaven").await.unwrap().metadata;
    let written = |world: &World| world.writes().into_iter().filter(|write| write.contains("deployments")).count();
    let before = written(&world);
    for turn in 0..3 {
        world.patch("a", json!({"spec": {"suspendReason": format!("turn {turn}")}})).await;
        world.is("a", "Ready", "False", "NotObserved").await;
    }
    // Also after a restart, without knowledge of earlier writes.
    world.stop().await;
    world.start();
    world.patch("a", json!({"spec": {"suspendReason": "the last turn"}})).await;
    world.is("a", "Ready", "False", "NotObserved").await;
    assert_eq!(written(&world), before, "{:?}", world.writes());
    assert_eq!(world.deployments().get("a-heaven").await.unwrap().metadata.resource_version, settled.resource_version);
    world.stop().await;
}
