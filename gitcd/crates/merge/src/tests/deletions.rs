//! Deletions and changes: the outcome is that of the change and then the deletion, on one kube-apiserver.

use super::*;

const KUBECTL: &str = "kubectl-edit";

/// Adds a write by a manager after the base.
fn written_by(object: &mut Json, manager: &str) {
    object["metadata"]["managedFields"] = json!([{"manager": manager, "operation": "Update", "apiVersion": "v1",
        "time": "2026-01-02T00:00:00Z", "fieldsType": "FieldsV1", "fieldsV1": {"f:metadata": {"f:labels": {"f:x": {}}}}}]);
}

fn labelled(base: &Json, manager: &str) -> Json {
    edited(base, |object| {
        object["metadata"]["labels"]["x"] = "y".into();
        written_by(object, manager);
    })
}

#[test]
fn an_update_does_not_bring_an_object_back() {
    let base = pod();
    let status = edited(&base, |pod| pod["status"]["phase"] = "Running".into());
    let terminating = edited(&base, |pod| pod["metadata"]["deletionTimestamp"] = "2026-01-03T00:00:00Z".into());
    for changed in [&status, &terminating, &labelled(&base, "kube-controller-manager"), &labelled(&base, KUBECTL)] {
        assert_eq!(result(&both_ways(Policy::Later, &base, &Json::Null, changed)), Json::Null, "{changed}");
    }
    let changed = labelled(&base, KUBECTL);
    assert_eq!(result(&both_ways(Policy::Ours, &base, &Json::Null, &changed)), Json::Null);
    assert_eq!(result(&both_ways(Policy::Theirs, &base, &Json::Null, &status)), status, "an explicit policy decides");
}

#[test]
fn a_lost_edit_is_a_conflict_if_a_person_made_it() {
    let base = edited(&pod(), |pod| pod["metadata"]["ownerReferences"] = json!([]));
    let conflicts = |changed: &Json| both_ways(Policy::Later, &base, &Json::Null, changed).conflicts;
    let lost = Conflict { field: String::new(), kept: None, lost: Some("Pod web (u1)".into()) };
    assert_eq!(conflicts(&labelled(&base, KUBECTL)), std::slice::from_ref(&lost));
    // A pushed file has no manager entry.
    assert_eq!(conflicts(&edited(&base, |pod| pod["metadata"]["labels"]["x"] = "y".into())), [lost]);
    for program in ["kube-controller-manager", "kube-scheduler", "kubelet", "shop-operator", "some-controller"] {
        assert_eq!(conflicts(&labelled(&base, program)), [], "{program}");
    }
    assert_eq!(conflicts(&edited(&base, |pod| pod["status"]["phase"] = "Running".into())), []);
    // Its owner decides about it.
    let owned = edited(&labelled(&base, KUBECTL), |pod| {
        pod["metadata"]["ownerReferences"] =
            json!([{"kind": "ReplicaSet", "name": "web", "uid": "r1", "controller": true}]);
    });
    assert_eq!(conflicts(&owned), []);
}

#[test]
fn finalizers_that_the_change_added_hold_the_object() {
    let base = edited(&pod(), |pod| pod["metadata"]["finalizers"] = json!(["was.example.org/there"]));
    let changed = edited(&labelled(&base, KUBECTL), |pod| {
        pod["metadata"]["finalizers"] = json!(["was.example.org/there", "added.example.org/x"]);
        pod["metadata"]["generation"] = 3.into();
    });
    let merged = result(&both_ways(Policy::Later, &base, &Json::Null, &changed));
    let expected = edited(&changed, |pod| {
        pod["metadata"]["finalizers"] = json!(["added.example.org/x"]);
        pod["metadata"]["deletionTimestamp"] = "2026-01-02T00:00:00Z".into();
        pod["metadata"]["deletionGracePeriodSeconds"] = 0.into();
        pod["metadata"]["generation"] = 4.into();
    });
    assert_eq!(merged, expected);
    // Its owner removes the finalizer on one side, and the other side still has it.
    let released = edited(&expected, |pod| {
        pod["metadata"].as_object_mut().unwrap().remove("finalizers");
    });
    assert_eq!(
        clean(&expected, &released, &edited(&expected, |pod| pod["status"]["phase"] = "Failed".into())),
        Json::Null
    );
    // A finalizer for the garbage collector does not keep it.
    let foreground = edited(&base, |pod| {
        pod["metadata"]["finalizers"] = json!(["was.example.org/there", "foregroundDeletion"]);
        pod["metadata"]["deletionTimestamp"] = "2026-01-02T00:00:00Z".into();
    });
    assert_eq!(clean(&base, &Json::Null, &foreground), Json::Null);
}

