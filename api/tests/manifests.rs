//! Which manifests the API server accepts, and which it rejects.
#![expect(clippy::unwrap_used, reason = "test helpers may panic")]

use kube::api::{Api, DynamicObject, Patch, PatchParams, PostParams};
use kube::core::{ApiResource, GroupVersionKind};
use kube::{Client, CustomResourceExt};
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::{Value, json};
use trishanku_api::{
    AutomatedMerge, AutomatedMergeSpec, ConflictResolution, GROUP, GitHubRepository, GitHubRepositorySpec,
    TrishankuHeaven, TrishankuHeavenSpec, VERSION, definitions,
};
use trishanku_testkit::TestCluster;

/// Manifests in all published fields.
const PUBLISHED: &str = include_str!("published.yaml");

async fn cluster() -> (&'static TestCluster, Client, String) {
    let cluster = TestCluster::shared().await;
    let client = cluster.client();
    definitions().apply(&client, "trishanku-manager").await.unwrap();
    let namespace = cluster.namespace("api").await;
    (cluster, client, namespace)
}

fn api(client: &Client, namespace: &str, kind: &str) -> Api<DynamicObject> {
    let resource = ApiResource::from_gvk(&GroupVersionKind::gvk(GROUP, VERSION, kind));
    Api::namespaced_with(client.clone(), namespace, &resource)
}

/// Creates an object in a dry run; returns the message of a rejection.
async fn try_out(client: &Client, namespace: &str, kind: &str, name: &str, spec: Value) -> Result<(), String> {
    let object = json!({
        "apiVersion": format!("{GROUP}/{VERSION}"), "kind": kind, "metadata": { "name": name }, "spec": spec,
    });
    let object: DynamicObject = serde_json::from_value(object).unwrap();
    let trial = PostParams { dry_run: true, field_manager: None };
    match api(client, namespace, kind).create(&trial, &object).await {
        Ok(_) => Ok(()),
        Err(kube::Error::Api(status)) if status.code == 422 => Err(status.message),
        Err(error) => panic!("{kind} {name}: {error}"),
    }
}

fn documents(text: &str) -> Vec<Value> {
    serde_saphyr::from_multiple(text).unwrap()
}

fn round_trip<T: DeserializeOwned + Serialize>(spec: &Value) {
    let typed: T = serde_json::from_value(spec.clone()).unwrap();
    assert_eq!(serde_json::to_value(typed).unwrap(), *spec);
}

#[test]
fn published_manifests_are_read_and_written_as_they_are() {
    for document in documents(PUBLISHED) {
        let spec = &document["spec"];
        match document["kind"].as_str().unwrap() {
            "TrishankuHeaven" => round_trip::<TrishankuHeavenSpec>(spec),
            "AutomatedMerge" => round_trip::<AutomatedMergeSpec>(spec),
            "GitHubRepository" => round_trip::<GitHubRepositorySpec>(spec),
            other => panic!("{other}"),
        }
    }
    let error = serde_json::from_value::<ConflictResolution>(json!(3)).unwrap_err().to_string();
    assert!(error.contains("1 (ours) or 2 (theirs)"), "{error}");
}

#[test]
fn every_field_is_described() {
    fn look(path: &str, schema: &Value, missing: &mut Vec<String>) {
        for (name, field) in schema["properties"].as_object().into_iter().flatten() {
            let path = format!("{path}.{name}");
            if field["description"].as_str().is_none_or(str::is_empty) && !path.contains("conditions") {
                missing.push(path.clone());
            }
            look(&path, field, missing);
            look(&path, &field["items"], missing);
        }
    }
    for definition in [TrishankuHeaven::crd(), AutomatedMerge::crd(), GitHubRepository::crd()] {
        let schema = serde_json::to_value(&definition.spec.versions[0].schema).unwrap();
        let (kind, mut missing) = (definition.spec.names.kind, Vec::new());
        look(&kind, &schema["openAPIV3Schema"]["properties"]["spec"], &mut missing);
        look(&kind, &schema["openAPIV3Schema"]["properties"]["status"], &mut missing);
        missing.retain(|path| !path.ends_with(".requests") && !path.ends_with(".limits"));
        assert!(missing.is_empty(), "no description for {missing:?}");
    }
}

