//! Merges on a real kube-apiserver.
#![expect(clippy::unwrap_used, reason = "test helpers may panic")]

mod live;
mod world;

use k8s_openapi::api::apps::v1::Deployment;
use k8s_openapi::api::core::v1::ConfigMap;
use kube::api::{Api, ListParams, Patch, PatchParams, PostParams};
use serde_json::{Value, json};
use trishanku_heaven_plan::own_namespace::OwnNamespace;
use trishanku_testkit::wait;

use crate::world::World;

const SAMPLE: &str = include_str!("../../../../deploy/kustomize/samples/merge.yaml");

#[tokio::test]
async fn a_merge_becomes_a_deployment_that_is_kept_as_it_should_be() {
    let mut world = World::new("merge").await;
    let (client, namespace, merges) = (world.client.clone(), world.namespace.clone(), world.merges());
    let deployments: Api<Deployment> = Api::namespaced(client.clone(), &namespace);
    let secrets: Api<k8s_openapi::api::core::v1::Secret> = Api::namespaced(client.clone(), &namespace);
    let maps: Api<ConfigMap> = Api::namespaced(client.clone(), &namespace);

    // The entry points belong to a heaven: the merge waits for them and does not create them.
    let sample: Value = serde_saphyr::from_str(SAMPLE).unwrap();
    merges.patch("cluster", &PatchParams::apply("user"), &Patch::Apply(&sample)).await.unwrap();
    let message = world.is("cluster", "Ready", "False", "NotFound").await;
    assert!(message.contains("ConfigMap \"cluster-entrypoints\""), "{message}");
    let map: ConfigMap =
        serde_json::from_value(json!({"metadata": {"name": "cluster-entrypoints"}, "data": {"gitcd.yaml": "{}"}}))
            .unwrap();
    maps.create(&PostParams::default(), &map).await.unwrap();
    let message = world.is("cluster", "Available", "False", "NotObserved").await;
    assert!(message.contains("cluster-automerge"), "{message}");
    let deployment = deployments.get("cluster-automerge").await.unwrap();
    let pod = deployment.spec.as_ref().unwrap().template.spec.as_ref().unwrap();
    let names = |containers: &[k8s_openapi::api::core::v1::Container]| {
        containers.iter().map(|found| found.name.clone()).collect::<Vec<_>>()
    };
    assert_eq!(names(pod.init_containers.as_deref().unwrap()), ["git-pre", "git-pre-scheduler", "gitcd-init"]);
    assert_eq!(names(&pod.containers), ["gitcd"]);
    assert_eq!(merges.get("cluster").await.unwrap().status.unwrap().branch.as_deref(), Some("cluster/data"));

    let patch =
        json!({"spec": {"replicas": 3, "template": {"spec": {"containers": [{"name": "gitcd", "image": "other:1"}]}}}});
    deployments.patch("cluster-automerge", &PatchParams::default(), &Patch::Strategic(patch)).await.unwrap();
    let mended = |deployment: &Deployment| {
        let spec = deployment.spec.as_ref().unwrap();
        spec.replicas == Some(1)
            && spec.template.spec.as_ref().unwrap().containers[0].image.as_deref() != Some("other:1")
    };
    wait::until_object(&deployments, "cluster-automerge", "it is corrected", mended).await.unwrap();
    let patch = json!({"spec": {"suspend": true, "suspendReason": "for now"}});
    merges.patch("cluster", &PatchParams::default(), &Patch::Merge(patch)).await.unwrap();
    assert_eq!(world.is("cluster", "Ready", "False", "Suspended").await, "for now");
    assert_eq!(deployments.get("cluster-automerge").await.unwrap().spec.unwrap().replicas, Some(0));

    // Its gitcd shows its status to clients with its certificate.
    let pair = secrets.get("cluster-automerge-status").await.unwrap().data.unwrap();
    assert!(pair["tls.crt"] == pair["ca.crt"] && pair.contains_key("tls.key"));
    let pod = deployment.spec.as_ref().unwrap().template.clone();
    assert_eq!(pod.metadata.unwrap().annotations.unwrap()["controllers.trishanku.org/status-port"], "2481");
    let arguments = pod.spec.unwrap().containers[0].args.clone().unwrap();
    assert!(
        arguments.iter().any(|argument| argument == "--listen-metrics-urls=default=https://0.0.0.0:2481"),
        "{arguments:?}"
    );

    // A merge that names no entry points has its own.
    let mut own = sample.clone();
    own["metadata"]["name"] = json!("own");
    own["spec"]["app"] = json!({"committerName": "automerge"});
    merges.patch("own", &PatchParams::apply("user"), &Patch::Apply(&own)).await.unwrap();
    world.is("own", "Available", "False", "NotObserved").await;
    assert!(maps.get("own-entrypoints").await.unwrap().data.unwrap().contains_key("gitcd.yaml"));
    own["spec"]["gitcd"]["git"]["branches"]["data"] = json!("a,b");
    merges.patch("own", &PatchParams::apply("user"), &Patch::Apply(&own)).await.unwrap();
    let message = world.is("own", "Stalled", "True", "InvalidSpec").await;
    assert!(message.contains("gitcd.git.branches.data"), "{message}");
    world.stop().await;
}

