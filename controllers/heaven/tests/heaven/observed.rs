//! The status of a heaven's branch, and deletion after the last push.

use std::net::{Ipv4Addr, SocketAddr};
use std::path::Path;
use std::process::Command;
use std::time::Duration;

use gitcd::config::{Branches, Listen, PerBranch};
use gitcd::recovery::{self, Beginning};
use gitcd::server::{Config, Server};
use gitcd::store::revision::Revision;
use gitcd::tls;
use k8s_openapi::api::core::v1::{PersistentVolumeClaim, Pod};
use k8s_openapi::api::events::v1::Event;
use kube::api::{Api, DeleteParams, ListParams, Patch, PatchParams, PostParams};
use serde_json::json;
use trishanku_heaven::DELETE_UNPUSHED;
use trishanku_testkit::wait;

use crate::world::{World, owners, spec};

fn git(folder: &Path, arguments: &[&str]) {
    let done = Command::new("git").arg("-C").arg(folder).args(arguments).output().unwrap();
    assert!(done.status.success(), "{done:?}");
}

/// Runs gitcd as in a pod, with the files of the Secret.
async fn serve(world: &World, folder: &Path, port: u16) -> Server {
    let branches = Branches {
        repository: folder.join("repo"),
        prefixes: PerBranch::parse("key-prefixes", "default=/registry").unwrap(),
        ..Branches::default()
    };
    let branch = branches.branch(gitcd::config::DEFAULT_NAME);
    recovery::init(&branch, Beginning { revision: Revision::INITIAL, version: 1, depth: None, force: false }).unwrap();
    for (name, value) in world.secret("a-cert-kubernetes").await {
        std::fs::write(folder.join(name), value).unwrap();
    }
    let files = tls::Files {
        cert: folder.join("tls.crt"),
        key: folder.join("tls.key"),
        trusted_ca: Some(folder.join("ca.crt")),
    };
    let at = |port, tls| Listen { flag: "listen-urls", address: SocketAddr::from((Ipv4Addr::LOCALHOST, port)), tls };
    git(&folder.join("repo"), &["remote", "add", "origin", &folder.join("upstream").display().to_string()]);
    let remote = gitcd::pull::remote::Remote {
        name: "origin".to_owned(),
        data_reference: String::new(),
        policy: gitcd::merge::Policy::Later,
        scope: gitcd::scope::Scope::default(),
        fast_forward: true,
        fetch: true,
        push_after_merge: true,
        push_on_pull_failure: true,
        credentials: gitcd::pull::credentials::Credentials::default(),
    };
    let interval = Some(Duration::from_secs(1));
    let config = Config {
        listen: vec![at(0, false)],
        listen_pages: vec![at(port, true)],
        tls: Some(files),
        pull: gitcd::pull::Config {
            remotes: vec![remote],
            interval,
            by_hand: false,
            echoes_after: None,
            secret_kinds: gitcd::secrecy::SecretKinds::default(),
            api_server: None,
        },
        ..Config::new(branch)
    };
    Server::start(config).await.unwrap()
}

async fn pod(world: &World, name: &str, port: u16) {
    let pods: Api<Pod> = Api::namespaced(world.client.clone(), &world.namespace);
    let pod = json!({
        "metadata": {
            "name": name, "labels": {"controllers.trishanku.org/heaven": "a"},
            "annotations": {"controllers.trishanku.org/status-port": port.to_string()},
        },
        "spec": {"automountServiceAccountToken": false, "containers": [{"name": "app", "image": "app:1"}]},
    });
    pods.create(&PostParams::default(), &serde_json::from_value(pod).unwrap()).await.unwrap();
    let status = json!({"status": {"podIP": "127.0.0.1", "podIPs": [{"ip": "127.0.0.1"}]}});
    pods.patch_status(name, &PatchParams::default(), &Patch::Merge(status)).await.unwrap();
}

