//! Heavens beside the pods of a labelled namespace, on a real kube-apiserver.

use k8s_openapi::api::core::v1::{Namespace, Pod, ServiceAccount};
use kube::Client;
use kube::api::{Api, DeleteParams, Patch, PatchParams, PostParams};
use kube::core::Status;
use serde_json::{Value, json};
use tokio::sync::oneshot;
use trishanku_api::definitions;
use trishanku_framework::Manager;
use trishanku_framework::cache::Scope;
use trishanku_framework::serve::Address;
use trishanku_framework::webhook::{WebhookEndpoint, Webhooks};
use trishanku_heaven::{HeavenInjector, INJECT, Settings, controller};
use trishanku_heaven_plan::STATUS_PORT;
use trishanku_heaven_plan::workload::HEAVEN;
use trishanku_testkit::{TestCluster, wait};

/// A pod, with a field that the types of this program need not know.
fn pod(name: &str, labels: &Value) -> Pod {
    let spec = json!({
        "containers": [{"name": "app", "image": "app:1", "env": [{"name": "GREETING", "value": "$(NAME)"}]}],
        "automountServiceAccountToken": false,
    });
    serde_json::from_value(json!({"metadata": {"name": name, "labels": labels}, "spec": spec})).unwrap()
}

fn beside(pod: &Pod) -> Vec<String> {
    pod.spec.iter().flat_map(|spec| spec.init_containers.iter().flatten()).map(|found| found.name.clone()).collect()
}

/// Creates the default service account, as kube-controller-manager would.
async fn create_account(client: &Client, namespace: &str) {
    let account = json!({"metadata": {"name": "default"}});
    let accounts = Api::<ServiceAccount>::namespaced(client.clone(), namespace);
    accounts.create(&PostParams::default(), &serde_json::from_value(account).unwrap()).await.unwrap();
}

/// Returns the status with which a pod is rejected.
async fn rejected(pods: &Api<Pod>, pod: &Pod) -> Status {
    let dry = PostParams { dry_run: true, ..PostParams::default() };
    match pods.create(&dry, pod).await {
        Err(kube::Error::Api(status)) => *status,
        other => panic!("{other:?}"),
    }
}

/// A rejection names the fields of the pod, and how to fix them, as kube-apiserver does.
async fn check_fields_of_rejections(pods: &Api<Pod>) {
    let mut clash = pod("web", &json!({}));
    let wrong = json!([
        {"name": "gitcd", "image": "app:1"},
        {"name": "proxy", "image": "app:1", "ports": [{"containerPort": 80}, {"containerPort": 6443}]},
    ]);
    clash.spec.as_mut().unwrap().containers = serde_json::from_value(wrong).unwrap();
    let status = rejected(pods, &clash).await;
    assert!(status.message.contains("does not fit into the pod") && status.reason == "Invalid", "{status:?}");
    let details = status.details.unwrap();
    assert_eq!((details.kind.as_str(), details.name.as_str()), ("Pod", "web"));
    let [name, port] = &details.causes[..] else { panic!("{details:?}") };
    for (cause, field, words) in [
        (name, "spec.containers[0].name", ["name of an injected container", "give it another name"]),
        (port, "spec.containers[1].ports[1].containerPort", ["kube-apiserver", "use another port"]),
    ] {
        assert_eq!((cause.field.as_str(), cause.reason.as_str()), (field, "FieldValueInvalid"));
        assert!(words.iter().all(|word| cause.message.contains(word)), "{cause:?}");
        assert!(cause.message.contains("TrishankuHeaven \"shop\""), "kubectl prints only this: {cause:?}");
    }
    let mut shared = pod("web", &json!({}));
    shared.spec.as_mut().unwrap().share_process_namespace = Some(true);
    let status = rejected(pods, &shared).await;
    let [cause] = &status.details.as_ref().unwrap().causes[..] else { panic!("{status:?}") };
    assert_eq!((cause.field.as_str(), cause.reason.as_str()), ("spec.shareProcessNamespace", "FieldValueForbidden"));
    assert!(cause.message.contains("app.allowSharedNamespaces"), "{cause:?}");
}

