//! The whole program on a real kube-apiserver.

use std::process::Command;

use k8s_openapi::api::core::v1::ConfigMap;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Condition;
use kube::api::{DeleteParams, DynamicObject, Patch, PatchParams, PostParams};
use kube::core::discovery::ApiResource;
use kube::{Api, Client, ResourceExt};
use serde_json::json;
use trishanku_testkit::{TestCluster, wait};

use crate::process::Watertank;
use crate::tank::{Tank, TankSpec};

const USER: &str = "system:serviceaccount:default:watertank";

/// Grants the program the permissions that it needs, and no others.
async fn permit(client: &Client, namespace: &str) {
    let rules = json!([
        {"apiGroups": ["plant.example.org"], "resources": ["tanks"], "verbs": ["list", "watch", "patch"]},
        {"apiGroups": ["plant.example.org"], "resources": ["tanks/status"], "verbs": ["patch"]},
        {"apiGroups": [""], "resources": ["configmaps"], "verbs": ["list", "watch", "create", "patch"]},
        {"apiGroups": ["events.k8s.io"], "resources": ["events"], "verbs": ["create", "patch"]},
    ]);
    let lease =
        json!([{"apiGroups": ["coordination.k8s.io"], "resources": ["leases"], "verbs": ["get", "create", "update"]}]);
    for (kind, binding, namespace, rules) in
        [("ClusterRole", "ClusterRoleBinding", None, rules), ("Role", "RoleBinding", Some(namespace), lease)]
    {
        let api_group = "rbac.authorization.k8s.io";
        let role = json!({"rules": rules});
        let subject = json!({"kind": "User", "apiGroup": api_group, "name": USER});
        let binds =
            json!({"roleRef": {"apiGroup": api_group, "kind": kind, "name": "watertank"}, "subjects": [subject]});
        for (kind, mut object) in [(kind, role), (binding, binds)] {
            let resource = ApiResource::from_gvk(&kube::core::GroupVersionKind::gvk(api_group, "v1", kind));
            let api: Api<DynamicObject> = match namespace {
                Some(namespace) => Api::namespaced_with(client.clone(), namespace, &resource),
                None => Api::all_with(client.clone(), &resource),
            };
            object["metadata"] = json!({"name": "watertank"});
            object["apiVersion"] = format!("{api_group}/v1").into();
            object["kind"] = kind.into();
            api.patch("watertank", &PatchParams::apply("test"), &Patch::Apply(&object)).await.unwrap();
        }
    }
}

fn condition<'a>(tank: &'a Tank, of: &str) -> Option<&'a Condition> {
    tank.status.as_ref()?.conditions.iter().find(|condition| condition.type_ == of)
}

fn is_ready(tank: &Tank) -> bool {
    condition(tank, "Ready").is_some_and(|ready| ready.status == "True")
}

fn has_position(valve: &ConfigMap, position: &str) -> bool {
    valve.data.as_ref().is_some_and(|data| data["position"] == position)
}

#[tokio::test]
async fn tanks_keep_their_levels_under_interference_and_changes_of_leader() {
    let cluster = TestCluster::shared().await;
    let (client, namespace) = (cluster.client(), cluster.namespace("watertank").await);
    let printed = Command::new(env!("CARGO_BIN_EXE_watertank")).arg("crd").output().unwrap();
    assert!(printed.status.success(), "{printed:?}");
    cluster.install(&serde_saphyr::from_slice(&printed.stdout).unwrap()).await;
    permit(&client, &namespace).await;

    let first = Watertank::start(cluster, &namespace, USER);
    first.page(8081, "/readyz").await;
    let tanks: Api<Tank> = Api::namespaced(client.clone(), &namespace);
    let valves: Api<ConfigMap> = Api::namespaced(client.clone(), &namespace);
    let spec = |desired, inflow, outflow| TankSpec { capacity: 1000, desired, inflow, outflow };

    // Rejected by a rule of the CRD, before the controller sees it.
    let refused = tanks.create(&PostParams::default(), &Tank::new("high", spec(1001, 2, 1))).await.unwrap_err();
    assert!(refused.to_string().contains("the desired level is above the rim"), "{refused}");

    // A tank is filled, and kept at its level.
    tanks.create(&PostParams::default(), &Tank::new("rain", spec(500, 600, 100))).await.unwrap();
    let rain = wait::until_object(&tanks, "rain", "it is at its level", is_ready).await.unwrap();
    let level = rain.status.as_ref().map_or(0.0, |status| status.level);
    assert!((300.0..=1000.0).contains(&level), "{rain:?}");
    for position in ["closed", "open", "closed"] {
        let turned = |valve: &ConfigMap| has_position(valve, position);
        let valve = wait::until_object(&valves, "rain", position, turned).await.unwrap();
        assert_eq!(valve.owner_references()[0].name, "rain");
    }
    let patch = Patch::Merge(json!({"data": {"position": "broken"}}));
    valves.patch("rain", &PatchParams::default(), &patch).await.unwrap();
    wait::until_object(&valves, "rain", "it is corrected", |valve| !has_position(valve, "broken")).await.unwrap();

    // No position of the valve helps.
    tanks.create(&PostParams::default(), &Tank::new("sieve", spec(500, 1, 2))).await.unwrap();
    let stalled = |tank: &Tank| condition(tank, "Stalled").is_some();
    let sieve = wait::until_object(&tanks, "sieve", "it is stalled", stalled).await.unwrap();
    let stalled = condition(&sieve, "Stalled").unwrap();
    assert_eq!(
        (stalled.reason.as_str(), stalled.message.as_str()),
        ("RunsDry", "2 l/s are taken, and only 1 l/s come in")
    );

    // The second replica takes over when the first one stops, and drains a tank that is deleted.
    let second = Watertank::start(cluster, &namespace, USER);
    second.page(8081, "/readyz").await;
    let figures = first.page(8080, "/metrics").await;
    assert!(
        figures.contains(r#"controller_runtime_reconcile_total{controller="watertank",result="requeue_after"}"#),
        "{figures}"
    );
    assert!(first.end().await.success());
    let leads = wait::until("the second one to lead", async || {
        let figures = second.page(8080, "/metrics").await;
        let leads = figures.contains("leader_election_master_status{name=\"watertank\"} 1");
        if leads { Ok(()) } else { Err("it stands by") }
    });
    leads.await.unwrap();
    tanks.delete("rain", &DeleteParams::default()).await.unwrap();
    let draining = |tank: &Tank| condition(tank, "Ready").is_some_and(|ready| ready.reason == "Draining");
    wait::until_object(&tanks, "rain", "it drains", draining).await.unwrap();
    let closed = wait::until_object(&valves, "rain", "it is closed", |valve| has_position(valve, "closed"));
    closed.await.unwrap();
    wait::until_gone(&tanks, "rain").await.unwrap();
    assert!(second.end().await.success());
}
