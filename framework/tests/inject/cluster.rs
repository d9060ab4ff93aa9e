//! Injection and a real kube-apiserver.

use k8s_openapi::api::apps::v1::Deployment;
use k8s_openapi::api::core::v1::{LimitRange, Namespace, Pod, PodTemplateSpec};
use kube::Api;
use kube::api::{Patch, PatchParams, PostParams};
use serde_json::{Value, json};
use trishanku_framework::inject::Users;
use trishanku_testkit::TestCluster;

use crate::everything;
use crate::heaven::{Heaven, template};

fn users(spec: Value) -> PodTemplateSpec {
    let mut spec = spec;
    // The plugin that sets it is off, and a token requires one.
    spec["serviceAccountName"] = json!("default");
    spec["containers"][0]["name"] = json!("app");
    spec["containers"][0]["image"] = json!("app:1");
    template(json!({"metadata": {"labels": {"app": "heaven"}}, "spec": spec}))
}

/// A security context that *restricted* namespaces accept.
fn careful() -> Value {
    json!({
        "runAsNonRoot": true, "allowPrivilegeEscalation": false, "capabilities": {"drop": ["ALL"]},
        "seccompProfile": {"type": "RuntimeDefault"},
    })
}

fn deployment(name: &str, template: PodTemplateSpec) -> Deployment {
    let mut deployment: Deployment = serde_json::from_value(
        json!({"metadata": {"name": name}, "spec": {"selector": {"matchLabels": {"app": "heaven"}}, "template": {}}}),
    )
    .unwrap();
    deployment.spec.as_mut().unwrap().template = template;
    deployment
}

fn whole() -> Heaven {
    Heaven { events_etcd: true, watcher: true, kubeconfig: Some(Users::All), ..Heaven::default() }
}

#[tokio::test]
async fn an_apiserver_takes_it_and_injecting_into_what_it_made_of_it_changes_nothing() {
    let cluster = TestCluster::shared().await;
    let namespace = cluster.namespace("inject").await;
    let deployments: Api<Deployment> = Api::namespaced(cluster.client(), &namespace);
    for (name, spec) in
        [("plain", json!({"containers": [{}]})), ("host", json!({"containers": [{}], "hostNetwork": true}))]
    {
        for heaven in [whole(), Heaven { claim: true, ..Heaven::default() }] {
            let name = format!("{name}-{}", if heaven.claim { "claim" } else { "dir" });
            let injected = heaven.inject(&users(spec.clone())).unwrap();
            let made = deployments.create(&PostParams::default(), &deployment(&name, injected.clone())).await.unwrap();
            let returned = made.spec.unwrap().template;
            assert_ne!(returned, injected, "the apiserver sets defaults, or this proves nothing");
            assert_eq!(heaven.inject(&returned).unwrap(), returned, "{name}");
        }
    }
}

#[tokio::test]
async fn an_apiserver_takes_every_field_and_its_defaults_are_no_differences() {
    let cluster = TestCluster::shared().await;
    let namespace = cluster.namespace("everything").await;
    let deployments: Api<Deployment> = Api::namespaced(cluster.client(), &namespace);
    let injected = everything::inject(&users(json!({"containers": [{}]}))).unwrap();
    let made = deployments.create(&PostParams::default(), &deployment("all", injected.clone())).await.unwrap();
    let returned = made.spec.unwrap().template;
    assert_ne!(returned, injected, "the apiserver sets defaults, or this proves nothing");
    assert_eq!(everything::inject(&returned).unwrap(), returned);
}

#[tokio::test]
async fn a_restricted_namespace_takes_the_pod_and_injecting_into_it_again_changes_nothing() {
    let cluster = TestCluster::shared().await;
    let namespace = cluster.namespace("restricted").await;
    let label = Patch::Merge(json!({"metadata": {"labels": {"pod-security.kubernetes.io/enforce": "restricted"}}}));
    let namespaces: Api<Namespace> = Api::all(cluster.client());
    namespaces.patch(&namespace, &PatchParams::default(), &label).await.unwrap();
    // Sets requests and limits where there are none.
    let limits: LimitRange = serde_json::from_value(json!({
        "metadata": {"name": "limits"},
        "spec": {"limits": [{"type": "Container", "default": {"cpu": "2"}, "defaultRequest": {"cpu": "100m", "memory": "64Mi"}}]},
    }))
    .unwrap();
    Api::<LimitRange>::namespaced(cluster.client(), &namespace).create(&PostParams::default(), &limits).await.unwrap();

    let pods: Api<Pod> = Api::namespaced(cluster.client(), &namespace);
    let create = async |name: &str, template: PodTemplateSpec| {
        let mut pod = Pod { spec: template.spec, ..Pod::default() };
        pod.metadata.name = Some(name.to_owned());
        pods.create(&PostParams::default(), &pod).await
    };
    let careless = whole().inject(&users(json!({"containers": [{}]}))).unwrap();
    let refused = create("careless", careless).await.unwrap_err().to_string();
    assert!(refused.contains("violates PodSecurity") && refused.contains("container \"app\" must"), "{refused}");

    let injected = whole().inject(&users(json!({"containers": [{"securityContext": careful()}]}))).unwrap();
    let made = create("careful", injected.clone()).await.unwrap();
    let returned = PodTemplateSpec { spec: made.spec, ..PodTemplateSpec::default() };
    let resources = |template: &PodTemplateSpec| {
        template.spec.as_ref().unwrap().init_containers.as_ref().unwrap()[0].resources.clone()
    };
    assert_ne!(resources(&returned), resources(&injected), "the apiserver sets limits, or this proves less");
    assert_eq!(whole().inject(&returned).unwrap(), returned);
}
