//! Owners that are deleted, with a garbage collector as in clusters.

use std::collections::BTreeSet;
use std::sync::Arc;

use k8s_openapi::api::core::v1::ConfigMap;
use kube::api::{DeleteParams, ListParams, Patch, PatchParams, PostParams, PropagationPolicy};
use kube::{Api, CustomResourceExt, ResourceExt};
use serde_json::json;
use tokio::sync::watch;
use trishanku_framework::apply::{ApplySet, Owned};
use trishanku_framework::cache::{Cache, Scope};
use trishanku_framework::{Action, Context, Failure, Key, Manager};
use trishanku_testkit::{TestCluster, wait};

use crate::support::{Log, Problem, Running, Tank, cluster, controller, create, owned, run, tanks};

const NAMESPACE: &str = "default";
const USER: &str = "maker";

fn map(name: String) -> ConfigMap {
    let mut map = ConfigMap::default();
    map.metadata.name = Some(name);
    map
}

/// Creates two maps for each tank; for the tank `slow`, it first waits for `open`.
fn maker(cluster: &TestCluster, log: &Log, open: watch::Receiver<bool>) -> (Running, Arc<Cache<ConfigMap>>) {
    let mut config = cluster.config();
    config.auth_info.impersonate = Some(USER.to_owned());
    config.auth_info.impersonate_groups = Some(vec!["system:masters".to_owned()]);
    let manager = Manager::with_scope(config, Scope::namespaces([NAMESPACE]));
    let (maps, log) = (Owned::without_trigger(manager.caches().cache::<ConfigMap>()), log.clone());
    let known = maps.cache().clone();
    let reconcile = move |tank: Arc<Tank>, context: Context| {
        let (maps, log, mut open) = (maps.clone(), log.clone(), open.clone());
        async move {
            let name = tank.name_any();
            log.add(format!("{name} begins"));
            if name == "slow" && !*open.borrow() {
                log.add("slow waits");
                open.wait_for(|open| *open).await.expect("the test holds the sender");
            }
            let mut set = ApplySet::of(&*tank, context.client.clone(), USER);
            for number in ["1", "2"] {
                set.apply(map(format!("{name}-{number}")), &maps).await.map_err(|_| Problem::Broken)?;
            }
            log.add(format!("{name} ends"));
            Ok(Action::Change)
        }
    };
    (run(manager.controller(controller(reconcile).owns::<ConfigMap>())), known)
}

/// Returns the names of this tank's maps.
async fn maps_of(maps: &Api<ConfigMap>, tank: &str) -> BTreeSet<String> {
    let all = maps.list(&ListParams::default()).await.unwrap();
    all.iter().map(ResourceExt::name_any).filter(|name| name.starts_with(&format!("{tank}-"))).collect()
}

async fn until_none(maps: &Api<ConfigMap>, tank: &str) {
    let gone = wait::until(format!("the deletion of what {tank} owns"), async || match maps_of(maps, tank).await {
        left if left.is_empty() => Ok(()),
        left => Err(format!("{left:?} still exist")),
    });
    gone.await.unwrap();
}

/// Returns how often the controller wrote a map of this tank.
fn made(cluster: &TestCluster, tank: &str) -> usize {
    let prefix = format!("{tank}-");
    let ours = |entry: &trishanku_testkit::audit::Entry| entry.user() == USER && entry.resource() == "configmaps";
    cluster
        .audit()
        .iter()
        .filter(|entry| entry.has_written() && ours(entry) && entry.name().starts_with(&prefix))
        .count()
}

/// Deletes the maps of a tank, and returns what became of each, and whether the cache has it. `stale` is an older version of one.
async fn delete(tank: &Tank, context: &Context, maps: &Owned<ConfigMap>, stale: &ConfigMap) -> Vec<String> {
    let mut set = context.apply_set(tank);
    let mut outcomes = Vec::new();
    let uid = tank.metadata.uid.as_deref().unwrap_or_default();
    let mut cached = maps.owned_by(uid);
    cached.sort_by_key(|map| map.name_any());
    let mut dry = context.apply_set(tank).dry_run();
    for map in &cached {
        let map = if map.name_any() == stale.name_any() { stale } else { map };
        let planned = dry.delete(map, maps).await.map_err(|error| error.reason());
        let deletion = set.delete(map, maps).await.map_err(|error| error.reason());
        let key = Key::of(map);
        let cached = maps.get(&key).map_or("gone", |map| match map.metadata.deletion_timestamp {
            Some(_) => "going",
            None => "there",
        });
        outcomes.push(format!("{}: {planned:?} {deletion:?} {cached}", key.name()));
        if cached == "gone" {
            let again = set.delete(map, maps).await.map_err(|error| error.reason());
            outcomes.push(format!("{} again: {again:?}", key.name()));
        }
    }
    let planned = dry.planned().iter().map(|planned| format!("{} {:?}", planned.key.name(), planned.applied));
    outcomes.push(planned.collect::<Vec<_>>().join(", "));
    outcomes
}