#[test]
fn a_pod_that_was_bound_meanwhile_ends_with_its_grace_period() {
    let base = edited(&pod(), |pod| {
        pod["metadata"].as_object_mut().unwrap().remove("finalizers");
        pod["spec"]["terminationGracePeriodSeconds"] = 7.into();
    });
    let bound = edited(&base, |pod| {
        pod["spec"]["nodeName"] = "n1".into();
        written_by(pod, "kube-scheduler");
    });
    let expected = edited(&bound, |pod| {
        pod["metadata"]["deletionTimestamp"] = "2026-01-02T00:00:00Z".into();
        pod["metadata"]["deletionGracePeriodSeconds"] = 7.into();
    });
    assert_eq!(clean(&base, &Json::Null, &bound), expected);
    // A pod with finalizers that was deleted while it was unbound still exists there.
    let gone = edited(&base, |pod| pod["metadata"]["deletionTimestamp"] = "2026-01-02T00:00:00Z".into());
    let held = edited(&gone, |pod| {
        pod["metadata"]["finalizers"] = json!(["x"]);
        pod["metadata"]["deletionGracePeriodSeconds"] = 0.into();
    });
    let merged = clean(&base, &held, &bound);
    assert_eq!(merged["metadata"]["deletionGracePeriodSeconds"], 7, "the pod was bound, and then deleted");
    // A pod that was bound before was deleted by its kubelet, or by force; a finished one has no grace period.
    assert_eq!(
        clean(&bound, &Json::Null, &edited(&bound, |pod| pod["status"]["phase"] = "Running".into())),
        Json::Null
    );
    assert_eq!(clean(&base, &Json::Null, &edited(&bound, |pod| pod["status"]["phase"] = "Failed".into())), Json::Null);
    assert_eq!(
        clean(&base, &Json::Null, &edited(&bound, |pod| pod["spec"]["terminationGracePeriodSeconds"] = 0.into())),
        Json::Null
    );
}

#[test]
fn what_was_created_after_the_deletion_stays() {
    let base = pod();
    let again = edited(&labelled(&base, KUBECTL), |pod| {
        pod["metadata"]["uid"] = "u2".into();
        pod["metadata"]["creationTimestamp"] = "2026-01-02T00:00:00Z".into();
    });
    assert_eq!(clean(&base, &Json::Null, &again), again);
    let status = edited(&base, |pod| pod["status"]["phase"] = "Running".into());
    assert_eq!(clean(&base, &status, &again), again);
    assert_eq!(both_ways(Policy::Later, &base, &labelled(&base, "kubectl-patch"), &again).conflicts.len(), 1);
}

#[test]
fn two_objects_that_servers_made_by_themselves_are_no_conflict() {
    let service = |uid: &str| {
        json!({"kind": "APIService", "apiVersion": "apiregistration.k8s.io/v1",
            "metadata": {"name": "v1.apps", "uid": uid, "creationTimestamp": "2026-01-01T00:00:00Z",
                "labels": {"kube-aggregator.kubernetes.io/automanaged": "onstart"}},
            "spec": {"group": "apps", "version": "v1"}})
    };
    assert_eq!(both_ways(Policy::Later, &Json::Null, &service("u1"), &service("u2")).conflicts, []);
    let address = |uid: &str, parent: &str| {
        json!({"kind": "IPAddress", "apiVersion": "networking.k8s.io/v1",
            "metadata": {"name": "10.0.0.7", "uid": uid, "creationTimestamp": "2026-01-01T00:00:00Z",
                "labels": {"ipaddress.kubernetes.io/managed-by": "ipallocator.k8s.io"}},
            "spec": {"parentRef": {"resource": "services", "namespace": "n", "name": parent}}})
    };
    assert_eq!(both_ways(Policy::Later, &Json::Null, &address("u1", "a"), &address("u2", "b")).conflicts, []);
}

