//! Fields that Kubernetes validates together.

use serde_json::{Value as Json, json};

use super::super::Policy;
use super::pods::{pod, template};
use super::{both_ways, clean, edited, result};

pub(super) fn object(api_version: &str, kind: &str, spec: &Json) -> Json {
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
fn an_event_with_a_time_says_what_happened() {
    for (api_version, reporter) in [("v1", "reportingComponent"), ("events.k8s.io/v1", "reportingController")] {
        let metadata = json!({"name": "o", "namespace": "n", "uid": "u"});
        let base = json!({
            "kind": "Event", "apiVersion": api_version, "metadata": metadata, "eventTime": null, "action": "Binding",
            "reason": "Scheduled", reporter: "scheduler", "reportingInstance": "",
        });
        let one = edited(&base, |event| {
            event["eventTime"] = "2026-01-01T00:00:00.000000Z".into();
            event["reportingInstance"] = "a".into();
        });
        let other = edited(&base, |event| drop(event.as_object_mut().expect("an object").remove("action")));
        let merged = result(&both_ways(Policy::Later, &base, &one, &other));
        let of = |event: &Json| (event["eventTime"].clone(), event["action"].clone());
        assert!([of(&one), of(&other)].contains(&of(&merged)), "{merged}");
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

/// Merges specs whose combination kube-apiserver would reject: one of them results, and the other is reported.
pub(super) fn comes_from_one(api_version: &str, kind: &str, [base, one, other]: [Json; 3]) {
    let [base, one, other] = [base, one, other].map(|spec| object(api_version, kind, &spec));
    let merged = both_ways(Policy::Later, &base, &one, &other);
    assert!(!merged.conflicts.is_empty(), "{kind}");
    let merged = result(&merged);
    assert!([&one["spec"], &other["spec"]].contains(&&merged["spec"]), "{kind}: {merged}");
}

#[test]
fn an_ingress_leads_somewhere() {
    let backend = json!({"service": {"name": "s", "port": {"number": 80}}});
    let rules = json!([{"host": "a.example"}]);
    comes_from_one(
        "networking.k8s.io/v1",
        "Ingress",
        [
            json!({"defaultBackend": backend, "rules": rules}),
            json!({"defaultBackend": backend}),
            json!({"rules": rules}),
        ],
    );
}

#[test]
fn ports_have_names_of_their_own() {
    let port = |number: i32, name: &str| json!({"name": name, "port": number, "protocol": "TCP"});
    let service = |ports: &[Json]| json!({"clusterIP": "None", "ports": ports});
    let nameless = |number: i32| json!({"port": number, "protocol": "TCP"});
    comes_from_one("v1", "Service", [service(&[]), service(&[nameless(80)]), service(&[nameless(81)])]);
    comes_from_one(
        "v1",
        "Service",
        [service(&[port(80, "a")]), service(&[port(80, "a"), port(81, "b")]), service(&[port(80, "a"), port(82, "b")])],
    );
    let container = |ports: &[(i32, &str)]| {
        let ports: Json = ports
            .iter()
            .map(|(number, name)| json!({"containerPort": number, "name": name, "protocol": "TCP"}))
            .collect();
        template(&pod(&json!({"ports": ports})))
    };
    comes_from_one(
        "apps/v1",
        "Deployment",
        [container(&[(80, "a")]), container(&[(80, "a"), (81, "b")]), container(&[(80, "a"), (82, "b")])],
    );
}

#[test]
fn a_service_keeps_a_port() {
    let port = |number: i32| json!({"name": format!("p{number}"), "port": number, "protocol": "TCP"});
    let service = |ports: &[Json]| json!({"clusterIP": "10.0.0.7", "ports": ports});
    comes_from_one("v1", "Service", [service(&[port(80), port(81)]), service(&[port(80)]), service(&[port(81)])]);
}

#[test]
fn both_families_go_without_a_selector() {
    let with =
        |selector: Json, families: &[&str]| json!({"clusterIP": "None", "ipFamilies": families, "selector": selector});
    comes_from_one(
        "v1",
        "Service",
        [
            with(json!({"app": "web"}), &["IPv4"]),
            json!({"clusterIP": "None", "ipFamilies": ["IPv4", "IPv6"]}),
            with(json!({"app": "web", "tier": "front"}), &["IPv4"]),
        ],
    );
}

/// Without a selector, a headless Service may have a family for which the cluster is not configured.
#[test]
fn a_family_that_only_a_service_without_a_selector_has_goes_without_a_selector() {
    let with =
        |selector: Json, family: &str| json!({"clusterIP": "None", "ipFamilies": [family], "selector": selector});
    comes_from_one(
        "v1",
        "Service",
        [
            with(json!({"app": "web"}), "IPv4"),
            json!({"clusterIP": "None", "ipFamilies": ["IPv6"]}),
            with(json!({"app": "web", "tier": "front"}), "IPv4"),
        ],
    );
}

#[test]
fn a_request_is_not_both_approved_and_denied() {
    let with = |conditions: &[&str]| {
        let conditions: Json = conditions.iter().map(|kind| json!({"type": kind, "status": "True"})).collect();
        edited(&object("certificates.k8s.io/v1", "CertificateSigningRequest", &json!({})), |object| {
            object["status"] = json!({"conditions": conditions});
        })
    };
    let (one, other) = (with(&["Approved"]), with(&["Denied"]));
    let merged = both_ways(Policy::Later, &with(&[]), &one, &other);
    assert_eq!(merged.conflicts.len(), 1);
    let merged = result(&merged);
    assert!([&one["status"], &other["status"]].contains(&&merged["status"]), "{merged}");
}

#[test]
fn a_service_of_one_sides_type_has_the_ports_that_it_asks_for() {
    for address in 0..20 {
        let base =
            object("v1", "Service", &json!({"type": "ClusterIP", "clusterIP": "10.0.0.7", "ports": [{"port": 80}]}));
        let external = object("v1", "Service", &json!({"type": "ExternalName", "externalName": "x.y"}));
        let reached = edited(&base, |object| {
            object["spec"]["externalIPs"] = json!([format!("192.0.2.{address}")]);
        });
        for policy in [Policy::Later, Policy::Ours, Policy::Theirs] {
            let merged = result(&both_ways(policy, &base, &external, &reached));
            assert!([&external["spec"], &reached["spec"]].contains(&&merged["spec"]), "{merged}");
        }
    }
}

#[test]
fn a_node_port_that_a_person_changed_is_an_edit() {
    let service = |ports: Json| object("v1", "Service", &json!({"type": "NodePort", "ports": ports}));
    let port = |number: i32, node_port: i32| json!({"name": format!("p{number}"), "port": number, "protocol": "TCP", "nodePort": node_port});
    let base = service(json!([port(80, 30000), port(81, 30001)]));
    let removed = service(json!([port(80, 30000)]));
    let changed = service(json!([port(80, 30000), port(81, 30081)]));
    let merged = both_ways(Policy::Later, &base, &removed, &changed);
    assert_eq!(merged.conflicts.len(), 1, "{:?}", merged.conflicts);
    assert_eq!(result(&merged)["spec"]["ports"].as_array().unwrap().len(), 2);
}

#[test]
fn a_definition_keeps_the_versions_that_objects_are_stored_in() {
    let definition = |versions: &[&str], stored: &[&str]| {
        let versions: Json = versions.iter().map(|name| json!({"name": name, "served": true})).collect();
        let mut object = object("apiextensions.k8s.io/v1", "CustomResourceDefinition", &json!({"versions": versions}));
        object["status"] = json!({"storedVersions": stored});
        object
    };
    let base = definition(&["v1", "v2"], &["v1"]);
    let (moved, dropped) = (definition(&["v1", "v2", "v3"], &["v1", "v2"]), definition(&["v1"], &["v1"]));
    for policy in [Policy::Later, Policy::Ours, Policy::Theirs] {
        let merged = result(&both_ways(policy, &base, &moved, &dropped));
        let is_of = |side: &Json| merged["spec"] == side["spec"] && merged["status"] == side["status"];
        assert!(is_of(&moved) || is_of(&dropped), "{merged}");
    }
}

#[test]
fn a_group_is_that_of_the_side_that_wrote_it_later() {
    let with = |minimum: i32, maximum: i32, writers: &[(&str, &str, &str)]| {
        let entries: Json = writers
            .iter()
            .map(|(manager, time, field)| {
                json!({"manager": manager, "operation": "Update", "time": time, "fieldsV1": {"f:spec": {*field: {}}}})
            })
            .collect();
        let mut object = object(
            "autoscaling/v2",
            "HorizontalPodAutoscaler",
            &json!({"minReplicas": minimum, "maxReplicas": maximum}),
        );
        object["metadata"]["managedFields"] = entries;
        object
    };
    let one = with(5, 5, &[("one", "2026-01-01T10:05:00Z", "f:minReplicas")]);
    let mut other = with(
        1,
        3,
        &[("two", "2026-01-01T10:03:00Z", "f:maxReplicas"), ("three", "2026-01-01T10:06:00Z", "f:behavior")],
    );
    other["spec"]["behavior"] = json!({"scaleDown": {"stabilizationWindowSeconds": 1}});
    let merged = result(&both_ways(Policy::Later, &with(1, 5, &[]), &one, &other));
    assert_eq!((&merged["spec"]["minReplicas"], &merged["spec"]["maxReplicas"]), (&json!(5), &json!(5)), "{merged}");
}

#[test]
fn fields_of_two_versions_of_a_kind_are_not_mixed() {
    let (v1, v2) = ("autoscaling/v1", "autoscaling/v2");
    let base = object(v1, "HorizontalPodAutoscaler", &json!({"maxReplicas": 5, "targetCPUUtilizationPercentage": 50}));
    let rewritten =
        object(v2, "HorizontalPodAutoscaler", &json!({"maxReplicas": 5, "metrics": [{"type": "Resource"}]}));
    let changed = edited(&base, |object| {
        object["spec"]["targetCPUUtilizationPercentage"] = 80.into();
        object["metadata"]["labels"] = json!({"a": "b"});
    });
    let merged = both_ways(Policy::Later, &base, &rewritten, &changed);
    assert_eq!(merged.conflicts.len(), 1, "{:?}", merged.conflicts);
    let merged = result(&merged);
    let is_of = |side: &Json| merged["apiVersion"] == side["apiVersion"] && merged["spec"] == side["spec"];
    assert!(is_of(&rewritten) || is_of(&changed), "{merged}");
    assert_eq!(merged["metadata"]["labels"]["a"], "b");
}

#[test]
fn thousands_of_fields_of_one_manager_are_merged_in_passing() {
    const KEYS: usize = 20_000;
    let map = |value: &str, time: &str| {
        let fields: serde_json::Map<_, _> = (0..KEYS).map(|number| (format!("f:k{number}"), json!({}))).collect();
        let data: serde_json::Map<_, _> = (0..KEYS).map(|number| (format!("k{number}"), value.into())).collect();
        json!({
            "kind": "ConfigMap", "apiVersion": "v1",
            "metadata": {"name": "o", "namespace": "n", "uid": "u", "managedFields": [
                {"manager": "m", "operation": "Update", "time": time, "fieldsV1": {"f:data": fields}},
            ]},
            "data": data,
        })
    };
    let base = map("0", "2026-01-01T10:00:00Z");
    let merged = both_ways(Policy::Later, &base, &map("1", "2026-01-01T10:01:00Z"), &map("2", "2026-01-01T10:02:00Z"));
    assert_eq!(merged.conflicts.len(), KEYS);
    assert_eq!(result(&merged)["data"]["k7"], "2");
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

#[test]
fn a_binding_of_a_policy_keeps_actions_that_are_valid_together() {
    let of = |actions: &[&str]| {
        object(
            "admissionregistration.k8s.io/v1",
            "ValidatingAdmissionPolicyBinding",
            &json!({"policyName": "p", "validationActions": actions}),
        )
    };
    // No action would be left; or both `Deny` and `Warn`.
    for (base, one, other) in
        [(&["Audit", "Warn"][..], &["Audit"][..], &["Warn"][..]), (&["Audit"], &["Audit", "Warn"], &["Audit", "Deny"])]
    {
        let merged = both_ways(Policy::Later, &of(base), &of(one), &of(other));
        let actions = result(&merged)["spec"]["validationActions"].clone();
        assert!([&json!(one), &json!(other)].contains(&&actions), "{actions}");
        assert_eq!(merged.conflicts.len(), 1);
    }
    let merged = clean(&of(&["Audit"]), &of(&["Audit", "Warn"]), &of(&["Audit"]));
    assert_eq!(merged["spec"]["validationActions"], json!(["Audit", "Warn"]));
}
