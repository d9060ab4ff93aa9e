//! An owner gets the objects that it should own, and no more, without needless writes.

use std::sync::Arc;

use k8s_openapi::api::apps::v1::Deployment;
use k8s_openapi::api::core::v1::ConfigMap;
use kube::api::{DeleteParams, Patch, PatchParams, PostParams};
use kube::{Api, ResourceExt};
use serde_json::json;
use trishanku_framework::apply::{Applied, ApplyError, ApplySet, Owned};
use trishanku_framework::cache::Scope;
use trishanku_framework::{Action, Context, Failure, Manager};
use trishanku_testkit::{TestCluster, wait};

use crate::support::{Log, Problem, Running, Tank, cluster, controller, create, owned, run, tanks};

const USER: &str = "applier-of";

fn map(name: &str, data: &[(&str, String)]) -> ConfigMap {
    let mut map = ConfigMap::default();
    map.metadata.name = Some(name.to_owned());
    map.data = Some(data.iter().map(|(key, value)| ((*key).to_owned(), value.clone())).collect());
    map
}

/// A Deployment with fields that the server sets or rewrites: defaults, and a list of containers.
fn pump() -> Deployment {
    serde_json::from_value(json!({
        "metadata": {"name": "pump", "labels": {"app": "pump"}},
        "spec": {
            "replicas": 1,
            "selector": {"matchLabels": {"app": "pump"}},
            "template": {
                "metadata": {"labels": {"app": "pump"}},
                "spec": {
                    "containers": [{
                        "name": "pump", "image": "pump:1", "ports": [{"containerPort": 80}],
                        "resources": {"requests": {"cpu": "100m"}}
                    }],
                    "volumes": [{"name": "data", "emptyDir": {}}]
                }
            }
        }
    }))
    .unwrap()
}

struct Caches {
    maps: Owned<ConfigMap>,
    pumps: Owned<Deployment>,
}

/// At level 0, applies `level`, `keys` with two keys, `old`, `fixed` and `pump`; at other levels without the second key and
/// without `old`.
async fn apply(tank: &Tank, context: &Context, caches: &Caches) -> Result<(), ApplyError> {
    let (level, mut set) = (tank.spec.level, ApplySet::of(tank, context.client.clone(), "test"));
    let mut keys = vec![("always", "yes".to_owned())];
    if level == 0 {
        keys.push(("extra", "yes".to_owned()));
        set.apply(map("old", &[]), &caches.maps).await?;
    }
    set.apply(map("keys", &keys), &caches.maps).await?;
    set.apply(map("level", &[("level", level.to_string())]), &caches.maps).await?;
    let mut fixed = map("fixed", &[("level", level.to_string())]);
    fixed.immutable = Some(true);
    if set.apply_or_recreate(fixed, &caches.maps).await? == Applied::Deleted {
        // The deletion triggers the next reconcile.
        return Ok(());
    }
    set.apply(pump(), &caches.pumps).await?;
    set.prune(&caches.maps).await.map(drop)
}

fn start(cluster: &TestCluster, namespace: &str, log: &Log) -> Running {
    let mut config = cluster.config();
    config.auth_info.impersonate = Some(format!("{USER}-{namespace}"));
    config.auth_info.impersonate_groups = Some(vec!["system:masters".to_owned()]);
    let manager = Manager::with_scope(config, Scope::namespaces([namespace]));
    let caches = Arc::new(Caches {
        maps: Owned::without_trigger(manager.caches().cache()),
        pumps: Owned::without_trigger(manager.caches().cache()),
    });
    let logs = log.clone();
    let reconcile = move |tank: Arc<Tank>, context: Context| {
        let (caches, logs) = (caches.clone(), logs.clone());
        async move {
            match apply(&tank, &context, &caches).await {
                Ok(()) => {
                    logs.add(format!("applied for {:?}", tank.annotations().get("round")));
                    Ok(Action::Change)
                }
                Err(error) => {
                    logs.add(format!("{}: {error}", error.reason()));
                    Err(Problem::Broken)
                }
            }
        }
    };
    run(manager.controller(controller(reconcile).owns::<ConfigMap>().owns::<Deployment>()))
}

fn writes(cluster: &TestCluster, namespace: &str) -> Vec<String> {
    let user = format!("{USER}-{namespace}");
    let written = cluster.audit().into_iter().filter(|entry| entry.is_write() && entry.user() == user);
    written.map(|entry| format!("{} {} {}", entry.verb, entry.resource(), entry.name())).collect()
}