/// The manifests in this folder, and all in the folder that `PUBLISHED_SAMPLES` names.
#[tokio::test]
async fn published_manifests_apply_unchanged_and_lose_nothing() {
    let (_cluster, client, namespace) = cluster().await;
    let mut texts = vec![PUBLISHED.to_owned()];
    if let Some(folder) = std::env::var_os("PUBLISHED_SAMPLES") {
        for file in std::fs::read_dir(folder).unwrap() {
            let path = file.unwrap().path();
            if path.extension().is_some_and(|extension| extension == "yaml") {
                texts.push(std::fs::read_to_string(path).unwrap());
            }
        }
    }
    let mut ours = 0;
    for document in texts.iter().flat_map(|text| documents(text)) {
        if document["apiVersion"] != format!("{GROUP}/{VERSION}") {
            continue;
        }
        let (kind, name) = (document["kind"].as_str().unwrap(), document["metadata"]["name"].as_str().unwrap());
        let params = PatchParams::apply("test").validation_strict();
        let applied = api(&client, &namespace, kind).patch(name, &params, &Patch::Apply(&document)).await;
        let applied = applied.unwrap_or_else(|error| panic!("{kind} {name}: {error}"));
        assert_eq!(applied.data["spec"], document["spec"], "{kind} {name}");
        ours += 1;
    }
    assert!(ours >= 4, "{ours}");
}

fn heaven(change: impl FnOnce(&mut Value)) -> Value {
    let mut spec = json!({
        "certificates": { "controller": { "userName": "system:kube-scheduler" } },
        "gitcd": {
            "git": {
                "branches": { "data": "a", "metadata": "b" },
                "remotes": [{ "repo": "https://git.example.org/cluster" }],
            },
            "pull": { "tickerDuration": "15s" },
        },
        "app": { "podTemplate": { "spec": { "containers": [{ "name": "c", "image": "i", "aNewField": 1 }] } } },
    });
    change(&mut spec);
    spec
}

