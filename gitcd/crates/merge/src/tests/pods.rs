//! Pods and their templates: fields that Kubernetes validates together.

use serde_json::{Value as Json, json};

use super::super::Policy;
use super::related::{comes_from_one, object};
use super::{both_ways, clean, result};

/// Returns the spec of a pod with a container that has these fields.
pub(super) fn pod(container: &Json) -> Json {
    let mut spec = json!({"containers": [{"name": "c", "image": "c:1"}]});
    let fields = container.as_object().unwrap().clone();
    spec["containers"][0].as_object_mut().unwrap().extend(fields);
    spec
}

/// Returns the spec of a Deployment with this pod spec in its template.
pub(super) fn template(spec: &Json) -> Json {
    json!({"template": {"spec": spec}})
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
    // Also without a base, where ties are decided field by field.
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
