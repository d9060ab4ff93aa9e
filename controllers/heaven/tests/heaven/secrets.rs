//! Secrets with certificates in a cluster: renewal, rotation, and user-supplied ones.

use std::time::Duration;

use k8s_openapi::api::apps::v1::Deployment;
use k8s_openapi::api::core::v1::Secret;
use kube::api::{DeleteParams, Patch, PatchParams};
use serde_json::json;
use trishanku_heaven::{FINGERPRINT, REISSUE_BEFORE};
use trishanku_testkit::wait;

use crate::world::{World, owners, spec};

const AUTHORITY: &str = include_str!("../../src/certificates/theirs.crt");
const KEY: &str = include_str!("../../src/certificates/theirs.key");

fn fingerprint(deployment: &Deployment) -> String {
    let metadata = deployment.spec.as_ref().unwrap().template.metadata.as_ref().unwrap();
    metadata.annotations.as_ref().unwrap()[FINGERPRINT].clone()
}

#[tokio::test]
async fn certificates_are_renewed_in_time_and_on_demand_and_pods_begin_anew_with_them() {
    let mut world = World::new().await;
    world.apply("a", &spec()).await;
    world.is("a", "CertificatesReady", "True", "Valid").await;
    let names = ["a-cert-ca", "a-cert-service-account", "a-cert-kubernetes", "a-admin", "a-controller"];
    let mut before = Vec::new();
    for name in names {
        before.push(world.secret(name).await);
    }
    let deployment =
        wait::until_object(&world.deployments(), "a-heaven", "it exists", |_: &Deployment| true).await.unwrap();
    let first = fingerprint(&deployment);

    // Nine months later, the heaven is reconciled.
    world.move_clock(Duration::from_hours(24 * 270));
    world.patch("a", json!({"metadata": {"annotations": {"look": "again"}}})).await;
    let renewed = |deployment: &Deployment| fingerprint(deployment) != first;
    let deployment = wait::until_object(&world.deployments(), "a-heaven", "its pods restart", renewed).await.unwrap();
    for (name, before) in names.iter().zip(&before) {
        let now = world.secret(name).await;
        let lasts = ["a-cert-ca", "a-cert-service-account"].contains(name);
        assert_eq!(now["tls.crt"] == before["tls.crt"], lasts, "{name}");
    }

    // Everything is reissued, except that a new signing key is announced first.
    let second = fingerprint(&deployment);
    let seconds = world.now().unix_timestamp();
    let time = k8s_openapi::jiff::Timestamp::from_second(seconds).unwrap().to_string();
    world.patch("a", json!({"metadata": {"annotations": {REISSUE_BEFORE: time}}})).await;
    let renewed = |deployment: &Deployment| fingerprint(deployment) != second;
    wait::until_object(&world.deployments(), "a-heaven", "its pods restart", renewed).await.unwrap();
    let authority = world.secret("a-cert-ca").await;
    assert_ne!(authority["tls.crt"], before[0]["tls.crt"]);
    assert!(
        String::from_utf8_lossy(&authority["ca.crt"]).contains(&*String::from_utf8_lossy(&before[0]["tls.crt"])),
        "the old one remains trusted"
    );
    let announced = world.secret("a-cert-service-account").await;
    assert!(announced["tls.key"] == before[1]["tls.key"] && announced["tls.crt"].starts_with(&before[1]["tls.crt"]));
    assert!(announced.contains_key("next.key") && announced["tls.crt"].len() > before[1]["tls.crt"].len());
    let third = fingerprint(&world.deployments().get("a-heaven").await.unwrap());
    world.move_clock(Duration::from_hours(24));
    world.patch("a", json!({"metadata": {"annotations": {"look": "once more"}}})).await;
    let renewed = |deployment: &Deployment| fingerprint(deployment) != third;
    wait::until_object(&world.deployments(), "a-heaven", "its pods restart", renewed).await.unwrap();
    let signs = world.secret("a-cert-service-account").await;
    assert!(signs["tls.key"] == announced["next.key"] && signs["tls.crt"].ends_with(&before[1]["tls.crt"]));
    assert!(!signs.contains_key("next.key"));
    world.is("a", "CertificatesReady", "True", "Valid").await;
    world.stop().await;
}

#[tokio::test]
async fn what_is_deleted_is_made_anew_and_what_is_shared_goes_with_the_last() {
    let mut world = World::new().await;
    let mut other = spec();
    other["certificates"]["certificateAuthoritySecretName"] = json!("a-cert-ca");
    world.apply("a", &spec()).await;
    world.apply("b", &other).await;
    world.is("b", "CertificatesReady", "True", "Valid").await;
    let shared = |secret: &Secret| owners(secret).len() == 2;
    wait::until_object(&world.secrets(), "a-cert-ca", "both own it", shared).await.unwrap();
    world.secrets().delete("a-admin", &DeleteParams::default()).await.unwrap();
    wait::until_object(&world.secrets(), "a-admin", "it is back", |_: &Secret| true).await.unwrap();
    // One heaven no longer uses it; the other one keeps it.
    world.patch("a", json!({"spec": {"certificates": {"certificateAuthoritySecretName": "own"}}})).await;
    let left = |secret: &Secret| owners(secret) == ["b"];
    wait::until_object(&world.secrets(), "a-cert-ca", "only the other one owns it", left).await.unwrap();
    assert!(world.secret("own").await.contains_key("tls.key"));
    world.stop().await;
}

#[tokio::test]
async fn what_users_supply_is_used_and_never_written() {
    let mut world = World::new().await;
    world.supply("mine", &[("tls.crt", AUTHORITY)]).await;
    let mut spec = spec();
    spec["certificates"]["certificateAuthoritySecretName"] = json!("mine");
    world.apply("a", &spec).await;
    let stalled = world.is("a", "Stalled", "True", "CertificateAuthorityUnusable").await;
    assert!(stalled.message.contains("mine") && stalled.message.contains("tls.key"), "{stalled:?}");
    world.is("a", "CertificatesReady", "False", "CertificateAuthorityUnusable").await;
    // Once corrected, it is read again.
    let patch = Patch::Merge(json!({"stringData": {"tls.key": KEY}}));
    let mended = world.secrets().patch("mine", &PatchParams::default(), &patch).await.unwrap();
    world.is("a", "CertificatesReady", "True", "Valid").await;
    let admin = world.secret("a-admin").await;
    assert_eq!(String::from_utf8_lossy(&admin["ca.crt"]), AUTHORITY);
    world.patch("a", json!({"metadata": {"annotations": {REISSUE_BEFORE: "2020-01-01T00:00:00Z"}}})).await;
    world.is("a", "CertificatesReady", "True", "Valid").await;
    let now = world.secrets().get("mine").await.unwrap();
    assert_eq!(now.metadata.resource_version, mended.metadata.resource_version);
    assert!(owners(&now).is_empty());
    world.stop().await;
}