#[tokio::test]
async fn the_status_of_its_gitcd_is_reported_and_deletion_waits_for_the_last_push() {
    let mut world = World::new().await;
    let mut followed = spec();
    followed["gitcd"] = json!({"git": {"remotes": [{"repo": "/upstream"}]}, "pull": {"tickerDuration": "1s"}});
    world.apply("a", &followed).await;
    world.is("a", "CertificatesReady", "True", "Valid").await;
    let folder = tempfile::tempdir().unwrap();
    let port = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
    let server = serve(&world, folder.path(), port).await;
    pod(&world, "a-heaven-1", port).await;
    // A pod that waits for its turn, with a closed port.
    pod(&world, "a-heaven-2", 9).await;
    world.is("a", "RepositoryReady", "True", "Serving").await;
    let branch = world.heavens().get("a").await.unwrap().status.unwrap().branch.unwrap();
    assert!(branch.name == "main" && branch.commit.is_some() && branch.revision == Some(1), "{branch:?}");
    // Writes of the reconciler do not remove that part of the status.
    world.patch("a", json!({"spec": {"suspendReason": "none"}})).await;
    world.is("a", "Ready", "False", "NotObserved").await;
    let after = world.heavens().get("a").await.unwrap().status.unwrap().branch.unwrap();
    assert_eq!(after.commit, branch.commit);

    // The remote is missing: the last push has to wait for it.
    world.is("a", "Synced", "False", "Unreachable").await;
    world.heavens().delete("a", &DeleteParams::default()).await.unwrap();
    let waits = world.is("a", "Ready", "False", "WaitingForLastPush").await;
    assert!(waits.message.contains("origin does not have commit"), "{waits:?}");
    git(folder.path(), &["init", "--quiet", "--bare", "upstream"]);
    wait::until_gone(&world.heavens(), "a").await.unwrap();
    world.stop().await;
    server.stop().await.unwrap();
}

#[tokio::test]
async fn an_unreachable_heaven_stays_until_its_deletion_is_forced() {
    let mut world = World::new().await;
    let mut followed = spec();
    followed["gitcd"] = json!({"git": {"remotes": [{"repo": "/upstream"}]}, "pull": {"tickerDuration": "1s"}});
    world.apply("a", &followed).await;
    world.is("a", "CertificatesReady", "True", "Valid").await;
    // A closed port.
    pod(&world, "a-heaven-1", 9).await;
    world.heavens().delete("a", &DeleteParams::default()).await.unwrap();
    let waits = world.is("a", "Ready", "False", "WaitingForLastPush").await;
    assert!(waits.message.contains("is pushed") && waits.message.contains(DELETE_UNPUSHED), "{waits:?}");
    // The Secret for queries is restored.
    world.secrets().delete("a-admin", &DeleteParams::default()).await.unwrap();
    assert!(world.secret("a-admin").await.contains_key("tls.key"));
    world.patch("a", json!({"metadata": {"annotations": {DELETE_UNPUSHED: "true"}}})).await;
    wait::until_gone(&world.heavens(), "a").await.unwrap();
    // Without a pod, past or future, there is nothing to push.
    followed["gitcd"]["storage"] = json!({"volumeClaim": {"size": "1Gi"}});
    followed["suspend"] = json!(true);
    world.apply("b", &followed).await;
    world.is("b", "Ready", "False", "Suspended").await;
    world.heavens().delete("b", &DeleteParams::default()).await.unwrap();
    wait::until_gone(&world.heavens(), "b").await.unwrap();
    world.stop().await;
}

#[tokio::test]
async fn a_pod_that_never_begins_holds_no_heaven_for_ever_and_what_is_on_its_claim_stays() {
    let mut world = World::new().await;
    let mut followed = spec();
    followed["gitcd"] = json!({
        "git": {"remotes": [{"repo": "/upstream"}]}, "pull": {"tickerDuration": "1s"},
        "storage": {"volumeClaim": {"size": "1Gi"}},
    });
    world.apply("a", &followed).await;
    let claims: Api<PersistentVolumeClaim> = Api::namespaced(world.client.clone(), &world.namespace);
    let claim = wait::until_object(&claims, "a-repo", "it exists", |_: &PersistentVolumeClaim| true).await.unwrap();
    assert_eq!(owners(&claim), ["a"]);
    world.is("a", "CertificatesReady", "True", "Valid").await;
    // Like a pod that no node has room for.
    pod(&world, "a-heaven-1", 9).await;
    world.heavens().delete("a", &DeleteParams::default()).await.unwrap();
    let waits = world.is("a", "Ready", "False", "WaitingForLastPush").await;
    assert!(waits.message.contains("its pod has not started"), "{waits:?}");
    world.move_clock(Duration::from_mins(16));
    wait::until_gone(&world.heavens(), "a").await.unwrap();
    assert!(owners(&claims.get("a-repo").await.unwrap()).is_empty());
    let events: Api<Event> = Api::namespaced(world.client.clone(), &world.namespace);
    let listed = events.list(&ListParams::default()).await.unwrap().items;
    let given_up: Vec<_> =
        listed.into_iter().filter(|event| event.reason.as_deref() == Some("LastPushGivenUp")).collect();
    let note = given_up.first().and_then(|event| event.note.clone()).unwrap_or_default();
    assert!(note.contains("volume claim \"a-repo\" stays") && note.contains("is pushed"), "{given_up:?}");
    world.stop().await;
}

