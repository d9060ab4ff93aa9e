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

/// Merges specs of which kube-apiserver would refuse the mixture: one of them is left, and the other is reported.
fn comes_from_one(api_version: &str, kind: &str, [base, one, other]: [Json; 3]) {
    let [base, one, other] = [base, one, other].map(|spec| object(api_version, kind, &spec));
    let merged = both_ways(Policy::Later, &base, &one, &other);
    assert!(!merged.conflicts.is_empty(), "{kind}");
    let merged = result(&merged);
    assert!([&one["spec"], &other["spec"]].contains(&&merged["spec"]), "{kind}: {merged}");
}

/// The spec of a pod with a container that has these fields.
fn pod(container: &Json) -> Json {
    let mut spec = json!({"containers": [{"name": "c", "image": "c:1"}]});
    let fields = container.as_object().unwrap().clone();
    spec["containers"][0].as_object_mut().unwrap().extend(fields);
    spec
}

/// The same in the template of a Deployment.
fn template(spec: &Json) -> Json {
    json!({"template": {"spec": spec}})
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
fn a_pod_with_users_of_its_own_shares_nothing_with_its_host() {
    for shared in ["hostNetwork", "hostPID", "hostIPC"] {
        let with = |field: &str, value: bool| {
            let mut spec = pod(&json!({}));
            spec[field] = value.into();
            template(&spec)
        };
        comes_from_one(
            "apps/v1",
            "Deployment",
            [template(&pod(&json!({}))), with("hostUsers", false), with(shared, true)],
        );
    }
}

#[test]
fn each_side_may_remove_a_container_but_not_the_last_one() {
    let containers = |names: &[&str]| {
        let containers: Json = names.iter().map(|name| json!({"name": name, "image": "c:1"})).collect();
        json!({"containers": containers})
    };
    comes_from_one("v1", "Pod", [containers(&["a", "b"]), containers(&["a"]), containers(&["b"])]);
    let of = |names: &[&str]| object("v1", "Pod", &containers(names));
    let merged = clean(&of(&["a", "b", "c"]), &of(&["a", "b"]), &of(&["b", "c"]));
    assert_eq!(merged["spec"], containers(&["b"]));
}

#[test]
fn requests_do_not_exceed_limits() {
    let with = |request: &str, limit: &str| {
        template(&pod(&json!({"resources": {"requests": {"memory": request}, "limits": {"memory": limit}}})))
    };
    comes_from_one("apps/v1", "Deployment", [with("100Mi", "1Gi"), with("800Mi", "1Gi"), with("100Mi", "0.5Gi")]);
    let of = |request: &str, limit: &str| object("apps/v1", "Deployment", &with(request, limit));
    let merged = clean(&of("100Mi", "1Gi"), &of("200Mi", "1Gi"), &of("100Mi", "0.5Gi"));
    assert_eq!(merged["spec"], with("200Mi", "0.5Gi"));
}

#[test]
fn who_is_privileged_may_escalate() {
    let with = |context: Json| template(&pod(&json!({"securityContext": context})));
    comes_from_one(
        "apps/v1",
        "Deployment",
        [
            with(json!({"runAsUser": 1})),
            with(json!({"runAsUser": 1, "privileged": true})),
            with(json!({"runAsUser": 1, "allowPrivilegeEscalation": false})),
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
fn a_pod_has_distinct_ports_on_its_host() {
    let port = |number: i32| json!({"containerPort": number, "hostPort": 8080, "protocol": "TCP"});
    let one = |ports: &[Json]| template(&pod(&json!({"ports": ports})));
    comes_from_one("apps/v1", "Deployment", [one(&[]), one(&[port(80)]), one(&[port(81)])]);
    let two = |first: &[Json], second: &[Json]| {
        let container = |name: &str, ports: &[Json]| json!({"name": name, "image": "c:1", "ports": ports});
        template(&json!({"containers": [container("one", first), container("two", second)]}))
    };
    comes_from_one("apps/v1", "Deployment", [two(&[], &[]), two(&[port(80)], &[]), two(&[], &[port(80)])]);
}

#[test]
fn a_mount_is_read_only_or_propagated() {
    let mount = |fields: Json| {
        let mut mount = json!({"name": "v", "mountPath": "/v"});
        mount.as_object_mut().unwrap().extend(fields.as_object().unwrap().clone());
        template(&json!({
            "volumes": [{"name": "v", "emptyDir": {}}],
            "containers": [{"name": "c", "image": "c:1", "volumeMounts": [mount]}],
        }))
    };
    comes_from_one(
        "apps/v1",
        "Deployment",
        [
            mount(json!({"readOnly": true})),
            mount(json!({"readOnly": true, "recursiveReadOnly": "Enabled"})),
            mount(json!({})),
        ],
    );
    let container = |privileged: bool, propagation: Option<&str>| {
        let mut mount = json!({"name": "v", "mountPath": "/v"});
        if let Some(propagation) = propagation {
            mount["mountPropagation"] = propagation.into();
        }
        template(&json!({
            "volumes": [{"name": "v", "emptyDir": {}}],
            "containers": [{
                "name": "c", "image": "c:1", "securityContext": {"privileged": privileged}, "volumeMounts": [mount],
            }],
        }))
    };
    comes_from_one(
        "apps/v1",
        "Deployment",
        [container(true, None), container(true, Some("Bidirectional")), container(false, None)],
    );
}

#[test]
fn a_policy_for_failures_goes_without_restarts() {
    let job = |restart: &str, policy: bool| {
        let mut spec = json!({"template": {"spec": {"restartPolicy": restart, "containers": [{"name": "c"}]}}});
        if policy {
            spec["podFailurePolicy"] = json!({"rules": []});
        }
        json!({"jobTemplate": {"spec": spec}})
    };
    comes_from_one("batch/v1", "CronJob", [job("Never", false), job("OnFailure", false), job("Never", true)]);
}

#[test]
fn templates_have_the_labels_that_are_selected() {
    let of = |selector: Json, labels: Json| json!({"selector": selector, "template": {"metadata": {"labels": labels}}});
    comes_from_one(
        "v1",
        "ReplicationController",
        [
            of(json!({"app": "a"}), json!({"app": "a", "v": "1"})),
            of(json!({"app": "a", "v": "1"}), json!({"app": "a", "v": "1"})),
            of(json!({"app": "a"}), json!({"app": "a", "v": "2"})),
        ],
    );
    // Without a base, too: ties of fields are decided one by one.
    let labels = |labels: Json| of(json!({"matchLabels": labels}), Json::Null);
    let with = |selected: Json, of_template: Json| {
        let mut spec = labels(selected);
        spec["template"] = json!({"metadata": {"labels": of_template}});
        object("apps/v1", "Deployment", &spec)
    };
    let one = with(json!({"app": "a"}), json!({"app": "a", "tier": "x"}));
    let other = with(json!({"app": "b", "tier": "w"}), json!({"app": "b", "tier": "w"}));
    let merged = result(&both_ways(Policy::Later, &Json::Null, &one, &other));
    assert!([&one["spec"], &other["spec"]].contains(&&merged["spec"]), "{merged}");
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
fn an_atomic_list_that_one_side_changed_is_no_empty_one() {
    for number in 0..32 {
        let with = |arguments: Json| object("v1", "Pod", &pod(&json!({"args": arguments})));
        let mut removed = with(json!([]));
        removed["spec"]["containers"][0].as_object_mut().unwrap().remove("args");
        let changed = with(json!([format!("a{number}")]));
        let merged = both_ways(Policy::Later, &with(json!(["a"])), &removed, &changed);
        assert_eq!(merged.conflicts.len(), 1, "{:?}", merged.conflicts);
        assert_eq!(result(&merged)["spec"], changed["spec"]);
    }
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
fn a_volume_stays_while_a_container_mounts_it() {
    let volume = |name: &str| json!({"name": name, "emptyDir": {}});
    let container = |name: &str, mounts: &[&str]| {
        let mounts: Json = mounts.iter().map(|name| json!({"name": name, "mountPath": format!("/{name}")})).collect();
        json!({"name": name, "image": "c:1", "volumeMounts": mounts})
    };
    let deployment = |spec: Json| object("apps/v1", "Deployment", &template(&spec));
    let base = deployment(json!({"volumes": [volume("a")], "containers": [container("one", &["a"])]}));
    let removed = deployment(json!({"containers": [container("one", &[])]}));
    let added = deployment(json!({
        "volumes": [volume("a"), volume("b")],
        "containers": [container("one", &["a"]), container("two", &["a", "b"])],
    }));
    let merged = both_ways(Policy::Later, &base, &removed, &added);
    assert_eq!(merged.conflicts.len(), 1, "{:?}", merged.conflicts);
    assert_eq!(merged.conflicts[0].field, "spec.template.spec.volumes[name=a]");
    let spec = &result(&merged)["spec"]["template"]["spec"];
    assert_eq!(spec["volumes"].as_array().unwrap().len(), 2, "{spec}");
    assert_eq!(spec["containers"][1]["volumeMounts"].as_array().unwrap().len(), 2, "{spec}");
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
