//! Credentials and tokens are sent over the network only with encryption, or it is reported.

use k8s_openapi::api::core::v1::Secret;
use kube::api::{DeleteParams, Patch, PatchParams, PostParams};
use serde_json::{Value, json};

use crate::world::{World, condition, spec};

/// Creates or changes a Secret of a user.
async fn secret(world: &World, name: &str, kind: &str, values: Value) {
    let secret =
        json!({"apiVersion": "v1", "kind": "Secret", "metadata": {"name": name}, "type": kind, "stringData": values});
    let how = PatchParams::apply("user").force();
    world.secrets().patch(name, &how, &Patch::Apply(secret)).await.unwrap();
}

#[tokio::test]
async fn credentials_that_would_be_sent_over_plain_http_are_reported_until_the_manifest_or_the_secret_is_changed() {
    let mut world = World::new().await;
    secret(&world, "git", "Opaque", json!({"username": "ann", "password": "hunter2"})).await;
    let mut plain = spec();
    plain["gitcd"] = json!({
        "credentialsSecretName": "git", "git": {"remotes": [{"repo": "http://git.team.svc/cluster.git"}]}, "pull": {},
    });
    world.apply("a", &plain).await;
    let refused = world.is("a", "Stalled", "True", "InvalidSpec").await;
    for words in
        ["gitcd.git.remotes[0].repo", "http://git.team.svc/cluster.git", "https://", "allowPlainHttpCredentials"]
    {
        assert!(refused.message.contains(words), "{refused:?}");
    }
    assert!(!refused.message.contains("hunter2"), "{refused:?}");
    assert!(!world.names(&world.deployments()).await.contains(&"a-heaven".to_owned()));
    // The credentials are for another server.
    secret(
        &world,
        "git",
        "Opaque",
        json!({"username": "ann", "password": "hunter2", "url": "https://git.example.org"}),
    )
    .await;
    world.is("a", "Ready", "False", "NotObserved").await;
    plain["gitcd"]["allowPlainHttpCredentials"] = json!(true);
    secret(&world, "git", "Opaque", json!({"username": "ann", "password": "hunter2", "url": ""})).await;
    world.is("a", "Stalled", "True", "InvalidSpec").await;
    world.apply("a", &plain).await;
    world.is("a", "Ready", "False", "NotObserved").await;
    world.stop().await;
}

#[tokio::test]
async fn a_git_host_without_tls_works_and_is_reported() {
    let mut world = World::new().await;
    let mut host = spec();
    host["gitcd"] = json!({"host": {"tokensSecretName": "tokens"}});
    world.apply("a", &host).await;
    let plain = world.is("a", "GitHostEncrypted", "False", "PlainHTTP").await;
    assert!(plain.message.contains("spec.gitcd.host.tlsSecretName"), "{plain:?}");
    // It is a warning, and no error.
    world.is("a", "Ready", "False", "NotObserved").await;
    host["gitcd"]["host"]["tlsSecretName"] = json!("host");
    world.apply("a", &host).await;
    world.is("a", "GitHostEncrypted", "False", "NotFound").await;
    let pair: Secret = serde_json::from_value(json!({
        "metadata": {"name": "host"}, "type": "kubernetes.io/tls", "stringData": {"tls.crt": "PEM", "tls.key": "PEM"},
    }))
    .unwrap();
    world.secrets().create(&PostParams::default(), &pair).await.unwrap();
    world.is("a", "GitHostEncrypted", "True", "TLS").await;
    world.secrets().delete("host", &DeleteParams::default()).await.unwrap();
    world.is("a", "GitHostEncrypted", "False", "NotFound").await;
    world.apply("a", &spec()).await;
    world.is("a", "Ready", "False", "NotObserved").await;
    assert_eq!(condition(&world.heavens().get("a").await.unwrap(), "GitHostEncrypted"), None);
    world.stop().await;
}
