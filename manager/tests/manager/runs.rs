//! The manager at work, with exactly the RBAC rules that are deployed.

use std::collections::BTreeSet;

use k8s_openapi::api::apps::v1::Deployment;
use k8s_openapi::api::core::v1::Secret;
use kube::api::{Api, DeleteParams, Patch, PatchParams};
use serde_json::json;
use trishanku_api::TrishankuHeaven;
use trishanku_testkit::{TestCluster, wait};

use crate::process::{Manager, deploy, kubectl};

const USER: &str = "system:serviceaccount:trishanku-system:trishanku-manager";

fn readiness(heaven: &TrishankuHeaven) -> Option<(&str, &str)> {
    let conditions = &heaven.status.as_ref()?.conditions;
    let ready = conditions.iter().find(|condition| condition.type_ == "Ready")?;
    Some((ready.status.as_str(), ready.reason.as_str()))
}

#[tokio::test]
async fn samples_are_set_up_with_the_deployed_role_by_any_leader() {
    let cluster = TestCluster::start().await.unwrap();
    let (client, folder) = (cluster.client(), deploy());
    for part in ["crd", "default"] {
        let folder = folder.join(part).display().to_string();
        let applied = kubectl(&cluster, &["apply", "--server-side", "--kustomize", &folder]);
        assert!(applied.status.success(), "{applied:?}");
    }
    let arguments = ["--leader-elect", "--leader-election-namespace=trishanku-system"];
    let first = Manager::start(&cluster, USER, &arguments);
    first.page(8081, "/readyz").await;
    let namespace = cluster.namespace("samples").await;
    let samples = folder.join("samples").display().to_string();
    let applied = kubectl(&cluster, &["apply", "--namespace", &namespace, "--kustomize", &samples]);
    assert!(applied.status.success(), "{applied:?}");
    let heavens: Api<TrishankuHeaven> = Api::namespaced(client.clone(), &namespace);
    let ready = |heaven: &TrishankuHeaven| readiness(heaven) == Some(("True", "Succeeded"));
    wait::until_object(&heavens, "cluster", "it is ready", ready).await.unwrap();
    let deployments: Api<Deployment> = Api::namespaced(client.clone(), &namespace);
    for name in ["kube-scheduler-heaven", "kube-controller-manager-heaven", "cluster-automerge"] {
        wait::until_object(&deployments, name, "it exists", |_: &Deployment| true).await.unwrap();
    }
    let applied = |heaven: &TrishankuHeaven| readiness(heaven) == Some(("False", "NotObserved"));
    wait::until_object(&heavens, "kube-scheduler", "its Deployment is not observed yet", applied).await.unwrap();
    // Uses all kinds of owned objects.
    let patch = json!({"spec": {"gitcd": {
        "storage": {"volumeClaim": {"size": "1Gi"}}, "host": {"tokensSecretName": "tokens"},
    }, "certificates": {"controller": {"secretName": "other"}}}});
    heavens.patch("kube-scheduler", &PatchParams::default(), &Patch::Merge(patch)).await.unwrap();
    let secrets: Api<Secret> = Api::namespaced(client.clone(), &namespace);
    wait::until_gone(&secrets, "kube-scheduler").await.unwrap();
    let services: Api<k8s_openapi::api::core::v1::Service> = Api::namespaced(client.clone(), &namespace);
    wait::until_object(&services, "kube-scheduler-git", "it exists", |_: &k8s_openapi::api::core::v1::Service| true)
        .await
        .unwrap();
    // Only authorized clients can read metrics.
    let bind = ["create", "clusterrolebinding", "scraper", "--clusterrole=trishanku-metrics-reader"];
    let account = format!("--serviceaccount={namespace}:scraper");
    for name in ["scraper", "stranger"] {
        let made = kubectl(&cluster, &["create", "serviceaccount", name, "--namespace", &namespace]);
        assert!(made.status.success(), "{made:?}");
    }
    assert!(kubectl(&cluster, &[&bind[..], &[account.as_str()]].concat()).status.success());
    let token = |name: &str| {
        let token = kubectl(&cluster, &["create", "token", name, "--namespace", &namespace]);
        assert!(token.status.success(), "{token:?}");
        String::from_utf8(token.stdout).unwrap().trim().to_owned()
    };
    assert!(first.figures(None).starts_with("401") && first.figures(Some("nonsense")).starts_with("401"));
    assert!(first.figures(Some(&token("stranger"))).starts_with("403"));
    let figures = first.figures(Some(&token("scraper")));
    assert!(figures.starts_with("200"), "{figures}");
    assert!(figures.contains(r#"controller_runtime_reconcile_total{controller="trishankuheaven""#), "{figures}");

    let second = Manager::start(&cluster, USER, &arguments);
    second.page(8081, "/readyz").await;
    assert!(first.end().await.success());
    let patch = json!({"spec": {"skip": {"app": true, "entrypoints": true}}});
    heavens.patch("kube-scheduler", &PatchParams::default(), &Patch::Merge(patch)).await.unwrap();
    wait::until_gone(&deployments, "kube-scheduler-heaven").await.unwrap();
    wait::until_gone(&services, "kube-scheduler-git").await.unwrap();
    // Shared Secrets stay as long as a heaven uses them.
    cluster.collect_garbage().await.unwrap();
    heavens.delete("kube-scheduler", &DeleteParams::default()).await.unwrap();
    wait::until_gone(&secrets, "other").await.unwrap();
    let left = |secret: &Secret| secret.metadata.owner_references.as_ref().is_some_and(|owners| owners.len() == 2);
    wait::until_object(&secrets, "cluster-cert-ca", "the others own it", left).await.unwrap();
    for name in ["cluster", "kube-controller-manager"] {
        heavens.delete(name, &DeleteParams::default()).await.unwrap();
    }
    wait::until_gone(&secrets, "cluster-cert-ca").await.unwrap();
    wait::until_gone(&deployments, "kube-controller-manager-heaven").await.unwrap();
    assert!(second.end().await.success());

    let calls: Vec<_> = cluster.audit().into_iter().filter(|entry| entry.user() == USER).collect();
    let denied: BTreeSet<_> =
        calls.iter().filter(|entry| entry.code() == 403).map(|entry| format!("{} {}", entry.verb, entry.uri)).collect();
    assert!(denied.is_empty(), "{denied:?}");
    // Every rule of the role is used.
    let used: BTreeSet<(String, String)> = calls.iter().map(|entry| (entry.verb.clone(), entry.resource())).collect();
    let role: serde_json::Value =
        serde_saphyr::from_str(&std::fs::read_to_string(folder.join("rbac/role.yaml")).unwrap()).unwrap();
    for rule in role["rules"].as_array().unwrap() {
        let texts = |field: &str| {
            rule[field].as_array().unwrap().iter().map(|text| text.as_str().unwrap().to_owned()).collect::<Vec<_>>()
        };
        let (resources, verbs) = (texts("resources"), texts("verbs"));
        let is_used =
            verbs.iter().any(|verb| resources.iter().any(|resource| used.contains(&(verb.clone(), resource.clone()))));
        // With the admission plugin for owner references, setting a blocking one requires update rights on the owner's
        // finalizers.
        let is_for_owners = resources.iter().all(|resource| resource.ends_with("/finalizers"));
        assert!(is_used || is_for_owners, "{rule} is not used: {used:?}");
    }
}
