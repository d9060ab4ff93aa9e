//! One step for each object.

use serde_json::{Value, json};
use trishanku_undo::owners::OwnerId;
use trishanku_undo::{Action, Change, Live, Mode, Plan, Subject, Unreadable};

use crate::{edited, map, object, plan, plan_with, undo};

#[test]
fn the_undo_of_a_deletion_creates_the_object_without_what_kube_apiserver_sets() {
    let step = undo("configmaps/shop/prices", [Some(map("1", "4")), None, None]);
    let Action::Create { object } = &step.action else { panic!("{step:?}") };
    assert_eq!(object["metadata"], json!({"name": "prices", "namespace": "shop"}));
    assert_eq!(object["data"], json!({"tea": "4"}));
    assert_eq!(step.old_uid().as_deref(), Some("1"));
}

#[test]
fn what_was_created_again_after_a_deletion_stays() {
    let step = undo("configmaps/shop/prices", [Some(map("1", "4")), None, Some(map("2", "9"))]);
    assert_eq!(step.action, Action::Nothing("it was created again since, and stays".to_owned()));
}

#[test]
fn the_undo_of_a_creation_deletes_only_the_same_object_without_edits_of_people() {
    let (created, time) = (edited(map("1", "4"), "kubectl", "2026-01-01T00:00:00Z"), "2026-01-02T00:00:00Z");
    let step = |current: Value| undo("configmaps/shop/prices", [None, Some(created.clone()), Some(current)]);
    assert!(matches!(step(created.clone()).action, Action::Delete { .. }));
    let by_controller = step(edited(map("1", "5"), "some-controller", time));
    assert!(matches!(by_controller.action, Action::Delete { .. }), "{by_controller:?}");
    let by_person = step(edited(map("1", "5"), "kubectl-edit", time));
    assert!(matches!(&by_person.action, Action::Blocked(reason) if reason.contains("edited since")), "{by_person:?}");
    let another = step(map("2", "4"));
    assert!(matches!(&another.action, Action::Nothing(reason) if reason.contains("created again")), "{another:?}");
}

#[test]
fn fields_that_were_edited_later_are_listed() {
    let values = [map("1", "4"), map("1", "5"), map("1", "6")].map(Some);
    let step = undo("configmaps/shop/prices", values);
    assert!(matches!(step.action, Action::Nothing(_)), "{step:?}");
    assert_eq!(step.stays, ["data.tea kept \"6\", lost \"4\""]);
}

#[test]
fn values_of_secrets_are_in_no_field_and_no_conflict() {
    let secret =
        |text: &str| Some(object("v1", "Secret", "s", "1", &json!({"data": {"password": text}, "type": "Opaque"})));
    let step = undo("secrets/shop/s", [secret("b2xk"), secret("bmV3"), secret("bmV3")]);
    assert!(matches!(step.action, Action::Update { .. }));
    let shown = format!("{:?} {:?} {:?}", step.fields, step.stays, step.notes);
    assert!(shown.contains("data.password") && !shown.contains("b2xk") && !shown.contains("bmV3"), "{shown}");
    let step = undo("secrets/shop/s", [secret("b2xk"), secret("bmV3"), secret("b3RoZXI=")]);
    let shown = format!("{:?} {:?} {:?}", step.fields, step.stays, step.notes);
    assert!(shown.contains("data.password") && !shown.contains("b2xk") && !shown.contains("b3RoZXI="), "{shown}");
    assert!(!format!("{:?}", undo("secrets/shop/s", [secret("b2xk"), None, None]).fields).contains("b2xk"));
}

