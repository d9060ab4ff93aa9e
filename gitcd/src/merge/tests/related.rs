//! Fields that Kubernetes validates against one another.

use serde_json::{Value as Json, json};

use super::super::Policy;
use super::{both_ways, clean, edited, result};

fn object(api_version: &str, kind: &str, spec: &Json) -> Json {
    json!({"kind": kind, "apiVersion": api_version, "metadata": {"name": "o", "namespace": "n", "uid": "u"}, "spec": spec})
}

#[test]
fn each_side_may_move_one_of_two_bounds() {
    let kinds = [
        ("autoscaling/v2", "HorizontalPodAutoscaler", ("minReplicas", 1, 3), ("maxReplicas", 5, 7)),
        ("apps/v1", "Deployment", ("minReadySeconds", 1, 3), ("progressDeadlineSeconds", 5, 7)),
    ];
    for (api_version, kind, (low, before_low, new_low), (high, before_high, new_high)) in kinds {
        let base = object(api_version, kind, &json!({low: before_low, high: before_high}));
        let with = |field: &str, value: i32| edited(&base, |object| object["spec"][field] = value.into());
        let merged = clean(&base, &with(low, new_low), &with(high, new_high));
        assert_eq!(merged["spec"], json!({low: new_low, high: new_high}), "{kind}");
    }
}

#[test]
fn bounds_that_would_cross_come_from_one_side() {
    for (api_version, kind, low, high) in [
        ("autoscaling/v1", "HorizontalPodAutoscaler", "minReplicas", "maxReplicas"),
        ("autoscaling/v2", "HorizontalPodAutoscaler", "minReplicas", "maxReplicas"),
        ("apps/v1", "Deployment", "minReadySeconds", "progressDeadlineSeconds"),
    ] {
        let base = object(api_version, kind, &json!({low: 3, high: 8}));
        let with = |field: &str, value: i32| edited(&base, |object| object["spec"][field] = value.into());
        let (one, other) = (with(low, 7), with(high, 5));
        let merged = both_ways(Policy::Later, &base, &one, &other);
        let (merged, conflicts) = (result(&merged), merged.conflicts.len());
        assert!([&one["spec"], &other["spec"]].contains(&&merged["spec"]), "{kind}: {merged}");
        assert_eq!(conflicts, 1, "{kind}");
    }
}

#[test]
fn two_ranges_of_addresses_for_one_node_are_never_mixed() {
    let base = object("v1", "Node", &json!({}));
    let with = |range: &str| object("v1", "Node", &json!({"podCIDR": range, "podCIDRs": [range]}));
    let (one, other) = (with("192.0.2.0/24"), with("198.51.100.0/24"));
    let merged = result(&both_ways(Policy::Later, &base, &one, &other));
    assert!([&one["spec"], &other["spec"]].contains(&&merged["spec"]), "{merged}");
}

#[test]
fn a_port_that_only_got_a_node_port_goes_with_its_removal() {
    let port = |number: i32| json!({"name": format!("p{number}"), "port": number, "protocol": "TCP"});
    let base = object("v1", "Service", &json!({"type": "ClusterIP", "ports": [port(80), port(53)]}));
    let typed = edited(&base, |object| {
        object["spec"]["type"] = "NodePort".into();
        object["spec"]["ports"][0]["nodePort"] = 30080.into();
        object["spec"]["ports"][1]["nodePort"] = 30053.into();
    });
    let removed = edited(&base, |object| {
        object["spec"]["ports"].as_array_mut().unwrap().pop();
    });
    let merged = clean(&base, &typed, &removed);
    assert_eq!(merged["spec"]["ports"].as_array().unwrap().len(), 1, "{merged}");
    assert_eq!(merged["spec"]["ports"][0]["nodePort"], 30080);
}

#[test]
fn a_list_of_which_each_side_removed_a_part_is_absent() {
    let env = |names: &[&str]| -> Json { names.iter().map(|name| json!({"name": name, "value": "1"})).collect() };
    let pod = |names: &[&str]| {
        object("v1", "Pod", &json!({"containers": [{"name": "c", "image": "c:1", "env": env(names)}]}))
    };
    let merged = clean(&pod(&["A", "B"]), &pod(&["A"]), &pod(&["B"]));
    assert_eq!(merged["spec"]["containers"][0], json!({"name": "c", "image": "c:1"}));
}

#[test]
fn thousands_of_keys_that_each_side_put_elsewhere_stay_in_one_field_each() {
    const KEYS: usize = 5_000;
    let map = |fields: Json| {
        let mut map =
            json!({"kind": "ConfigMap", "apiVersion": "v1", "metadata": {"name": "o", "namespace": "n", "uid": "u"}});
        map.as_object_mut().unwrap().extend(fields.as_object().unwrap().clone());
        map
    };
    let keys = || (0..KEYS).map(|number| format!("key{number}"));
    let text: serde_json::Map<_, _> = keys().map(|key| (key, "dGVh".into())).collect();
    let base = map(json!({"data": {"kept": "1"}}));
    let mut data = text.clone();
    data.insert("kept".into(), "1".into());
    let merged = both_ways(
        Policy::Later,
        &base,
        &map(json!({"data": data})),
        &map(json!({"data": {"kept": "1"}, "binaryData": text})),
    );
    assert_eq!(merged.conflicts.len(), KEYS);
    let merged = result(&merged);
    let has = |field: &str, key: &str| merged[field].get(key).is_some();
    assert!(keys().all(|key| has("data", &key) != has("binaryData", &key)));
    assert_eq!(merged["data"]["kept"], "1");
}
