//! Objects that cannot be changed are deleted and created again, whatever their kind calls that, and only these.

use std::sync::Arc;

use k8s_openapi::api::apps::v1::StatefulSet;
use k8s_openapi::api::batch::v1::Job;
use k8s_openapi::api::rbac::v1::RoleBinding;
use kube::api::{Patch, PatchParams};
use kube::{Api, ResourceExt};
use serde_json::{Value, json};
use trishanku_framework::apply::{Applied, ApplyError, ApplySet, Owned};
use trishanku_framework::cache::Scope;
use trishanku_framework::{Action, Context, Failure, Manager, StaticKind};
use trishanku_testkit::wait;

use crate::support::{Log, Problem, Tank, cluster, controller, create, run, tanks};

/// At levels 0 and 1, differs in a field that is immutable; at level 2, is invalid for a new object, too.
fn set(level: i32) -> StatefulSet {
    from(json!({
        "metadata": {"name": "set"},
        "spec": {
            "serviceName": format!("service-{}", level.min(1)),
            "replicas": if level == 2 { -1 } else { 0 },
            "selector": {"matchLabels": {"app": "set"}},
            "template": {"metadata": {"labels": {"app": "set"}}, "spec": {"containers": [{"name": "a", "image": "a:1"}]}}
        }
    }))
}

fn binding(level: i32) -> RoleBinding {
    let name = if level == 2 { String::new() } else { format!("role-{}", level.min(1)) };
    from(json!({
        "metadata": {"name": "binding"},
        "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "Role", "name": name},
        "subjects": [{"kind": "ServiceAccount", "name": "default", "namespace": "default"}]
    }))
}

fn job(level: i32) -> Job {
    let policy = if level == 2 { "Sometimes" } else { "Never" };
    let container = json!({"name": "a", "image": format!("a:{}", level.min(1))});
    from(json!({
        "metadata": {"name": "job"},
        "spec": {"suspend": true, "template": {"spec": {"restartPolicy": policy, "containers": [container]}}}
    }))
}

fn from<K: StaticKind>(value: Value) -> K {
    serde_json::from_value(value).expect("the object is valid")
}

struct Caches {
    sets: Owned<StatefulSet>,
    bindings: Owned<RoleBinding>,
    jobs: Owned<Job>,
}

async fn apply(tank: &Tank, context: &Context, caches: &Caches) -> [Result<Applied, ApplyError>; 3] {
    let (level, mut all) = (tank.spec.level, ApplySet::of(tank, context.client.clone(), "test"));
    [
        all.apply_or_recreate(set(level), &caches.sets).await,
        all.apply_or_recreate(binding(level), &caches.bindings).await,
        all.apply_or_recreate(job(level), &caches.jobs).await,
    ]
}

#[tokio::test]
async fn what_is_immutable_is_made_anew_and_what_is_invalid_stays() {
    let (cluster, namespace) = cluster("recreate").await;
    let (api, log) = (tanks(cluster.client(), &namespace), Log::default());
    let manager = Manager::with_scope(cluster.config(), Scope::namespaces([&namespace]));
    let caches = Caches {
        sets: Owned::without_trigger(manager.caches().cache()),
        bindings: Owned::without_trigger(manager.caches().cache()),
        jobs: Owned::without_trigger(manager.caches().cache()),
    };
    let (caches, logs) = (Arc::new(caches), log.clone());
    let tanks = controller(move |tank: Arc<Tank>, context: Context| {
        let (caches, logs) = (caches.clone(), logs.clone());
        async move {
            let applied = Box::pin(apply(&tank, &context, &caches)).await;
            for (kind, applied) in ["set", "binding", "job"].into_iter().zip(applied) {
                let outcome = applied.map_err(|error| error.reason());
                logs.add(format!("{kind} at {}: {outcome:?}", tank.spec.level));
                if outcome.is_err() && tank.spec.level < 2 {
                    return Err(Problem::Broken);
                }
            }
            Ok(Action::Change)
        }
    });
    let running = run(manager.controller(tanks.owns::<StatefulSet>().owns::<RoleBinding>().owns::<Job>()));
    create(&api, &["tank"]).await;

    let sets: Api<StatefulSet> = Api::namespaced(cluster.client(), &namespace);
    let bindings: Api<RoleBinding> = Api::namespaced(cluster.client(), &namespace);
    let jobs: Api<Job> = Api::namespaced(cluster.client(), &namespace);
    let uids = async |level: &str| {
        let (service, role, image) = (format!("service-{level}"), format!("role-{level}"), format!("a:{level}"));
        let is = |set: &StatefulSet| set.spec.as_ref().and_then(|spec| spec.service_name.as_ref()) == Some(&service);
        let set = wait::until_object(&sets, "set", &service, is).await.unwrap().uid();
        let binding =
            wait::until_object(&bindings, "binding", &role, |it| it.role_ref.name == role).await.unwrap().uid();
        let is = |job: &Job| {
            let pod = job.spec.as_ref().and_then(|spec| spec.template.spec.as_ref());
            pod.is_some_and(|pod| pod.containers[0].image.as_ref() == Some(&image))
        };
        let job = wait::until_object(&jobs, "job", &image, is).await.unwrap().uid();
        [set, binding, job]
    };
    let before = uids("0").await;
    let to = async |level: i32| {
        let patch = Patch::Merge(json!({"spec": {"level": level}}));
        api.patch("tank", &PatchParams::default(), &patch).await.unwrap();
    };
    to(1).await;
    let after = uids("1").await;
    for ((kind, before), after) in ["set", "binding", "job"].into_iter().zip(before).zip(&after) {
        assert_ne!(before, *after, "the {kind} is another one");
        assert_eq!(log.times(&format!("{kind} at 1: Ok(Deleted)")).len(), 1, "{:?}", log.all());
    }
    // Otherwise a mistake in the spec would delete what it cannot create again.
    to(2).await;
    for kind in ["set", "binding", "job"] {
        log.until(1, &format!("{kind} at 2: Err(\"Invalid\")")).await;
    }
    assert_eq!(uids("1").await, after);
    running.stop().await;
}
