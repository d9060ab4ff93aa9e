//! What is no longer desired is deleted, of all kinds that a controller owns.

use std::sync::Arc;

use k8s_openapi::api::core::v1::{ConfigMap, Secret};
use kube::api::{Patch, PatchParams};
use kube::{Api, ResourceExt};
use serde_json::json;
use trishanku_framework::apply::{Applied, ApplyError, Owned};
use trishanku_framework::cache::Scope;
use trishanku_framework::{Action, Context, Controller, Failure, Key, Manager, Retry};
use trishanku_testkit::wait;

use crate::support::{Does, Log, Problem, Tank, cluster, create, owned, run, tanks};

struct Kinds {
    declared: Owned<ConfigMap>,
    other: Owned<Secret>,
}

/// At level 0, applies a map and a Secret without a name; at level 1, only a map with one; at level 2, nothing.
async fn apply(tank: &Tank, context: &Context, kinds: &Kinds) -> Result<(Vec<Applied>, usize), ApplyError> {
    let (mut set, mut applied) = (context.apply_set(tank), Vec::new());
    match tank.spec.level {
        0 => {
            applied.push(set.apply(ConfigMap::default(), &kinds.declared).await?);
            applied.push(set.apply(Secret::default(), &kinds.other).await?);
        }
        1 => {
            let mut map = ConfigMap::default();
            map.metadata.name = Some("named".to_owned());
            applied.push(set.apply(map, &kinds.declared).await?);
        }
        _ => {}
    }
    Ok((applied, set.prune_all().await?))
}

#[tokio::test]
async fn a_kind_that_nothing_is_applied_of_is_pruned_too_and_objects_of_others_stay() {
    let (cluster, namespace) = cluster("pruned").await;
    let (api, client, log) = (tanks(cluster.client(), &namespace), cluster.client(), Log::default());
    let maps: Api<ConfigMap> = Api::namespaced(client.clone(), &namespace);
    let secrets: Api<Secret> = Api::namespaced(client, &namespace);
    let logs = log.clone();
    let controller = Controller::set_up("test", move |kinds| {
        let kinds = Arc::new(Kinds { declared: kinds.owned(), other: kinds.owned() });
        let reconcile = move |tank: Arc<Tank>, context: Context| {
            let (kinds, logs) = (kinds.clone(), logs.clone());
            async move {
                let done = apply(&tank, &context, &kinds).await.map_err(|_| Problem::Broken)?;
                logs.add(format!("level {}: {done:?}", tank.spec.level));
                Ok(Action::Change)
            }
        };
        Does { reconcile, clean_up: None::<fn(_) -> _> }
    });
    let running = run(Manager::with_scope(cluster.config(), Scope::namespaces([&namespace])).controller(controller));
    create(&api, &["tank"]).await;
    // Both have the name of their owner.
    let map = wait::until_object(&maps, "tank", "it exists", |_| true).await.unwrap();
    wait::until_object(&secrets, "tank", "it exists", |_| true).await.unwrap();
    assert_eq!((&*map.owner_references()[0].kind, &*map.owner_references()[0].name), ("Tank", "tank"));
    // It has the owner, and was never applied.
    let by_hand = owned(&api.get("tank").await.unwrap(), "by-hand");
    maps.create(&kube::api::PostParams::default(), &by_hand).await.unwrap();
    log.until(1, "level 0: ([Unchanged, Unchanged], 0)").await;

    let level = async |level: i32| {
        let patch = Patch::Merge(json!({"spec": {"level": level}}));
        api.patch("tank", &PatchParams::default(), &patch).await.unwrap();
    };
    level(1).await;
    wait::until_gone(&secrets, "tank").await.unwrap();
    wait::until_gone(&maps, "tank").await.unwrap();
    log.until(1, "level 1: ([Written], 2)").await;
    level(2).await;
    log.until(1, "level 2: ([], 1)").await;
    wait::until_gone(&maps, "named").await.unwrap();
    maps.get("by-hand").await.unwrap();
    running.stop().await;
}

#[tokio::test]
async fn without_a_controller_the_kinds_that_were_applied_are_pruned_and_a_generated_name_is_refused() {
    let (cluster, namespace) = cluster("pruned-alone").await;
    let api = tanks(cluster.client(), &namespace);
    create(&api, &["tank"]).await;
    let owner = api.get("tank").await.unwrap();
    let manager = Manager::with_scope(cluster.config(), Scope::namespaces([&namespace]));
    let maps = Owned::without_trigger(manager.caches().cache::<ConfigMap>());
    let running = run(manager);
    maps.cache().synced().await;
    let set = || trishanku_framework::apply::ApplySet::of(&owner, cluster.client(), "test");
    let mut first = set();
    assert_eq!(first.apply(map("a"), &maps).await.unwrap(), Applied::Written);
    assert_eq!((first.apply(map("b"), &maps).await.unwrap(), first.prune_all().await.unwrap()), (Applied::Written, 0));
    let mut second = set();
    assert_eq!(second.prune_all().await.unwrap(), 0, "it knows no kind");
    second.apply(map("b"), &maps).await.unwrap();
    assert_eq!(second.prune_all().await.unwrap(), 1);
    let left: Vec<_> = maps.owned_by(&owner.uid().unwrap()).iter().map(|map| map.name_any()).collect();
    assert_eq!(left, ["b"]);

    let mut generated = ConfigMap::default();
    generated.metadata.generate_name = Some("tank-".to_owned());
    let error = set().apply(generated, &maps).await.unwrap_err();
    assert_eq!(error.reason(), "NoName");
    assert!(error.to_string().contains("cannot apply a ConfigMap with generateName"), "{error}");
    running.stop().await;
}