#[tokio::test]
async fn what_is_wanted_is_there_what_is_not_goes_and_nothing_is_written_twice() {
    let (cluster, namespace) = cluster("apply").await;
    let (api, log) = (tanks(cluster.client(), &namespace), Log::default());
    let (maps, pumps) = (
        Api::<ConfigMap>::namespaced(cluster.client(), &namespace),
        Api::<Deployment>::namespaced(cluster.client(), &namespace),
    );
    // Has the label of a member, but no owner.
    let mut stranger = map("stranger", &[]);
    stranger.metadata.labels =
        Some([(trishanku_framework::apply::PART_OF.to_owned(), "applyset-x-v1".to_owned())].into());
    maps.create(&PostParams::default(), &stranger).await.unwrap();
    create(&api, &["tank"]).await;
    // Owned by the tank, but not created by its controller.
    let by_hand = owned(&api.get("tank").await.unwrap(), "by-hand");
    maps.create(&PostParams::default(), &by_hand).await.unwrap();
    let running = start(cluster, &namespace, &log);
    wait::until_object(&pumps, "pump", "it exists", |_| true).await.unwrap();
    let is_owned = |map: &ConfigMap| map.owner_references().iter().any(|owner| owner.kind == "Tank");
    wait::until_object(&maps, "old", "it is owned", is_owned).await.unwrap();

    // Once all changes have come back through the watches, there is nothing to write.
    let quiet = async |round: &str| {
        let patch = Patch::Merge(json!({"metadata": {"annotations": {"round": round}}}));
        api.patch("tank", &PatchParams::default(), &patch).await.unwrap();
        log.until(1, &format!("applied for {:?}", Some(round))).await;
    };
    quiet("settle").await;
    let before = writes(cluster, &namespace);
    assert_eq!(before.iter().filter(|write| write.ends_with("pump")).count(), 1, "{before:?}");
    for round in ["1", "2", "3"] {
        quiet(round).await;
    }
    // A write whose audit entry would come after those of the rounds.
    maps.delete("level", &DeleteParams::default()).await.unwrap();
    let made_again = wait::until_object(&maps, "level", "it exists again", |_| true).await.unwrap();
    let again = wait::until("the write in the audit log", async || {
        let after = writes(cluster, &namespace);
        if after.len() > before.len() { Ok(after) } else { Err("it is not there yet") }
    });
    assert_eq!(again.await.unwrap()[before.len()..], ["patch configmaps level"]);
    assert_eq!(made_again.data.map(|data| data.len()), Some(1));

    // Drift.
    let patch = Patch::Merge(json!({"data": {"level": "99", "theirs": "stays"}}));
    maps.patch("level", &PatchParams::default(), &patch).await.unwrap();
    let mended =
        |map: &ConfigMap| map.data.as_ref().is_some_and(|data| data["level"] == "0" && data["theirs"] == "stays");
    wait::until_object(&maps, "level", "the drift is corrected, and fields of others stay", mended).await.unwrap();

    // A key and an object are no longer desired, and an immutable field gets another value.
    let patch = Patch::Merge(json!({"spec": {"level": 1}}));
    api.patch("tank", &PatchParams::default(), &patch).await.unwrap();
    let less = |map: &ConfigMap| map.data.as_ref().is_some_and(|data| data.contains_key("always") && data.len() == 1);
    wait::until_object(&maps, "keys", "the key is gone", less).await.unwrap();
    wait::until_gone(&maps, "old").await.unwrap();
    let changed = |map: &ConfigMap| map.data.as_ref().is_some_and(|data| data["level"] == "1");
    wait::until_object(&maps, "fixed", "it was created again", changed).await.unwrap();
    for left in ["stranger", "by-hand"] {
        assert!(maps.get_opt(left).await.unwrap().is_some(), "{left}");
    }
    running.stop().await;
}

#[tokio::test]
async fn objects_of_another_owner_are_left_alone_and_reported() {
    let (cluster, namespace) = cluster("foreign").await;
    let (api, log) = (tanks(cluster.client(), &namespace), Log::default());
    let maps: Api<ConfigMap> = Api::namespaced(cluster.client(), &namespace);
    maps.create(&PostParams::default(), &map("level", &[("a", "user's".to_owned())])).await.unwrap();
    let running = start(cluster, &namespace, &log);
    create(&api, &["tank"]).await;
    let remedy = "use another name, or delete it";
    log.until(
        2,
        &format!("NotOurs: ConfigMap {namespace}/level already exists and belongs to no controller; {remedy}"),
    )
    .await;
    assert_eq!(maps.get("level").await.unwrap().data.unwrap()["a"], "user's");
    maps.delete("level", &DeleteParams::default()).await.unwrap();
    let ours = |map: &ConfigMap| map.data.as_ref().is_some_and(|data| data["level"] == "0");
    wait::until_object(&maps, "level", "it is ours", ours).await.unwrap();
    running.stop().await;
}

#[tokio::test]
async fn what_the_cache_does_not_show_is_neither_overwritten_nor_deleted() {
    let (cluster, namespace) = cluster("hidden").await;
    let (api, log) = (tanks(cluster.client(), &namespace), Log::default());
    let maps: Api<ConfigMap> = Api::namespaced(cluster.client(), &namespace);
    let mut fixed = map("fixed", &[("theirs", "yes".to_owned())]);
    fixed.immutable = Some(true);
    let mut before = Vec::new();
    for map in [map("level", &[("level", "theirs".to_owned())]), fixed] {
        before.push(maps.create(&PostParams::default(), &map).await.unwrap());
    }
    let manager = Manager::with_scope(cluster.config(), Scope::namespaces([&namespace]));
    let cache = Owned::without_trigger(manager.caches().cache_selecting::<ConfigMap>("kind=tank"));
    let logs = log.clone();
    let running = run(manager.controller(controller(move |tank: Arc<Tank>, context: Context| {
        let (cache, logs) = (cache.clone(), logs.clone());
        async move {
            let mut set = ApplySet::of(&*tank, context.client.clone(), "test");
            for name in ["level", "fixed"] {
                let applied = set.apply_or_recreate(map(name, &[("level", "0".to_owned())]), &cache).await;
                logs.add(format!("{name}: {:?}", applied.map_err(|error| error.reason())));
            }
            Ok(Action::Change)
        }
    })));
    create(&api, &["tank"]).await;
    log.until(1, "level: Err(\"NotOurs\")").await;
    log.until(1, "fixed: Err(\"NotOurs\")").await;
    for map in before {
        assert_eq!(maps.get(&map.name_any()).await.unwrap(), map);
    }
    running.stop().await;
}
