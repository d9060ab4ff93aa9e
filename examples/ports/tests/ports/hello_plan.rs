//! The objects of a hello cluster, without a Kubernetes cluster.

use std::collections::BTreeMap;
use std::sync::Arc;

use k8s_openapi::api::apps::v1::StatefulSet;
use ports::hello_world::{
    ConfigFragment, HelloCluster, HelloClusterSpec, Identity, group_objects, merged, properties, report, role_objects,
};
use serde_json::{Value, json};
use trishanku_framework::status::Report;

const IDENTITY: Identity<'static> = Identity { cluster: "hello", namespace: "plant" };

fn fragment(value: Value) -> ConfigFragment {
    serde_json::from_value(value).unwrap()
}

fn spec(servers: &Value) -> HelloClusterSpec {
    let spec = json!({
        "clusterConfig": {"listenerClass": "external-unstable"}, "image": {"productVersion": "0.1"}, "servers": servers,
        "recipient": "a = b", "color": "blue",
    });
    serde_json::from_value(spec).unwrap()
}

#[test]
fn a_group_overrides_its_role_and_the_role_the_defaults_field_by_field() {
    let role = fragment(json!({"resources": {"cpu": {"min": "1", "max": "2"}}, "gracefulShutdownTimeout": "1h"}));
    let group = fragment(json!({"resources": {"cpu": {"min": "500m"}}, "affinity": {"podAntiAffinity": null}}));
    let config = merged(&BTreeMap::new(), &role, ("default", &group)).unwrap();
    let resources = serde_json::to_value(&config.resources).unwrap();
    let expected = json!({
        "cpu": {"min": "500m", "max": "2"}, "memory": {"limit": "256Mi"}, "storage": {"data": {"capacity": "256Mi"}},
    });
    assert_eq!(resources, expected);
    assert_eq!(config.seconds_to_stop("default").unwrap(), 3600);

    let wrong = fragment(json!({"resources": {"cpu": "1"}}));
    let error = merged(&BTreeMap::new(), &role, ("default", &wrong)).unwrap_err().to_string();
    assert!(error.starts_with("role group default: config: "), "{error}");
}

#[test]
fn the_overrides_of_a_group_come_last() {
    let override_of = |of: &str| {
        json!({
            "configOverrides": {"application.properties": {"greeting.color": of, of: "1"}},
            "envOverrides": {"COLOR": of},
            "podOverrides": {"spec": {"containers": [{"name": "hello-world", "image": of}], "nodeName": of}},
        })
    };
    let (mut servers, mut group) = (override_of("role"), override_of("group"));
    group["replicas"] = 2.into();
    servers["roleGroups"] = json!({"default": group});
    let spec = spec(&servers);
    let role = spec.servers.as_ref().unwrap();
    let objects = group_objects(IDENTITY, &spec, role, ("default", &role.role_groups["default"])).unwrap();
    let application = &objects.map.data.unwrap()["application.properties"];
    let expected = "greeting.color=group\ngreeting.recipient=a \\= b\ngroup=1\nrole=1\nserver.port=8080\n";
    assert_eq!(application, expected);
    let servers = objects.servers.spec.unwrap();
    let pod = servers.template.spec.unwrap();
    assert_eq!((servers.replicas, pod.containers.len(), pod.node_name.as_deref()), (Some(2), 1, Some("group")));
    let container = &pod.containers[0];
    let color = container.env.iter().flatten().find(|variable| variable.name == "COLOR").unwrap();
    assert_eq!((container.image.as_deref(), color.value.as_deref()), (Some("group"), Some("group")));
    assert!(container.liveness_probe.is_some(), "an override replaces nothing else");
}

#[test]
fn services_lead_to_the_role_and_to_each_group() {
    let spec = spec(&json!({"roleGroups": {"default": {}}}));
    let role = spec.servers.as_ref().unwrap();
    let of_role = role_objects(IDENTITY, &spec, role).service.spec.unwrap();
    let group = group_objects(IDENTITY, &spec, role, ("default", &role.role_groups["default"])).unwrap();
    let of_group = group.service.spec.unwrap();
    assert_eq!((of_role.type_.as_deref(), of_group.cluster_ip.as_deref()), (Some("NodePort"), Some("None")));
    assert_eq!(of_group.selector, Some(IDENTITY.selector(Some("default"))));
    assert!(!of_role.selector.unwrap().contains_key("app.kubernetes.io/role-group"));
}

#[test]
fn properties_are_escaped() {
    let given = [("a b", " c"), ("d:e", "f\\g\nh")].map(|(key, value)| (key.to_owned(), value.to_owned()));
    assert_eq!(properties(&given.into()), "a\\ b=\\ c\nd\\:e=f\\\\g\\nh\n");
}

#[test]
fn a_cluster_is_ready_when_all_servers_are_updated_and_ready() {
    let cluster = HelloCluster::new("hello", spec(&json!({"roleGroups": {}})));
    let servers = |generation: i64, updated: i32, ready: i32| {
        let made = json!({
            "metadata": {"generation": 2},
            "spec": {"replicas": 3, "selector": {}, "serviceName": "", "template": {}},
            "status": {"observedGeneration": generation, "replicas": 3, "updatedReplicas": updated, "readyReplicas": ready},
        });
        Some(Arc::new(serde_json::from_value::<StatefulSet>(made).unwrap()))
    };
    let of = |servers| report(&cluster, &[("default", servers)]);
    let rolling =
        |ready| Report::reconciling("RollingOut", format!("{ready} of 3 servers of role group default are ready"));
    assert_eq!(of(servers(2, 3, 3)), Report::ready("ServersReady", ""));
    assert_eq!(of(servers(2, 3, 2)), rolling(2));
    assert_eq!(of(servers(2, 2, 3)), rolling(2));
    assert_eq!(of(servers(1, 3, 3)), rolling(0));
    let none = Report::reconciling("RollingOut", "0 of 1 servers of role group default are ready");
    assert_eq!(of(None), none);
}
