//! Webhooks that a real kube-apiserver asks.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Duration;

use k8s_openapi::api::core::v1::{ConfigMap, Secret};
use k8s_openapi::api::rbac::v1::{ClusterRole, ClusterRoleBinding, Role, RoleBinding};
use kube::api::{DeleteParams, Patch, PatchParams, PostParams};
use kube::core::crd::merge_crds;
use kube::{Api, CustomResource, CustomResourceExt};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use trishanku_framework::cache::Scope;
use trishanku_framework::serve::Address;
use trishanku_framework::webhook::{
    Admission, CertificateLifetimes, Conversion, Denied, FieldProblem, Hook, Operation, WebhookEndpoint, Webhooks,
};
use trishanku_framework::{Manager, lease};
use trishanku_testkit::{TestCluster, wait};

use crate::support::{Running, run};

/// Webhooks of this name that the apiserver reaches at a free port of this machine.
async fn bind(name: &str, namespace: &str) -> Webhooks {
    let local: Address = "127.0.0.1:0".parse().unwrap();
    let webhooks = Webhooks::bind(name, &local, WebhookEndpoint::host(namespace, "127.0.0.1", 0)).await.unwrap();
    let port = webhooks.address().unwrap().port();
    webhooks.endpoint(WebhookEndpoint::host(namespace, "127.0.0.1", port))
}

/// A hook for one namespace: others use the same cluster.
fn hook(name: &str, namespace: &str) -> Hook {
    Hook::named(name).namespaces([("kubernetes.io/metadata.name", namespace)])
}

/// Runs them as a user with no more than the permissions that the module asks for.
async fn serve(cluster: &TestCluster, namespace: &str, webhooks: Webhooks) -> Running {
    let user = format!("webhooks-of-{namespace}");
    let allow = |group: &str, resources: &[&str], verbs: &[&str]| json!({"apiGroups": [group], "resources": resources, "verbs": verbs});
    let role = json!({"metadata": {"name": user}, "rules": [
        allow("", &["secrets"], &["list", "watch", "create", "update"]),
        allow("coordination.k8s.io", &["leases"], &["get", "create", "update"]),
    ]});
    let of_cluster = json!({"metadata": {"name": user}, "rules": [
        allow("admissionregistration.k8s.io", &["validatingwebhookconfigurations", "mutatingwebhookconfigurations"], &["create", "patch"]),
        allow("apiextensions.k8s.io", &["customresourcedefinitions"], &["patch"]),
    ]});
    let binding = |kind: &str| {
        json!({
            "metadata": {"name": user},
            "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": kind, "name": user},
            "subjects": [{"apiGroup": "rbac.authorization.k8s.io", "kind": "User", "name": user}],
        })
    };
    let parameters = PostParams::default();
    let (client, namespaced) = (cluster.client(), |value| serde_json::from_value(value).unwrap());
    Api::<Role>::namespaced(client.clone(), namespace).create(&parameters, &namespaced(role)).await.ok();
    let bound: RoleBinding = serde_json::from_value(binding("Role")).unwrap();
    Api::<RoleBinding>::namespaced(client.clone(), namespace).create(&parameters, &bound).await.ok();
    let of_cluster: ClusterRole = serde_json::from_value(of_cluster).unwrap();
    Api::<ClusterRole>::all(client.clone()).create(&parameters, &of_cluster).await.ok();
    let bound: ClusterRoleBinding = serde_json::from_value(binding("ClusterRole")).unwrap();
    Api::<ClusterRoleBinding>::all(client).create(&parameters, &bound).await.ok();
    let mut config = cluster.config();
    config.auth_info.impersonate = Some(user);
    let manager = Manager::with_scope(config, Scope::namespaces([namespace]));
    run(manager.leader_election(lease::Settings::new(namespace, "webhooks")).webhooks(webhooks))
}

fn map(name: &str, level: Option<&str>) -> ConfigMap {
    let data: Value = level.map_or(json!({}), |level| json!({"level": level}));
    serde_json::from_value(json!({"metadata": {"name": name}, "data": data})).unwrap()
}