#[tokio::test]
async fn encryption_of_a_running_heaven_cannot_be_turned_off_while_its_remote_may_be_public() {
    let mut world = World::new().await;
    let configure = async |providers: &str| {
        let file = format!("resources: [{{resources: [secrets], providers: [{providers}]}}]");
        let secret = json!({
            "apiVersion": "v1", "kind": "Secret", "metadata": {"name": "encryption"}, "stringData": {"encryption.yaml": file},
        });
        let how = PatchParams::apply("test").force();
        world.secrets().patch("encryption", &how, &Patch::Apply(secret)).await.unwrap();
    };
    let aes = "{aescbc: {keys: [{name: k, secret: aGVsbG8=}]}}";
    configure(aes).await;
    let mut encrypted = spec();
    encrypted["gitcd"] = json!({"git": {"remotes": [{"repo": "https://github.com/o/a"}]}});
    let plain = encrypted.clone();
    encrypted["apiserver"] = json!({"encryptionConfigurationSecretName": "encryption"});
    world.apply("a", &encrypted).await;
    world.is("a", "Ready", "False", "NotObserved").await;
    // The manifest: the Deployment stays as it is, and so encrypts.
    world.apply("a", &plain).await;
    let refused = world.is("a", "Stalled", "True", "RepositoryNotKnown").await;
    assert!(refused.message.contains("encryptionConfigurationSecretName"), "{refused:?}");
    let deployment = world.deployments().get("a-heaven").await.unwrap().spec.unwrap();
    let volumes = deployment.template.spec.unwrap().volumes.unwrap();
    assert!(deployment.replicas == Some(1) && volumes.iter().any(|volume| volume.name == "trishanku-encryption"));
    // The file, which kube-apiserver reloads: the heaven stops, whether the manifest still names it or not.
    let replicas = |wanted: i32| {
        move |deployment: &k8s_openapi::api::apps::v1::Deployment| {
            deployment.spec.as_ref().unwrap().replicas == Some(wanted)
        }
    };
    for manifest in [&plain, &encrypted] {
        configure("{identity: {}}").await;
        wait::until_object(&world.deployments(), "a-heaven", "it is stopped", replicas(0)).await.unwrap();
        world.apply("a", manifest).await;
        let refused = world.is("a", "Stalled", "True", "RepositoryNotKnown").await;
        assert!(refused.message.contains("github.com/o/a"), "{refused:?}");
        world.apply("a", &encrypted).await;
        configure(aes).await;
        wait::until_object(&world.deployments(), "a-heaven", "it runs again", replicas(1)).await.unwrap();
        world.is("a", "Ready", "False", "NotObserved").await;
    }
    // What is refused can be suspended.
    let mut suspended = plain.clone();
    suspended["suspend"] = json!(true);
    world.apply("a", &suspended).await;
    wait::until_object(&world.deployments(), "a-heaven", "it is suspended", replicas(0)).await.unwrap();
    world.stop().await;
}

