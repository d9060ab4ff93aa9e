//! Dry runs: the changes of a write, without the write.

use std::sync::Arc;

use k8s_openapi::ByteString;
use k8s_openapi::api::core::v1::{ConfigMap, Secret};
use kube::api::{Patch, PatchParams};
use kube::{Api, Resource};
use serde_json::json;
use trishanku_framework::apply::{Applied, ApplyError, ApplySet, Owned, Planned};
use trishanku_framework::cache::Scope;
use trishanku_framework::{Action, Context, Failure, Manager};
use trishanku_testkit::{TestCluster, wait};

use crate::support::{Log, Problem, Running, Tank, cluster, controller, create, run, tanks};

struct Caches {
    maps: Owned<ConfigMap>,
    secrets: Owned<Secret>,
}

fn named<K: Resource + Default>(name: &str) -> K {
    let mut object = K::default();
    object.meta_mut().name = Some(name.to_owned());
    object
}

/// At level 0 it writes; above, it is a dry run.
async fn apply(tank: &Tank, context: &Context, caches: &Caches) -> Result<Vec<Planned>, ApplyError> {
    let level = tank.spec.level;
    let mut set = ApplySet::of(tank, context.client.clone(), "test");
    if level > 0 {
        set = set.dry_run();
    }
    let text = level.to_string();
    let data = if level == 0 { vec![("level", text), ("old", "x".to_owned())] } else { vec![("level", text)] };
    let data = data.into_iter().map(|(key, value)| (key.to_owned(), value)).collect();
    set.apply(ConfigMap { data: Some(data), ..named("level") }, &caches.maps).await?;
    let password = ByteString(format!("password of {level}").into_bytes());
    let secret = Secret { data: Some([("password".to_owned(), password)].into()), ..named("secret") };
    set.apply(secret, &caches.secrets).await?;
    set.apply(named(if level == 0 { "old" } else { "new" }), &caches.maps).await?;
    if level == 2 {
        // The apiserver validates a dry run, too.
        set.apply(named("Not_A_Name"), &caches.maps).await?;
    }
    set.prune(&caches.maps).await?;
    Ok(set.planned().to_vec())
}

fn start(cluster: &TestCluster, namespace: &str, log: &Log) -> Running {
    let mut config = cluster.config();
    config.auth_info.impersonate = Some(format!("dry-{namespace}"));
    config.auth_info.impersonate_groups = Some(vec!["system:masters".to_owned()]);
    let manager = Manager::with_scope(config, Scope::namespaces([namespace]));
    let caches = Arc::new(Caches {
        maps: Owned::without_trigger(manager.caches().cache()),
        secrets: Owned::without_trigger(manager.caches().cache()),
    });
    let log = log.clone();
    let reconcile = move |tank: Arc<Tank>, context: Context| {
        let (caches, log) = (caches.clone(), log.clone());
        async move {
            match apply(&tank, &context, &caches).await {
                Ok(planned) => {
                    for Planned { kind, key, applied, changes } in &planned {
                        let changes: Vec<_> = changes.iter().map(ToString::to_string).collect();
                        log.add(format!("{kind} {} {applied:?} {}", key.name(), changes.join("; ")));
                    }
                    log.add(format!("level {}", tank.spec.level));
                }
                Err(error) => log.add(error.reason()),
            }
            Ok::<_, Problem>(Action::Change)
        }
    };
    run(manager.controller(controller(reconcile)))
}

async fn set_level(api: &Api<Tank>, level: i32) {
    let patch = Patch::Merge(json!({"spec": {"level": level}}));
    api.patch("tank", &PatchParams::default(), &patch).await.unwrap();
}

#[tokio::test]
async fn a_dry_run_reports_what_would_change_and_changes_nothing() {
    let (cluster, namespace) = cluster("dry").await;
    let (api, log) = (tanks(cluster.client(), &namespace), Log::default());
    create(&api, &["tank"]).await;
    let running = start(cluster, &namespace, &log);
    log.until(1, "level 0").await;
    assert_eq!(log.all(), ["level 0"], "a write is not in `planned`");

    set_level(&api, 1).await;
    log.until(1, "level 1").await;
    set_level(&api, 2).await;
    log.until(1, "Invalid").await;
    // A dry run does not count as a write.
    set_level(&api, 3).await;
    log.until(1, "level 3").await;
    let planned = |level: i32| {
        [
            format!(r#"ConfigMap level Written ~ data.level: "0" → "{level}"; - data.old: "x""#),
            "Secret secret Written ~ data.password: (hidden) → (hidden)".to_owned(),
        ]
    };
    let all = log.all();
    assert_eq!(all[1..3], planned(1));
    assert!(all[3].starts_with("ConfigMap new Written + metadata.labels.applyset"), "{all:?}");
    assert_eq!(all[4..7], [format!("ConfigMap old {:?} ", Applied::Deleted), "level 1".into(), "Invalid".into()]);
    assert_eq!(all[7..9], planned(3));
    running.stop().await;

    let maps: Api<ConfigMap> = Api::namespaced(cluster.client(), &namespace);
    assert_eq!(maps.get("level").await.unwrap().data.unwrap()["level"], "0");
    assert!(maps.get_opt("old").await.unwrap().is_some() && maps.get_opt("new").await.unwrap().is_none());
    let writes = wait::until("the rejected write in the audit log", async || {
        let user = format!("dry-{namespace}");
        let writes: Vec<_> =
            cluster.audit().into_iter().filter(|entry| entry.verb == "patch" && entry.user() == user).collect();
        if writes.iter().any(|write| write.code() == 422) { Ok(writes) } else { Err(format!("{writes:?}")) }
    });
    // For a deletion, `dryRun` is in the body.
    let (dry, wet): (Vec<_>, Vec<_>) =
        writes.await.unwrap().into_iter().partition(|write| write.uri.contains("dryRun=All"));
    assert_eq!((wet.len(), dry.len()), (3, 3 + 4 + 3), "{wet:?} {dry:?}");
}
