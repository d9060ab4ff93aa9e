//! Random pods of users, all of them valid.

use k8s_openapi::api::core::v1::PodTemplateSpec;
use proptest::collection::vec;
use proptest::option;
use proptest::prelude::*;
use proptest::sample::{select, subsequence};
use serde_json::{Value, json};

use crate::heaven::template;

pub(super) fn users() -> impl Strategy<Value = PodTemplateSpec> {
    let containers = vec(container(), 1..=3);
    let volumes = subsequence(
        vec![
            json!({"name": "data", "emptyDir": {}}),
            json!({"name": "files", "configMap": {"name": "app"}}),
            json!({"name": "v2", "emptyDir": {}}),
        ],
        0..=3,
    );
    let context = option::of(select(vec![
        json!({"fsGroup": 1}),
        json!({"fsGroup": 65532, "supplementalGroups": [3]}),
        json!({"sysctls": [{"name": "kernel.shm_rmid_forced", "value": "1"}]}),
        json!({"runAsUser": 1}),
    ]));
    let period = option::of(select(vec![29, 30, 60]));
    let label = option::of(select(vec!["blue", "red"]));
    let names = Just(vec!["app", "web", "proxy", "c1"]).prop_shuffle();
    (containers, volumes, context, period, label, names, prop::bool::weighted(0.1)).prop_map(
        |(mut containers, volumes, context, period, label, names, host_network)| {
            for (index, container) in containers.iter_mut().enumerate() {
                container["name"] = json!(names[index]);
                own(container, index, &volumes);
            }
            let mut users = json!({"spec": {
                "containers": containers, "volumes": volumes, "serviceAccountName": "default", "hostNetwork": host_network,
                "securityContext": context, "terminationGracePeriodSeconds": period,
            }});
            if let Some(label) = label {
                users["metadata"] = json!({"labels": {"team": label}});
            }
            template(users)
        },
    )
}

/// Makes ports unique in the pod, and mounts those of volumes that exist.
fn own(container: &mut Value, index: usize, volumes: &[Value]) {
    for port in container["ports"].as_array_mut().unwrap() {
        let number = port["containerPort"].as_u64().unwrap() + index as u64;
        port["containerPort"] = json!(number);
    }
    let mounts = container["volumeMounts"].as_array_mut().unwrap();
    mounts.retain(|mount| volumes.iter().any(|volume| volume["name"] == mount["name"]));
}

fn container() -> impl Strategy<Value = Value> {
    let ports = subsequence(
        vec![
            json!({"containerPort": 80, "name": "web"}),
            json!({"containerPort": 5300, "protocol": "UDP"}),
            json!({"containerPort": 9000}),
        ],
        0..=3,
    );
    let mounts = subsequence(
        vec![
            json!({"name": "data", "mountPath": "/data"}),
            json!({"name": "files", "mountPath": "/etc/app"}),
            json!({"name": "v2", "mountPath": "/v2", "readOnly": true}),
        ],
        0..=3,
    );
    let env = select(vec![json!([]), json!([{"name": "A", "value": "1"}]), json!([{"name": "B", "value": ""}])]);
    let env = prop_oneof![9 => env, 1 => Just(json!([{"name": "KUBECONFIG", "value": "/k"}]))];
    (ports, mounts, env)
        .prop_map(|(ports, mounts, env)| json!({"image": "app:1", "ports": ports, "volumeMounts": mounts, "env": env}))
}
