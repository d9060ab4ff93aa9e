//! Objects that users can skip.

use k8s_openapi::api::core::v1::ConfigMap;
use kube::ResourceExt as _;
use kube::api::{DeleteParams, PostParams};
use serde_json::json;
use trishanku_testkit::wait;

use crate::world::{World, spec};

#[tokio::test]
async fn every_combination_of_skips_makes_what_is_left() {
    let mut world = World::new().await;
    for bits in 0..8_u8 {
        let [certificates, entrypoints, app] = [1, 2, 4].map(|bit| bits & bit != 0);
        let name = format!("h{bits}");
        let mut spec = spec();
        spec["skip"] = json!({"certificates": certificates, "entrypoints": entrypoints, "app": app});
        if entrypoints {
            spec["app"]["entrypointsConfigMapName"] = json!("theirs");
        }
        world.apply(&name, &spec).await;
    }
    // The heaven waits for an object that users supply.
    for name in ["h2", "h3"] {
        let waiting = world.is(name, "Ready", "False", "NotFound").await;
        assert!(waiting.message.contains("ConfigMap \"theirs\""), "{waiting:?}");
    }
    let map: ConfigMap =
        serde_json::from_value(json!({"metadata": {"name": "theirs"}, "data": {"git-pre.sh": "#!/bin/sh\n"}})).unwrap();
    world.maps().create(&PostParams::default(), &map).await.unwrap();
    for bits in 0..8_u8 {
        let [certificates, entrypoints, app] = [1, 2, 4].map(|bit| bits & bit != 0);
        let name = format!("h{bits}");
        let reason = match (certificates, app) {
            (true, _) => ("False", "NotFound"),
            (false, true) => ("True", "Succeeded"),
            (false, false) => ("False", "NotObserved"),
        };
        world.is(&name, "Ready", reason.0, reason.1).await;
        let secrets =
            world.names(&world.secrets()).await.iter().filter(|found| found.starts_with(&format!("{name}-"))).count();
        assert_eq!(secrets, if certificates { 0 } else { 5 }, "{name}");
        assert_eq!(world.names(&world.maps()).await.contains(&format!("{name}-entrypoints")), !entrypoints, "{name}");
        assert_eq!(world.names(&world.deployments()).await.contains(&format!("{name}-heaven")), !app, "{name}");
    }
    // Its script runs, in its own image.
    let deployment = world.deployments().get("h2-heaven").await.unwrap();
    let pod = deployment.spec.unwrap().template.spec.unwrap();
    let script = pod.init_containers.unwrap().into_iter().find(|container| container.name == "git-pre").unwrap();
    assert_eq!(script.command.unwrap(), ["/.trishanku/entrypoints/git-pre.sh"]);
    world.stop().await;
}

#[tokio::test]
async fn what_is_not_wanted_any_more_goes_and_a_suspended_heaven_rests() {
    let mut world = World::new().await;
    world.apply("a", &spec()).await;
    world.is("a", "Ready", "False", "NotObserved").await;
    world.patch("a", json!({"spec": {"suspend": true, "suspendReason": "it is served elsewhere"}})).await;
    let ready = world.is("a", "Ready", "False", "Suspended").await;
    assert_eq!(ready.message, "it is served elsewhere");
    assert_eq!(world.deployments().get("a-heaven").await.unwrap().spec.unwrap().replicas, Some(0));
    world.is("a", "Available", "False", "NotObserved").await;
    world.patch("a", json!({"spec": {"suspend": null, "app": {"replicas": 2}}})).await;
    let replicas =
        |deployment: &k8s_openapi::api::apps::v1::Deployment| deployment.spec.as_ref().unwrap().replicas == Some(2);
    wait::until_object(&world.deployments(), "a-heaven", "it has two replicas", replicas).await.unwrap();
    // With another name for a Secret, the old one is deleted.
    world.patch("a", json!({"spec": {"certificates": {"adminSecretName": "root"}}})).await;
    assert!(world.secret("root").await.contains_key("kubeconfig"));
    wait::until_gone(&world.secrets(), "a-admin").await.unwrap();
    world.patch("a", json!({"spec": {"skip": {"app": true, "entrypoints": true}}})).await;
    wait::until_gone(&world.deployments(), "a-heaven").await.unwrap();
    wait::until_gone(&world.maps(), "a-entrypoints").await.unwrap();
    let heaven = world.heavens().get("a").await.unwrap();
    world.is("a", "Ready", "True", "Succeeded").await;
    assert!(heaven.labels().is_empty());
    world.heavens().delete("a", &DeleteParams::default()).await.unwrap();
    wait::until_gone(&world.heavens(), "a").await.unwrap();
    world.stop().await;
}

#[tokio::test]
async fn impossible_skips_are_reported_with_their_field() {
    let mut world = World::new().await;
    let table = [
        ("app/podTemplate", json!({"spec": {"containers": 3}}), "InvalidPodTemplate", "not a pod template"),
        (
            "app/podTemplate/spec/containers",
            json!([{"name": "gitcd", "image": "x"}]),
            "InvalidPodTemplate",
            "another name",
        ),
        (
            "app/podTemplate/spec/containers",
            json!([{"name": "x", "image": "x", "ports": [{"containerPort": 6443}]}]),
            "InvalidPodTemplate",
            "6443",
        ),
        (
            "gitcd",
            json!({"git": {"remotes": [{"repo": "/x", "retentionPolicies": {"include": "a{1,2}"}}]}}),
            "InvalidSpec",
            "write it out",
        ),
        ("gitcd", json!({"git": {"branches": {"data": "a,b"}}}), "InvalidSpec", "gitcd.git.branches.data"),
    ];
    for (at, (path, value, reason, words)) in table.into_iter().enumerate() {
        let (mut spec, name) = (spec(), format!("wrong{at}"));
        *path.split('/').fold(&mut spec, |place, field| &mut place[field]) = value;
        world.apply(&name, &spec).await;
        let stalled = world.is(&name, "Stalled", "True", reason).await;
        assert!(stalled.message.contains(words), "{stalled:?}");
    }
    world.apply("late", &spec()).await;
    world
        .patch(
            "late",
            json!({"metadata": {"annotations": {"controllers.trishanku.org/reissue-certificates-before": "soon"}}}),
        )
        .await;
    let stalled = world.is("late", "Stalled", "True", "InvalidAnnotation").await;
    assert!(stalled.message.contains("soon") && stalled.message.contains("2026-01-31T12:00:00Z"), "{stalled:?}");
    world.stop().await;
}

#[tokio::test]
async fn in_the_managers_namespace_no_heaven_runs_and_those_that_run_can_be_deleted() {
    let mut world = World::new().await;
    world.apply("a", &spec()).await;
    world.is("a", "Ready", "False", "NotObserved").await;
    world.becomes_own().await;
    world.apply("b", &spec()).await;
    let refused = world.is("b", "Stalled", "True", "NamespaceNotAllowed").await;
    assert!(refused.message.contains("--allow-own-namespace"), "{refused:?}");
    world.is("a", "Stalled", "True", "NamespaceNotAllowed").await;
    assert_eq!(world.names(&world.deployments()).await, ["a-heaven"]);
    world.heavens().delete("a", &DeleteParams::default()).await.unwrap();
    wait::until_gone(&world.heavens(), "a").await.unwrap();
    world.stop().await;
}