#[test]
fn nothing_is_decided_that_matters_about_an_object_that_ends() {
    let base = edited(&pod(), |pod| pod["metadata"]["finalizers"] = json!(["x"]));
    let image = |image: &str| edited(&base, |pod| pod["spec"]["containers"][0]["image"] = image.into());
    let one = edited(&image("a"), |pod| pod["metadata"]["deletionTimestamp"] = "2026-01-02T00:00:00Z".into());
    assert_eq!(both_ways(Policy::Later, &base, &one, &image("b")).conflicts, []);
}

/// What the API treats as a missing field is one.
#[test]
fn null_and_empty_metadata_are_absent() {
    let base = edited(&pod(), |pod| pod["metadata"]["finalizers"] = json!([]));
    let pushed = edited(&base, |pod| {
        pod["metadata"]["deletionTimestamp"] = Json::Null;
        pod["metadata"]["deletionGracePeriodSeconds"] = Json::Null;
        pod["metadata"]["finalizers"] = Json::Null;
        pod["metadata"]["ownerReferences"] = Json::Null;
        pod["metadata"]["uid"] = "".into();
        pod["metadata"]["creationTimestamp"] = Json::Null;
        pod["metadata"]["labels"]["pushed"] = "yes".into();
    });
    let changed = edited(&base, |pod| {
        pod["spec"]["nodeName"] = "n1".into();
        pod["metadata"]["finalizers"] = json!(["added"]);
    });
    let merged = clean(&base, &pushed, &changed);
    assert_eq!(merged["metadata"]["labels"]["pushed"], "yes");
    assert_eq!(merged["metadata"]["finalizers"], json!(["added"]));
    assert_eq!(merged["metadata"].get("deletionTimestamp"), None);
    assert_eq!(merged["spec"]["nodeName"], "n1");
    for empty in [Json::Null, "".into()] {
        let pushed = edited(&base, |pod| pod["metadata"]["deletionTimestamp"] = empty);
        let grown = edited(&base, |pod| pod["spec"]["nodeName"] = "n1".into());
        assert_ne!(result(&both_ways(Policy::Later, &base, &pushed, &grown)), Json::Null);
    }
}

/// A put creates a value that is not a Kubernetes object anew.
#[test]
fn a_put_of_a_value_that_is_no_object_stays() {
    let (base, changed) = (json!({"a": 1}), json!({"a": 2}));
    assert_eq!(result(&both_ways(Policy::Later, &base, &Json::Null, &changed)), changed);
}

/// The namespace controller deletes the content, and then the finalizer in the spec.
#[test]
fn a_terminating_namespace_stays_until_its_content_is_deleted() {
    let base = json!({"kind": "Namespace", "apiVersion": "v1", "metadata": {"name": "n", "uid": "u"},
        "spec": {"finalizers": ["kubernetes"]}, "status": {"phase": "Active"}});
    let terminating = edited(&base, |namespace| {
        namespace["metadata"]["deletionTimestamp"] = "2026-01-02T00:00:00Z".into();
        namespace["status"]["phase"] = "Terminating".into();
    });
    let labelled = edited(&base, |namespace| namespace["metadata"]["labels"] = json!({"x": "y"}));
    let merged = clean(&base, &terminating, &labelled);
    assert_eq!(merged["metadata"]["deletionTimestamp"], "2026-01-02T00:00:00Z");
    assert_eq!(merged["spec"]["finalizers"], json!(["kubernetes"]));
    let finalized = edited(&terminating, |namespace| namespace["spec"] = json!({}));
    assert_eq!(
        clean(&terminating, &finalized, &edited(&terminating, |n| n["metadata"]["labels"] = json!({"x": "y"}))),
        Json::Null
    );
}

