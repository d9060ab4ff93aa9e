//! Test clusters: isolation, crashes, audit log.

use std::time::Duration;

use k8s_openapi::api::core::v1::ConfigMap;
use kube::api::{ListParams, PostParams};
use kube::{Api, ResourceExt};
use trishanku_testkit::{TestCluster, wait};

fn map(name: &str) -> ConfigMap {
    let mut map = ConfigMap::default();
    map.metadata.name = Some(name.to_owned());
    map
}

#[tokio::test]
async fn it_starts_beside_others_survives_a_crash_of_its_apiserver_and_leaves_nothing() {
    let (one, other) = tokio::join!(TestCluster::start(), TestCluster::start());
    let (one, other) = (one.unwrap(), other.unwrap());
    let maps = |cluster: &TestCluster| Api::<ConfigMap>::namespaced(cluster.client(), "default");
    maps(&one).create(&PostParams::default(), &map("only-in-one")).await.unwrap();
    let names: Vec<_> =
        maps(&other).list(&ListParams::default()).await.unwrap().iter().map(ResourceExt::name_any).collect();
    assert!(!names.contains(&"only-in-one".to_owned()), "{names:?}");

    one.kill_apiserver().await;
    let error = maps(&one).get("only-in-one").await.unwrap_err();
    assert!(!matches!(error, kube::Error::Api(_)), "a killed apiserver cannot answer: {error}");
    one.start_apiserver().await.unwrap();
    wait::until_object(&maps(&one), "only-in-one", "it is still there", |_| true).await.unwrap();

    let folders = [one.folder().to_owned(), other.folder().to_owned()];
    drop((one, other));
    assert!(folders.iter().all(|folder| !folder.exists()), "{folders:?}");
}

#[tokio::test]
async fn the_audit_log_names_user_and_object() {
    let cluster = TestCluster::shared().await;
    let namespace = cluster.namespace("audit").await;
    let mut config = cluster.config();
    config.auth_info.impersonate = Some("somebody".to_owned());
    config.auth_info.impersonate_groups = Some(vec!["system:masters".to_owned()]);
    let maps: Api<ConfigMap> = Api::namespaced(kube::Client::try_from(config).unwrap(), &namespace);
    maps.create(&PostParams::default(), &map("a")).await.unwrap();
    let written = wait::until("the entry", async || {
        let entries = cluster.audit();
        let found = entries
            .into_iter()
            .find(|entry| entry.has_written() && entry.namespace() == namespace && entry.user() == "somebody");
        found.ok_or("there is no such entry")
    });
    let entry = written.await.unwrap();
    assert_eq!((entry.verb.as_str(), entry.resource().as_str(), entry.code()), ("create", "configmaps", 201));
}

#[tokio::test]
async fn a_wait_that_fails_shows_the_object() {
    let cluster = TestCluster::shared().await;
    let maps: Api<ConfigMap> = Api::namespaced(cluster.client(), &cluster.namespace("wait").await);
    maps.create(&PostParams::default(), &map("a")).await.unwrap();
    let error = wait::until_within(Duration::ZERO, "data", async || {
        let map = maps.get("a").await.map_err(|error| error.to_string())?;
        map.data.ok_or_else(|| "it has none".to_owned())
    });
    assert!(error.await.unwrap_err().to_string().contains("it has none"));
}
