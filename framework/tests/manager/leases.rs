//! Two managers with one lease.

use std::time::{Duration, Instant};

use k8s_openapi::api::coordination::v1::Lease;
use k8s_openapi::api::core::v1::ConfigMap;
use kube::api::{ObjectMeta, Patch, PatchParams, PostParams};
use kube::{Api, Config, ResourceExt};
use trishanku_framework::cache::Scope;
use trishanku_framework::{Action, Manager, lease};
use trishanku_testkit::{Proxy, TestCluster, wait};

use crate::support::{Problem, Running, cluster, controller, create, run, tanks};

pub(crate) fn settings(namespace: &str, identity: &str) -> lease::Settings {
    let (duration, work, every) = (Duration::from_secs(3), Duration::from_secs(2), Duration::from_millis(200));
    lease::Settings { duration, work, every, identity: identity.to_owned(), ..lease::Settings::new(namespace, "tank") }
}

/// A manager that writes all the time, as a user of its own.
pub(crate) fn writer(mut config: Config, namespace: &str, identity: &str) -> Running {
    config.auth_info.impersonate = Some(format!("{namespace}-{identity}"));
    config.auth_info.impersonate_groups = Some(vec!["system:masters".to_owned()]);
    let maps = namespace.to_owned();
    let manager =
        Manager::with_scope(config, Scope::namespaces([namespace])).leader_election(settings(namespace, identity));
    run(manager.controller(controller(move |_, context| {
        let maps: Api<ConfigMap> = Api::namespaced(context.client, &maps);
        async move {
            let metadata = ObjectMeta { generate_name: Some("written-".to_owned()), ..ObjectMeta::default() };
            let map = ConfigMap { metadata, ..ConfigMap::default() };
            maps.create(&PostParams::default(), &map).await.map_err(Problem::Api)?;
            Ok(Action::After(Duration::from_millis(20)))
        }
    })))
}

/// Returns user, start and end of each successful write of a map.
pub(crate) fn writes(cluster: &TestCluster, namespace: &str) -> Vec<(String, String, String)> {
    let of_maps = cluster
        .audit()
        .into_iter()
        .filter(|entry| entry.has_written() && entry.namespace() == namespace && entry.resource() == "configmaps");
    of_maps
        .map(|entry| (entry.user().to_owned(), entry.request_received_timestamp.clone(), entry.stage_timestamp.clone()))
        .collect()
}

pub(crate) async fn until_written_by(cluster: &TestCluster, namespace: &str, identity: &str) {
    let user = format!("{namespace}-{identity}");
    let written = wait::until(format!("a write of {identity}"), async || {
        let writes = writes(cluster, namespace);
        if writes.iter().filter(|(by, ..)| *by == user).count() > 3 { Ok(()) } else { Err(format!("{writes:?}")) }
    });
    written.await.unwrap();
}

/// Asserts that all writes of `old` came before the first of `new`.
pub(crate) fn assert_handed_over(cluster: &TestCluster, namespace: &str, old: &str, new: &str) {
    let writes = writes(cluster, namespace);
    let [old, new] = [old, new].map(|identity| format!("{namespace}-{identity}"));
    let first = writes.iter().filter(|(by, ..)| *by == new).map(|(_, came, _)| came).min().expect("there is a write");
    let last = writes.iter().filter(|(by, ..)| *by == old).map(|(_, came, _)| came).max().expect("there is a write");
    assert!(last < first, "{old} wrote at {last}, {new} at {first}");
}

#[tokio::test]
async fn who_is_cut_off_writes_nothing_after_its_successor_has() {
    let (cluster, namespace) = cluster("parted").await;
    create(&tanks(cluster.client(), &namespace), &["a"]).await;
    let proxy = Proxy::start(cluster).await;
    let one = writer(proxy.config(), &namespace, "one");
    until_written_by(cluster, &namespace, "one").await;
    let other = writer(cluster.config(), &namespace, "other");
    proxy.partition();
    let parted = Instant::now();
    until_written_by(cluster, &namespace, "other").await;
    let takeover = parted.elapsed();
    assert!(takeover < Duration::from_secs(20), "{takeover:?}");
    // Requests that hang in the proxy continue now.
    proxy.heal();
    let before = writes(cluster, &namespace).len();
    let more = wait::until("more writes", async || {
        if writes(cluster, &namespace).len() > before + 20 { Ok(()) } else { Err("too few") }
    });
    more.await.unwrap();
    assert_handed_over(cluster, &namespace, "one", "other");
    other.stop().await;
    // The first one still runs, and takes over.
    let user = format!("{namespace}-one");
    let again = wait::until("the first one to write again", async || {
        let writes = writes(cluster, &namespace);
        if writes.last().is_some_and(|(by, ..)| *by == user) { Ok(()) } else { Err("it has not") }
    });
    again.await.unwrap();
    one.stop().await;
}

#[tokio::test]
async fn who_stops_gives_the_lease_back_and_its_successor_need_not_wait() {
    let (cluster, namespace) = cluster("released").await;
    create(&tanks(cluster.client(), &namespace), &["a"]).await;
    let one = writer(cluster.config(), &namespace, "one");
    until_written_by(cluster, &namespace, "one").await;
    let other = writer(cluster.config(), &namespace, "other");
    let leases: Api<Lease> = Api::namespaced(cluster.client(), &namespace);
    let holder = |lease: &Lease| lease.spec.as_ref().and_then(|spec| spec.holder_identity.clone()).unwrap_or_default();
    assert_eq!(holder(&leases.get("tank").await.unwrap()), "one");
    one.stop().await;
    let taken = wait::until_within(Duration::from_secs(2), "the other to hold it", async || {
        let lease = leases.get("tank").await.map_err(|error| error.to_string())?;
        if holder(&lease) == "other" { Ok(lease) } else { Err(format!("{:?}", lease.spec)) }
    });
    let lease = taken.await.expect("sooner than the lease expires");
    assert_eq!(lease.spec.and_then(|spec| spec.lease_transitions), Some(1));
    until_written_by(cluster, &namespace, "other").await;
    assert_handed_over(cluster, &namespace, "one", "other");
    other.stop().await;
    assert_eq!(
        leases.get("tank").await.map(|lease| (lease.name_any(), holder(&lease))).unwrap(),
        ("tank".into(), String::new())
    );
}

#[tokio::test]
async fn a_stopping_holder_releases_the_lease_after_a_concurrent_update() {
    let (cluster, namespace) = cluster("touched").await;
    create(&tanks(cluster.client(), &namespace), &["a"]).await;
    let leases: Api<Lease> = Api::namespaced(cluster.client(), &namespace);
    for number in 0..5 {
        let one = writer(cluster.config(), &namespace, "one");
        let held = wait::until("the lease to be held", async || {
            let lease = leases.get("tank").await.map_err(|error| error.to_string())?;
            if lease.spec.as_ref().and_then(|spec| spec.holder_identity.as_deref()) == Some("one") {
                Ok(())
            } else {
                Err(format!("{:?}", lease.spec))
            }
        });
        held.await.unwrap();
        let touch = serde_json::json!({"metadata": {"annotations": {"touched": number.to_string()}}});
        leases.patch("tank", &PatchParams::default(), &Patch::Merge(touch)).await.unwrap();
        one.stop().await;
        let spec = leases.get("tank").await.unwrap().spec.unwrap();
        assert_eq!(spec.holder_identity.as_deref(), Some(""));
    }
}
