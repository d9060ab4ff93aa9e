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