/// Refuses maps without a level, and deletions of the map `kept`; writes the level's double.
async fn levels(name: &str, namespace: &str) -> Webhooks {
    let operations = [Operation::Create, Operation::Update, Operation::Delete];
    let validating = hook("levels.framework.test", namespace).operations(operations);
    let check = |admission: Admission<ConfigMap>| async move {
        let has_level = admission.object.data.as_ref().is_some_and(|data| data.contains_key("level"));
        match admission.operation {
            Operation::Delete if admission.key.name() == "kept" => Err(Denied::forbidden("this map is kept")),
            Operation::Delete => Ok(()),
            _ if admission.key.name() == "kube-root-ca.crt" || has_level => Ok(()),
            _ => {
                let missing = "data.level is missing";
                Err(Denied::invalid(missing).field("data.level", FieldProblem::Required, "Required value: set a level"))
            }
        }
    };
    let change = |mut admission: Admission<ConfigMap>| async move {
        if let Some(data) = &mut admission.object.data
            && let Some(level) = data.get("level").and_then(|level| level.parse::<i64>().ok())
        {
            data.insert("double".to_owned(), (2 * level).to_string());
        }
        Ok(admission.object)
    };
    let webhooks = bind(name, namespace).await;
    webhooks.validating(validating, check).mutating(hook("doubles.framework.test", namespace), change)
}

/// Waits until the hooks are asked: a map without a level is refused.
async fn until_asked(maps: &Api<ConfigMap>) {
    let dry = PostParams { dry_run: true, ..PostParams::default() };
    let refused = wait::until("the hook is asked", async || match maps.create(&dry, &map("dry", None)).await {
        Err(kube::Error::Api(status)) if status.message.contains("data.level is missing") => Ok(()),
        other => Err(format!("{other:?}")),
    });
    refused.await.unwrap();
}

#[tokio::test]
async fn objects_are_checked_and_changed_before_they_are_written() {
    let cluster = TestCluster::shared().await;
    let namespace = cluster.namespace("admission").await;
    let maps: Api<ConfigMap> = Api::namespaced(cluster.client(), &namespace);
    let running = serve(cluster, &namespace, levels("admission", &namespace).await).await;
    until_asked(&maps).await;
    let refused = maps.create(&PostParams::default(), &map("a", None)).await.unwrap_err();
    let kube::Error::Api(status) = &refused else { panic!("{refused}") };
    assert_eq!(status.code, 422, "{status:?}");
    assert!(
        status.message.contains("levels.framework.test") && status.message.contains("data.level is missing"),
        "{status:?}"
    );
    assert_eq!(status.reason, "Invalid");
    // As in the errors of kube-apiserver's own validation.
    let details = status.details.as_ref().unwrap();
    assert_eq!((details.kind.as_str(), details.name.as_str(), details.group.as_str()), ("ConfigMap", "a", ""));
    let [cause] = &details.causes[..] else { panic!("{details:?}") };
    assert_eq!((cause.field.as_str(), cause.reason.as_str()), ("data.level", "FieldValueRequired"));
    assert_eq!(cause.message, "Required value: set a level");
    let made = maps.create(&PostParams::default(), &map("a", Some("4"))).await.unwrap();
    assert_eq!(made.data.unwrap()["double"], "8");
    let patch = Patch::Merge(json!({"data": {"level": "5"}}));
    assert_eq!(maps.patch("a", &PatchParams::default(), &patch).await.unwrap().data.unwrap()["double"], "10");
    maps.create(&PostParams::default(), &map("kept", Some("1"))).await.unwrap();
    let kept = maps.delete("kept", &DeleteParams::default()).await.unwrap_err();
    let kube::Error::Api(status) = &kept else { panic!("{kept}") };
    assert!(status.message.contains("this map is kept") && status.reason == "Forbidden", "{status:?}");
    assert_eq!(status.details, None, "kubectl would leave out the message");
    maps.delete("a", &DeleteParams::default()).await.unwrap();
    // The largest object that is stored, with itself as the old one.
    let large = "x".repeat(900_000);
    let mut big = map("large", Some("1"));
    big.data.get_or_insert_default().insert("large".to_owned(), large);
    maps.create(&PostParams::default(), &big).await.unwrap();
    let patch = Patch::Merge(json!({"data": {"level": "2"}}));
    assert_eq!(maps.patch("large", &PatchParams::default(), &patch).await.unwrap().data.unwrap()["double"], "4");
    let stopping = std::time::Instant::now();
    running.stop().await;
    let grace = Duration::from_secs(20);
    assert!(stopping.elapsed() < grace / 2, "it need not wait for the end of its grace: {:?}", stopping.elapsed());
}

