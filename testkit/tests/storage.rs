//! The clusters that tests can run on: a new one on gitcd or etcd, or an existing one.

use std::process::Command;

use k8s_openapi::api::core::v1::{ConfigMap, Namespace};
use kube::api::{ListParams, PostParams};
use kube::{Api, ResourceExt};
use trishanku_testkit::{StartError, Storage, TestCluster, wait};

async fn use_it(cluster: &TestCluster) -> String {
    let namespace = cluster.namespace("storage").await;
    let maps: Api<ConfigMap> = Api::namespaced(cluster.client(), &namespace);
    let map = serde_json::from_str(r#"{"metadata": {"name": "a"}, "data": {"k": "v"}}"#).expect("valid");
    maps.create(&PostParams::default(), &map).await.expect("created");
    wait::until_object(&maps, "a", "it is stored", |map| map.data.is_some()).await.expect("stored");
    namespace
}

async fn survives_a_crash(cluster: &TestCluster) {
    let namespace = use_it(cluster).await;
    cluster.kill_apiserver().await;
    cluster.start_apiserver().await.expect("started again");
    let maps: Api<ConfigMap> = Api::namespaced(cluster.client(), &namespace);
    wait::until_object(&maps, "a", "it is still there", |_| true).await.expect("kept");
    let folder = cluster.folder().to_owned();
    assert!(cluster.audit().iter().any(|entry| entry.namespace() == namespace), "{}", folder.display());
    assert!(!cluster.is_existing());
}

#[cfg(feature = "gitcd")]
#[tokio::test]
async fn a_cluster_on_gitcd_has_a_repository() {
    let cluster = TestCluster::builder().storage(Storage::Gitcd).start().await.unwrap();
    survives_a_crash(&cluster).await;
    assert!(cluster.folder().join("repo.git/HEAD").is_file());
}

#[tokio::test]
async fn a_cluster_on_etcd_stores_its_objects_there_and_leaves_nothing() {
    let cluster = TestCluster::builder().storage(Storage::Etcd).flags(["--v=1"]).start().await.unwrap();
    survives_a_crash(&cluster).await;
    let folder = cluster.folder().to_owned();
    assert!(folder.join("etcd/member").is_dir() && !folder.join("repo.git").exists());
    let health = reachable(cluster.store_url()).await;
    assert!(health, "etcd answers at {}", cluster.store_url());
    let url = cluster.store_url().to_owned();
    drop(cluster);
    assert!(!folder.exists());
    assert!(!reachable(&url).await, "etcd is stopped with its cluster");
}

async fn reachable(url: &str) -> bool {
    tokio::net::TcpStream::connect(url.trim_start_matches("http://")).await.is_ok()
}

#[tokio::test]
async fn an_existing_cluster_is_used_and_loses_only_the_namespaces_of_the_run() {
    let origin = TestCluster::start().await.unwrap();
    let kept = origin.namespace("kept").await;
    let kubeconfig = origin.kubeconfig(None);
    let cluster = TestCluster::existing(&kubeconfig, None).await.unwrap();
    assert!(cluster.is_existing());
    let other = TestCluster::existing(&kubeconfig, Some("testkit")).await.unwrap();
    let (ours, theirs) = (use_it(&cluster).await, use_it(&other).await);
    assert_ne!(ours, theirs);
    // Other programs act as the user that is asked for.
    let config = cluster.kubeconfig(Some("visitor"));
    let client = kube::Client::try_from(
        kube::Config::from_custom_kubeconfig(
            kube::config::Kubeconfig::read_from(&config).unwrap(),
            &kube::config::KubeConfigOptions::default(),
        )
        .await
        .unwrap(),
    );
    let refused = Api::<ConfigMap>::namespaced(client.unwrap(), &ours).list(&ListParams::default()).await.unwrap_err();
    assert!(refused.to_string().contains("visitor"), "{refused}");
    cluster.collect_garbage().await.unwrap();
    let folder = cluster.folder().to_owned();
    drop(cluster);
    assert!(!folder.exists());
    // Nothing finalizes namespaces in the origin, so a deleted one stays, marked.
    let namespaces: Api<Namespace> = Api::all(origin.client());
    let is_deleted = async |name: &str| namespaces.get(name).await.unwrap().metadata.deletion_timestamp.is_some();
    assert!(is_deleted(&ours).await);
    assert!(!is_deleted(&theirs).await && !is_deleted(&kept).await);
    assert!(namespaces.get(&theirs).await.unwrap().name_any().starts_with("storage-"));
}

#[tokio::test]
#[should_panic(expected = "cannot kill kube-apiserver of an existing cluster: use TestCluster::start in this test")]
async fn what_needs_a_cluster_of_its_own_says_so() {
    let origin = TestCluster::shared().await;
    let cluster = TestCluster::existing(origin.kubeconfig(None), None).await.unwrap();
    cluster.kill_apiserver().await;
}

#[tokio::test]
async fn kubeconfigs_that_lead_nowhere_are_refused_by_name() {
    let dir = tempfile::tempdir().unwrap();
    let missing = dir.path().join("missing");
    let error = TestCluster::existing(&missing, None).await.unwrap_err();
    assert!(matches!(&error, StartError::Kubeconfig { path, .. } if *path == missing), "{error}");

    let origin = TestCluster::shared().await.kubeconfig(None);
    let error = TestCluster::existing(&origin, Some("elsewhere")).await.unwrap_err();
    let source = std::error::Error::source(&error).unwrap().to_string();
    assert!(source.contains("elsewhere"), "{source}");

    let gone = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    let text = std::fs::read_to_string(&origin).unwrap();
    let mut config: serde_json::Value = serde_json::from_str(&text).unwrap();
    config["clusters"][0]["cluster"]["server"] = format!("https://{gone}").into();
    let nowhere = dir.path().join("nowhere");
    std::fs::write(&nowhere, config.to_string()).unwrap();
    let error = TestCluster::existing(&nowhere, None).await.unwrap_err();
    assert!(
        matches!(error, StartError::Unreachable { .. }) && error.to_string().contains(&gone.to_string()),
        "{error}"
    );
}

const CHILD: &str = "TESTKIT_STORAGE_TEST_OUTPUT";

#[tokio::test]
#[ignore = "another test runs it in a process of its own, with variables"]
async fn what_the_selected_process_does() {
    let output = std::env::var_os(CHILD).expect("another test runs this one");
    let cluster = TestCluster::shared().await;
    let namespace = use_it(cluster).await;
    std::fs::write(output, namespace).unwrap();
}

#[tokio::test]
async fn variables_select_the_shared_cluster_whose_namespaces_end_with_the_process() {
    let origin = TestCluster::builder().storage(Storage::Etcd).start().await.unwrap();
    let dir = tempfile::tempdir().unwrap();
    let output = dir.path().join("namespace");
    let child = |variables: &[(&str, &std::path::Path)]| {
        let mut child = Command::new(std::env::current_exe().unwrap());
        child.args(["--exact", "what_the_selected_process_does", "--ignored"]).env(CHILD, &output);
        child.envs(variables.iter().copied());
        tokio::task::spawn_blocking(move || child.output().unwrap())
    };
    let kubeconfig = origin.kubeconfig(None);
    let ran = child(&[("TRISHANKU_TESTKIT_KUBECONFIG", &kubeconfig)]).await.unwrap();
    assert!(ran.status.success(), "{}", String::from_utf8_lossy(&ran.stdout));
    let namespace = std::fs::read_to_string(&output).unwrap();
    let namespaces: Api<Namespace> = Api::all(origin.client());
    let deleted = |seen: &Namespace| seen.metadata.deletion_timestamp.is_some();
    wait::until_object(&namespaces, &namespace, "it is deleted", deleted).await.unwrap();

    let ran = child(&[("TRISHANKU_TESTKIT_STORAGE", "sqlite".as_ref())]).await.unwrap();
    let output = String::from_utf8_lossy(&ran.stdout).into_owned() + &String::from_utf8_lossy(&ran.stderr);
    assert!(!ran.status.success() && output.contains("TRISHANKU_TESTKIT_STORAGE=\"sqlite\" is invalid"), "{output}");
}