#[test]
fn an_object_that_is_terminating_is_blocked_with_its_finalizers() {
    let gone = json!({"metadata": {"deletionTimestamp": "2026-01-02T00:00:00Z", "finalizers": ["a.org/clean"]}});
    let terminating = object("v1", "ConfigMap", "prices", "1", &gone);
    let held = object("v1", "ConfigMap", "prices", "1", &json!({"metadata": {"finalizers": ["a.org/clean"]}}));
    let values = [Some(held.clone()), Some(terminating.clone()), Some(terminating.clone())];
    let step = undo("configmaps/shop/prices", values);
    assert!(matches!(&step.action, Action::Blocked(reason) if reason.contains("a.org/clean")), "{step:?}");
    // Once it is gone, it comes back with its finalizer.
    let step = undo("configmaps/shop/prices", [Some(held), Some(terminating), None]);
    let Action::Create { object } = &step.action else { panic!("{step:?}") };
    assert_eq!(object["metadata"]["finalizers"], json!(["a.org/clean"]));
}

#[test]
fn objects_of_controllers_are_left_to_them() {
    let owned = json!({"metadata": {"ownerReferences": [
        {"apiVersion": "apps/v1", "kind": "ReplicaSet", "name": "web", "uid": "9", "controller": true},
    ]}});
    let token = json!({"type": "kubernetes.io/service-account-token"});
    let slice = json!({"metadata": {"labels": {"endpointslice.kubernetes.io/managed-by": "endpointslice-controller"}}});
    let finished = json!({"status": {"conditions": [{"type": "Complete", "status": "True"}]}});
    for (key, api_version, kind, more) in [
        ("pods/shop/web", "v1", "Pod", &owned),
        ("replicasets/shop/web", "apps/v1", "ReplicaSet", &owned),
        ("secrets/shop/web", "v1", "Secret", &token),
        ("endpointslices/shop/web", "discovery.k8s.io/v1", "EndpointSlice", &slice),
        ("leases/shop/web", "coordination.k8s.io/v1", "Lease", &json!({})),
        ("masterleases/10.0.0.1", "v1", "Endpoints", &json!({})),
        ("jobs/shop/web", "batch/v1", "Job", &finished),
    ] {
        let step = undo(key, [Some(object(api_version, kind, "web", "1", more)), None, None]);
        assert!(matches!(step.action, Action::Left(_)), "{key}: {step:?}");
    }
    let step = undo("configmaps/shop/web", [Some(object("v1", "ConfigMap", "web", "1", &owned)), None, None]);
    assert!(matches!(step.action, Action::Create { .. }), "the owner may be any controller: {step:?}");
}

#[test]
fn references_to_owners_follow_them_or_are_dropped() {
    let dependent = |name: &str, uid: &str| {
        let owner = json!({"apiVersion": "apps/v1", "kind": "Deployment", "name": name, "uid": uid});
        let map = object("v1", "ConfigMap", name, "5", &json!({"metadata": {"ownerReferences": [owner]}}));
        Subject::new(&format!("configmaps/shop/{name}"), None, vec![Change { before: Some(map), after: None }])
    };
    let owner = object("apps/v1", "Deployment", "back", "1", &json!({"spec": {}}));
    let owner = Subject::new("deployments/shop/back", None, vec![Change { before: Some(owner), after: None }]);
    let id = |name: &str| OwnerId {
        api_version: "apps/v1".into(),
        kind: "Deployment".into(),
        namespace: "shop".into(),
        name: name.into(),
    };
    let owners = [(id("there"), "2".to_owned()), (id("anew"), "33".to_owned())];
    let live = Live { owners: owners.into(), ..Live::default() };
    let subjects =
        vec![dependent("back", "1"), dependent("there", "2"), dependent("anew", "3"), dependent("gone", "4"), owner];
    let plan = plan_with(&live, subjects, Mode::Undo);
    let uids: Vec<(&str, Option<&str>)> = plan
        .steps
        .iter()
        .map(|step| {
            let reference = step.target().and_then(|object| object.pointer("/metadata/ownerReferences/0/uid"));
            (&*step.object.name, reference.and_then(Value::as_str))
        })
        .collect();
    // The owner that the plan creates comes before what it owns.
    let expected = [("anew", Some("33")), ("gone", None), ("there", Some("2")), ("back", None), ("back", Some("1"))];
    assert_eq!(uids, expected);
    assert_eq!(plan.steps[3].object.kind, "Deployment");
}