#[tokio::test]
async fn secrets_are_not_stored_where_everybody_reads_them() {
    let mut world = World::new().await;
    let mut public = spec();
    public["gitcd"] = json!({"git": {"remotes": [{"repo": "https://github.com/o/a", "public": true}]}});
    world.apply("a", &public).await;
    let refused = world.is("a", "Stalled", "True", "RepositoryPublic").await;
    assert!(refused.message.contains("allowPublicSecrets") && refused.message.contains("origin"), "{refused:?}");
    assert!(world.names(&world.deployments()).await.is_empty());
    public["apiserver"] = json!({"encryptionConfigurationSecretName": "encryption"});
    world.apply("a", &public).await;
    let waits = world.is("a", "Ready", "False", "RepositoryNotKnown").await;
    assert!(waits.message.contains("Secret \"encryption\""), "{waits:?}");
    // Only the first provider encrypts.
    let (aes, none) = ("{aescbc: {keys: [{name: k, secret: aGVsbG8=}]}}", "{identity: {}}");
    for (providers, (kind, status, reason)) in [
        (format!("[{none}, {aes}]"), ("Stalled", "True", "RepositoryPublic")),
        (format!("[{aes}, {none}]"), ("Ready", "False", "NotObserved")),
    ] {
        let file = format!("resources: [{{resources: [secrets], providers: {providers}}}]");
        let secret = json!({
            "apiVersion": "v1", "kind": "Secret", "metadata": {"name": "encryption"}, "stringData": {"encryption.yaml": file},
        });
        let how = PatchParams::apply("test").force();
        world.secrets().patch("encryption", &how, &Patch::Apply(secret)).await.unwrap();
        world.is("a", kind, status, reason).await;
    }
    // Of a remote with a public name, something has to say that it is private.
    let mut named = spec();
    named["gitcd"] = json!({"git": {"remotes": [{"repo": "https://github.com/o/b.git"}]}});
    world.apply("b", &named).await;
    let refused = world.is("b", "Stalled", "True", "RepositoryNotKnown").await;
    assert!(refused.message.contains("field public") && refused.message.contains("github.com/o/b"), "{refused:?}");
    named["gitcd"]["git"]["remotes"][0]["public"] = json!(false);
    world.apply("b", &named).await;
    world.is("b", "Ready", "False", "NotObserved").await;
    // The `GitHubRepository` shows it, once that is known.
    named["gitcd"]["git"]["remotes"][0].as_object_mut().unwrap().remove("public");
    world.apply("b", &named).await;
    world.is("b", "Stalled", "True", "RepositoryNotKnown").await;
    let repositories: Api<trishanku_api::GitHubRepository> = Api::namespaced(world.client.clone(), &world.namespace);
    let repository =
        json!({"metadata": {"name": "b"}, "spec": {"credentialsSecretName": "s", "credentialsSecretTokenKey": "t"}});
    let mut repository: trishanku_api::GitHubRepository = serde_json::from_value(repository).unwrap();
    repositories.create(&PostParams::default(), &repository).await.unwrap();
    // While it is unknown whether it is public, a running heaven continues.
    let waits = world.is("b", "Reconciling", "True", "RepositoryNotKnown").await;
    assert!(waits.message.contains("GitHubRepository \"b\""), "{waits:?}");
    world.apply("c", &named).await;
    world.is("c", "Ready", "False", "RepositoryNotKnown").await;
    assert!(!world.names(&world.deployments()).await.contains(&"c-heaven".to_owned()));
    let status = json!({"status": {"cloneUrl": "https://github.com/o/b.git", "private": false, "conditions": []}});
    repository = repositories.patch_status("b", &PatchParams::default(), &Patch::Merge(status)).await.unwrap();
    assert_eq!(repository.status.unwrap().private, Some(false));
    let refused = world.is("b", "Stalled", "True", "RepositoryPublic").await;
    assert!(refused.message.contains("GitHubRepository \"b\""), "{refused:?}");
    let replicas = |wanted: i32| {
        move |deployment: &k8s_openapi::api::apps::v1::Deployment| {
            deployment.spec.as_ref().unwrap().replicas == Some(wanted)
        }
    };
    wait::until_object(&world.deployments(), "b-heaven", "it rests", replicas(0)).await.unwrap();
    let status = json!({"status": {"private": true}});
    repositories.patch_status("b", &PatchParams::default(), &Patch::Merge(status)).await.unwrap();
    world.is("b", "Ready", "False", "NotObserved").await;
    wait::until_object(&world.deployments(), "b-heaven", "it runs again", replicas(1)).await.unwrap();
    world.stop().await;
}