#[tokio::test]
async fn credentials_that_would_be_sent_over_plain_http_are_reported_until_the_secret_is_for_another_server() {
    let mut world = World::new("plain").await;
    let secrets: Api<k8s_openapi::api::core::v1::Secret> = Api::namespaced(world.client.clone(), &world.namespace);
    let secret = json!({"metadata": {"name": "git"}, "stringData": {"password": "hunter2"}});
    secrets.create(&PostParams::default(), &serde_json::from_value(secret).unwrap()).await.unwrap();
    let remotes = json!([
        {"repo": "https://git.example.org/x", "public": false},
        {"name": "team", "repo": "http://git.team.svc/x", "public": false},
    ]);
    let gitcd = json!({"credentialsSecretName": "git", "git": {"remotes": remotes}});
    world.apply("a", &json!({"app": {"committerName": "automerge"}, "gitcd": gitcd})).await;
    let message = world.is("a", "Stalled", "True", "InvalidSpec").await;
    assert!(message.contains("gitcd.git.remotes[1].repo") && !message.contains("hunter2"), "{message}");
    let patch = json!({"stringData": {"url": "https://git.example.org"}});
    secrets.patch("git", &PatchParams::default(), &Patch::Merge(patch)).await.unwrap();
    world.is("a", "Available", "False", "NotObserved").await;
    world.stop().await;
}

#[tokio::test]
async fn a_merge_pushes_no_secrets_to_remotes_that_are_not_known_to_be_private() {
    let mut world = World::new("exposed").await;
    let deployments: Api<Deployment> = Api::namespaced(world.client.clone(), &world.namespace);
    let spec = |public: Option<bool>, more: &Value| {
        let mut remote = json!({"repo": "https://git.example.org/out"});
        if let Some(public) = public {
            remote["public"] = json!(public);
        }
        let mut spec = json!({"app": {"committerName": "automerge"}, "gitcd": {"git": {"remotes": [remote]}}});
        spec.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
        spec
    };
    let none = json!({});
    world.apply("a", &spec(None, &none)).await;
    let message = world.is("a", "Stalled", "True", "RepositoryNotKnown").await;
    assert!(message.contains("git.example.org/out") && message.contains("field public"), "{message}");
    world.apply("a", &spec(Some(true), &none)).await;
    world.is("a", "Stalled", "True", "RepositoryPublic").await;
    assert!(deployments.list(&ListParams::default()).await.unwrap().items.is_empty());
    world.apply("a", &spec(Some(false), &none)).await;
    world.is("a", "Available", "False", "NotObserved").await;
    world.apply("a", &spec(Some(true), &none)).await;
    let rests = |deployment: &Deployment| deployment.spec.as_ref().unwrap().replicas == Some(0);
    wait::until_object(&deployments, "a-automerge", "it is stopped", rests).await.unwrap();
    world.apply("a", &spec(Some(true), &json!({"allowPublicSecrets": true}))).await;
    let runs = |deployment: &Deployment| deployment.spec.as_ref().unwrap().replicas == Some(1);
    wait::until_object(&deployments, "a-automerge", "it runs again", runs).await.unwrap();
    world.stop().await;
}

#[tokio::test]
async fn a_merge_in_the_managers_namespace_is_refused() {
    let mut world = World::beside("own", |own| OwnNamespace::refused(own)).await;
    let remotes = json!([{"repo": "/srv/a.git"}]);
    world.apply("a", &json!({"app": {"committerName": "m"}, "gitcd": {"git": {"remotes": remotes}}})).await;
    let message = world.is("a", "Stalled", "True", "NamespaceNotAllowed").await;
    assert!(message.contains("--allow-own-namespace"), "{message}");
    let maps: Api<ConfigMap> = Api::namespaced(world.client.clone(), &world.namespace);
    let mut names = maps.list(&ListParams::default()).await.unwrap().items.into_iter().map(|map| map.metadata.name);
    assert!(names.all(|name| name.as_deref() == Some("kube-root-ca.crt")));
    world.stop().await;
}