#[tokio::test]
async fn an_outage_refuses_what_must_be_asked_about_and_nothing_else() {
    let cluster = TestCluster::shared().await;
    let (strict, lax) = (cluster.namespace("strict").await, cluster.namespace("lax").await);
    let check = |_: Admission<ConfigMap>| async { Ok(()) };
    let hooks = |name: &'static str| {
        let (strict, lax) = (strict.clone(), lax.clone());
        async move {
            let webhooks = levels(name, &strict).await;
            webhooks
                .validating(hook("lax.framework.test", &lax).ignoring_failures().timeout(Duration::from_secs(1)), check)
        }
    };
    let running = serve(cluster, &strict, hooks("outage").await).await;
    let maps = |namespace: &str| Api::<ConfigMap>::namespaced(cluster.client(), namespace);
    until_asked(&maps(&strict)).await;
    running.stop().await;
    let refused = maps(&strict).create(&PostParams::default(), &map("a", Some("1"))).await.unwrap_err();
    assert!(refused.to_string().contains("failed calling webhook"), "{refused}");
    maps(&lax).create(&PostParams::default(), &map("a", None)).await.unwrap();
    // Another process, at another port, with the same certificates.
    let running = serve(cluster, &strict, hooks("outage").await).await;
    until_asked(&maps(&strict)).await;
    maps(&strict).create(&PostParams::default(), &map("a", Some("1"))).await.unwrap();
    running.stop().await;
}

#[tokio::test]
async fn a_review_beyond_the_budget_is_repeated_by_the_apiserver_until_there_is_room() {
    let cluster = TestCluster::shared().await;
    let namespace = cluster.namespace("budget").await;
    // The reviews that are being answered, the most at a time, and all of them.
    let counts = Arc::new([(); 3].map(|()| AtomicUsize::new(0)));
    let counted = counts.clone();
    let check = move |admission: Admission<ConfigMap>| {
        let counted = counted.clone();
        async move {
            let [now, most, all] = &*counted;
            most.fetch_max(now.fetch_add(1, Ordering::SeqCst) + 1, Ordering::SeqCst);
            if admission.key.name() == "slow" {
                // Longer than a request waits for its share of the budget.
                tokio::time::sleep(Duration::from_secs(4)).await;
            }
            all.fetch_add(1, Ordering::SeqCst);
            now.fetch_sub(1, Ordering::SeqCst);
            match admission.key.name() {
                "never" => Err(Denied::invalid("data.level is missing")),
                _ => Ok(()),
            }
        }
    };
    // Room for one review, whatever its size.
    let webhooks = bind("budget", &namespace).await.body_budget_bytes(1);
    let hook = hook("budget.framework.test", &namespace).timeout(Duration::from_secs(30));
    let running = serve(cluster, &namespace, webhooks.validating(hook, check)).await;
    let maps: Api<ConfigMap> = Api::namespaced(cluster.client(), &namespace);
    let dry = PostParams { dry_run: true, ..PostParams::default() };
    let asked = wait::until("the hook is asked", async || match maps.create(&dry, &map("never", None)).await {
        Err(kube::Error::Api(status)) if status.message.contains("data.level is missing") => Ok(()),
        other => Err(format!("{other:?}")),
    });
    asked.await.unwrap();
    let before = counts[2].load(Ordering::SeqCst);
    let parameters = PostParams::default();
    let names = ["slow", "a", "b", "c"].map(|name| map(name, None));
    let created = futures::future::join_all(names.iter().map(|map| maps.create(&parameters, map))).await;
    for created in created {
        created.expect("it is written once there is room");
    }
    assert_eq!(counts[1].load(Ordering::SeqCst), 1, "one at a time");
    assert!(counts[2].load(Ordering::SeqCst) >= before + 4);
    running.stop().await;
}