/// Together, they would orphan the dependents and wait for their deletion.
#[test]
fn of_two_propagation_policies_one_is_kept() {
    let base = edited(&pod(), |pod| pod["metadata"]["finalizers"] = json!(["held"]));
    let deleted = |policy: &str| {
        edited(&base, |pod| {
            pod["metadata"]["finalizers"].as_array_mut().unwrap().push(policy.into());
            pod["metadata"]["deletionTimestamp"] = "2026-01-02T00:00:00Z".into();
        })
    };
    let merged = clean(&base, &deleted("orphan"), &deleted("foregroundDeletion"));
    assert_eq!(merged["metadata"]["finalizers"], json!(["held", "orphan"]));
}

#[test]
fn a_new_template_of_a_daemon_set_is_counted() {
    const COUNTER: &str = "deprecated.daemonset.template.generation";
    let base = json!({"kind": "DaemonSet", "apiVersion": "apps/v1",
        "metadata": {"name": "d", "uid": "u", "generation": 3, "annotations": {COUNTER: "3"}},
        "spec": {"minReadySeconds": 0, "template": {"spec": {"hostname": "a", "subdomain": "a"}}}});
    let with = |field: &str| {
        edited(&base, |set| {
            set["spec"]["template"]["spec"][field] = "b".into();
            set["metadata"]["annotations"][COUNTER] = "4".into();
            set["metadata"]["generation"] = 4.into();
        })
    };
    let other = edited(&base, |set| set["metadata"]["annotations"]["note"] = "x".into());
    assert_eq!(clean(&base, &with("hostname"), &other)["metadata"]["annotations"][COUNTER], "4");
    let merged = clean(&base, &with("hostname"), &with("subdomain"));
    assert_eq!(
        (&merged["metadata"]["annotations"][COUNTER], &merged["metadata"]["generation"]),
        (&json!("5"), &json!(5))
    );
}

#[test]
fn null_and_empty_fields_of_built_in_kinds_are_absent() {
    let base = json!({"kind": "Deployment", "apiVersion": "apps/v1", "metadata": {"name": "d", "namespace": "n", "uid": "u"},
        "spec": {"replicas": 1, "template": {"metadata": {"labels": {"disk": "ssd"}}, "spec": {
            "containers": [{"name": "c", "image": "c:1", "env": [{"name": "A", "value": "1"}]}]}}}});
    let emptied = edited(&base, |object| {
        object["spec"]["paused"] = Json::Null;
        object["spec"]["template"]["spec"]["volumes"] = Json::Null;
        object["spec"]["template"]["metadata"]["labels"] = Json::Null;
        object["spec"]["template"]["spec"]["containers"][0]["env"] = Json::Null;
        object["spec"]["template"]["spec"]["containers"][0]["image"] = "c:2".into();
    });
    let added = edited(&base, |object| {
        object["spec"]["paused"] = true.into();
        object["spec"]["template"]["spec"]["volumes"] = json!([{"name": "v", "emptyDir": {}}]);
        object["spec"]["template"]["metadata"]["labels"]["zone"] = "a".into();
        object["spec"]["template"]["spec"]["containers"][0]["env"].as_array_mut().unwrap().push(json!({"name": "B"}));
    });
    let merged = clean(&base, &emptied, &added);
    let expected = edited(&added, |object| {
        object["spec"]["template"]["metadata"]["labels"] = json!({"zone": "a"});
        object["spec"]["template"]["spec"]["containers"][0]["env"] = json!([{"name": "B"}]);
        object["spec"]["template"]["spec"]["containers"][0]["image"] = "c:2".into();
    });
    assert_eq!(merged, expected);
    let data = |data: Json| json!({"kind": "ConfigMap", "apiVersion": "v1", "metadata": {"name": "c", "uid": "u"}, "data": data});
    let merged = clean(&data(json!({"a": "1"})), &data(Json::Null), &data(json!({"a": "1", "b": "2"})));
    assert_eq!(merged["data"], json!({"b": "2"}));
}