#[tokio::test]
async fn one_object_is_deleted_as_it_was_looked_at_and_the_cache_knows_it_at_once() {
    let (cluster, namespace) = cluster("deleting").await;
    let (api, log) = (tanks(cluster.client(), &namespace), Log::default());
    let maps: Api<ConfigMap> = Api::namespaced(cluster.client(), &namespace);
    create(&api, &["tank"]).await;
    let tank = api.get("tank").await.unwrap();
    let made = async |name: &str, finalizers: Option<Vec<String>>| {
        let mut map = owned(&tank, name);
        map.metadata.finalizers = finalizers;
        maps.create(&PostParams::default(), &map).await.unwrap()
    };
    made("a-plain", None).await;
    made("b-held", Some(vec!["framework.test/held".to_owned()])).await;
    let stale = made("c-stale", None).await;
    let patch = Patch::Merge(json!({"data": {"level": "3"}}));
    maps.patch("c-stale", &PatchParams::default(), &patch).await.unwrap();

    let manager = Manager::with_scope(cluster.config(), Scope::namespaces([&namespace]));
    let (known, logs) = (Owned::without_trigger(manager.caches().cache::<ConfigMap>()), log.clone());
    let reconcile = move |tank: Arc<Tank>, context: Context| {
        let (known, logs, stale) = (known.clone(), logs.clone(), stale.clone());
        async move {
            logs.add(format!("{:?}", delete(&tank, &context, &known, &stale).await));
            Ok(Action::Change)
        }
    };
    let running = run(manager.controller(controller(reconcile)));
    let planned = "a-plain Deleted, b-held Deleted";
    let expected = [
        "a-plain: Ok(Deleted) Ok(Deleted) gone",
        "a-plain again: Ok(Gone)",
        "b-held: Ok(Deleted) Ok(Deleted) going",
        "c-stale: Ok(Changed) Ok(Changed) there",
        planned,
    ];
    log.until(1, &format!("{expected:?}")).await;
    running.stop().await;
    let mut left: Vec<_> = maps.list(&ListParams::default()).await.unwrap().iter().map(ResourceExt::name_any).collect();
    // The apiserver adds one to each namespace.
    left.retain(|name| name != "kube-root-ca.crt");
    assert_eq!(left, ["b-held", "c-stale"]);
}

#[tokio::test]
async fn what_is_owned_goes_with_its_owner_and_is_not_made_again_meanwhile() {
    let cluster = TestCluster::start().await.unwrap();
    cluster.install(&Tank::crd()).await;
    cluster.collect_garbage().await.unwrap();
    let (api, maps) = (tanks(cluster.client(), NAMESPACE), Api::<ConfigMap>::namespaced(cluster.client(), NAMESPACE));
    let (log, (gate, open)) = (Log::default(), watch::channel(true));
    let (running, known) = maker(&cluster, &log, open);
    create(&api, &["after", "before", "kept", "slow"]).await;
    for tank in ["after", "before", "kept", "slow"] {
        log.until(1, &format!("{tank} ends")).await;
    }

    // The owner is deleted before its maps, or after them (foreground).
    api.delete("after", &DeleteParams::background()).await.unwrap();
    api.delete("before", &DeleteParams::foreground()).await.unwrap();
    for tank in ["after", "before"] {
        until_none(&maps, tank).await;
        wait::until_gone(&api, tank).await.unwrap();
        // Each kind has its own watch, and that of the owners may lag behind.
        assert!(made(&cluster, tank) <= 4, "no loop with the garbage collector");
    }
    let orphaning = DeleteParams { propagation_policy: Some(PropagationPolicy::Orphan), ..DeleteParams::default() };
    api.delete("kept", &orphaning).await.unwrap();
    wait::until_gone(&api, "kept").await.unwrap();
    assert_eq!(maps_of(&maps, "kept").await.len(), 2);
    assert!(maps.get("kept-1").await.unwrap().owner_references().is_empty());
    assert_eq!(made(&cluster, "kept"), 2);

    // An object is deleted while a reconcile runs, which then creates maps whose owner no longer exists.
    gate.send_replace(false);
    maps.delete("slow-1", &DeleteParams::default()).await.unwrap();
    log.until(1, "slow waits").await;
    let begun = log.times("slow begins").len();
    api.delete("slow", &DeleteParams::background()).await.unwrap();
    wait::until_gone(&api, "slow").await.unwrap();
    until_none(&maps, "slow").await;
    let forgotten = wait::until("the cache to notice the deletion", async || match known.keys() {
        keys if keys.iter().all(|key| !key.name().starts_with("slow-")) => Ok(()),
        keys => Err(format!("{keys:?}")),
    });
    forgotten.await.unwrap();
    let before = made(&cluster, "slow");
    gate.send_replace(true);
    let both = wait::until("the maps that it creates", async || match made(&cluster, "slow") - before {
        2 => Ok(()),
        other => Err(other),
    });
    both.await.unwrap();
    until_none(&maps, "slow").await;
    assert_eq!(log.times("slow begins").len(), begun, "no reconcile of a deleted object");
    running.stop().await;
}