#[tokio::test]
#[expect(clippy::too_many_lines, reason = "it is a table")]
async fn what_cannot_be_right_is_refused_with_the_field_and_the_remedy() {
    let (_cluster, client, namespace) = cluster().await;
    let set = |path: &str, value: Value| {
        heaven(|spec| {
            let pointer = format!("/{}", path.replace('.', "/"));
            let (above, last) = pointer.rsplit_once('/').unwrap();
            let above = if above.is_empty() { spec } else { spec.pointer_mut(above).unwrap() };
            above[last] = value;
        })
    };
    try_out(&client, &namespace, "TrishankuHeaven", "good", heaven(|_| {})).await.unwrap();
    let long = "x".repeat(254);
    let remote = |name: &str| json!({ "name": name, "repo": "https://git.example.org/x" });
    // The spec, the field in the error, and words of its hint.
    let heavens: Vec<(Value, &str, &str)> = vec![
        (json!({}), "spec", "set skip.app"),
        (json!({ "skip": { "app": false } }), "spec", "set skip.app"),
        (
            heaven(|spec| drop(spec.as_object_mut().unwrap().remove("certificates"))),
            "spec",
            "certificates.controller is missing",
        ),
        (set("certificates.controller", json!({})), "spec.certificates.controller.userName", "Required"),
        (
            set("certificates.controller", json!({ "userName": "" })),
            "spec.certificates.controller.userName",
            "at least 1",
        ),
        (set("certificates.adminSecretName", json!("")), "spec.certificates.adminSecretName", "at least 1"),
        (set("certificates.certificateAuthoritySecretName", json!(long)), "certificateAuthoritySecretName", "than 253"),
        (set("certificates.kubernetesSecretName", json!(7)), "spec.certificates.kubernetesSecretName", "string"),
        (set("skip", json!({ "entrypoints": true })), "spec", "app.entrypointsConfigMapName"),
        (set("skip", json!({ "certificates": "yes" })), "spec.skip.certificates", "boolean"),
        (set("app", json!({})), "spec.app.podTemplate", "Required"),
        (set("app.podTemplate", json!([])), "spec.app.podTemplate", "object"),
        (set("app.replicas", json!(-1)), "spec.app.replicas", "greater than or equal to 0"),
        (set("app.kubeconfigMountPath", json!("kubeconfig")), "spec.app.kubeconfigMountPath", "^/"),
        (set("app.entrypointsConfigMapName", json!("")), "spec.app.entrypointsConfigMapName", "at least 1"),
        (set("apiserver", json!({ "image": "" })), "spec.apiserver.image", "at least 1"),
        (set("apiserver", json!({ "imagePullPolicy": "Sometimes" })), "spec.apiserver.imagePullPolicy", "IfNotPresent"),
        (set("apiserver", json!({ "extraArgs": { "v": 4 } })), "spec.apiserver.extraArgs", "string"),
        (
            set("eventsEtcd", json!({ "local": { "imagePullPolicy": "" } })),
            "spec.eventsEtcd.local.imagePullPolicy",
            "Always",
        ),
        (set("gitcd.credentialsSecretName", json!("")), "spec.gitcd.credentialsSecretName", "at least 1"),
        (
            set("gitcd.git.branches", json!({ "data": "a", "metadata": "a" })),
            "spec.gitcd.git.branches",
            "different names",
        ),
        (set("gitcd.git.branches.data", json!("a b")), "spec.gitcd.git.branches.data", "should match"),
        (set("gitcd.git.branches.data", json!("-a")), "spec.gitcd.git.branches.data", "should match"),
        (set("gitcd.git.branches.data", json!("")), "spec.gitcd.git.branches.data", "at least 1"),
        (set("gitcd.git.remotes", json!([{}])), "spec.gitcd.git.remotes[0].repo", "Required"),
        (set("gitcd.git.remotes", json!([{ "repo": "" }])), "spec.gitcd.git.remotes[0].repo", "at least 1"),
        (set("gitcd.git.remotes", json!([remote("a"), remote("a")])), "spec.gitcd.git", "name them differently"),
        (
            set("gitcd.git.remotes", json!([remote("origin"), { "repo": "/x" }])),
            "spec.gitcd.git",
            "name them differently",
        ),
        (set("gitcd.git.remotes", json!([remote("A B")])), "spec.gitcd.git.remotes[0].name", "should match"),
        (
            set("gitcd.git.remotes", json!([{ "repo": "https://me:secret@git.example.org/x" }])),
            "spec.gitcd.git.remotes[0].repo",
            "credentialsSecretName",
        ),
        (set("gitcd.git.remotes.0.conflictResolution", json!(3)), "remotes[0].conflictResolution", "\"1\", \"2\""),
        (set("gitcd.git.remotes.0.retentionPolicies", json!({ "include": 1 })), "retentionPolicies.include", "string"),
        (set("gitcd.pull.tickerDuration", json!("15")), "spec.gitcd.pull.tickerDuration", "should match"),
        (set("gitcd.pull.tickerDuration", json!(15)), "spec.gitcd.pull.tickerDuration", "string"),
        (set("gitcd.pull.pushAfterMerge", json!("true")), "spec.gitcd.pull.pushAfterMerge", "boolean"),
        (set("gitcd", json!({ "writerLease": "3s" })), "spec.gitcd", "add one in git.remotes"),
        (set("gitcd.writerLease", json!("soon")), "spec.gitcd.writerLease", "should match"),
        (set("gitcd.storage", json!({ "volumeClaim": {} })), "spec.gitcd.storage.volumeClaim", "exactly one"),
        (
            set("gitcd.storage", json!({ "volumeClaim": { "name": "a", "size": "1Gi" } })),
            "spec.gitcd.storage.volumeClaim",
            "exactly one",
        ),
        (
            set("gitcd.storage", json!({ "volumeClaim": { "name": "a", "storageClassName": "b" } })),
            "spec.gitcd.storage.volumeClaim",
            "give its size",
        ),
        (
            set("gitcd.storage", json!({ "sizeLimit": "1Gi", "volumeClaim": { "size": "1Gi" } })),
            "spec.gitcd.storage",
            "volumeClaim.size",
        ),
        (set("gitcd.host", json!({})), "spec.gitcd.host.tokensSecretName", "Required"),
        (
            set("gitcd.host", json!({ "tokensSecretName": "t", "port": 0 })),
            "spec.gitcd.host.port",
            "greater than or equal to 1",
        ),
        (
            set("gitcd.host", json!({ "tokensSecretName": "t", "tlsSecretName": "" })),
            "spec.gitcd.host.tlsSecretName",
            "at least 1",
        ),
        (set("gitcd.allowPlainHttpCredentials", json!("yes")), "spec.gitcd.allowPlainHttpCredentials", "boolean"),
        (set("suspend", json!("now")), "spec.suspend", "boolean"),
    ];
    let merges: Vec<(Value, &str, &str)> = vec![
        (json!({}), "spec.app", "Required"),
        (json!({ "app": { "committerName": "m" } }), "spec", "gitcd.git.remotes"),
        (
            json!({ "app": { "committerName": "m" }, "gitcd": { "git": { "remotes": [] } } }),
            "spec",
            "gitcd.git.remotes",
        ),
        (json!({ "app": {}, "gitcd": { "git": { "remotes": [remote("a")] } } }), "spec.app.committerName", "Required"),
    ];
    let token = |more: Value| {
        let mut spec = json!({ "credentialsSecretName": "s", "credentialsSecretTokenKey": "k" });
        spec.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
        spec
    };
    try_out(&client, &namespace, "GitHubRepository", "good", token(json!({}))).await.unwrap();
    let repositories: Vec<(Value, &str, &str)> = vec![
        (json!({}), "spec.credentialsSecretName", "Required"),
        (json!({ "credentialsSecretName": "s" }), "spec.credentialsSecretTokenKey", "Required"),
        (token(json!({ "organization": "x".repeat(40) })), "spec.organization", "than 39"),
        (token(json!({ "description": "x".repeat(351) })), "spec.description", "than 350"),
        (token(json!({ "deletionPolicy": "Forget" })), "spec.deletionPolicy", "Archive"),
        (token(json!({ "deletionPolicy": "Archive", "archived": true })), "spec", "use Retain"),
        (token(json!({ "apiUrl": "github.example.org" })), "spec.apiUrl", "should match"),
        (token(json!({ "private": "no" })), "spec.private", "boolean"),
    ];
    let mut wrong = Vec::new();
    for (kind, table) in
        [("TrishankuHeaven", &heavens), ("AutomatedMerge", &merges), ("GitHubRepository", &repositories)]
    {
        for (number, (spec, field, remedy)) in table.iter().enumerate() {
            // The linter finds the same without a cluster.
            let manifest = json!({
                "apiVersion": format!("{GROUP}/{VERSION}"), "kind": kind, "metadata": {"name": "bad"}, "spec": spec,
            });
            let findings = trishanku_lint::lint(&manifest.to_string()).unwrap();
            if !findings.iter().any(|found| found.field.contains(field) && found.to_string().contains(remedy)) {
                wrong.push(format!("lint {kind} {number} {field:?} {remedy:?}: {findings:?}"));
            }
            match try_out(&client, &namespace, kind, "bad", spec.clone()).await {
                Err(message) if message.contains(field) && message.contains(remedy) => {}
                other => wrong.push(format!("{kind} {number} {field:?} {remedy:?}: {other:?}")),
            }
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

#[tokio::test]
async fn a_repository_keeps_its_owner() {
    let (_cluster, client, namespace) = cluster().await;
    let repositories: Api<GitHubRepository> = Api::namespaced(client, &namespace);
    let spec = GitHubRepositorySpec {
        credentials_secret_name: "s".into(),
        credentials_secret_token_key: "k".into(),
        organization: Some("one".into()),
        ..Default::default()
    };
    repositories.create(&PostParams::default(), &GitHubRepository::new("kept", spec)).await.unwrap();
    let change = json!({ "spec": { "organization": "other" } });
    let error = repositories.patch("kept", &PatchParams::default(), &Patch::Merge(&change)).await.unwrap_err();
    assert!(error.to_string().contains("not moved to another owner"), "{error}");
    let change = json!({ "spec": { "description": "new" } });
    repositories.patch("kept", &PatchParams::default(), &Patch::Merge(&change)).await.unwrap();
}