#[test]
fn steps_are_ordered_by_what_others_need_and_deletions_in_reverse() {
    let kinds = [
        ("deployments/shop/a", "apps/v1", "Deployment"),
        ("validatingwebhookconfigurations/a", "admissionregistration.k8s.io/v1", "ValidatingWebhookConfiguration"),
        ("rain.org/gauges/shop/a", "rain.org/v1", "Gauge"),
        ("secrets/shop/a", "v1", "Secret"),
        ("rolebindings/shop/a", "rbac.authorization.k8s.io/v1", "RoleBinding"),
        ("serviceaccounts/shop/a", "v1", "ServiceAccount"),
        ("namespaces/a", "v1", "Namespace"),
        ("apiextensions.k8s.io/customresourcedefinitions/a", "apiextensions.k8s.io/v1", "CustomResourceDefinition"),
        ("resourcequotas/shop/a", "v1", "ResourceQuota"),
    ];
    let subjects = |is_creation: bool| {
        let subject = |(key, api_version, kind): &(&str, &str, &str)| {
            let value = object(api_version, kind, "a", "", &json!({}));
            let change = if is_creation {
                Change { before: Some(value.clone()), after: None }
            } else {
                Change { before: None, after: Some(value.clone()) }
            };
            Subject::new(key, (!is_creation).then_some(value), vec![change])
        };
        kinds.iter().map(subject).collect::<Vec<_>>()
    };
    let order = |plan: &Plan| plan.steps.iter().map(|step| step.object.kind.clone()).collect::<Vec<_>>();
    let created = [
        "CustomResourceDefinition",
        "Namespace",
        "ServiceAccount",
        "RoleBinding",
        "Secret",
        "Gauge",
        "Deployment",
        "ResourceQuota",
        "ValidatingWebhookConfiguration",
    ];
    assert_eq!(order(&plan(subjects(true), Mode::Undo)), created);
    let deleted = [
        // They could reject the other steps.
        "ResourceQuota",
        "ValidatingWebhookConfiguration",
        "Deployment",
        "Gauge",
        "Secret",
        "RoleBinding",
        "ServiceAccount",
        "Namespace",
        "CustomResourceDefinition",
    ];
    assert_eq!(order(&plan(subjects(false), Mode::Undo)), deleted);
}

#[test]
fn a_namespace_is_not_deleted_with_objects_that_are_not_in_the_plan() {
    let namespace = json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "shop", "uid": "1"}});
    let created = Change { before: None, after: Some(namespace.clone()) };
    let subject = |contents: &[&str]| Subject {
        contents: contents.iter().map(ToString::to_string).collect(),
        ..Subject::new("namespaces/shop", Some(namespace.clone()), vec![created.clone()])
    };
    let map = map("2", "4");
    let content =
        Subject::new("configmaps/shop/prices", Some(map.clone()), vec![Change { before: None, after: Some(map) }]);
    let step = |plan: &Plan| plan.steps.iter().find(|step| step.object.kind == "Namespace").cloned().expect("a step");
    let alone = step(&plan(vec![subject(&["configmaps/shop/prices", "secrets/shop/s"])], Mode::Undo));
    assert!(matches!(&alone.action, Action::Blocked(reason) if reason.contains("configmaps/shop/prices and 1 more")));
    let whole = step(&plan(vec![subject(&["configmaps/shop/prices"]), content], Mode::Undo));
    assert!(matches!(whole.action, Action::Delete { .. }), "{whole:?}");
}

#[test]
fn a_restore_keeps_what_was_created_since_unless_it_prunes() {
    let created = Change { before: None, after: Some(map("1", "4")) };
    let subject = || Subject::new("configmaps/shop/prices", Some(map("1", "4")), vec![created.clone()]);
    let kept = plan(vec![subject()], Mode::Restore { prune: false });
    assert!(matches!(&kept.steps[0].action, Action::Nothing(reason) if reason.contains("--prune")), "{kept:?}");
    let pruned = plan(vec![subject()], Mode::Restore { prune: true });
    assert!(matches!(pruned.steps[0].action, Action::Delete { .. }));
}