fn map(name: &str) -> ConfigMap {
    let mut map = ConfigMap::default();
    map.metadata.name = Some(name.to_owned());
    map
}

#[tokio::test]
async fn what_is_kept_or_of_another_field_manager_is_not_pruned_and_one_name_is_applied_once() {
    let (cluster, namespace) = cluster("pruned-kept").await;
    let api = tanks(cluster.client(), &namespace);
    create(&api, &["tank"]).await;
    let owner = api.get("tank").await.unwrap();
    let manager = Manager::with_scope(cluster.config(), Scope::namespaces([&namespace]));
    let maps = Owned::without_trigger(manager.caches().cache::<ConfigMap>());
    let running = run(manager);
    maps.cache().synced().await;
    let set = |manager: &str| trishanku_framework::apply::ApplySet::of(&owner, cluster.client(), manager);
    let left = || {
        let mut names: Vec<_> = maps.owned_by(&owner.uid().unwrap()).iter().map(|map| map.name_any()).collect();
        names.sort();
        names
    };
    let mut first = set("one");
    for name in ["password", "old"] {
        assert_eq!(first.apply(map(name), &maps).await.unwrap(), Applied::Written);
    }
    let mut other = set("two");
    assert_eq!(other.apply(map("theirs"), &maps).await.unwrap(), Applied::Written);
    assert_eq!(other.prune_all().await.unwrap(), 0, "the others are of the first");
    assert_eq!(left(), ["old", "password", "theirs"]);

    let mut second = set("one");
    second.keep(&Key::namespaced(&namespace, "password"), &maps);
    assert_eq!(second.prune(&maps).await.unwrap(), 1);
    assert_eq!(left(), ["password", "theirs"]);
    assert_eq!(set("one").prune(&maps).await.unwrap(), 1, "it is kept only by a set that names it");
    assert_eq!((set("two").prune(&maps).await.unwrap(), left()), (1, Vec::new()));

    let mut nameless = set("one");
    nameless.keep(&Key::namespaced(&namespace, "tank"), &maps);
    assert_eq!(nameless.apply(ConfigMap::default(), &maps).await.unwrap(), Applied::Written, "it may be kept before");
    let error = nameless.apply(ConfigMap::default(), &maps).await.unwrap_err();
    assert_eq!((error.reason(), error.retry()), ("AppliedTwice", Retry::Terminal));
    let expected = format!("ConfigMap {namespace}/tank was applied twice to one set");
    assert!(error.to_string().starts_with(&expected), "{error}");
    running.stop().await;
}

#[tokio::test]
async fn a_kind_that_the_controller_declares_beside_its_reconciler_is_pruned_too() {
    let (cluster, namespace) = cluster("pruned-beside").await;
    let (api, client) = (tanks(cluster.client(), &namespace), cluster.client());
    let (maps, secrets): (Api<ConfigMap>, Api<Secret>) =
        (Api::namespaced(client.clone(), &namespace), Api::namespaced(client, &namespace));
    let manager = Manager::with_scope(cluster.config(), Scope::namespaces([&namespace]));
    let caches = manager.caches();
    let kinds = Arc::new((
        Owned::without_trigger(caches.cache::<ConfigMap>()),
        Owned::without_trigger(caches.cache::<Secret>()),
    ));
    let declared = kinds.1.cache().clone();
    let reconcile = move |tank: Arc<Tank>, context: Context| {
        let kinds = kinds.clone();
        async move {
            let mut set = context.apply_set(&*tank);
            if tank.spec.level == 0 {
                set.apply(ConfigMap::default(), &kinds.0).await.map_err(|_| Problem::Broken)?;
                set.apply(Secret::default(), &kinds.1).await.map_err(|_| Problem::Broken)?;
            }
            set.prune_all().await.map_err(|_| Problem::Broken)?;
            Ok(Action::Change)
        }
    };
    let controller = Controller::new("test", Does { reconcile, clean_up: None::<fn(_) -> _> });
    let running = run(manager.controller(controller.owns::<ConfigMap>().owns_cached(&declared)));
    create(&api, &["tank"]).await;
    wait::until_object(&maps, "tank", "it exists", |_| true).await.unwrap();
    wait::until_object(&secrets, "tank", "it exists", |_| true).await.unwrap();
    api.patch("tank", &PatchParams::default(), &Patch::Merge(json!({"spec": {"level": 1}}))).await.unwrap();
    wait::until_gone(&maps, "tank").await.unwrap();
    wait::until_gone(&secrets, "tank").await.unwrap();
    running.stop().await;
}