#[tokio::test]
async fn certificates_and_authorities_change_without_a_refused_request() {
    let cluster = TestCluster::shared().await;
    let namespace = cluster.namespace("rotation").await;
    let lifetimes = CertificateLifetimes {
        renewed_after: Duration::from_secs(2),
        authority_replaced_after: Duration::from_secs(4),
        settles: Duration::from_secs(4),
        ..CertificateLifetimes::default()
    };
    let running = serve(cluster, &namespace, levels("rotation", &namespace).await.lifetimes(lifetimes)).await;
    let maps: Api<ConfigMap> = Api::namespaced(cluster.client(), &namespace);
    until_asked(&maps).await;
    maps.create(&PostParams::default(), &map("a", Some("0"))).await.unwrap();
    let (is_over, written) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicUsize::new(0)));
    let writers: Vec<_> = (0..4)
        .map(|writer| {
            let (maps, is_over, written) = (maps.clone(), is_over.clone(), written.clone());
            tokio::spawn(async move {
                while !is_over.load(Ordering::SeqCst) {
                    let level = written.fetch_add(1, Ordering::SeqCst);
                    let patch =
                        Patch::Merge(json!({"data": {"level": level.to_string(), format!("by-{writer}"): "x"}}));
                    maps.patch("a", &PatchParams::default(), &patch).await?;
                }
                Ok::<_, kube::Error>(())
            })
        })
        .collect();
    let secrets: Api<Secret> = Api::namespaced(cluster.client(), &namespace);
    let (mut served, mut authorities) = (Vec::new(), Vec::new());
    let changed = wait::until("three authorities and five certificates", async || {
        let secret = secrets.get("rotation-webhooks").await.map_err(|error| error.to_string())?;
        let data = secret.data.unwrap_or_default();
        for (seen, field) in [(&mut served, "tls.crt"), (&mut authorities, "authority.crt")] {
            let value = data[field].0.clone();
            if !seen.contains(&value) {
                seen.push(value);
            }
        }
        if authorities.len() >= 3 && served.len() >= 5 {
            Ok(())
        } else {
            Err(format!("{} {}", authorities.len(), served.len()))
        }
    });
    changed.await.unwrap();
    is_over.store(true, Ordering::SeqCst);
    for writer in writers {
        writer.await.unwrap().unwrap();
    }
    assert!(written.load(Ordering::SeqCst) > 50, "{written:?}");
    running.stop().await;
}

mod v1 {
    use super::*;

    #[derive(CustomResource, Clone, Debug, Deserialize, Serialize, JsonSchema)]
    #[kube(group = "webhooks.test", version = "v1", kind = "Basin", namespaced)]
    pub(super) struct BasinSpec {
        pub(super) litres: i64,
    }
}

mod v2 {
    use super::*;

    #[derive(CustomResource, Clone, Debug, Deserialize, Serialize, JsonSchema)]
    #[kube(group = "webhooks.test", version = "v2", kind = "Basin", namespaced)]
    pub(super) struct BasinSpec {
        pub(super) volume: Volume,
    }

    #[derive(Clone, Debug, Deserialize, Serialize, JsonSchema)]
    pub(super) struct Volume {
        pub(super) litres: i64,
    }
}

fn convert(conversion: Conversion) -> Result<Value, String> {
    match conversion.to.as_str() {
        "webhooks.test/v2" => conversion.between(|basin: v1::Basin| v2::Basin {
            metadata: basin.metadata,
            spec: v2::BasinSpec { volume: v2::Volume { litres: basin.spec.litres } },
        }),
        _ => conversion.between(|basin: v2::Basin| v1::Basin {
            metadata: basin.metadata,
            spec: v1::BasinSpec { litres: basin.spec.volume.litres },
        }),
    }
}

#[tokio::test]
async fn each_version_of_a_kind_is_served_from_the_stored_one() {
    let cluster = TestCluster::shared().await;
    let namespace = cluster.namespace("conversion").await;
    cluster.install(&merge_crds(vec![v1::Basin::crd(), v2::Basin::crd()], "v1").unwrap()).await;
    let webhooks = bind("conversion", &namespace).await.converting::<v1::Basin>(convert);
    let running = serve(cluster, &namespace, webhooks).await;
    let (old, new): (Api<v1::Basin>, Api<v2::Basin>) =
        (Api::namespaced(cluster.client(), &namespace), Api::namespaced(cluster.client(), &namespace));
    // A change of a CRD, such as of its conversion, interrupts requests for its objects for a moment.
    let first = v1::Basin::new("a", v1::BasinSpec { litres: 7 });
    let created = wait::until("an object of the first version", async || {
        match old.create(&PostParams::default(), &first).await {
            Err(kube::Error::Api(status)) if status.is_already_exists() => Ok(()),
            created => created.map(drop).map_err(|error| error.to_string()),
        }
    });
    created.await.unwrap();
    let converted = wait::until("the second version", async || match new.get("a").await {
        Ok(basin) if basin.spec.volume.litres == 7 => Ok(()),
        other => Err(format!("{other:?}")),
    });
    converted.await.unwrap();
    let wanted = v2::Basin::new("b", v2::BasinSpec { volume: v2::Volume { litres: 9 } });
    new.create(&PostParams::default(), &wanted).await.unwrap();
    assert_eq!(old.get("b").await.unwrap().spec.litres, 9);
    running.stop().await;
}