#[test]
fn an_update_keeps_what_the_server_and_controllers_assigned() {
    let service = |ip: &str, port: u16| {
        let spec = json!({"clusterIP": ip, "clusterIPs": [ip], "ports": [{"port": port}]});
        object("v1", "Service", "web", "1", &json!({"spec": spec, "status": {"loadBalancer": {}}}))
    };
    let change = Change { before: Some(service("10.0.0.1", 80)), after: Some(service("10.0.0.1", 81)) };
    let subject = Subject::new("services/specs/shop/web", Some(service("10.0.0.9", 81)), vec![change]);
    let restored = plan(vec![subject], Mode::Restore { prune: false });
    let Action::Update { object, .. } = &restored.steps[0].action else { panic!("{restored:?}") };
    let spec = json!({"clusterIP": "10.0.0.9", "clusterIPs": ["10.0.0.9"], "ports": [{"port": 80}]});
    assert_eq!((&object["spec"], &object["status"]), (&spec, &json!({"loadBalancer": {}})));
}

#[test]
fn a_claim_is_bound_to_its_volume_only_if_that_still_exists() {
    let claim = object(
        "v1",
        "PersistentVolumeClaim",
        "data",
        "1",
        &json!({
            "metadata": {"annotations": {"pv.kubernetes.io/bind-completed": "yes"}}, "spec": {"volumeName": "pv-1"},
        }),
    );
    let subject = || {
        Subject::new(
            "persistentvolumeclaims/shop/data",
            None,
            vec![Change { before: Some(claim.clone()), after: None }],
        )
    };
    let lost = plan(vec![subject()], Mode::Undo).steps.remove(0);
    assert!(lost.target().expect("a creation").pointer("/spec/volumeName").is_none());
    assert!(lost.target().expect("a creation").pointer("/metadata/annotations").is_none());
    assert_eq!(lost.notes, ["the data of its volume pv-1 is lost"]);
    let live = Live { volumes: ["pv-1".to_owned()].into(), ..Live::default() };
    let there = plan_with(&live, vec![subject()], Mode::Undo).steps.remove(0);
    assert_eq!(there.target().expect("a creation")["spec"]["volumeName"], "pv-1");
    assert!(there.notes[0].contains("kubectl patch pv pv-1"), "{:?}", there.notes);
}

#[test]
fn a_job_gets_labels_and_a_selector_of_its_new_uid() {
    let labels = json!({"controller-uid": "1", "batch.kubernetes.io/controller-uid": "1", "app": "a"});
    let job = object(
        "batch/v1",
        "Job",
        "a",
        "1",
        &json!({
            "metadata": {"labels": labels},
            "spec": {"selector": {"matchLabels": {"controller-uid": "1"}}, "template": {"metadata": {"labels": labels}}},
        }),
    );
    let step = undo("jobs/shop/a", [Some(job), None, None]);
    let Action::Create { object } = &step.action else { panic!("{step:?}") };
    assert_eq!(object["spec"], json!({"template": {"metadata": {"labels": {"app": "a"}}}}));
    assert_eq!(object["metadata"]["labels"], json!({"app": "a"}));
}

#[test]
fn values_that_are_no_objects_are_refused_with_the_reason() {
    assert_eq!(Change::read(Some(b"k8s\0\x0a"), None), Err(Unreadable::Protobuf));
    assert_eq!(Change::read(None, Some(b"k8s:enc:aescbc:")), Err(Unreadable::Encrypted));
    assert_eq!(Change::read(Some(b"[1]"), None), Err(Unreadable::NoObject));
    assert_eq!(Change::read(Some(b"{\"kind\":\"ConfigMap\"}"), None), Err(Unreadable::NoObject));
    assert!(Change::read(Some(b"kind: ConfigMap\nmetadata:\n  name: a\n"), None).is_ok());
}