#[tokio::test]
async fn each_pod_of_a_labelled_namespace_gets_a_heaven_on_a_branch_of_its_own() {
    let cluster = TestCluster::shared().await;
    let client = cluster.client();
    definitions().apply(&client, "trishanku-manager").await.unwrap();
    let namespace = cluster.namespace("injected").await;
    let local: Address = "127.0.0.1:0".parse().unwrap();
    let webhooks = Webhooks::bind("injected", &local, WebhookEndpoint::host(&namespace, "127.0.0.1", 0)).await.unwrap();
    let port = webhooks.address().unwrap().port();
    let webhooks = webhooks.endpoint(WebhookEndpoint::host(&namespace, "127.0.0.1", port));
    let manager = Manager::with_scope(cluster.config(), Scope::namespaces([namespace.clone()]));
    let injection = HeavenInjector::new(&manager.caches(), client.clone(), Settings::default());
    let (stop, stopped) = oneshot::channel::<()>();
    let manager = manager.webhooks(injection.add_to(webhooks, "elsewhere")).controller(controller(Settings::default()));
    let running = tokio::spawn(manager.run(async { drop(stopped.await) }));

    let pods: Api<Pod> = Api::namespaced(client.clone(), &namespace);
    let parameters = PostParams { dry_run: true, ..PostParams::default() };
    let create = async |pod: Pod| pods.create(&parameters, &pod).await.map_err(|error| error.to_string());
    create_account(&client, &namespace).await;
    assert_eq!(beside(&create(pod("web", &json!({}))).await.unwrap()), [""; 0], "the namespace has no label");

    let label = Patch::Merge(json!({"metadata": {"labels": {INJECT: "shop"}}}));
    Api::<Namespace>::all(client.clone()).patch(&namespace, &PatchParams::default(), &label).await.unwrap();
    let refused = async |words: &[&str]| {
        let look = async || match create(pod("web", &json!({}))).await {
            Err(said) if words.iter().all(|word| said.contains(word)) => Ok(()),
            other => Err(format!("{other:?}")),
        };
        wait::until(format!("a pod to be refused with {words:?}"), look).await.unwrap();
    };
    refused(&["there is no TrishankuHeaven", "shop", "inject=false"]).await;
    assert_eq!(beside(&create(pod("web", &json!({INJECT: "false"}))).await.unwrap()), [""; 0]);

    let apply = async |spec: Value| {
        let heaven = json!({
            "apiVersion": "controllers.trishanku.org.trishanku.org/v1alpha1", "kind": "TrishankuHeaven",
            "metadata": {"name": "shop"}, "spec": spec,
        });
        let heavens: Api<trishanku_api::TrishankuHeaven> = Api::namespaced(client.clone(), &namespace);
        heavens.patch("shop", &PatchParams::apply("user").force(), &Patch::Apply(heaven)).await.unwrap();
    };
    let spec = |branch: &str, repo: &str| {
        json!({
            "skip": {"app": true}, "certificates": {"controller": {"userName": "shop"}},
            "gitcd": {"git": {"branches": {"data": branch}, "remotes": [{"repo": repo, "branches": {"data": "main"}}]}},
        })
    };
    let internal = "https://git.team.svc/shop";
    apply(spec("shop", internal)).await;
    refused(&["spec.gitcd.git.branches.data", "$(REPLICA)"]).await;
    apply(spec("shop/$(REPLICA)", "https://git.example.org/shop")).await;
    refused(&["may be public", "allowPublicSecrets"]).await;
    // The user is checked before the repository, which needs requests.
    let mut without_user = spec("shop/$(REPLICA)", "https://git.example.org/shop");
    without_user["certificates"] = json!({});
    apply(without_user).await;
    refused(&["spec.certificates.controller"]).await;
    let mut supplied = spec("shop/$(REPLICA)", internal);
    supplied["skip"] = json!({"app": true, "entrypoints": true});
    supplied["app"] = json!({"entrypointsConfigMapName": "missing", "podTemplate": {"spec": {"containers": []}}});
    apply(supplied).await;
    refused(&["ConfigMap", "missing"]).await;
    let mut suspended = spec("shop/$(REPLICA)", internal);
    suspended["suspend"] = true.into();
    apply(suspended).await;
    refused(&["suspended"]).await;
    let mut deployed = spec("shop", internal);
    deployed["skip"] = json!({});
    deployed["app"] = json!({"podTemplate": {"spec": {"containers": []}}});
    apply(deployed).await;
    refused(&["skip.app"]).await;

    apply(spec("shop/$(REPLICA)", internal)).await;
    let look = async || {
        create(pod("web", &json!({"app": "web"})))
            .await
            .and_then(|pod| if beside(&pod).is_empty() { Err("it has no heaven".to_owned()) } else { Ok(pod) })
    };
    let found = wait::until("a pod with a heaven", look).await.unwrap();
    assert_eq!(beside(&found), ["git-pre", "gitcd-init", "gitcd", "kube-apiserver"]);
    let labels = found.metadata.labels.clone().unwrap();
    assert_eq!((labels["app"].as_str(), labels[HEAVEN].as_str()), ("web", "shop"));
    assert!(found.metadata.annotations.as_ref().unwrap().contains_key(STATUS_PORT));
    let app = &found.spec.as_ref().unwrap().containers[0];
    let value = |name: &str| {
        let variable = app.env.iter().flatten().find(|variable| variable.name == name);
        variable.and_then(|variable| variable.value.clone())
    };
    assert_eq!(value("GREETING").as_deref(), Some("$(NAME)"));
    let path = value("KUBECONFIG").unwrap();
    assert!(app.volume_mounts.iter().flatten().any(|mount| path.starts_with(&mount.mount_path)), "{app:?}");
    // One that has a heaven already is left alone: webhooks can be called again.
    let mut again = found.clone();
    again.metadata.resource_version = None;
    again.metadata.uid = None;
    again.metadata.managed_fields = None;
    assert_eq!(create(again).await.unwrap().spec, found.spec);
    check_fields_of_rejections(&pods).await;

    drop(stop);
    running.await.unwrap().unwrap();
    // Without a manager, no pods can be created there, but for those that are left out.
    assert!(create(pod("web", &json!({}))).await.is_err());
    create(pod("web", &json!({INJECT: "false"}))).await.unwrap();
    Api::<Namespace>::all(client).delete(&namespace, &DeleteParams::default()).await.unwrap();
}
